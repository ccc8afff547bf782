"""Gives the driver's machine its events, with the time, and has its effects executed, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from penstock.common.clock import Clock
from penstock.jobmaster.job_directory import JobDirectory
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.driver_effects import CheckpointAborted, Effect, FailureCause, TriggerCheckpoint
from penstock.protocol.driver.driver_events import Event
from penstock.protocol.driver.driver_machine import DriverMachine


class Driver:
    """Lets every part of the JobMaster tell the machine its events. `execute` executes one effect.

    No effect is executed inside another one: what follows from an event that arises meanwhile is executed next, before
    all that waits.
    """

    def __init__(
        self, machine: DriverMachine, clock: Clock, job_directory: JobDirectory, execute: Callable[[Effect], None]
    ) -> None:
        self.machine = machine
        self.lifecycle = machine.lifecycle
        self.coordinator = machine.coordinator
        self._execute = execute
        self._clock = clock
        self._job_directory = job_directory
        self._waiting: deque[Effect] = deque()
        self._following: list[Effect] | None = None
        """The effects of events that have arisen while an effect is executed; None if none is."""

    def handle(self, event: Event, now_ms: float | None = None) -> None:
        """Let the machine decide, and execute its effects; at once, or after the effect that is being executed.
        `now_ms` None: ask the clock.
        """
        self.execute(self.decide(event, now_ms))

    def decide(self, event: Event, now_ms: float | None = None) -> list[Effect]:
        """Let the machine decide. The caller must `execute` the effects before it hands over another event."""
        return self.machine.handle(event, self._clock.monotonic_ms() if now_ms is None else now_ms)

    def execute(self, effects: Sequence[Effect]) -> None:
        """Execute effects; at once, or after the effect that is being executed."""
        if self._following is not None:
            self._following += effects
            return
        self._waiting.extend(effects)
        try:
            while self._waiting:
                self._following = []
                self._one(self._waiting.popleft())
                self._put_in_front(self._following)
        finally:
            self._waiting.clear()
            self._following = None

    def _one(self, effect: Effect) -> None:
        if isinstance(effect, CheckpointAborted):
            self._drop_trigger(effect.checkpoint_id)
        self._execute(effect)

    def _drop_trigger(self, checkpoint_id: int) -> None:
        """Trigger no checkpoint that has been aborted while its trigger waited."""
        for waiting in [w for w in self._waiting if isinstance(w, TriggerCheckpoint)]:
            if waiting.barrier.checkpoint_id == checkpoint_id:
                self._waiting.remove(waiting)

    def _put_in_front(self, following: list[Effect]) -> None:
        """Execute these next. But a later trigger never passes one that waits: slots take the older one for late."""
        places = [place for place, w in enumerate(self._waiting) if isinstance(w, TriggerCheckpoint)]
        if places:
            for place, trigger in enumerate([f for f in following if isinstance(f, TriggerCheckpoint)], places[-1] + 1):
                self._waiting.insert(place, trigger)
            following = [f for f in following if not isinstance(f, TriggerCheckpoint)]
        self._waiting.extendleft(reversed(following))

    def prepared(self) -> None:
        """Continue the start of the next generation: what it restores is known."""
        self.handle(events.Prepared(self._job_directory.fence))

    def finish(self) -> None:
        """End the job as FINISHED: everything up to its final checkpoint is committed."""
        self.handle(events.Finished())

    def fail(self, cause: FailureCause) -> None:
        """Fail the job over."""
        self.handle(events.Failed(cause))

    def abandon(self, error: str) -> None:
        """End the job as FAILED, and delete nothing."""
        self.handle(events.Abandoned(error))
