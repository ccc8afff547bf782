"""A JobMaster with real threads: one that it lives in, and one for what may block."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.runtime.job_events import Event
from penstock.runtime.job_master import JobMaster
from penstock.runtime.job_outcome import JobOutcome
from penstock.runtime.ports import BlockingWork, Clock
from penstock.runtime.report import JobReport

JOIN_TIMEOUT_S = 5.0


class WorkThread:
    """Implements `penstock.runtime.ports.BlockingWork`. `post` hands the results back to the owner's loop."""

    def __init__(self, name: str, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._waiting: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._waiting.put((work, done))

    def stop(self) -> None:
        self._waiting.put(None)

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            work, done = item
            try:
                result = work()
            except Exception as error:
                result = error
            self._post(_Result(done, result))


class _Result:
    def __init__(self, done: Callable[[Any], None], result: Any) -> None:
        self._done = done
        self._result = result

    def __call__(self) -> None:
        self._done(self._result)


class JobMasterLoop:
    """`make(work)` builds the JobMaster, whose blocking work goes through `work`; what it raises, this raises.

    `post` may be called from any thread, also before `start`. `on_ended` is called in the loop's thread.
    """

    def __init__(
        self,
        make: Callable[[BlockingWork], JobMaster],
        clock: Clock,
        on_ended: Callable[[JobOutcome], None] = lambda outcome: None,
    ) -> None:
        self._clock = clock
        self._on_ended = on_ended
        self._inbox: queue.SimpleQueue[Event | Callable[[], None]] = queue.SimpleQueue()
        self._work = WorkThread("penstock-blocking-work", self._inbox.put)
        try:
            self.master = make(self._work)
        except BaseException:
            self._work.stop()
            raise
        self._ended = threading.Event()
        self._outcome: JobOutcome | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-job-master", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, event: Event) -> None:
        self._inbox.put(event)

    @property
    def report(self) -> JobReport:
        return self.master.report

    @property
    def outcome(self) -> JobOutcome | None:
        """None while the job has not ended."""
        return self._outcome

    def wait(self, timeout_s: float | None = None) -> JobOutcome | None:
        """Until the job has ended; None if it has not within the time."""
        self._ended.wait(timeout_s)
        return self._outcome

    def join(self) -> None:
        """After the end: until the loop's thread is gone."""
        self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        self._guarded(self.master.start)
        while self._outcome is None:
            deadline_ms = self.master.next_deadline_ms()
            wait_s = None if deadline_ms is None else max(0.0, (deadline_ms - self._clock.monotonic_ms()) / 1000)
            try:
                event = self._inbox.get(timeout=wait_s)
            except queue.Empty:
                pass
            else:
                if callable(event):
                    self._guarded(event)
                else:
                    self._guarded(partial(self.master.handle, event))
            deadline_ms = self.master.next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= self._clock.monotonic_ms():
                self._guarded(lambda: self.master.on_time(self._clock.monotonic_ms()))
            if self._outcome is None:
                self._outcome = self.master.outcome
        self._work.stop()
        self._on_ended(self._outcome)
        self._ended.set()

    def _guarded(self, action: Callable[[], None]) -> None:
        """An error of ours ends the job with a message; it must not leave the user waiting for ever."""
        try:
            action()
        except Exception:
            error = f"internal error of the JobMaster:\n{traceback.format_exc()}"
            was_over = self.master.lifecycle.is_over
            try:
                self.master.abandon(error)
                if was_over:
                    self.master.slots.cancel_all()
            finally:
                if was_over:
                    self._outcome = JobOutcome("FAILED", error, self.master.identity.directory, 0.0)
