"""The hash-map backend: what handles do, what a checkpoint's ranges hold, and what is refused by name."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.row import Row
from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN
from penstock.common.types import Types
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.protocol.values.key_encoding import encode
from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import EncodedState, StateError, StateRevoked, StateSchemaError
from penstock.state.codecs import encode_keys
from penstock.state.heap import hash_map
from penstock.state.heap.hash_map import HashMapStateBackend

KEY_GROUPS = 8
LONG = ValueStateDescriptor("count", Types.LONG())


def filled(descriptor: StateDescriptor, values: dict[Any, Any]) -> HashMapStateBackend:
    """A backend with a value per key; key i is in key group i % KEY_GROUPS."""
    backend = HashMapStateBackend(KEY_GROUPS, {"op": "Counter"})
    handle = backend.state("op", descriptor)
    for index, (key, value) in enumerate(values.items()):
        backend.set_current_key(key, index % KEY_GROUPS)
        handle.update(value)
    return backend


def encoded(backend: HashMapStateBackend) -> list[EncodedState]:
    return list(backend.snapshot().encode())


def restored(states: list[EncodedState], key_groups: range = range(KEY_GROUPS)) -> HashMapStateBackend:
    backend = HashMapStateBackend(KEY_GROUPS, {"op": "Counter"})
    for state in states:
        backend.restore(state.operator, state.name, b"".join(state.parts), key_groups)
    return backend


@pytest.mark.parametrize(
    ("type_info", "value"),
    [
        (Types.LONG(), 2**40),
        (Types.STRING(), "ü"),
        (Types.BOOLEAN(), False),
        (Types.DOUBLE(), 0.5),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x00"),
        (Types.BIG_DEC(), Decimal("1.50")),
        (Types.SQL_DATE(), datetime.date(2013, 1, 1)),
        (Types.TUPLE([Types.STRING(), Types.LONG()]), ("a", 1)),
        (Types.ROW([Types.STRING(), Types.LIST(Types.LONG())]), Row("a", [1, 2])),
        (Types.LIST(Types.LONG()), [1, 2]),
        (Types.MAP(Types.STRING(), Types.LONG()), {"a": 1}),
        (None, {"any": {"thing"}}),
    ],
)
def test_values_of_every_type_come_back(type_info: Any, value: Any) -> None:
    descriptor = ValueStateDescriptor("v", type_info)
    backend = restored(encoded(filled(descriptor, {"k": value})))
    handle = backend.state("op", descriptor)
    backend.set_current_key("k", 0)
    assert handle.value() == value


def test_an_entry_belongs_to_its_key_alone_and_can_be_cleared() -> None:
    backend = filled(LONG, {"a": 1, "b": 2})
    handle = backend.state("op", LONG)
    backend.set_current_key("c", 0)
    assert handle.value() is None
    handle.clear()
    backend.set_current_key("b", 1)
    assert (handle.value(), backend.current_key()) == (2, "b")
    handle.update(None)
    assert handle.value() is None
    assert sum(state.entries for state in encoded(backend)) == 1


def test_empty_lists_and_maps_are_no_entries() -> None:
    backend = HashMapStateBackend(KEY_GROUPS)
    items = backend.state("op", ListStateDescriptor("l", Types.LONG()))
    fields = backend.state("op", MapStateDescriptor("m", Types.STRING(), Types.LONG()))
    backend.set_current_key("a", 0)
    items.add_all([])
    items.add(1)
    items.update([])
    fields["x"] = 1
    assert "x" in fields and list(fields) == ["x"] and not fields.is_empty()
    del fields["x"]
    del fields["never there"]
    assert fields.is_empty() and fields.get("x") is None and list(items) == []
    fields.put_all({})
    assert encoded(backend) == []


def test_none_cannot_be_an_element() -> None:
    backend = HashMapStateBackend(KEY_GROUPS)
    items = backend.state("op", ListStateDescriptor("l", Types.LONG()))
    backend.set_current_key("a", 0)
    calls: list[tuple[Callable[[Any], None], Any]] = [
        (items.add, None), (items.add_all, [1, None]), (items.update, [None])
    ]  # fmt: skip
    for call, argument in calls:
        with pytest.raises(StateError, match="None"):
            call(argument)
    assert items.get() == []


def test_the_same_handle_each_time() -> None:
    backend = HashMapStateBackend(KEY_GROUPS)
    assert backend.state("op", LONG) is backend.state("op", ValueStateDescriptor("count", Types.LONG()))
    assert backend.state("op", LONG) is not backend.state("other", LONG)


def test_state_without_a_current_key_says_where_it_can_be_used() -> None:
    backend = HashMapStateBackend(KEY_GROUPS)
    value = backend.state("op", LONG)
    items = backend.state("op", ListStateDescriptor("l"))
    for call in (value.value, lambda: value.update(1), value.clear, items.get, lambda: items.add(1)):
        with pytest.raises(StateError, match=r"no current key.*process_element"):
            call()


def test_handles_of_an_ended_generation_refuse() -> None:
    backend = filled(LONG, {"a": 1})
    value = backend.state("op", LONG)
    backend.revoke()
    for call in (value.value, lambda: value.update(1), value.clear):
        with pytest.raises(StateRevoked, match="new handles"):
            call()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (LONG, ValueStateDescriptor("count", Types.STRING()), "value state of STRING, but in .* value state of LONG"),
        (LONG, ListStateDescriptor("count", Types.LONG()), r"list state of LIST\(LONG\), but .* value state of LONG"),
        (LONG, ReducingStateDescriptor("count", max, Types.LONG()), "reducing state of LONG"),
        (LONG, ValueStateDescriptor("count"), "value state of PICKLED_BYTE_ARRAY"),
    ],
)
@pytest.mark.parametrize("schema_alone", [False, True])
def test_a_state_that_was_declared_otherwise_is_refused_by_name(
    old: StateDescriptor, new: StateDescriptor, message: str, schema_alone: bool
) -> None:
    backend = filled(old, {"a": 1})
    with pytest.raises(StateSchemaError, match=f"'count' of operator 'Counter' .*{message}"):
        backend.state("op", new)
    if schema_alone:
        again = HashMapStateBackend(KEY_GROUPS, {"op": "Counter"})
        again.restore_schema(backend.snapshot().schemas[0])
    else:
        again = restored(encoded(backend))
    with pytest.raises(StateSchemaError, match=f"'count' of operator 'Counter' .*{message}"):
        again.state("op", new)
    again.state("op", old)


def test_schemas_say_how_states_were_declared() -> None:
    backend = HashMapStateBackend(KEY_GROUPS)
    backend.state("op", LONG)
    backend.state("op", MapStateDescriptor("m", Types.STRING(), None))
    assert backend.snapshot().schemas == [
        StateSchema("op", "count", "value", "LONG"),
        StateSchema("op", "m", "map", "MAP(STRING, PICKLED_BYTE_ARRAY)"),
    ]


def test_a_restore_takes_only_its_key_groups() -> None:
    values = {f"k{i}": i for i in range(100)}
    states = encoded(filled(LONG, values))
    found: dict[str, int] = {}
    for key_groups in (range(3), range(3, 4), range(4, 8)):
        backend = restored(states, key_groups)
        handle = backend.state("op", LONG)
        for index, key in enumerate(values):
            backend.set_current_key(key, index % KEY_GROUPS)
            if index % KEY_GROUPS in key_groups:
                found[key] = handle.value()
            else:
                assert handle.value() is None
    assert found == values


def test_state_that_nobody_asks_for_any_more_is_kept() -> None:
    """A state that is declared late, or by a row that has not come yet, must not be lost by the next checkpoint."""
    first = encoded(filled(LONG, {f"k{i}": i for i in range(20)}))
    untouched = restored(first, range(4))
    assert untouched.snapshot().schemas == [StateSchema("op", "count", "value", "LONG")]
    second = encoded(untouched)
    assert sum(state.entries for state in second) == 12
    backend = restored(encoded(restored(second)))
    handle = backend.state("op", LONG)
    backend.set_current_key("k3", 3)
    assert handle.value() == 3
    assert encoded(backend)[0].entries == 12


def test_restoring_after_the_state_was_asked_for_is_refused() -> None:
    states = encoded(filled(LONG, {"a": 1}))
    backend = filled(LONG, {"b": 1})
    with pytest.raises(StateError, match="'count' of operator 'Counter' is restored after"):
        backend.restore("op", "count", b"".join(states[0].parts), range(KEY_GROUPS))


def test_many_entries_are_few_ranges_of_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_map, "ENTRIES_PER_BATCH", 64)
    backend = filled(LONG, {i: i for i in range(1000)})
    (state,) = encoded(backend)
    assert state.entries == 1000
    with pa.ipc.open_stream(b"".join(state.parts)) as reader:
        assert reader.schema.names == ["value", KEY_COLUMN, KEY_GROUP_COLUMN]
        assert [batch.num_rows for batch in reader] == [64] * 15 + [40]
    monkeypatch.setattr(hash_map, "BYTES_PER_RANGE", 5000)
    states = encoded(backend)
    assert len(states) > 3 and sum(state.entries for state in states) == 1000
    assert encoded(restored(states))[0].entries > 0


def test_a_value_that_does_not_fit_is_named_with_its_state_and_key() -> None:
    backend = filled(LONG, {"a": 1, "b": "two"})
    with pytest.raises(StateError, match=r"state 'count' of operator 'Counter': an entry of key 'b' .*LONG.*'two'"):
        encoded(backend)


def test_a_value_that_cannot_be_pickled_is_named_with_its_state() -> None:
    backend = filled(ValueStateDescriptor("gen"), {"a": (x for x in range(0))})
    with pytest.raises(StateError, match=r"state 'gen' of operator 'Counter': an entry of key 'a' .*generator"):
        encoded(backend)
    backend.snapshot()
    backend.set_current_key("a", 0)
    with pytest.raises(StateError, match="'gen' of operator 'Counter': the value of key 'a' can be neither pickled"):
        backend.state("op", ValueStateDescriptor("gen")).value()


def test_a_snapshot_that_failed_costs_the_stream_nothing_more() -> None:
    backend = filled(LONG, {"a": 1, "b": "two"})
    snapshot = backend.snapshot()
    with pytest.raises(StateError):
        list(snapshot.encode())
    table = backend._tables["op", "count"]
    before = table.buckets[0]
    backend.set_current_key("a", 0)
    backend.state("op", LONG).update(2)
    assert table.buckets[0] is before and not table.shared.get(0, False)


@pytest.mark.parametrize("end", ["encode", "discard"])
def test_buckets_are_copied_only_while_a_snapshot_holds_them(end: str) -> None:
    backend = filled(LONG, {"a": 1})
    table = backend._tables["op", "count"]
    snapshot = backend.snapshot()
    backend.set_current_key("a", 0)
    handle = backend.state("op", LONG)
    if end == "encode":
        list(snapshot.encode())
    else:
        snapshot.discard()
    before = table.buckets[0]
    handle.update(2)
    assert table.buckets[0] is before
    snapshot = backend.snapshot()
    handle.update(3)
    after = table.buckets[0]
    assert after is not before
    handle.update(4)
    assert table.buckets[0] is after


@given(
    st.one_of(
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
        st.lists(st.integers(), min_size=1),
        st.lists(st.text(), min_size=1),
        st.lists(st.integers() | st.text() | st.binary() | st.tuples(st.text(), st.integers()), min_size=1),
    )
)
def test_key_columns_hold_the_canonical_encoding(keys: list[Any]) -> None:
    assert encode_keys(keys).to_pylist() == [encode(key) for key in keys]
    encode_keys(keys).validate(full=True)
