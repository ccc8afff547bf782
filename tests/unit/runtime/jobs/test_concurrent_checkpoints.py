"""Tests several checkpoints in progress at once, in real threads: with a store that sleeps, and with crashes between
them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.settings.checkpoint_settings import concurrent_checkpoints_max
from penstock.jobmaster.current_job import JobSettings
from penstock.protocol.driver.coordinator import CheckpointCoordinator, CoordinatorSettings
from penstock.protocol.driver.driver_effects import CheckpointEffect, PublishCheckpoint, TriggerCheckpoint
from penstock.protocol.values.messages import SlotAck
from penstock.protocol.values.metadata import Metadata
from penstock.runtime.subtask.subtask_runner import WriterRunner
from penstock.storage.memory import MemoryStore
from penstock.storage.store import StoreError
from tests.unit.runtime.jobs.test_real_threads import LIMIT_S, ThreadedJob, assert_exact

INTERVAL_S, SEGMENT_S, CHECKPOINTS = 0.25, 1.0, 10


class SlowStore(MemoryStore):
    """Takes a while for each object."""

    def __init__(self, segment_s: float) -> None:
        super().__init__()
        self.segment_s = segment_s

    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        time.sleep(self.segment_s)
        super().put(path, parts)


class Coordinated:
    """Lets the real coordinator trigger and complete the checkpoints of a job."""

    def __init__(self, job: ThreadedJob, settings: CoordinatorSettings) -> None:
        self.job = job
        self.coordinator = CheckpointCoordinator(settings)
        self.completed: dict[int, float] = {}
        self._heard = 0
        slots = frozenset(range(job.graph.slots))
        self._execute(self.coordinator.on_running(job.generation, slots, len(job.subtasks), self._now_ms()))

    def _now_ms(self) -> float:
        return self.job.clock.monotonic_ms()

    def look(self) -> None:
        self._execute(self.coordinator.on_time(self._now_ms()))
        messages = self.job.messages
        while self._heard < len(messages):
            message = messages[self._heard]
            self._heard += 1
            if isinstance(message, SlotAck):
                self._execute(self.coordinator.on_ack(message, self._now_ms()))

    def _execute(self, effects: list[CheckpointEffect]) -> None:
        for effect in effects:
            if isinstance(effect, TriggerCheckpoint):
                self.job.trigger(effect.barrier.checkpoint_id, effect.barrier.alignment_timeout_ms)
            elif isinstance(effect, PublishCheckpoint):
                number = effect.barrier.checkpoint_id
                self.job.complete(number)
                self.completed[number] = time.monotonic()
                self._execute(self.coordinator.on_published(number, False, self._now_ms()))


def test_a_checkpoint_completes_at_each_interval_though_the_store_takes_longer() -> None:
    """Four times the interval for a segment, as 2 s with 500 ms. Stored one after the other they take 10 s."""
    job = ThreadedJob(None, SlowStore(SEGMENT_S), 0, concurrent_max=6)
    job.wait_for(lambda: has_rows(job), "rows")
    run = Coordinated(job, CoordinatorSettings(INTERVAL_S * 1_000, concurrent_max=6, alignment_timeout_ms=0))
    began_s = time.monotonic()

    def enough() -> bool:
        run.look()
        return len(run.completed) >= CHECKPOINTS

    job.wait_for(enough, f"{CHECKPOINTS} checkpoints")
    job.stop()
    times = sorted(run.completed.values())
    assert times[0] - began_s >= SEGMENT_S, "no segment was stored sooner"
    per_checkpoint_s = (times[-1] - times[0]) / (CHECKPOINTS - 1)
    assert per_checkpoint_s < 2 * INTERVAL_S, f"a checkpoint completed each {per_checkpoint_s:.2f} s"


@pytest.mark.parametrize("timeout_ms", [None, 2, 0], ids=["aligned", "timeout", "unaligned"])
def test_exact_with_three_checkpoints_at_a_time_and_crashes(timeout_ms: int | None) -> None:
    store, newest = MemoryStore(), 0
    job = ThreadedJob(None, store, 0, concurrent_max=3)
    rows: list[Any] = []
    restored: Metadata | None = None
    for number in range(1, 31, 3):
        ids = range(number, number + 3)
        for checkpoint_id in ids:
            job.trigger(checkpoint_id, timeout_ms)
        for checkpoint_id in ids:
            job.wait_for(lambda i=checkpoint_id: job.is_acknowledged(i), f"checkpoint {checkpoint_id}")
            done = job.complete(checkpoint_id)
            newest, restored = checkpoint_id, done.metadata
            rows += done.committed
            if checkpoint_id in (10, 20):
                job.stop()
                job = ThreadedJob(restored, store, checkpoint_id, concurrent_max=3)
                job.newest_id = newest
                break
    job.wait_for(lambda: job.all_at_end, "end of data")
    job.trigger(99, timeout_ms)
    job.wait_for(lambda: job.is_acknowledged(99), "last checkpoint")
    rows += job.complete(99).committed
    job.stop()
    assert_exact(rows)


class GatedStore(MemoryStore):
    """Stores nothing before somebody opens it."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = threading.Event()
        self.waiting = threading.Semaphore(0)
        self.error: str | None = None

    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        self.waiting.release()
        assert self.opened.wait(LIMIT_S)
        if self.error is not None:
            raise StoreError(self.error)
        super().put(path, parts)


def has_rows(job: ThreadedJob) -> bool:
    """Return whether there is state: the first vertex behind a key has rows."""
    return any(s.rows_in > 0 for s in job.subtasks.values() if s.vertex.index == len(job.graph.vertices) - 1)


def job_that_stores(store: GatedStore) -> ThreadedJob:
    """Return a job one slot of which, at least, stores its first segment."""
    job = ThreadedJob(None, store, 0, concurrent_max=2)
    job.wait_for(lambda: has_rows(job), "rows")
    job.trigger(1, 0)
    job.wait_for(lambda: store.waiting.acquire(blocking=False), "segment that is being stored")
    return job


def test_a_generation_is_left_only_when_nothing_is_being_stored_any_more() -> None:
    store = GatedStore()
    job = job_that_stores(store)
    writers = [runner for runner in job.runners if isinstance(runner, WriterRunner)]
    for runner in job.runners:
        runner.revoke()
    assert not all(writer.done for writer in writers)
    store.opened.set()
    job.stop()
    assert all(writer.done for writer in writers)


def test_a_segment_that_cannot_be_stored_declines_its_checkpoint() -> None:
    store = GatedStore()
    job = job_that_stores(store)
    store.error = "the disk is full"
    store.opened.set()
    deadline_s = time.monotonic() + LIMIT_S
    while not job.declines:
        assert time.monotonic() < deadline_s
        job.bell.wait(20.0)
    assert {decline.checkpoint_id for decline in job.declines} == {1}
    assert "disk is full" in job.declines[0].detail and not store.list("")
    job.stop()


def test_a_segment_stored_after_its_checkpoint_has_ended_is_acknowledged_to_be_deleted() -> None:
    store = GatedStore()
    job = job_that_stores(store)
    for _ in range(job.graph.slots - 1):  # what is not being stored yet is dropped
        job.wait_for(lambda: store.waiting.acquire(blocking=False), "segments of the other slots")
    job.end(1, aborted=True)
    store.opened.set()
    job.wait_for(lambda: job.is_acknowledged(1), "acknowledgements that come late")
    job.stop()


@pytest.mark.parametrize(("min_pause", "limit"), [("0 ms", 4), ("1 ms", 1)])
def test_a_minimum_pause_leaves_room_for_one(min_pause: str, limit: int) -> None:
    configuration = Configuration(
        {
            "execution.checkpointing.interval": "100 ms",
            "execution.checkpointing.min-pause": min_pause,
            "execution.checkpointing.max-concurrent-checkpoints": 4,
        }
    )
    assert concurrent_checkpoints_max(configuration) == limit
    assert JobSettings.from_configuration(configuration, 1).coordinator.concurrent_max == limit
