"""Tests what all backends of row functions do, whatever they keep state in: handles, what a checkpoint holds, that
backends restore each other's checkpoints, and what is refused by name.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from penstock.common.row_types.row import Row
from penstock.common.types import Types
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import StateError, StateRevoked, StateSchemaError
from tests.unit.state.backends import KEY_GROUPS, Backends, between_rows, encoded

LONG = ValueStateDescriptor("count", Types.LONG())


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
def test_values_of_every_type_come_back(backends: Backends, type_info: Any, value: Any) -> None:
    descriptor = ValueStateDescriptor("v", type_info)
    backend = backends.restored(encoded(backends.filled(descriptor, {"k": value})))
    handle = backend.state("op", descriptor)
    backend.set_current_key("k", 0)
    assert handle.value() == value


def test_an_entry_belongs_to_its_key_alone_and_can_be_cleared(backends: Backends) -> None:
    backend = backends.filled(LONG, {"a": 1, "b": 2})
    handle = backend.state("op", LONG)
    backend.set_current_key("c", 0)
    assert handle.value() is None
    handle.clear()
    backend.set_current_key("b", 1)
    assert (handle.value(), backend.current_key()) == (2, "b")
    handle.update(None)
    assert handle.value() is None
    assert sum(state.entries for state in encoded(backend)) == 1


def test_empty_lists_and_maps_are_no_entries(backends: Backends) -> None:
    backend = backends.new()
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


def test_none_cannot_be_an_element(backends: Backends) -> None:
    backend = backends.new()
    items = backend.state("op", ListStateDescriptor("l", Types.LONG()))
    backend.set_current_key("a", 0)
    calls: list[tuple[Callable[[Any], None], Any]] = [
        (items.add, None), (items.add_all, [1, None]), (items.update, [None])
    ]  # fmt: skip
    for call, argument in calls:
        with pytest.raises(StateError, match="None"):
            call(argument)
    assert items.get() == []


def test_the_same_handle_each_time(backends: Backends) -> None:
    backend = backends.new()
    assert backend.state("op", LONG) is backend.state("op", ValueStateDescriptor("count", Types.LONG()))
    assert backend.state("op", LONG) is not backend.state("other", LONG)


def test_state_without_a_current_key_says_where_it_can_be_used(backends: Backends) -> None:
    backend = backends.new()
    value = backend.state("op", LONG)
    items = backend.state("op", ListStateDescriptor("l"))
    for call in (value.value, lambda: value.update(1), value.clear, items.get, lambda: items.add(1)):
        with pytest.raises(StateError, match=r"no current key.*process_element"):
            call()


def test_handles_of_an_ended_generation_refuse(backends: Backends) -> None:
    backend = backends.filled(LONG, {"a": 1})
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
    backends: Backends, old: StateDescriptor, new: StateDescriptor, message: str, schema_alone: bool
) -> None:
    backend = backends.filled(old, {"a": 1})
    with pytest.raises(StateSchemaError, match=f"'count' of operator 'Counter' .*{message}"):
        backend.state("op", new)
    if schema_alone:
        again = backends.new()
        again.restore_schema(backend.snapshot().schemas[0])
    else:
        again = backends.restored(encoded(backend))
    with pytest.raises(StateSchemaError, match=f"'count' of operator 'Counter' .*{message}"):
        again.state("op", new)
    again.state("op", old)


def test_schemas_say_how_states_were_declared(backends: Backends) -> None:
    backend = backends.new()
    backend.state("op", LONG)
    backend.state("op", MapStateDescriptor("m", Types.STRING(), None))
    assert backend.snapshot().schemas == [
        StateSchema("op", "count", "value", "LONG"),
        StateSchema("op", "m", "map", "MAP(STRING, PICKLED_BYTE_ARRAY)"),
    ]


def test_a_restore_takes_only_its_key_groups(backends: Backends) -> None:
    values = {f"k{i}": i for i in range(100)}
    states = encoded(backends.filled(LONG, values))
    found: dict[str, int] = {}
    for key_groups in (range(3), range(3, 4), range(4, 8)):
        backend = backends.restored(states, key_groups)
        handle = backend.state("op", LONG)
        for index, key in enumerate(values):
            backend.set_current_key(key, index % KEY_GROUPS)
            if index % KEY_GROUPS in key_groups:
                found[key] = handle.value()
            else:
                assert handle.value() is None
    assert found == values


def test_state_that_nobody_asks_for_any_more_is_kept(backends: Backends) -> None:
    """A state that is declared late, or by a row that has not come yet, must not be lost by the next checkpoint."""
    first = encoded(backends.filled(LONG, {f"k{i}": i for i in range(20)}))
    untouched = backends.restored(first, range(4))
    assert untouched.snapshot().schemas == [StateSchema("op", "count", "value", "LONG")]
    second = encoded(untouched)
    assert sum(state.entries for state in second) == 12
    backend = backends.restored(encoded(backends.restored(second)))
    handle = backend.state("op", LONG)
    backend.set_current_key("k3", 3)
    assert handle.value() == 3
    assert encoded(backend)[0].entries == 12


def test_restoring_after_the_state_was_asked_for_is_refused(backends: Backends) -> None:
    states = encoded(backends.filled(LONG, {"a": 1}))
    backend = backends.filled(LONG, {"b": 1})
    with pytest.raises(StateError, match="'count' of operator 'Counter' is restored after"):
        backend.restore("op", "count", b"".join(states[0].parts), range(KEY_GROUPS))


def test_a_value_that_does_not_fit_is_named_with_its_state_and_key(backends: Backends) -> None:
    backend = backends.filled(LONG, {"a": 1, "b": "two"})
    with pytest.raises(StateError, match=r"state 'count' of operator 'Counter': an entry of key 'b' .*LONG.*'two'"):
        encoded(backend)


def test_keys_and_entries_are_those_that_have_a_value(backends: Backends) -> None:
    backend = backends.filled(LONG, {f"k{i}": i for i in range(20)})
    backend.set_current_key("k3", 3)
    backend.state("op", LONG).clear()
    expected = {(f"k{i}", i % KEY_GROUPS, i) for i in range(20) if i != 3}
    assert set(backend.entries("op", "count")) == expected
    assert set(backend.keys_of("op", "count")) == {(key, group) for key, group, _ in expected}


def test_a_window_has_state_of_its_own(backends: Backends) -> None:
    backend = backends.new()
    backend.set_current_key("a", 1)
    for start in (0, 10):
        backend.state_of_window("op", LONG, start).update(start + 1)
    between_rows(backend)
    again = backends.restored(encoded(backend))
    again.set_current_key("a", 1)
    assert [again.state_of_window("op", LONG, start).value() for start in (0, 10, 20)] == [1, 11, None]


def test_what_was_restored_and_changed_is_written_as_it_is_now(backends: Backends) -> None:
    first = encoded(backends.filled(LONG, {f"k{i}": i for i in range(20)}))
    backend = backends.restored(first)
    handle = backend.state("op", LONG)
    for i in (3, 4):
        backend.set_current_key(f"k{i}", i)
        handle.update(100 * i) if i == 3 else handle.clear()
        between_rows(backend)
    last = backends.restored(encoded(backend))
    last.state("op", LONG)
    found = {key: value for key, _, value in last.entries("op", "count")}
    assert found == {f"k{i}": i for i in range(20) if i != 4} | {"k3": 300}
