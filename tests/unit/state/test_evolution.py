"""Tests restores of state whose declared type has changed, in every backend: the values survive as the rules say, the
first checkpoint after it stores the state whole, and what does not survive is refused by name.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from penstock.common.program.failures import OperatorFailure
from penstock.common.row_types.row import Row
from penstock.common.types import Types
from penstock.datastream.functions import AggregateFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.protocol.values.metadata import StateSchema
from penstock.protocol.values.reasons import SubtaskFailureReason
from penstock.runtime.process.reason_of import reason_of
from penstock.state.backend import StateSchemaError
from penstock.state.row_backend import RowStateBackend
from tests.unit.state.backends import KEY_GROUPS, Backends, encoded
from tests.unit.state.stored_checkpoints import BACKENDS, Checkpoint, Store, new_backend
from tests.unit.state.test_snapshots import KEY_GROUPS as OF_STREAMS

LONG, INT, STRING, DOUBLE = Types.LONG(), Types.INT(), Types.STRING(), Types.DOUBLE()


class Total(AggregateFunction):
    def create_accumulator(self) -> Any:
        return (0,)

    def add(self, value: Any, accumulator: Any) -> Any:
        return (accumulator[0] + value, *accumulator[1:])

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        raise NotImplementedError


def named(*fields: Any) -> Any:
    return Types.ROW_NAMED(list(fields[::2]), list(fields[1::2]))


CHANGES: list[tuple[StateDescriptor, StateDescriptor, Any, Any]] = [
    (
        ValueStateDescriptor("s", named("amount", INT, "user", STRING, "old", LONG)),
        ValueStateDescriptor("s", named("user", STRING, "amount", LONG, "added", DOUBLE)),
        Row(amount=7, user="u", old=1),
        Row(user="u", amount=7, added=None),
    ),
    (ValueStateDescriptor("s", INT), ValueStateDescriptor("s", LONG), 7, 7),
    (
        ListStateDescriptor("s", Types.TUPLE([INT, STRING])),
        ListStateDescriptor("s", Types.TUPLE([LONG])),
        [(1, "a"), (2, "b")],
        [(1,), (2,)],
    ),
    (
        MapStateDescriptor("s", INT, named("a", INT)),
        MapStateDescriptor("s", LONG, named("b", STRING, "a", LONG)),
        {1: Row(a=1), 2: Row(a=2)},
        {1: Row(b=None, a=1), 2: Row(b=None, a=2)},
    ),
    (ReducingStateDescriptor("s", max, INT), ReducingStateDescriptor("s", max, DOUBLE), 7, 7.0),
    (
        AggregatingStateDescriptor("s", Total(), Types.TUPLE([INT])),
        AggregatingStateDescriptor("s", Total(), Types.TUPLE([LONG, STRING])),
        7,
        (7, None),
    ),
]
KEYS = [f"k{i}" for i in range(20)]


def put(handle: Any, value: Any) -> None:
    match value:
        case list():
            handle.update(value)
        case dict():
            handle.put_all(value)
        case _ if hasattr(handle, "update"):
            handle.update(value)
        case _:
            handle.add(value)


def content(backend: RowStateBackend[Any], name: str = "s") -> dict[Any, Any]:
    return {key: value for key, _, value in backend.entries("op", name)}


def called(descriptor: StateDescriptor, place: int) -> StateDescriptor:
    made = copy.copy(descriptor)
    made.name = f"s{place}"
    return made


@pytest.mark.parametrize("into", ["hashmap", "rocksdb-incremental"])
def test_values_survive_in_every_backend(backends: Backends, into: str) -> None:
    """Restores from each backend into others, at another parallelism, and through a checkpoint of the new type back."""
    backend = backends.new()
    for place, (old, _, value, _) in enumerate(CHANGES):
        handle = backend.state("op", called(old, place))
        for i, key in enumerate(KEYS):
            backend.set_current_key(key, i % KEY_GROUPS)
            put(handle, value)
    others = Backends(into, backends.directory)
    restored = others.restored(encoded(backend), range(4))
    declared = [called(new, place) for place, (_, new, _, _) in enumerate(CHANGES)]
    for new, (_, _, _, expected) in zip(declared, CHANGES):
        restored.state("op", new)
        assert_same(content(restored, new.name), dict.fromkeys(KEYS[:4] + KEYS[8:12] + KEYS[16:], expected))
    schemas = [StateSchema("op", new.name, new.kind, _stored_type(new).text) for new in declared]
    assert restored.snapshot().schemas == schemas
    last = backends.restored(encoded(restored))
    for new in declared:
        last.state("op", new)
        assert_same(content(last, new.name), content(restored, new.name))
    others.close()


def assert_same(found: dict[Any, Any], expected: dict[Any, Any]) -> None:
    """Compare the types of numbers, too."""
    assert sorted(map(repr, found.items())) == sorted(map(repr, expected.items()))


def _stored_type(descriptor: Any) -> Any:
    if descriptor.kind == "list":
        return Types.LIST(descriptor.type_info)
    if descriptor.kind == "map":
        return Types.MAP(descriptor.key_type_info, descriptor.type_info)
    return descriptor.type_info


OLD = ValueStateDescriptor("count", named("user", STRING, "amount", LONG))


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (
            ValueStateDescriptor("count", named("user", STRING, "amount", INT)),
            "is declared as value state of ROW(user STRING, amount INT), but in the checkpoint that is being restored "
            "it is value state of ROW(user STRING, amount LONG): field 'amount' was LONG, which cannot become INT; "
            "fields may be added and removed",
        ),
        (ValueStateDescriptor("count", named("who", STRING)), "and ROW(who STRING) has none of its fields"),
        (ValueStateDescriptor("count"), "which cannot become PICKLED_BYTE_ARRAY"),
        (ListStateDescriptor("count", LONG), "declare it as before, or give the new state another name"),
    ],
)
@pytest.mark.parametrize("schema_alone", [False, True])
def test_what_does_not_survive_is_refused_by_name(
    backends: Backends, new: StateDescriptor, told: str, schema_alone: bool
) -> None:
    """Refuses a state without entries, too; and what was refused is still there."""
    backend = backends.filled(OLD, {"a": Row(user="u", amount=1)})
    again = backends.new() if schema_alone else backends.restored(encoded(backend))
    again.restore_schema(backend.snapshot().schemas[0], "totals")
    with pytest.raises(StateSchemaError) as raised:
        again.state("op", new)
    assert str(raised.value).startswith("state 'count' of operator 'Counter' (uid 'totals') is declared as ")
    assert told in str(raised.value)
    again.state("op", OLD)
    assert len(content(again, "count")) == (0 if schema_alone else 1)


def test_no_restart_mends_a_type() -> None:
    assert reason_of(OperatorFailure("op", StateSchemaError("another type"))) is SubtaskFailureReason.PERMANENT


def test_two_types_in_one_program_are_refused_however_alike(backends: Backends) -> None:
    backend = backends.new()
    backend.state("op", ValueStateDescriptor("s", INT))
    with pytest.raises(StateSchemaError, match="in the same program it is value state of INT: declare both alike"):
        backend.state("op", ValueStateDescriptor("s", LONG))


def test_runs_of_two_types_become_one(backends: Backends) -> None:
    """Merges the runs of two subtasks: one has asked for the state before the checkpoint, and the other has not."""
    old, new = ValueStateDescriptor("s", INT), ValueStateDescriptor("s", LONG)
    states = encoded(backends.filled(old, {"a": 1})) + encoded(backends.filled(new, {"b": 2**40}))
    for runs in (states, states[::-1]):
        backend = backends.restored(runs)
        backend.state("op", new)
        assert content(backend) == {"a": 1, "b": 2**40}
        with pytest.raises(StateSchemaError, match="the values were LONG, which cannot become INT"):
            backends.restored(runs).state("op", old)


# ---- incremental checkpoints ------------------------------------------------------------------------------------


class Chain:
    """Takes checkpoints of one state, each with the one before as its predecessor."""

    def __init__(self, backend: RowStateBackend[Any], newest: Checkpoint | None = None) -> None:
        self.backend = backend
        self.newest = newest

    def set(self, descriptor: StateDescriptor, values: dict[int, Any]) -> None:
        handle = self.backend.state("op", descriptor)
        for key, value in values.items():
            self.backend.set_current_key(key, key % OF_STREAMS)
            handle.update(value)

    def take(self) -> Checkpoint:
        number = 1 if self.newest is None else self.newest.number + 1
        predecessor = None if self.newest is None else self.newest.number
        return Checkpoint(number, self.backend.snapshot(number, predecessor), {}, self.newest)

    def store(self, taken: Checkpoint, store: Store) -> list[int]:
        """Return how many entries the runs have."""
        store.write(taken)
        taken.snapshot.on_stored(taken.ranges)
        self.newest = taken
        return [run.entries for run in taken.ranges]


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("into", BACKENDS)
@pytest.mark.parametrize("asked", ["at once", "after a checkpoint", "while a checkpoint is written"])
def test_the_first_checkpoint_of_a_changed_type_is_whole(kind: str, into: str, asked: str, tmp_path: Path) -> None:
    old, new = ValueStateDescriptor("s", INT), ValueStateDescriptor("s", LONG)
    store = Store()
    chain = Chain(new_backend(kind, tmp_path))
    chain.set(old, dict.fromkeys(range(100), 1))
    assert chain.store(chain.take(), store) == [100]
    chain.set(old, {0: None, 1: 2})
    assert chain.store(chain.take(), store) == [100, 1, 1]
    chain.backend.revoke()

    assert chain.newest is not None
    backend = new_backend(into, tmp_path)
    backend.on_restored(chain.newest.number, chain.newest.ranges)
    store.restore(chain.newest, backend)
    chain = Chain(backend, chain.newest)
    if asked != "at once":
        untouched = chain.take()
        if asked == "while a checkpoint is written":
            chain.set(new, {2: 2**40})
        assert chain.store(untouched, store) == [100, 1, 1], "nobody has asked for it"
    chain.set(new, {2: 2**40})
    assert chain.store(chain.take(), store) == [99]
    chain.set(new, {3: -(2**40), 4: None})
    assert chain.store(chain.take(), store) == [99, 1, 1]

    assert chain.newest is not None
    again = new_backend(kind, tmp_path)
    store.restore(chain.newest, again)
    again.state("op", new)
    expected = {key: 1 for key in range(100) if key not in (0, 4)} | {1: 2, 2: 2**40, 3: -(2**40)}
    assert content(again) == expected
    again.revoke()
    backend.revoke()
