"""Tests a job's subtasks and writers in threads of their own, which take turns every few microseconds, with checkpoints
all the time, and a crash in the middle. What the simulation cannot see: two of them inside one call at once.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Iterator

import pytest

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.frames import Data, Frame
from penstock.protocol.values.messages import Message, SubtaskFailed
from penstock.protocol.values.metadata import Metadata
from penstock.runtime.checkpoint.segment_uploads import SegmentUploads
from penstock.runtime.process.mailbox import Mailbox
from penstock.runtime.process.threads import ThreadScheduler
from penstock.runtime.subtask.subtask_runner import SubtaskRunner, WriterRunner
from penstock.storage.memory import MemoryStore
from tests.unit.runtime.jobs.small_job import CommittedRows, ManualClock, SmallJob, already_open, graph_of
from tests.unit.runtime.jobs.test_small_jobs import RunningSum, Several

ROWS = 20_000
LIMIT_S = 60.0
SMALL = {
    "penstock.network.window-bytes": "32 kb",
    "penstock.network.output-queue-bytes": "32 kb",
    "penstock.network.bound-bytes-min": "8 kb",
    "execution.buffer-timeout.interval": "1 ms",
}


class RealClock(ManualClock):
    def monotonic_ms(self) -> float:
        return time.monotonic() * 1_000

    def undisturbed_ms(self) -> float:
        return self.monotonic_ms()


class ThreadedJob(SmallJob):
    """Each runner in a thread; the test's thread is the JobMaster's."""

    def __init__(self, restored: Metadata | None, store: MemoryStore, counter: int, concurrent_max: int = 1) -> None:
        self.bell = Mailbox()
        self.driver = ThreadScheduler()
        super().__init__(
            graph_of(keyed, 2),
            Configuration(SMALL),
            store,
            RealClock(),
            restored,
            Generation(1, counter),
            new_uploads=lambda: SegmentUploads(concurrent_max, self.driver.run_apart),
        )
        self.failures: list[str] = []
        runners = [
            SubtaskRunner(
                s.deployed, self.generation, s.id.subtask, self.clock, already_open(s), lambda: None, self._on_message
            )
            for s in self.subtasks.values()
        ]
        self.runners: list[Any] = [*runners, *(WriterRunner(w, self._on_writer_failed) for w in self.writers)]
        for runner in runners:
            runner.may_restore()
        for runner in self.runners:
            self.driver.start(runner)

    def _send(self, slot: int, to: int, frame: Frame) -> None:
        if slot != to and isinstance(frame, Data):
            payload = memoryview(frame.payload).tobytes()
            frame = Data(frame.channel, frame.first, frame.rows, frame.size_bytes, payload, frame.wanted_bytes)
        self._deliver(frame)

    def _on_message(self, message: Message) -> None:
        super()._on_message(message)
        if isinstance(message, SubtaskFailed):
            self.failures.append(message.error + "\n" + message.traceback)
        self.bell.wake()

    def _on_writer_failed(self, error: BaseException) -> None:
        self.failures.append(repr(error))

    def wait_for(self, holds: Any, what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            assert not self.failures, self.failures[0]
            assert not self.declines, self.declines[0]
            assert time.monotonic() < deadline, f"no {what} within {LIMIT_S} s"
            if not self.hand_out_splits():
                self.bell.wait(20.0)

    def stop(self) -> None:
        for runner in self.runners:
            runner.revoke()
        stopped: list[bool] = []

        def on_done() -> None:
            stopped.append(True)
            self.bell.wake()

        self.driver.when_done(self.runners, LIMIT_S * 1_000, on_done)
        deadline = time.monotonic() + LIMIT_S
        while not stopped and time.monotonic() < deadline:
            self.bell.wait(20.0)
        assert stopped


def keyed(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection(list(range(ROWS)), Types.LONG()).rebalance()
    stream = stream.flat_map(Several(), Types.LONG()).set_parallelism(1)
    stream.key_by(lambda x: x % 5, Types.LONG()).process(RunningSum()).sink_to(CommittedRows())


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.parametrize("timeout_ms", [None, 2, 0], ids=["aligned", "timeout", "unaligned"])
def test_exact_with_checkpoints_all_the_time_and_a_crash(timeout_ms: int | None, hasty_threads: None) -> None:
    store = MemoryStore()
    job = ThreadedJob(None, store, 0)
    rows: list[Any] = []
    restored: Metadata | None = None
    for checkpoint_id in range(1, 31):
        job.trigger(checkpoint_id, timeout_ms)
        job.wait_for(lambda i=checkpoint_id: job.is_acknowledged(i), f"checkpoint {checkpoint_id}")
        done = job.complete(checkpoint_id)
        rows += done.committed
        restored = done.metadata
        if checkpoint_id in (10, 20):
            job.stop()
            job = ThreadedJob(restored, store, checkpoint_id)
    job.wait_for(lambda: job.all_at_end, "end of data")
    job.trigger(99, timeout_ms)
    job.wait_for(lambda: job.is_acknowledged(99), "last checkpoint")
    rows += job.complete(99).committed
    job.stop()
    assert_exact(rows)


def assert_exact(rows: list[Any]) -> None:
    values = [row * 10 + i for row in range(ROWS) for i in range(row % 4)]
    for key in range(5):
        total, expected = 0, []
        for value in values:
            if value % 5 == key:
                total += value
                expected.append((key, value, total))
        assert [r for r in rows if r[0] == key] == expected, f"key {key}"
