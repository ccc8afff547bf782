"""Keeps the Spark job of one slot running, in a thread of the driver.

A keeper submits its slot's job again whenever it ends, until it is stopped. So neither `spark.task.maxFailures` nor
speculation nor another slot's end matters. A slot that leaves by order ends its task as a success. Only a task that
does not end by itself is cancelled, because Spark warns of each cancellation.
"""

from __future__ import annotations

import logging
import threading
import time
from enum import Enum
from typing import Any, Callable

from pyspark import InheritableThread

from penstock.spark.session import Substrate
from penstock.spark.slots.one_task_job import run_task
from penstock.spark.slots.slot_failure import cause
from penstock.spark.slots.task_placement import TaskPlace, task_places

log = logging.getLogger(__name__)

FAILED_TASK_MS = 8_000
"""The time that Spark has to run a failed task again, for a slot that had registered before. The task's executor may be
excluded, which does not concern a new job."""
SILENT_TASK_MS = 30_000
"""The time that a running task has to register as a slot that had registered before: its imports may take long, or its
executor hangs."""
_DOUBLINGS_MAX = 3
"""Both limits are doubled with each submission that was given up, but not more often than that."""
_PAUSE_S_MAX = 5.0
_JOIN_S = 5.0
_LEAVE_S = 5.0
"""The time that a slot has to leave, and Spark to notice it."""


class _TaskState(Enum):
    """Lists the states of the task of a slot's newest submission, as Spark reports them."""

    WAITS = "its task waits for a place"
    RUNS = "its task runs, but has not registered"
    FAILED = "its task has failed and does not run again"


class SlotKeeper:
    """Keeps one slot's Spark job running. `run` is called in the Spark task with the slot's arguments."""

    def __init__(
        self,
        substrate: Substrate,
        slot: int,
        job_id: str,
        body: Callable[[int], Callable[[Any], Any]],
        on_ended: Callable[[int, int, str], None],
        submission: int = 0,
    ) -> None:
        self._substrate = substrate
        self._slot = slot
        self._job_id = job_id
        self._body = body
        self._on_ended = on_ended
        self._wanted = True
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self.submission = submission
        self.registered = 0
        """The newest submission that has registered."""
        self.is_hosted = False
        """True while another process plays the slot, until a process of this submission has found a place: there is no
        hurry."""
        self._fruitless = 0
        self._given_up: set[int] = set()
        self._task = _TaskState.WAITS
        self._task_since_ms = 0.0
        self._thread = InheritableThread(target=self._keep, name=f"penstock-keeper-{slot}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def on_registered(self, submission: int) -> None:
        with self._lock:
            self.registered = max(self.registered, submission)
            self._fruitless = 0
            self._given_up.clear()
            self.is_hosted = False

    def watch(self, now_ms: float) -> None:
        """Give up the newest submission if Spark's own view of its task shows that it is lost.

        A task that waits for a place is never given up: the next one would only be further back in the queue.
        """
        if self.is_hosted or not 0 < self.registered < self.submission:
            return
        submission, task = self.submission, self._task_state()
        if task is not self._task or task is _TaskState.WAITS:
            self._task, self._task_since_ms = task, now_ms
            return
        limit_ms = FAILED_TASK_MS if task is _TaskState.FAILED else SILENT_TASK_MS
        limit_ms <<= min(len(self._given_up), _DOUBLINGS_MAX)
        if now_ms - self._task_since_ms > limit_ms and submission == self.submission:
            log.warning(
                "slot %d has not come back after %d s (%s); submitting it again",
                self._slot,
                limit_ms // 1000,
                task.value,
            )
            self._task = _TaskState.WAITS
            self.resubmit()

    def _task_state(self) -> _TaskState:
        try:
            places = task_places(self._substrate, self._tag(self.submission))
        except Exception as error:
            log.debug("Spark does not say what slot %d does: %s", self._slot, error)
            return _TaskState.WAITS
        if not places:
            return _TaskState.WAITS
        return _TaskState.RUNS if places[-1].status == "RUNNING" else _TaskState.FAILED

    def resubmit(self) -> None:
        """Cancel the running job; the keeper submits the next one. A job that we cancel does not count as fruitless."""
        self._given_up.add(self.submission)
        self._cancel(self.submission)

    def stop(self, leaves: bool = True) -> None:
        """Let the job and the keeper end. `leaves`: its process was told to leave, and has its time to do so; any other
        job is cancelled at once.
        """
        self.retire()
        if leaves and self.registered == self.submission:
            self._thread.join(_LEAVE_S)
        if self._thread.is_alive():
            self._cancel(self.submission)

    def retire(self) -> None:
        """Let the job run, and do not submit it again when it ends."""
        self._wanted = False
        self._woken.set()

    def join(self) -> None:
        """Wait for the keeper's end, after `stop`. Cancels again while the keeper lives, because a job submitted just
        then was not there to cancel.
        """
        deadline = time.monotonic() + _JOIN_S
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._thread.join(0.2)
            if self._thread.is_alive():
                self._cancel(self.submission)

    @property
    def tag(self) -> str:
        """Return the tag of the newest submission's Spark job."""
        return self._tag(self.submission)

    def _tag(self, submission: int) -> str:
        return f"penstock-{self._job_id}-slot-{self._slot}-{submission}"

    def _cancel(self, submission: int) -> None:
        try:
            self._substrate.context.cancelJobsWithTag(self._tag(submission))
        except Exception as error:  # the session may have been stopped, and the job with it
            log.debug("cannot cancel slot %d: %s", self._slot, error)

    def _keep(self) -> None:
        while self._wanted:
            with self._lock:
                self.submission += 1
                submission = self.submission
                pause_s = min(0.05 * 2 ** (self._fruitless - 1), _PAUSE_S_MAX) if self._fruitless > 1 else 0.0
            if pause_s and self._woken.wait(pause_s):
                return
            detail = self._run_job(submission)
            with self._lock:
                if self.registered < submission and submission not in self._given_up:
                    self._fruitless += 1
                fruitless = self._fruitless
            if self._wanted:
                self._on_ended(self._slot, 0 if self.registered == submission else fruitless, detail)

    def _run_job(self, submission: int) -> str:
        """Run the job, which blocks while the slot lives; return why it ended."""
        context = self._substrate.context
        tag = self._tag(submission)
        try:
            context.addJobTag(tag)
            for name in ("spark.job.description", "callSite.short"):  # for Spark's pages, and for its log
                context.setLocalProperty(name, f"penstock slot {self._slot}")
            if not self._wanted:
                return "it was told to stop"
            run_task(self._substrate, self._slot, self._body(submission))
            return "its task returned"
        except Exception as error:
            return cause(error, self._places(submission))
        finally:
            try:
                context.removeJobTag(tag)
            except Exception as error:
                log.debug("the session is gone: %s", error)

    def _places(self, submission: int) -> list[TaskPlace]:
        """Return the places of a submission that never registered. Others are not worth the time of asking."""
        if self.registered >= submission:
            return []
        try:
            return task_places(self._substrate, self._tag(submission))
        except Exception as error:
            log.debug("Spark does not tell where slot %d was tried: %s", self._slot, error)
            return []
