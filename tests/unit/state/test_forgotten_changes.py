"""Tests incremental checkpoints of columns on disk whose changed keys are not in memory any more: forgotten once or
many times, removed, come again, merged, and too many.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from penstock.state import state_sizes
from penstock.state.rocksdb.disk_column_table import DiskColumnTable
from tests.properties.columnar_backends import ColumnarBackends
from tests.properties.test_columnar_backends import EVERYTHING, Checkpoint, Store, Subtask
from tests.properties.test_columnar_state import key_of

NAME = "strings"
FORGETTING = 1000
"""Keys from here on are folded only so that others are forgotten."""


class Job:
    """A subtask with one state, and its checkpoints, each of which names what it may of the one before."""

    def __init__(self, backends: ColumnarBackends) -> None:
        self.subtask = Subtask(backends.new(), [NAME], {NAME: {}})
        self.store = Store()
        self.last: Checkpoint | None = None
        self._forgetting = FORGETTING

    @property
    def table(self) -> DiskColumnTable:
        found = self.subtask.tables[NAME]
        assert isinstance(found, DiskColumnTable)
        return found

    def fold(self, *numbers: int) -> None:
        self.subtask.fold(NAME, list(numbers), [1] * len(numbers))

    def remove(self, *numbers: int) -> None:
        self.subtask.remove(NAME, list(numbers))

    def read(self, *numbers: int) -> None:
        """Ask for keys that are there, and write nothing."""
        keys = [key_of(NAME, n)[0] for n in numbers]
        groups = np.array([group for group, *_ in (self.subtask.content[NAME][(key,)] for key in keys)], np.uint16)
        found = self.table.find_or_insert(self.table.rows([pa.array(keys, pa.string())]), groups)
        assert not len(found.new_slots)

    @property
    def came(self) -> int:
        """Return how many keys have come so that others are forgotten."""
        return self._forgetting - FORGETTING

    def forget(self) -> None:
        """Fold other keys until all that was there before is in no table in memory."""
        for _ in range(2):
            before = self.table._recent
            while self.table._recent is before:
                self.fold(self._forgetting)
                self._forgetting += 1

    def take(self) -> Checkpoint:
        before = self.last
        number = 1 if before is None else before.number + 1
        taken = self.subtask.backend.snapshot(number, None if before is None else before.number)
        return Checkpoint(number, taken, copy.deepcopy(self.subtask.content), before)

    def write(self, checkpoint: Checkpoint) -> list[int]:
        """Store a checkpoint, check what it restores to, and return how many entries it has stored, run by run."""
        self.store.write(checkpoint)
        assert self.store.content(checkpoint, [NAME], [EVERYTHING]) == checkpoint.expected
        checkpoint.snapshot.on_stored(checkpoint.ranges)
        self.last = checkpoint
        own = checkpoint.segment.path
        return [run.entries for run in checkpoint.ranges if run.segment.path == own]

    def checkpoint(self) -> list[int]:
        return self.write(self.take())


@pytest.fixture
def job() -> Iterator[Job]:
    with ColumnarBackends("rocksdb", incremental=True) as backends:
        yield Job(backends)


def wait_for_merging() -> None:
    for thread in threading.enumerate():
        if thread.name == "merge-changes":
            thread.join(30)
            assert not thread.is_alive()


def test_what_was_forgotten_is_stored_once(job: Job) -> None:
    job.fold(*range(300))
    job.checkpoint()
    for _ in range(3):
        job.fold(1, 2, 3)
        job.forget()
    assert job.checkpoint() == [3 + job.came]


def test_a_key_that_was_only_read_is_not_stored(job: Job) -> None:
    job.fold(*range(300))
    job.checkpoint()
    job.forget()
    job.read(1, 2, 3)
    job.forget()
    assert job.checkpoint() == [job.came]


def test_a_removed_key_that_has_come_again_is_there(job: Job) -> None:
    job.fold(*range(300))
    job.checkpoint()
    job.remove(7, 8)
    job.fold(7)
    job.forget()
    assert job.checkpoint() == [1 + job.came, 1]


def test_a_key_that_was_removed_after_it_was_forgotten_is_gone(job: Job) -> None:
    job.fold(*range(300))
    job.checkpoint()
    job.fold(7, 8, 9)
    job.forget()
    job.remove(7)
    job.forget()
    job.fold(8)
    assert job.checkpoint() == [2 + job.came, 1]


def test_a_slot_that_is_used_again_while_it_is_read_is_stored_as_it_was(job: Job) -> None:
    job.fold(*range(300))
    job.checkpoint()
    job.forget()
    job.fold(400)
    taken = job.take()
    job.remove(400)
    job.read(5)  # gets the slot; the database has the key
    job.write(taken)
    job.checkpoint()


@pytest.mark.parametrize("removes", [False, True])
def test_parts_of_a_long_checkpoint_are_merged(job: Job, monkeypatch: pytest.MonkeyPatch, removes: bool) -> None:
    monkeypatch.setattr(state_sizes, "CHANGED_KEYS_MAX", 150)
    job.fold(*range(60))
    long = job.take()
    for i in range(30):  # more than may be noted, of few keys
        job.fold(*(range(2, 42) if removes and i > 3 else range(40)))
        if removes and i == 3:
            job.remove(1, 2)  # the first does not come again
        wait_for_merging()
    assert job.table._changes is not None
    parts = job.table._changes._forgotten.parts
    assert len(parts) < 12, "they are merged"
    assert sum(part.keys for part in parts) < 400
    assert job.write(long) == [60]
    assert job.checkpoint() == ([41, 1] if removes else [40])


def test_with_too_many_keys_the_next_checkpoint_stores_everything(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_sizes, "CHANGED_KEYS_MAX", 150)
    job.fold(*range(600))
    job.checkpoint()
    for first in range(0, 600, 50):
        job.fold(*range(first, first + 50))
        wait_for_merging()
    assert sum(job.checkpoint()) == 600
    job.fold(1)
    assert job.checkpoint() == [1]


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
def test_a_key_that_was_removed_twice_is_named_once(kind: str) -> None:
    with ColumnarBackends(kind, incremental=True) as backends:
        job = Job(backends)
        job.fold(*range(50))
        job.checkpoint()
        job.remove(7, 8)
        job.fold(7)
        job.remove(7)
        assert job.checkpoint() == [2]


def test_uploads_may_end_in_any_order(job: Job) -> None:
    """Keep what has changed since the first of them, although the second has ended before."""
    job.fold(*range(60))
    first = job.take()
    job.fold(1, 2, 3)
    job.forget()
    second = Checkpoint(2, job.subtask.backend.snapshot(2, None), copy.deepcopy(job.subtask.content), None)
    job.write(second)
    job.forget()
    job.write(first)
    third = Checkpoint(3, job.subtask.backend.snapshot(3, 1), copy.deepcopy(job.subtask.content), first)
    assert job.write(third) == [3 + job.came]


def test_views_that_are_over_are_not_kept(job: Job) -> None:
    job.fold(*range(60))
    job.checkpoint()
    job.fold(1)
    for number in range(2, 12):
        job.subtask.backend.snapshot(number, 1).discard()
    assert len(job.table._recent._views) <= 1
