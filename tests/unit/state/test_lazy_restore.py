"""Tests state that is restored while its subtask runs: whatever is asked for, changed, stored or given up meanwhile,
the stream sees what was restored, and no checkpoint releases a run that is not in the database yet.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.common.types import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.state.backend import EncodedState, RestoringSubtask, StateError, StateSchemaError, StoredState
from penstock.state.codecs import read_stream
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.state.rocksdb import lazy_state
from penstock.state.rocksdb.lazy_restore import lazy_chains
from penstock.state.rocksdb.rocksdb_backend import RocksDBStateBackend
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings
from penstock.state.row_backend import RowStateBackend
from penstock.storage.segments import DamagedRange
from tests.unit.state.backends import between_rows
from tests.unit.state.stored_checkpoints import Checkpoint, Store
from tests.unit.state.test_snapshots import KEY_GROUPS

NUMBER = ValueStateDescriptor("number", Types.LONG())


def new_lazy_backend(directory: Path, cached_bytes: int = 2**26, range_bytes: int = 1024) -> RocksDBStateBackend:
    limits = RocksDBSettings((str(directory),), memory_bytes=2**23, cached_bytes=cached_bytes, range_bytes=range_bytes)
    return RocksDBStateBackend(KEY_GROUPS, {"op": "Counter"}, settings=limits, incremental=True)


@dataclass
class Apart:
    """Runs what is to run next to the subtask when a test says so. `read`: the runs that were read."""

    store: Store
    waiting: deque[Callable[[], None]] = field(default_factory=deque)
    read_runs: list[StoredState] = field(default_factory=list)
    key_type: str = ""
    before_read: Callable[[StoredState], None] = lambda run: None

    def read(self, run: StoredState) -> bytes:
        self.before_read(run)
        self.read_runs.append(run)
        return self.store.data[run.segment.path][run.offset : run.offset + run.length_bytes]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.waiting:
                self.waiting.popleft()()

    def finish(self) -> None:
        while self.waiting:
            self.run(1)

    def restore(self, checkpoint: Checkpoint, backend: RowStateBackend[Any], is_own: bool = True) -> int:
        """Restore as a subtask does; return how many runs are restored lazily."""
        if is_own:
            backend.on_restored(checkpoint.number, checkpoint.ranges)
        runs = tuple(checkpoint.ranges) if is_own else ()
        subtask = RestoringSubtask(None, range(KEY_GROUPS), self.key_type, runs, self.read, self.waiting.append)
        lazily = backend.restore_copy(subtask)
        for schema in checkpoint.snapshot.schemas:
            backend.restore_schema(schema, key_type=self.key_type)
        for run in checkpoint.ranges:
            if run not in lazily:
                backend.restore(run.operator, run.name, self.read(run), range(KEY_GROUPS))
        return len(lazily)


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_state, "_FILE_ENTRIES_MIN", 3)


class Job:
    """A subtask with 1000 numbers in many ranges, and its checkpoints."""

    def __init__(self, directory: Path, descriptor: ValueStateDescriptor = NUMBER) -> None:
        self.directory = directory
        self.store = Store()
        self.apart = Apart(self.store)
        self.newest: Checkpoint | None = None
        self.descriptor = descriptor
        self.backend: Any = new_lazy_backend(directory)
        self.handle = self.backend.state("op", descriptor)
        self.set(range(1000), 1)

    def set(self, keys: range, value: int | None) -> None:
        for key in keys:
            self.backend.set_current_key(key, key % KEY_GROUPS)
            self.handle.update(value)
            between_rows(self.backend)

    def get(self, key: int) -> int | None:
        self.backend.set_current_key(key, key % KEY_GROUPS)
        found: int | None = self.handle.value()
        return found

    def checkpoint(self, is_incremental: bool = True) -> Checkpoint:
        taken = self.snapshot(is_incremental)
        self.store.write(taken)
        taken.snapshot.on_stored(taken.ranges)
        self.newest = taken
        return taken

    def snapshot(self, is_incremental: bool = True) -> Checkpoint:
        before = self.newest
        number = 1 if before is None else before.number + 1
        taken = self.backend.snapshot(number, before.number if before is not None and is_incremental else None)
        return Checkpoint(number, taken, {}, before)

    def restart(self, asks: bool = True) -> int:
        """Restore the newest checkpoint; return how many ranges come later."""
        assert self.newest is not None
        self.backend.revoke()
        self.apart.waiting.clear()
        self.apart.read_runs.clear()
        self.backend = new_lazy_backend(self.directory)
        found = self.apart.restore(self.newest, self.backend)
        if asks:
            self.handle = self.backend.state("op", self.descriptor)
        return found

    def stored(self, checkpoint: Checkpoint) -> dict[int, int]:
        backend = HashMapStateBackend(KEY_GROUPS)
        self.store.restore(checkpoint, backend)
        backend.state("op", NUMBER)
        return {key: value for key, _, value in backend.entries("op", "number")}

    def content(self) -> dict[int, int]:
        return {key: value for key, _, value in self.backend.entries("op", "number")}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.backend.revoke()
    assert not list(tmp_path.iterdir())


def test_a_range_of_large_values_has_few_of_them(tmp_path: Path) -> None:
    range_bytes = 100_000
    backend = new_lazy_backend(tmp_path, range_bytes=range_bytes)
    handle = backend.state("op", ValueStateDescriptor("text", Types.STRING()))
    for key in range(400):
        backend.set_current_key(key, key % KEY_GROUPS)
        handle.update("x" * (10_000 if key < 200 else 10))
        between_rows(backend)
    taken = backend.snapshot(1)
    sizes = [sum(map(len, run.parts)) for run in taken.encode() if isinstance(run, EncodedState)]
    backend.revoke()
    assert sum(sizes) > 2_000_000 and max(sizes) < 2.5 * range_bytes


def test_a_key_is_there_as_soon_as_its_range_was_read(job: Job) -> None:
    ranges = len(job.checkpoint().ranges)
    assert job.restart() == ranges > 10
    assert len(job.apart.read_runs) == 1, "the first one shows that the state fits"
    assert job.get(999) == 1
    assert len(job.apart.read_runs) == 2
    assert job.get(999) == 1 and job.get(10_000) is None
    assert job.backend.metrics()["restore.loaded-bytes"] < job.backend.metrics()["restore.bytes"]
    job.apart.finish()
    assert len(job.apart.read_runs) == ranges, "each once"
    assert job.backend.metrics()["restore.loaded-bytes"] == job.backend.metrics()["restore.bytes"]
    assert job.content() == dict.fromkeys(range(1000), 1)


def test_nothing_stands_between_a_table_and_its_database_once_all_is_there(job: Job) -> None:
    job.checkpoint()
    job.restart()
    table = job.backend._tables["op", "number"]
    assert table._database is not job.backend._database
    job.apart.finish()
    assert table._database is job.backend._database
    assert not job.backend._local.is_loading


def test_later_runs_override_and_delete_what_a_range_has(job: Job) -> None:
    job.checkpoint()
    job.set(range(0, 500, 7), 2)
    job.set(range(1, 500, 7), None)
    job.set(range(2000, 2010), 3)
    job.checkpoint()
    job.set(range(1, 500, 14), 4)
    job.set(range(0, 500, 14), None)
    job.checkpoint()
    expected = job.content()
    job.restart()
    assert job.get(7) == 2 and job.get(0) is None and job.get(15) == expected.get(15) and job.get(2003) == 3
    assert job.content() == expected
    job.apart.finish()
    assert job.content() == expected


def test_a_chain_does_not_begin_with_deleted_keys(job: Job) -> None:
    """A restore would take that for damage: what a chain begins with has entries only."""
    job.set(range(1000), None)
    assert not job.checkpoint().ranges
    job.set(range(100), 2)
    job.backend.snapshot(10, None).discard()  # lets all of them come into the database
    job.set(range(0, 100, KEY_GROUPS), None)
    stored = job.checkpoint().ranges
    data = [job.store.data[run.segment.path][run.offset : run.offset + run.length_bytes] for run in stored]
    assert data and not any(read_stream(part, range(KEY_GROUPS)).deletes for part in data)


def test_entries_may_be_written_before_they_are_read(job: Job) -> None:
    job.checkpoint()
    job.restart()
    job.set(range(0, 1000, 3), 5)
    job.set(range(1, 1000, 3), None)
    job.backend._flush()
    job.apart.finish()
    assert job.content() == {key: 5 if key % 3 == 0 else 1 for key in range(1000) if key % 3 != 1}


def test_a_checkpoint_names_what_is_not_loaded(job: Job) -> None:
    before = job.checkpoint()
    job.restart()
    job.set(range(5), 2)
    after = job.checkpoint()
    assert after.ranges[: len(before.ranges)] == before.ranges
    assert len(job.apart.read_runs) <= 1 + KEY_GROUPS, "those of the five keys"
    assert job.restart() == len(after.ranges)
    assert job.content() == {key: 2 if key < 5 else 1 for key in range(1000)}


def test_a_checkpoint_of_everything_loads_what_it_lacks(job: Job) -> None:
    ranges = len(job.checkpoint().ranges)
    job.restart()
    savepoint = job.snapshot(is_incremental=False)
    job.set(range(0, 1000, 2), 9)  # behind the barrier, and loads every range
    job.backend._flush()
    job.store.write(savepoint)
    assert job.stored(savepoint) == dict.fromkeys(range(1000), 1)
    assert len(job.apart.read_runs) == ranges, "each once, whoever was first"
    assert not job.backend._local.is_loading


def test_state_that_nobody_has_asked_for_is_written_whole(job: Job) -> None:
    job.checkpoint()
    job.restart(asks=False)
    taken = job.snapshot(is_incremental=False)
    job.store.write(taken)
    job.store.data = {path: data for path, data in job.store.data.items() if path == taken.segment.path}
    assert job.stored(taken) == dict.fromkeys(range(1000), 1)


def test_a_range_that_cannot_be_read_fails_the_subtask_where_it_is_asked_for(job: Job) -> None:
    job.checkpoint()
    job.restart()

    def fail(run: StoredState) -> None:
        raise DamagedRange(run.segment.path, run.offset, run.length_bytes, "keyed state 'number'", "its checksum")

    job.apart.before_read = fail
    with pytest.raises(DamagedRange, match="keyed state 'number' is damaged"):
        job.get(999)
    with pytest.raises(DamagedRange):
        job.store.write(job.snapshot(is_incremental=False))


def test_a_range_that_cannot_be_read_in_the_background_fails_the_subtask(job: Job) -> None:
    job.checkpoint()
    job.restart()

    def fail(run: StoredState) -> None:
        raise DamagedRange(run.segment.path, run.offset, run.length_bytes, "keyed state 'number'", "its checksum")

    job.apart.before_read = fail
    job.apart.finish()
    with pytest.raises(DamagedRange, match="keyed state 'number' is damaged"):
        between_rows(job.backend)
    with pytest.raises(DamagedRange):
        job.snapshot()


def test_keys_of_another_type_are_refused_before_a_row_is_processed(job: Job) -> None:
    job.checkpoint()
    job.apart.key_type = "STRING"
    with pytest.raises(StateSchemaError, match="has the key .* but key_by\\(\\) declares STRING"):
        job.restart()


def test_a_changed_declaration_is_restored_at_once(tmp_path: Path) -> None:
    job = Job(tmp_path, ValueStateDescriptor("number", Types.INT()))
    ranges = len(job.checkpoint().ranges)
    job.descriptor = NUMBER
    job.restart()
    assert len(job.apart.read_runs) == ranges
    assert job.get(5) == 1
    job.backend.revoke()


def test_threads_that_want_the_same_range_wait_for_it(job: Job) -> None:
    job.checkpoint()
    job.restart()
    reads, may_read = threading.Event(), threading.Event()

    def slow(run: StoredState) -> None:
        reads.set()
        assert may_read.wait(30)

    job.apart.before_read = slow
    background = threading.Thread(target=job.apart.run, args=(1,), daemon=True)
    background.start()
    assert reads.wait(30)
    (loading,) = [g for g in job.backend._local._lazy._begun[0]._granules if g.is_loading]
    (lazy,) = job.backend._local._lazy._begun
    waiter = threading.Thread(target=lazy._ensure, args=(loading,), daemon=True)
    waiter.start()
    may_read.set()
    background.join(30)
    waiter.join(30)
    assert not waiter.is_alive() and loading.is_loaded
    assert len([run for run in job.apart.read_runs if run == loading.run]) == 1


def test_who_waits_for_a_range_is_not_kept_by_the_end_of_the_generation(job: Job) -> None:
    job.checkpoint()
    job.restart()
    lazy = job.backend._local._lazy._begun[0]
    granule = lazy._granules[-1]
    granule.is_loading = True
    failures: list[Exception] = []

    def wait() -> None:
        try:
            lazy._ensure(granule)
        except StateError as error:
            failures.append(error)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    job.backend.revoke()
    waiter.join(30)
    assert "its generation has ended" in str(failures[0])


def test_ranges_that_overlap_or_have_no_bounds_are_not_restored_lazily(job: Job) -> None:
    runs = job.checkpoint().ranges
    assert list(lazy_chains(runs)) == [("op", "number")]
    assert not lazy_chains(runs[:1]), "one range is not worth it"
    assert not lazy_chains(runs[::-1])
    assert not lazy_chains([replace(runs[0], bounds=None), *runs[1:]])


def test_an_option_turns_it_off(job: Job, tmp_path: Path) -> None:
    checkpoint = job.checkpoint()
    limits = RocksDBSettings((str(tmp_path),), memory_bytes=2**23, restores_lazily=False)
    backend = RocksDBStateBackend(KEY_GROUPS, settings=limits, incremental=True)
    assert job.apart.restore(checkpoint, backend) == 0
    backend.revoke()
