"""Tests when copies of a subtask's RocksDB are taken, used and deleted, and what becomes of damaged ones."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.common.types import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.state.backend import StateError
from penstock.state.rocksdb import database_copies
from tests.unit.state.copied_jobs import NUMBER, Job
from tests.unit.state.stored_checkpoints import Checkpoint, new_backend

SEALED = {key: 2 if key < 10 else 1 for key in range(1000)}


@pytest.fixture
def job(tmp_path: Path) -> Any:
    job = Job(tmp_path)
    yield job
    job.end()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_restart_in_place_reads_only_what_has_changed_since_the_copy(job: Job, is_killed: bool) -> None:
    job.sealed()
    assert job.restart(is_killed) == 1
    assert [run.entries for run in job.slot.read] == [10]
    assert job.content() == SEALED
    job.set(range(5), None)
    job.checkpoint()
    assert job.newest is not None and [run.entries for run in job.newest.ranges] == [1000, 10, 5]
    assert job.restart(is_killed) >= 1, "before another copy could be sealed"
    assert job.content() == {key: value for key, value in SEALED.items() if key >= 5}


def test_a_copy_is_not_used_before_a_checkpoint_behind_it_has_completed(job: Job) -> None:
    job.set(range(1000), 1)
    job.checkpoint()
    job.set(range(10), 2)  # lost, but a copy may have it
    assert len(job.slot.copies()) == 1
    assert job.restart() == 0
    assert job.content() == dict.fromkeys(range(1000), 1)


def test_what_changed_behind_a_copy_in_a_lost_generation_comes_from_no_copy(job: Job) -> None:
    """The copy is of the lost generation, and the next one goes another way from the same checkpoint."""
    job.set(range(1000), 1)
    job.checkpoint()
    job.set(range(10), 2)
    job.backend.snapshot(2, 1)  # stored by nobody
    assert job.restart(is_killed=False) == 0
    job.set(range(20, 30), 3)
    job.checkpoint()
    assert job.restart(is_killed=False) == 0
    assert job.content() == dict.fromkeys(range(1000), 1) | dict.fromkeys(range(20, 30), 3)


def test_little_state_has_no_copy(tmp_path: Path) -> None:
    job = Job(tmp_path, copied_from_bytes=1_000_000).sealed()
    assert job.slot.copies() == [] and job.restart() == 0 and job.content() == SEALED
    job.end()


def test_older_copies_are_deleted_when_a_newer_one_is_sealed(job: Job) -> None:
    job.sealed()
    for value in range(3, 9):
        job.set(range(50), value)
        job.checkpoint()
        assert len(job.slot.copies()) <= 2
    job.restart()
    assert len(job.slot.copies()) == 1
    job.set(range(3), 1)
    job.checkpoint()
    assert next(path.parent.parent for path in job.slot.backup.databases()) == job.slot.backup.path


@pytest.mark.parametrize("is_open", [False, True])
def test_a_damaged_copy_is_deleted_and_runs_are_inserted(job: Job, is_open: bool) -> None:
    """`is_open`: RocksDB notices it when a block is read, and that fails the job once."""
    chance = random.Random(5)
    more = {key: chance.getrandbits(60) for key in range(10_000, 20_000)}
    for key, value in more.items():
        job.set(range(key, key + 1), value)
    job.sealed()
    found = [max(path.glob("files/*.sst"), key=lambda file: file.stat().st_size) for path in job.slot.copies()]
    for file in found:
        if is_open:
            # The blocks of entries come first; what RocksDB reads when it opens a file is at its end.
            with open(file, "r+b") as opened:
                opened.seek(os.fstat(opened.fileno()).st_size // 3)
                opened.write(b"\xa5" * 200)
        else:
            file.write_bytes(file.read_bytes()[:-7])
    if is_open:
        with pytest.raises(StateError, match="block checksum mismatch"):  # of a read, or sooner: of a compaction
            job.restart()
            job.content()
        assert job.restart() == 0
    else:
        assert job.restart() == 0
        assert "cannot be used" in job.slot.warnings[0] and "bytes, and had" in job.slot.warnings[0]
    assert job.content() == SEALED | more


def test_a_state_that_is_declared_differently_is_restored_from_runs(job: Job) -> None:
    job.sealed()
    job.descriptor = ValueStateDescriptor("number", Types.FLOAT())
    with pytest.raises(StateError, match="number"):
        job.restart()
    job.backend.revoke()
    job.descriptor = ValueStateDescriptor("number", Types.LONG())
    assert job.start() == 1


def test_a_widened_type_is_converted_from_runs(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.backend.revoke()
    job.descriptor = ValueStateDescriptor("number", Types.INT())
    job.start()
    job.sealed()
    job.descriptor = NUMBER
    assert job.restart() == 1, "it is only known to be another type when the program asks for it"
    assert sorted(run.entries for run in job.slot.read) == [10, 1000]
    assert job.content() == SEALED
    job.checkpoint()
    job.end()


def test_another_type_of_keys_finds_no_copy(job: Job) -> None:
    job.sealed()
    assert job.restart(key_type="STRING") == 0


def test_numbers_of_states_are_not_given_twice(job: Job) -> None:
    job.sealed()
    other = ValueStateDescriptor("other", Types.LONG())
    handle = job.backend.state("op", other)
    job.backend.set_current_key(4711, 1)
    handle.update(7)
    job.set(range(10, 20), 3)
    job.checkpoint()
    job.set(range(10, 20), 4)
    job.checkpoint()
    assert job.restart() >= 1
    third = job.backend.state("op", ValueStateDescriptor("third", Types.LONG()))
    job.backend.set_current_key(4711, 1)
    assert third.value() is None
    assert job.backend.state("op", other).value() == 7
    assert job.content() == SEALED | dict.fromkeys(range(10, 20), 4)


def test_state_that_nobody_asks_for_is_stored_whole_if_it_cannot_be_named(job: Job) -> None:
    job.sealed()
    job.backend.revoke()
    backend = new_backend("rocksdb", job.directory)
    assert job.slot.restore(backend, job.store, job.newest) == 1
    assert job.newest is not None
    savepoint = Checkpoint(9, backend.snapshot(9, None), {}, None)
    job.store.write(savepoint)
    job.newest, job.backend = savepoint, backend
    assert sum(run.entries for run in savepoint.ranges) == 1000
    job.restart()
    assert job.content() == SEALED


def test_a_disk_that_is_full_is_said_and_the_job_continues(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(database_copies, "_write", full)
    job.sealed()
    assert "no local copy of the RocksDB of" in job.slot.warnings[0] and job.slot.copies() == []
    assert job.restart() == 0 and job.content() == SEALED


def test_another_disk_than_that_of_the_database_has_no_copy(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = iter(range(99))
    monkeypatch.setattr(database_copies, "_device", lambda path: next(devices))
    job.set(range(1000), 1)
    job.checkpoint()
    assert "on another disk than state.backend.rocksdb.localdir" in job.slot.warnings[0]
