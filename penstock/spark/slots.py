"""Runs slots on Spark: each is a Spark job of its own with one task, kept running by a thread of the driver.

A keeper submits its slot's job again whenever it ends, until it is stopped. So neither `spark.task.maxFailures` nor
speculation nor another slot's end matters. The task never returns: when the slot leaves, its process ends.
"""

from __future__ import annotations

import logging
import threading
import time
from enum import Enum
from typing import Any, Callable

from pyspark import InheritableThread

from penstock.spark.session import Substrate
from penstock.spark.slot_failure import cause
from penstock.spark.task_placement import TaskPlace, task_places

log = logging.getLogger(__name__)


# A slot that ran before and whose task has failed waits for Spark to run it again: its executor may be excluded, which
# does not concern a new job.
FAILED_TASK_MS = 8_000
# One whose task runs has not registered: its imports take long, or its executor hangs.
SILENT_TASK_MS = 30_000
# Both limits are doubled with each submission that was given up.
_DOUBLINGS_MAX = 3
_PAUSE_S_MAX = 5.0
_JOIN_S = 5.0
_of_all_jobs: list[SparkSlots] = []
"""Of this program, from the first that is submitted until they are cancelled."""


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
        """Somebody else plays the slot until this one's process has found a place, so there is no hurry."""
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

        A task that waits for a place is never given up: the next one would only stand further back in the queue.
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

    def stop(self) -> None:
        """Cancel the job and let the keeper end."""
        self._wanted = False
        self._woken.set()
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
            context.setLocalProperty("spark.job.description", f"penstock slot {self._slot}")
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
        """Return where a submission that never registered was tried; for one that did the answer is not worth the
        time.
        """
        if self.registered >= submission:
            return []
        try:
            return task_places(self._substrate, self._tag(submission))
        except Exception as error:
            log.debug("Spark does not tell where slot %d was tried: %s", self._slot, error)
            return []


class SparkSlots:
    """Implements `penstock.jobmaster.ports.SlotSubmitter` with a keeper per slot.

    `body(slot, submission, relieves)` gives what the Spark task calls (with its iterator, which it ignores); it is
    pickled. `relieves`: another process still plays the slot.
    `capacity`: how many task places there are, where that is fixed; slots from that number on are not submitted.
    `on_ended(slot, fruitless, detail)` is called in a keeper's thread when a slot's job has ended and is about to be
    submitted again; `fruitless` counts the submissions in a row, up to this one, that ended by themselves and had not
    registered.
    """

    def __init__(
        self,
        substrate: Substrate,
        job_id: str,
        body: Callable[[int, int, bool], Callable[[Any], Any]],
        on_ended: Callable[[int, int, str], None] = lambda slot, fruitless, detail: None,
        capacity: int | None = None,
    ) -> None:
        self._substrate = substrate
        self._job_id = job_id
        self._body = body
        self._on_ended = on_ended
        self._capacity = capacity
        self._keepers: dict[int, SlotKeeper] = {}
        self._retired: list[SlotKeeper] = []
        self._released: dict[int, int] = {}
        """The last submission of each slot that was released."""
        self._relieved: dict[int, SlotKeeper] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._watchdog: threading.Thread | None = None
        self._cancelling: threading.Thread | None = None

    def submit(self, slot: int) -> None:
        with self._lock:
            if self._closed.is_set() or slot in self._keepers:
                return
            if self._capacity is not None and slot >= self._capacity:
                return
            keeper = self._keepers[slot] = self._keeper(slot, self._released.pop(slot, 0))
            if self._watchdog is None:
                _of_all_jobs.append(self)
                self._watchdog = threading.Thread(target=self._watch, name="penstock-slot-watchdog", daemon=True)
                self._watchdog.start()
        keeper.start()

    @property
    def capacity(self) -> int | None:
        return self._capacity

    def release(self, slot: int) -> None:
        """Cancel the slot's job for good. If it is submitted again later, its submissions count on."""
        self._end_relief(slot)
        with self._lock:
            keeper = self._keepers.pop(slot, None)
            if keeper is None:
                return
            self._released[slot] = keeper.submission
            self._retired.append(keeper)
        threading.Thread(target=keeper.stop, name=f"penstock-stop-{slot}", daemon=True).start()

    def _keeper(self, slot: int, submission: int = 0) -> SlotKeeper:
        def body(number: int) -> Callable[[Any], Any]:
            return self._body(slot, number, slot in self._relieved)

        return SlotKeeper(self._substrate, slot, self._job_id, body, self._on_ended, submission)

    def relieve(self, slot: int) -> None:
        """Submit the slot again while its process continues; that one's job is cancelled when another has
        registered.
        """
        with self._lock:
            old = self._keepers.get(slot)
            if old is None or self._closed.is_set() or slot in self._relieved:
                return
            old.retire()
            self._relieved[slot] = old
            # One submission is left out, for a process that plays the slot until the new one has its place.
            keeper = self._keepers[slot] = self._keeper(slot, old.submission + 1)
        keeper.start()

    def waits_for_relief(self, slot: int) -> bool:
        return slot in self._relieved

    def shared_submission(self, slot: int) -> int:
        """Return the number under which another process may relieve the slot before its own new one does."""
        return self._relieved[slot].submission + 1

    def on_hosted(self, slot: int) -> None:
        """Note that the slot is played in another's process now."""
        self._end_relief(slot)
        keeper = self._keepers.get(slot)
        if keeper is not None:
            keeper.is_hosted = True

    def _end_relief(self, slot: int) -> None:
        with self._lock:
            old = self._relieved.pop(slot, None)
            if old is None:
                return
            self._retired.append(old)
        threading.Thread(target=old.stop, name=f"penstock-stop-{slot}", daemon=True).start()

    def tags(self) -> dict[int, str]:
        """Return the tags of the Spark jobs of slots that are not about to be relieved."""
        return {slot: keeper.tag for slot, keeper in list(self._keepers.items()) if slot not in self._relieved}

    def tag_of(self, slot: int) -> str | None:
        """Return the tag of the slot's newest Spark job."""
        keeper = self._keepers.get(slot)
        return None if keeper is None else keeper.tag

    def resubmit(self, slot: int) -> None:
        keeper = self._keepers.get(slot)
        if keeper is not None:
            # A call to the JVM may take long; the driver's loop does not wait for it.
            threading.Thread(target=keeper.resubmit, name=f"penstock-resubmit-{slot}", daemon=True).start()

    def on_registered(self, slot: int, submission: int) -> None:
        keeper = self._keepers.get(slot)
        if keeper is not None:
            keeper.on_registered(submission)
        relieved = self._relieved.get(slot)
        if relieved is not None and submission > relieved.submission:
            self._end_relief(slot)

    def leave_to_another(self, slot: int, relieved: bool) -> int:
        """Let another process play the slot, under the submission that is returned. `relieved`: a newer one of its own
        stays submitted and takes over when it gets a place; else none is submitted any more.
        """
        keeper = self._keepers.get(slot)
        if keeper is None:
            return 0
        if not relieved:
            with self._lock:
                del self._keepers[slot]
                self._released[slot] = keeper.submission
                self._retired.append(keeper)
            threading.Thread(target=keeper.stop, name=f"penstock-stop-{slot}", daemon=True).start()
            return keeper.submission
        keeper.is_hosted = True
        if keeper.submission == keeper.registered:
            self.resubmit(slot)  # Spark may still try the old submission again by itself
        return keeper.registered

    @property
    def is_closed(self) -> bool:
        """Return whether `cancel_all` was called."""
        return self._closed.is_set()

    def submissions(self) -> dict[int, int]:
        """Return how often each slot has been submitted."""
        return {slot: keeper.submission for slot, keeper in self._keepers.items()}

    def cancel_all(self) -> None:
        """Cancel every slot's job, without waiting for it, and submit none again."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            if self in _of_all_jobs:
                _of_all_jobs.remove(self)
            self._cancelling = threading.Thread(target=self._stop_all, name="penstock-cancel", daemon=True)
        self._cancelling.start()

    def _stop_all(self) -> None:
        for keeper in self._all():
            keeper.stop()

    def _all(self) -> list[SlotKeeper]:
        return [*self._keepers.values(), *self._relieved.values(), *self._retired]

    def wait_cancelled(self) -> None:
        """Wait until Spark knows of the cancellations (some seconds at most). Call it after `cancel_all`."""
        if self._cancelling is not None:
            self._cancelling.join(_JOIN_S)

    def join(self) -> None:
        """Wait (some seconds at most) until the keepers have ended. Call it after `cancel_all`."""
        self.wait_cancelled()
        for keeper in self._all():
            keeper.join()

    def _watch(self) -> None:
        while not self._closed.wait(1.0):
            for keeper in list(self._keepers.values()):
                keeper.watch(time.monotonic() * 1000)


def places_taken(substrate: Substrate) -> int:
    """Return how many task places the slots of this program's jobs have, or wait for, and do not give back soon."""
    jobs = [slots for slots in list(_of_all_jobs) if slots._substrate.context is substrate.context]
    return sum(len(slots.submissions()) for slots in jobs)


def run_task(substrate: Substrate, slot: int, body: Callable[[Any], Any]) -> None:
    """Run a Spark job with one task that calls `body`; return or raise as the job does."""
    if _kills_idle_workers(substrate):
        _run_sql_task(substrate, slot, body)
    else:
        substrate.context.parallelize([slot], 1).mapPartitions(body).collect()


def _kills_idle_workers(substrate: Substrate) -> bool:
    """Return whether Spark ends a Python worker that yields nothing. For tasks of RDDs only the session's settings can
    change that; for SQL tasks a session of its own can.
    """
    conf = substrate.context.getConf()
    idle_s = conf.get("spark.python.worker.idleTimeoutSeconds", "0") or "0"
    return idle_s not in ("0", "0s") and (conf.get("spark.python.worker.killOnIdleTimeout") or "").lower() == "true"


def _run_sql_task(substrate: Substrate, slot: int, body: Callable[[Any], Any]) -> None:
    session = substrate.new_session()
    session.conf.set("spark.sql.execution.pyspark.udf.idleTimeoutSeconds", "0")
    session.range(slot, slot + 1, 1, 1).mapInArrow(body, "id long").collect()
