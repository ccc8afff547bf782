"""Tests state with a time to live on all backends of row functions: what may be read when, what a read prolongs, and
what checkpoints keep of it.
"""

from __future__ import annotations

import random
from typing import Any, Callable

import pyarrow as pa
import pytest

from penstock.common.time import Time
from penstock.common.types import Types
from penstock.datastream.functions import AggregateFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import StateSchemaError
from penstock.state.codecs import read_stream
from penstock.state.row_backend import RowStateBackend
from tests.unit.state.backends import KEY_GROUPS, Backends, between_rows, encoded

TTL_MS = 100
Change = Callable[[StateTtlConfig.Builder], StateTtlConfig.Builder]


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], a[1] + b[1]


def expiring(descriptor: StateDescriptor, *changes: Change) -> Any:
    builder = StateTtlConfig.new_builder(Time.milliseconds(TTL_MS)).disable_cleanup_in_background()
    for change in changes:
        builder = change(builder)
    descriptor.enable_time_to_live(builder.build())
    return descriptor


def value(*changes: Change) -> Any:
    return expiring(ValueStateDescriptor("v", Types.LONG()), *changes)


def numbers(*changes: Change) -> Any:
    return expiring(ListStateDescriptor("l", Types.LONG()), *changes)


def fields(*changes: Change) -> Any:
    return expiring(MapStateDescriptor("m", Types.STRING(), Types.LONG()), *changes)


def total(*changes: Change) -> Any:
    return expiring(ReducingStateDescriptor("r", lambda a, b: a + b, Types.LONG()), *changes)


def mean(*changes: Change) -> Any:
    return expiring(AggregatingStateDescriptor("a", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()])), *changes)


def on_read(builder: StateTtlConfig.Builder) -> StateTtlConfig.Builder:
    return builder.update_ttl_on_read_and_write()


def visible(builder: StateTtlConfig.Builder) -> StateTtlConfig.Builder:
    return builder.return_expired_if_not_cleaned_up()


def at_key(backend: RowStateBackend[Any], descriptor: StateDescriptor, key: Any = "k", group: int = 3) -> Any:
    handle = backend.state("op", descriptor)
    backend.set_current_key(key, group)
    return handle


def stored(backend: RowStateBackend[Any]) -> list[dict[str, Any]]:
    """Return the rows of a full snapshot without key groups."""
    rows: list[dict[str, Any]] = []
    for state in encoded(backend):
        run = read_stream(b"".join(state.parts), range(KEY_GROUPS))
        rows += pa.Table.from_batches(run.batches, run.schema).drop_columns(["__key__", "__key_group__"]).to_pylist()
    return rows


def test_a_value_lives_until_its_time_is_over_and_a_write_prolongs_it(backends: Backends) -> None:
    handle = at_key(backends.new(), value())
    handle.update(1)
    backends.now_ms += TTL_MS - 1
    assert handle.value() == 1
    handle.update(2)
    backends.now_ms += TTL_MS - 1
    assert handle.value() == 2
    backends.now_ms += 1
    assert handle.value() is None


def test_a_read_prolongs_a_life_only_if_it_is_to(backends: Backends) -> None:
    for change, expected in ((on_read, 1), (lambda builder: builder.update_ttl_on_create_and_write(), None)):
        handle = at_key(backends.new(), value(change))
        handle.update(1)
        backends.now_ms += TTL_MS - 1
        assert handle.value() == 1
        backends.now_ms += TTL_MS - 1
        assert handle.value() == expected


def test_an_expired_value_that_is_still_there_can_be_read_once(backends: Backends) -> None:
    handle = at_key(backends.new(), value(visible))
    handle.update(1)
    backends.now_ms += 10 * TTL_MS
    assert handle.value() == 1
    assert handle.value() is None


def test_elements_of_a_list_expire_each_on_its_own(backends: Backends) -> None:
    backend = backends.new()
    handle = at_key(backend, numbers())
    handle.add(1)
    backends.now_ms += 60
    handle.add_all([2, 3])
    backends.now_ms += 60
    assert handle.get() == [2, 3]
    handle.add(4)
    backends.now_ms += 60
    assert list(handle) == [4]
    backends.now_ms += 60
    assert handle.get() == []
    assert encoded(backend) == []
    handle.update([7])
    assert handle.get() == [7]


def test_a_list_returns_what_has_expired_if_it_may_and_a_read_prolongs_the_others(backends: Backends) -> None:
    handle = at_key(backends.new(), numbers(visible, on_read))
    handle.add(1)
    backends.now_ms += 60
    handle.add(2)
    backends.now_ms += 60
    assert handle.get() == [1, 2]
    assert handle.get() == [2]
    backends.now_ms += 99
    assert handle.get() == [2]


def test_entries_of_a_map_expire_each_on_its_own(backends: Backends) -> None:
    backend = backends.new()
    handle = at_key(backend, fields())
    handle.put("a", 1)
    backends.now_ms += 60
    handle.put_all({"b": 2, "c": 3})
    assert sorted(handle.items()) == [("a", 1), ("b", 2), ("c", 3)]
    backends.now_ms += 60
    assert handle.get("a") is None and "a" not in handle and handle["b"] == 2
    assert sorted(handle.keys()) == ["b", "c"] and sorted(handle.values()) == [2, 3]
    del handle["b"]
    assert not handle.is_empty()
    backends.now_ms += 60
    assert handle.is_empty()
    assert handle.items() == []
    assert encoded(backend) == []


def test_a_map_returns_what_has_expired_if_it_may_and_a_read_prolongs_what_it_reads(backends: Backends) -> None:
    handle = at_key(backends.new(), fields(visible, on_read))
    handle.put_all({"a": 1, "b": 2, "c": 3})
    backends.now_ms += 60
    assert handle.get("a") == 1 and handle.contains("b")
    backends.now_ms += 60
    assert sorted(handle.items()) == [("a", 1), ("b", 2), ("c", 3)]
    assert sorted(handle.items()) == [("a", 1), ("b", 2)]
    backends.now_ms += 101
    assert handle.get("a") == 1 and handle.get("a") is None and handle.contains("b") and not handle.contains("b")


def test_sums_begin_again_where_they_have_expired_unless_that_is_to_be_seen(backends: Backends) -> None:
    for change, expected in ((on_read, 5), (visible, 6)):
        handle = at_key(backends.new(), total(change))
        handle.add(1)
        backends.now_ms += TTL_MS
        handle.add(5)
        assert handle.get() == expected
        backends.now_ms += TTL_MS
        assert handle.get() == (expected if change is visible else None)
        assert handle.get() is None


def test_aggregates_begin_again_where_they_have_expired(backends: Backends) -> None:
    backend = backends.new()
    handle = at_key(backend, mean())
    handle.add(1)
    handle.add(3)
    assert handle.get() == 2.0
    backends.now_ms += TTL_MS
    handle.add(7)
    assert handle.get() == 7.0
    backends.now_ms += TTL_MS
    assert handle.get() is None
    assert encoded(backend) == []


def test_values_that_a_user_changes_in_place_expire_like_others(backends: Backends) -> None:
    descriptor = expiring(ValueStateDescriptor("v"))
    backend = backends.new()
    at_key(backend, descriptor).update([1])
    between_rows(backend)
    backends.now_ms += 50
    at_key(backend, descriptor).value().append(2)
    between_rows(backend)
    again = backends.restored(encoded(backend))
    assert at_key(again, descriptor).value() == [1, 2]
    backends.now_ms += 50
    assert at_key(again, descriptor).value() is None


ALL = {"v": value, "l": numbers, "m": fields, "r": total, "a": mean}


def fill(handle: Any, number: int) -> None:
    if hasattr(handle, "put"):
        handle.put(f"entry {number}", number)
    else:
        (handle.add if hasattr(handle, "add") else handle.update)(number)


def shown(handle: Any) -> Any:
    if hasattr(handle, "items"):
        return sorted(handle.items())
    return (handle.get if hasattr(handle, "get") else handle.value)()


@pytest.mark.parametrize("kind", ALL)
def test_a_restore_keeps_the_times(backends: Backends, kind: str) -> None:
    first = backends.new()
    handle = at_key(first, ALL[kind]())
    fill(handle, 1)
    backends.now_ms += 60
    if kind in "lm":
        fill(handle, 2)
    states = encoded(first)
    assert first.snapshot().schemas[0].expires
    backends.now_ms += 39
    assert shown(at_key(backends.restored(states), ALL[kind]())) not in (None, [])
    backends.now_ms += 1
    left = shown(at_key(backends.restored(states), ALL[kind]()))
    assert left == {"l": [2], "m": [("entry 2", 2)]}.get(kind)
    backends.now_ms += 60
    assert shown(at_key(backends.restored(states), ALL[kind]())) in (None, [])


@pytest.mark.parametrize("kind", ALL)
def test_state_gets_and_loses_its_time_to_live_at_a_restore(backends: Backends, kind: str) -> None:
    with_ttl, without = ALL[kind](), ALL[kind]()
    without.ttl_config = None
    first = backends.new()
    for group, key in enumerate(("x", "y", "z")):
        handle = at_key(first, without, key, group)
        for number in range(group + 1):
            fill(handle, number)
    expected = {key: shown(at_key(first, without, key, group)) for group, key in enumerate(("x", "y", "z"))}
    second = backends.restored(encoded(first))
    at_key(second, with_ttl)
    backends.now_ms += TTL_MS - 1
    third = backends.restored(encoded(second))
    for group, key in enumerate(("x", "y", "z")):
        assert shown(at_key(third, with_ttl, key, group)) == expected[key]
    backends.now_ms += 1
    fourth = backends.restored(encoded(second))
    fifth = backends.restored(encoded(second))
    for group, key in enumerate(("x", "y", "z")):
        assert shown(at_key(fourth, with_ttl, key, group)) in (None, [])
        assert shown(at_key(fifth, without, key, group)) == expected[key]
    assert not fifth.snapshot().schemas[0].expires


def test_a_checkpoint_has_the_times_in_a_column_of_their_own(backends: Backends) -> None:
    now_ms = backends.now_ms
    backend = backends.new()
    at_key(backend, value()).update(1)
    assert stored(backend) == [{"value": 1, "__last_access_ms__": now_ms}]
    assert backend.snapshot().schemas == [StateSchema("op", "v", "value", "LONG", True)]


def test_a_state_is_declared_with_one_time_to_live_in_a_program(backends: Backends) -> None:
    backend = backends.new()
    assert backend.state("op", value()) is backend.state("op", value())
    with pytest.raises(StateSchemaError, match=r"'v' of operator 'Counter' is declared twice .* no time to live"):
        backend.state("op", ValueStateDescriptor("v", Types.LONG()))
    with pytest.raises(StateSchemaError, match=r"'v' of operator 'Counter' is declared twice"):
        backend.state("op", value(visible))


def test_a_disabled_time_to_live_is_none(backends: Backends) -> None:
    backend = backends.new()
    at_key(backend, value(lambda b: b.set_update_type(StateTtlConfig.UpdateType.Disabled))).update(1)
    backends.now_ms += 10 * TTL_MS
    assert stored(backend) == [{"value": 1}]


# ---- against a model ------------------------------------------------------------------------------------------------


class Model:
    """Holds what Flink's TTL states would: (time, number) of each entry, by kind of state, key and entry."""

    def __init__(self, updates_on_read: bool, returns_expired: bool) -> None:
        self.updates_on_read = updates_on_read
        self.returns_expired = returns_expired
        self.kept: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        """(entry, time, number)"""

    def write(self, kind: str, key: int, entry: int, now_ms: int, number: int) -> None:
        before = self.kept.setdefault((kind, key), [])
        if kind == "m":
            before[:] = [kept for kept in before if kept[0] != entry]
        elif kind == "r":
            number += sum(n for _, t, n in before if self.returns_expired or t + TTL_MS > now_ms)
            before.clear()
        elif kind == "v":
            before.clear()
        before.append((entry if kind == "m" else 0, now_ms, number))

    def read(self, kind: str, key: int, now_ms: int) -> list[int]:
        kept = self.kept.pop((kind, key), [])
        alive = [(e, t, n) for e, t, n in kept if t + TTL_MS > now_ms]
        shown = kept if self.returns_expired else alive
        left = kept if kind == "l" and alive and not self.updates_on_read else alive
        if self.updates_on_read:
            left = [(e, now_ms, n) for e, _, n in left]
        if left:
            self.kept[kind, key] = left
        return [number for _, _, number in shown]


@pytest.mark.parametrize("changes", [(), (on_read,), (visible,), (on_read, visible)])
def test_states_are_those_of_a_model_over_restores(backends: Backends, changes: tuple[Change, ...]) -> None:
    chance = random.Random(str(changes))
    kinds = ("v", "l", "m", "r")
    model = Model(on_read in changes, visible in changes)
    backend = backends.new()
    for _ in range(1500):
        kind, key, entry, number = chance.choice(kinds), chance.randrange(6), chance.randrange(4), chance.randrange(99)
        backends.now_ms += chance.choice((0, 0, 1, 5, 30))
        handle = at_key(backend, ALL[kind](*changes), key, key)
        if chance.random() < 0.5:
            model.write(kind, key, entry, backends.now_ms, number)
            handle.put(str(entry), number) if kind == "m" else (handle.update if kind == "v" else handle.add)(number)
        else:
            found = shown(handle)
            numbers_found = [n for _, n in found] if kind == "m" else found if kind == "l" else [found]
            expected = model.read(kind, key, backends.now_ms)
            assert sorted(n for n in numbers_found if n is not None) == sorted(expected)
        if chance.random() < 0.3:
            between_rows(backend)
        if chance.random() < 0.01:
            backend = backends.restored(encoded(backend))
