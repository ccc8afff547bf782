"""Tests the hash-map backend: what handles do, what a checkpoint's ranges hold, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN
from penstock.common.types import Types
from penstock.datastream.state import (
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.protocol.values.key_encoding import encode
from penstock.state import state_sizes
from penstock.state.backend import EncodedState, StateError
from penstock.state.codecs import encode_keys
from penstock.state.heap.hash_map import HashMapStateBackend
from tests.unit.state.backends import lasting

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
    return list(lasting(backend.snapshot().encode()))


def restored(states: list[EncodedState], key_groups: range = range(KEY_GROUPS)) -> HashMapStateBackend:
    backend = HashMapStateBackend(KEY_GROUPS, {"op": "Counter"})
    for state in states:
        backend.restore(state.operator, state.name, b"".join(state.parts), key_groups)
    return backend


def test_many_entries_are_few_ranges_of_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_sizes, "ENTRIES_PER_BATCH", 64)
    backend = filled(LONG, {i: i for i in range(1000)})
    (state,) = encoded(backend)
    assert state.entries == 1000
    with pa.ipc.open_stream(b"".join(state.parts)) as reader:
        assert reader.schema.names == ["value", KEY_COLUMN, KEY_GROUP_COLUMN]
        assert [batch.num_rows for batch in reader] == [64] * 15 + [40]
    monkeypatch.setattr(state_sizes, "BYTES_PER_RANGE", 5000)
    states = encoded(backend)
    assert len(states) > 3 and sum(state.entries for state in states) == 1000
    assert encoded(restored(states))[0].entries > 0


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
