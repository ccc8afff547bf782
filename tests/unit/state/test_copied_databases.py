"""Copies of a subtask's RocksDB: whatever has changed, been given up, restored or killed since one was taken, a
database that is opened with it, and the runs behind it, are what was there at the barrier."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from penstock.common.types import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.state import state_sizes
from penstock.state.columnar.column_table import ValueColumn
from penstock.state.rocksdb import database_copies
from penstock.state.rocksdb import rocksdb_backend as rocksdb_backend
from penstock.state.rocksdb.disk_columnar_backend import RocksDBColumnarBackend
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings
from tests.unit.state.backends import between_rows
from tests.unit.state.copied_jobs import Job, Slot
from tests.unit.state.stored_checkpoints import Checkpoint, Store
from tests.unit.state.test_incremental import IncrementalCheckpoints
from tests.unit.state.test_snapshots import KEY_GROUPS


class CopiedDatabases(IncrementalCheckpoints):
    """Checks what incremental checkpoints restore to, where databases are opened with copies."""

    kind = "rocksdb"
    opened = 0
    """How many restores have found a copy."""

    def __init__(self) -> None:
        self.slot = Slot(self.directory / "copies")
        self.is_told: set[int] = set()
        super().__init__()

    def backend(self) -> Any:
        backend = super().backend()
        if not hasattr(self, "stream"):
            self.slot.restore(backend, self.store, None)
        return backend

    @precondition(lambda self: self.completed is not None and self.completed.number not in self.is_told)
    @rule()
    def tell(self) -> None:
        """The slot hears, some time later, that the newest checkpoint has completed, and may take a copy."""
        assert self.completed is not None
        self.is_told.add(self.completed.number)
        self.slot.complete(self.completed.number)

    @precondition(lambda self: not self.running)
    @rule(seed=st.integers(0, 2**16), checkpoints=st.integers(1, 3))
    def checkpoint_calmly(self, seed: int, checkpoints: int) -> None:
        """A few checkpoints complete, and the slot hears of each while the next changes are made."""
        for number in range(checkpoints):
            self.touch(seed + number, 3)
            self.take(False)
            self.touch(seed - number, 2)
            self.store_oldest(7, True)
            self.touch(seed, 1)
            self.tell()

    @precondition(lambda self: self.completed is not None)
    @rule(is_killed=st.booleans(), asks=st.booleans())
    def fail_and_restore(self, is_killed: bool, asks: bool) -> None:
        assert self.completed is not None
        self.stream.backend.revoke()
        self.running.clear()
        if is_killed:
            self.slot.backup.leave()
            self.slot.start()
        backend = self.backend()
        type(self).opened += self.slot.restore(backend, self.store, self.completed) > 0
        self.resume(backend, self.completed, asks)

    def teardown(self) -> None:
        super().teardown()
        self.slot.backup.delete()
        assert not self.slot.warnings


@pytest.mark.parametrize("changed_keys_max", [1_000_000, 12])
@pytest.mark.parametrize("examples", [30, 60])
def test_what_a_copy_and_the_runs_behind_it_restore_to(
    examples: int, changed_keys_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_sizes, "ENTRIES_PER_BATCH", 2)
    monkeypatch.setattr(state_sizes, "BYTES_PER_RANGE", 1)
    monkeypatch.setattr(rocksdb_backend, "_TOUCHED_MAX", 3)
    monkeypatch.setattr(state_sizes, "CHANGED_KEYS_MAX", changed_keys_max)
    monkeypatch.setattr(database_copies, "_WAIT_MAX", 1)

    class Chosen(CopiedDatabases):
        directory = tmp_path

    # Fewer are the same each time, so that enough of them find a copy.
    chosen = settings(max_examples=examples, stateful_step_count=40, deadline=None, derandomize=examples < 60)
    run_state_machine_as_test(Chosen, settings=chosen)
    assert Chosen.opened > 10, "or nothing is proved"


def test_what_comes_and_goes_between_checkpoints_of_an_empty_state_stays_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_backend, "_TOUCHED_MAX", 0)
    job = Job(tmp_path)

    def other() -> Any:
        return job.backend.state("op", ValueStateDescriptor("other", Types.LONG()))

    def set_other(key: int, value: int | None) -> None:
        job.backend.set_current_key(key, key % KEY_GROUPS)
        other().update(value)
        between_rows(job.backend)

    other()
    job.set(range(1000), 1)
    job.checkpoint(lambda: set_other(5, 7))
    assert len(job.slot.copies()) == 1, "with that key in it"
    set_other(5, None)
    job.checkpoint()
    set_other(6, 8)
    job.checkpoint()
    assert job.restart()
    other()
    assert {key: value for key, _, value in job.backend.entries("op", "other")} == {6: 8}
    assert job.content() == dict.fromkeys(range(1000), 1)
    job.end()


# ---- columns --------------------------------------------------------------------------------------------------------


def test_columnar_state_is_opened_with_a_copy(tmp_path: Path) -> None:
    keys, values = pa.schema([("key", pa.int64())]), [ValueColumn("sum", "int64", 0)]
    limits = RocksDBSettings((str(tmp_path),), memory_bytes=2**23, cached_bytes=4096)
    slot, store = Slot(tmp_path / "copies"), Store()
    expected: dict[int, int] = {}
    chance = random.Random(7)

    def new() -> RocksDBColumnarBackend:
        return RocksDBColumnarBackend(settings=limits, incremental=True)

    def add(table: Any, count: int) -> None:
        import numpy as np

        chosen = sorted(chance.sample(range(2000), count))
        rows = table.rows([pa.array(chosen)])
        found = table.find_or_insert(rows, np.array([key % KEY_GROUPS for key in chosen], np.uint16))
        table.values[0][found.slots] += 1
        table.touch(found.slots)
        table.settle()
        for key in chosen:
            expected[key] = expected.get(key, 0) + 1

    def sums(table: Any) -> dict[int, int]:
        import numpy as np

        present = sorted(expected)
        found = table.find_or_insert(
            table.rows([pa.array(present)]), np.array([key % KEY_GROUPS for key in present], np.uint16)
        )
        return dict(zip(present, table.values[0][found.slots].tolist()))

    backend, newest, opened = new(), None, 0
    slot.restore(backend, store, None)
    table = backend.table("op", "sums", keys, values)
    for number in range(1, 12):
        add(table, 300)
        taken = backend.snapshot(number, None if newest is None else newest.number)
        newest = Checkpoint(number, taken, {}, newest)
        store.write(newest)
        taken.on_stored(newest.ranges)
        slot.complete(number)
        if number % 3 == 0:
            backend.revoke()
            backend = new()
            is_opened = slot.restore(backend, store, newest) > 0
            opened += is_opened
            table = backend.table("op", "sums", keys, values)
            assert sums(table) == expected
            assert table.largest(0) >= max(expected.values()) and table.all_true(0) is not is_opened
    assert opened
    backend.revoke()
    slot.backup.delete()
