"""Tests for how long the stream keeps the entries that a snapshot of changes needs."""

from __future__ import annotations

from typing import Any

from penstock.common.types import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.state.row_backend import RowStateBackend
from tests.unit.state.stored_checkpoints import Checkpoint, Store
from tests.unit.state.test_snapshots import KEY_GROUPS

NUMBER = ValueStateDescriptor("number", Types.LONG())
OBJECTS = {name: ValueStateDescriptor(name) for name in ("first", "second")}


def put(backend: RowStateBackend[Any], name: str, keys: range, value: Any) -> None:
    for key in keys:
        backend.set_current_key(key, key % KEY_GROUPS)
        backend.state("op", OBJECTS[name]).update(None if value is None else [value, key])


def with_a_checkpoint(store: Store) -> tuple[HashMapStateBackend, Checkpoint]:
    backend = HashMapStateBackend(KEY_GROUPS, incremental=True)
    for name in OBJECTS:
        put(backend, name, range(100), 1)
    checkpoint = Checkpoint(1, backend.snapshot(1, None), {}, None)
    store.write(checkpoint)
    checkpoint.snapshot.on_stored(checkpoint.ranges)
    return backend, checkpoint


def test_entries_are_kept_only_until_their_state_is_written() -> None:
    """Without this: the stream copies what it touches of one state while a large one behind it is written, and what it
    has kept stays until the next checkpoint."""
    store = Store()
    backend, before = with_a_checkpoint(store)
    for name in OBJECTS:
        put(backend, name, range(10), 2)
    second = Checkpoint(2, backend.snapshot(2, 1), {}, before)
    put(backend, "first", range(3), 3)
    table = backend._tables["op", "first"]
    (kept,) = table._changes
    assert set(kept.kept) == {0, 1, 2}
    while not any(run.name == "second" for run in second.ranges):
        store.write(second, 1)
    assert not kept.kept
    put(backend, "first", range(3, 6), 3)
    assert not kept.kept and not table._changes


def test_changes_that_were_given_up_yield_nothing() -> None:
    store = Store()
    backend, before = with_a_checkpoint(store)
    put(backend, "first", range(10), None)
    second = Checkpoint(2, backend.snapshot(2, 1), {}, before)
    second.snapshot.discard()
    put(backend, "first", range(100), None)
    store.write(second)
    assert not second.added


def test_entries_that_were_released_stay_no_longer_than_until_the_next_snapshot() -> None:
    """Without this: a state that nobody touches any more holds the keys that had changed last."""
    store, backend = Store(), HashMapStateBackend(KEY_GROUPS, incremental=True)
    state = backend.state("op", NUMBER)
    before: Checkpoint | None = None
    for number in range(1, 6):
        for key in range({1: 100, 2: 10, 3: 10}.get(number, 0)):
            backend.set_current_key(key, key % KEY_GROUPS)
            state.update(number)
        taken = Checkpoint(number, backend.snapshot(number, None if before is None else before.number), {}, before)
        store.write(taken)
        if number != 2:  # so that the third one stores what has changed since the first
            taken.snapshot.on_stored(taken.ranges)
            before = taken
        kept = backend._tables["op", "number"]._changes
        assert len(kept) == (number == 3)
