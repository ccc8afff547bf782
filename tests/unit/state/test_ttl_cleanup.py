"""Tests how expired entries that nobody reads are removed: between slices, and from snapshots; in both backends."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any, Callable

import pyarrow as pa
import pytest

from penstock.common.time import Time
from penstock.common.types import Types
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from penstock.protocol.values.metadata import Segment
from penstock.state.backend import EncodedState, StoredState
from penstock.state.codecs import read_stream
from penstock.state.row_backend import RowStateBackend
from tests.unit.state.backends import KEY_GROUPS, Backends, between_rows, encoded, lasting

TTL_MS = 1000
Change = Callable[[StateTtlConfig.Builder], StateTtlConfig.Builder]


def descriptor(kind: str = "value", *changes: Change, type: Any = Types.LONG) -> Any:
    builder = StateTtlConfig.new_builder(Time.milliseconds(TTL_MS))
    for change in changes:
        builder = change(builder)
    value_type = None if type is None else type()
    made: Any
    if kind == "list":
        made = ListStateDescriptor("s", value_type)
    elif kind == "map":
        made = MapStateDescriptor("s", Types.STRING(), value_type)
    else:
        made = ValueStateDescriptor("s", value_type)
    made.enable_time_to_live(builder.build())
    return made


def by_itself(builder: StateTtlConfig.Builder) -> StateTtlConfig.Builder:
    return builder.disable_cleanup_in_background()


def put(backend: RowStateBackend[Any], state: Any, key: int, number: int) -> None:
    handle = backend.state("op", state)
    backend.set_current_key(key, key % KEY_GROUPS)
    if state.kind == "map":
        handle.put(str(number), number)
    elif state.kind == "list":
        handle.add(number)
    else:
        handle.update(number)
    between_rows(backend)


def keys_in(backend: RowStateBackend[Any]) -> set[int]:
    return {key for key, _ in backend.keys_of("op", "s")}


def rows_of(states: list[EncodedState]) -> list[Any]:
    rows: list[Any] = []
    for state in states:
        run = read_stream(b"".join(state.parts), range(KEY_GROUPS))
        rows += pa.Table.from_batches(run.batches, run.schema).to_pylist()
    return rows


def work(backends: Backends, backend: RowStateBackend[Any], state: Any, slices: int, key: int = 10_000) -> None:
    """Process so many slices of a row that uses another key than those that are looked for."""
    for number in range(slices):
        backend.slices.prepare([key], [key % KEY_GROUPS], 0, 1)
        put(backend, state, key, number)
        backends.now_ms += 1


def test_expired_entries_that_nobody_reads_are_removed(backends: Backends) -> None:
    state = descriptor()
    backend = backends.new()
    for key in range(100):
        put(backend, state, key, key)
    backends.now_ms += TTL_MS // 2
    for key in range(50):
        put(backend, state, key, key)
    backends.now_ms += TTL_MS // 2
    work(backends, backend, state, 200)
    assert keys_in(backend) == {*range(50), 10_000}
    backends.now_ms += TTL_MS
    work(backends, backend, state, 200)
    assert keys_in(backend) == {10_000}
    assert len(rows_of(encoded(backend))) == 1


def test_state_that_gets_a_new_key_with_each_row_has_twice_what_lives_at_most(backends: Backends) -> None:
    state = descriptor()
    backend = backends.new()
    most = 0
    for key in range(4 * TTL_MS):
        put(backend, state, key, key)
        backends.now_ms += 1
        if key > 2 * TTL_MS and not key % 250:
            most = max(most, len(keys_in(backend)))
    assert TTL_MS <= most <= 2 * TTL_MS


def test_without_cleanup_in_the_background_expired_entries_stay_until_they_are_read(backends: Backends) -> None:
    state = descriptor("value", by_itself)
    backend = backends.new()
    for key in range(20):
        put(backend, state, key, key)
    backends.now_ms += TTL_MS
    work(backends, backend, state, 300)
    assert len(keys_in(backend)) == 21
    handle = backend.state("op", state)
    backend.set_current_key(3, 3)
    assert handle.value() is None
    assert len(keys_in(backend)) == 20


def test_a_strategy_is_that_of_one_backend(backends: Backends) -> None:
    on_disk = backends.kind.startswith("rocksdb")
    for change, is_removed in (
        (lambda builder: by_itself(builder).cleanup_incrementally(2, False), not on_disk),
        (lambda builder: by_itself(builder).cleanup_in_rocksdb_compact_filter(1000), on_disk),
    ):
        state = descriptor("value", change)
        backend = backends.new()
        for key in range(20):
            put(backend, state, key, key)
        backends.now_ms += TTL_MS
        work(backends, backend, state, 300)
        assert (keys_in(backend) == {10_000}) == is_removed


@pytest.mark.parametrize("backends", ["hashmap", "hashmap-incremental"], indirect=True)
def test_rows_that_do_not_use_the_state_count_if_they_are_to(backends: Backends) -> None:
    """`cleanup_incrementally` is for state in memory."""
    for per_row, left in ((True, 0), (False, 92)):
        state = descriptor(
            "value",
            partial(
                StateTtlConfig.Builder.cleanup_incrementally, cleanup_size=50, run_cleanup_for_every_record=per_row
            ),
        )
        backend = backends.new()
        for key in range(100):
            put(backend, state, key, key)
        backends.now_ms += TTL_MS
        for _ in range(2):
            backend.slices.prepare([1, 2], [1, 2], 0, 2)
            backend.slices.settle()
        assert len(keys_in(backend)) == left


@pytest.mark.parametrize("kind", ["list", "map"])
def test_parts_of_an_entry_are_removed_each_on_its_own(backends: Backends, kind: str) -> None:
    state = descriptor(kind)
    backend = backends.new()
    for key in range(4):
        put(backend, state, key, 1)
    backends.now_ms += TTL_MS - 100
    for key in range(2):
        put(backend, state, key, 2)
    backends.now_ms += 100
    work(backends, backend, state, 60, key=9)
    kept = {row["__key__"]: len(row["__last_access_ms__"]) for row in rows_of(encoded(backend))}
    assert sorted(kept.values())[:-1] == [1, 1] and len(kept) == 3


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_a_snapshot_keeps_what_is_removed_and_changed_behind_it(backends: Backends, kind: str) -> None:
    state = descriptor(kind, type=None)
    backend = backends.new()
    handle = backend.state("op", state)

    def fill(entry: str) -> None:
        for key in range(8):
            backend.set_current_key(key, key % KEY_GROUPS)
            if kind == "value":
                handle.update([key])
            elif kind == "list":
                handle.add([entry])
            else:
                handle.put(entry, [entry])
        between_rows(backend)

    fill("older")
    backends.now_ms += TTL_MS - 1
    if kind != "value":
        fill("younger")
    snapshot = backend.snapshot()
    backends.now_ms += 1
    for _ in range(50):
        between_rows(backend)
    for key in range(8):
        backend.set_current_key(key, key % KEY_GROUPS)
        if kind == "value":
            assert handle.value() is None
        elif kind == "list":
            for item in handle.get():
                item.append("changed")
        else:
            for _, item in handle.items():
                item.append("changed")
    between_rows(backend)
    backends.now_ms -= 1
    restored = backends.restored(list(lasting(snapshot.encode())))
    handle = restored.state("op", state)
    for key in range(8):
        restored.set_current_key(key, key % KEY_GROUPS)
        if kind == "value":
            assert handle.value() == [key]
        elif kind == "list":
            assert handle.get() == [["older"], ["younger"]]
        else:
            assert sorted(handle.items()) == [("older", ["older"]), ("younger", ["younger"])]


def test_a_clock_that_goes_back_delays_a_removal_and_loses_nothing(backends: Backends) -> None:
    state = descriptor()
    backend = backends.new()
    work(backends, backend, state, 100)
    backends.now_ms -= 10 * TTL_MS
    put(backend, state, 1, 1)
    work(backends, backend, state, 100)
    assert 1 in keys_in(backend)
    backends.now_ms += 12 * TTL_MS
    work(backends, backend, state, 100)
    assert keys_in(backend) == {10_000}


def test_what_was_restored_is_removed_too(backends: Backends) -> None:
    state = descriptor("value", by_itself)
    first = backends.new()
    for key in range(50):
        put(first, state, key, key)
    states = encoded(first)
    backends.now_ms += TTL_MS
    second = backends.restored(states)
    work(backends, second, descriptor(), 200)
    assert keys_in(second) == {10_000}


def test_state_of_windows_that_has_a_time_to_live_is_removed_too(backends: Backends) -> None:
    state = descriptor()
    state.name = "_window/s"
    backend = backends.new()
    for key in range(20):
        backend.set_current_key(key, key % KEY_GROUPS)
        backend.state_of_window("op", state, 100 * key).update(key)
    between_rows(backend)
    backends.now_ms += TTL_MS // 2
    backend.set_current_key(3, 3)
    assert backend.state_of_window("op", state, 300).value() == 3
    assert backend.state_of_window("op", state, 400).value() is None
    backends.now_ms += TTL_MS // 2
    for _ in range(50):
        backend.state_of_window("op", state, 5000).update(1)
        between_rows(backend)
    assert [key for key, _ in backend.keys_of("op", "_window/s")] == [(3, 5000)]


# ---- snapshots ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["value", "list", "map"])
@pytest.mark.parametrize("is_asked", [True, False])
def test_a_full_snapshot_leaves_out_what_has_expired_if_it_is_to(backends: Backends, kind: str, is_asked: bool) -> None:
    changes = (by_itself, lambda builder: builder.cleanup_full_snapshot()) if is_asked else (by_itself,)
    state = descriptor(kind, *changes)
    backend = backends.new()
    for key in range(4):
        put(backend, state, key, 1)
    backends.now_ms += TTL_MS - 1
    for key in range(2):
        put(backend, state, key, 2)
    backends.now_ms += 1
    parts = [row["__last_access_ms__"] for row in rows_of(encoded(backend))]
    if is_asked:
        assert parts == [[backends.now_ms - 1]] * 2 if kind != "value" else [backends.now_ms - 1] * 2
    else:
        assert len(parts) == 4 and (kind == "value" or sorted(map(len, parts)) == [1, 1, 2, 2])
    assert len(keys_in(backend)) == 4
    backends.now_ms += TTL_MS
    assert len(rows_of(encoded(backend))) == (0 if is_asked else 4)


def stored(states: list[EncodedState], segment: str) -> list[StoredState]:
    at = Segment(segment, 0)
    return [StoredState(s.operator, s.name, s.entries, at, 0, len(b"".join(s.parts)), 0) for s in states]


@pytest.mark.parametrize("backends", ["hashmap-incremental", "rocksdb-incremental"], indirect=True)
def test_an_incremental_checkpoint_has_removed_keys_as_deleted(backends: Backends) -> None:
    state = descriptor()
    backend = backends.new()
    for key in range(50):
        put(backend, state, key, key)
    first = backend.snapshot(1, None)
    whole = list(lasting(first.encode()))
    first.on_stored(stored(whole, "shared/first"))
    backends.now_ms += TTL_MS
    work(backends, backend, state, 100)
    named, changed = 0, list[EncodedState]()
    for run in backend.snapshot(2, 1).encode():
        named += isinstance(run, StoredState)
        changed += lasting([run])
    assert named == len(whole)
    deleted = [run for run in changed if read_stream(b"".join(run.parts), range(KEY_GROUPS)).deletes]
    assert [run.entries for run in deleted] == [50]
    assert keys_in(_asked(backends.restored([*whole, *changed]), state)) == {10_000}


def _asked(backend: RowStateBackend[Any], state: Any) -> RowStateBackend[Any]:
    backend.state("op", state)
    return backend


# ---- from one backend to another ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["value", "list", "map"])
@pytest.mark.parametrize("type", [Types.LONG, None], ids=["typed", "pickled"])
@pytest.mark.parametrize("source", ["hashmap", "rocksdb"])
def test_times_and_values_survive_a_change_of_the_backend(
    backends: Backends, tmp_path_factory: pytest.TempPathFactory, kind: str, type: Any, source: str
) -> None:
    state = descriptor(kind, type=type)
    others = Backends(source, tmp_path_factory.mktemp("others"))
    try:
        others.now_ms = backends.now_ms
        first = others.new()
        for key in range(20):
            put(first, state, key, key)
            others.now_ms += 10
        states = pickle.loads(
            pickle.dumps([(s.operator, s.name, s.entries, b"".join(s.parts)) for s in encoded(first)])
        )
    finally:
        others.close()
    backends.now_ms = 1_000_000 + TTL_MS + 99
    second = backends.restored([EncodedState(operator, name, n, [data]) for operator, name, n, data in states])
    handle = second.state("op", state)
    for key in range(20):
        second.set_current_key(key, key % KEY_GROUPS)
        read = {"value": "value", "list": "get", "map": "keys"}[kind]
        found = getattr(handle, read)()
        expected = {"value": key, "list": [key], "map": [str(key)]}[kind]
        assert found == (expected if key >= 10 else [] if kind != "value" else None)
