"""Runs slots on Spark: each is a Spark job of its own with one task, which a keeper submits again whenever it ends."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable

from penstock.spark.session import Substrate
from penstock.spark.slots.slot_keeper import SlotKeeper

_JOIN_S = 8.0
_of_all_jobs: list[SparkSlots] = []
"""The slots of all jobs of this program, each from its submission until it is cancelled."""


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
        self._cancelled_by_s = 0.0

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
        """Submit the slot again while its process continues. That process's job is cancelled once the new process has
        registered."""
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

    def submissions(self) -> dict[int, int]:
        """Return the number of submissions of each slot."""
        return {slot: keeper.submission for slot, keeper in self._keepers.items()}

    def cancel_all(self, leave: bool = True) -> None:
        """Let every slot's job end, without waiting for it, and submit none again. `leave`: their processes were told
        to leave, and are cancelled only if they do not.
        """
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            self._cancelled_by_s = time.monotonic() + _JOIN_S
            if self in _of_all_jobs:
                _of_all_jobs.remove(self)
            for keeper in self._all():
                keeper.retire()
            self._cancelling = threading.Thread(
                target=self._stop_all, args=(leave,), name="penstock-cancel", daemon=True
            )
        self._cancelling.start()

    def _stop_all(self, leave: bool) -> None:
        # All at once: each of them may take its time.
        stopping = [threading.Thread(target=keeper.stop, args=(leave,), daemon=True) for keeper in self._all()]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()

    def _all(self) -> list[SlotKeeper]:
        return [*self._keepers.values(), *self._relieved.values(), *self._retired]

    def wait_cancelled(self) -> None:
        """Wait some seconds until the slots have ended or Spark knows of it. Call it after `cancel_all`."""
        if self._cancelling is not None:
            self._cancelling.join(max(0.0, self._cancelled_by_s - time.monotonic()))

    def join(self) -> None:
        """Wait (some seconds at most) until the keepers have ended. Call it after `cancel_all`."""
        self.wait_cancelled()
        # In threads of their own: a Java process that hangs answers no cancellation.
        joining = [threading.Thread(target=keeper.join, daemon=True) for keeper in self._all()]
        for thread in joining:
            thread.start()
        deadline = time.monotonic() + _JOIN_S
        for thread in joining:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _watch(self) -> None:
        while not self._closed.wait(1.0):
            for keeper in list(self._keepers.values()):
                keeper.watch(time.monotonic() * 1000)


def places_taken(substrate: Substrate) -> int:
    """Return the number of task places that slots of this program's jobs have or wait for, and keep for now."""
    jobs = [slots for slots in list(_of_all_jobs) if slots._substrate.context is substrate.context]
    return sum(len(slots.submissions()) for slots in jobs)
