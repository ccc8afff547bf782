"""Gives the machine of the job's life its events, with the time, and has its effects executed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.common.clock import Clock
from penstock.jobmaster.job_directory import JobDirectory
from penstock.protocol.driver.driver_effects import FailureCause, LifecycleEffect
from penstock.protocol.driver.lifecycle import Lifecycle


class JobLife:
    """Lets every part of the JobMaster end, fail or resize the job. `execute` executes effects of `machine`."""

    def __init__(
        self,
        machine: Lifecycle,
        clock: Clock,
        job_directory: JobDirectory,
        execute: Callable[[Sequence[LifecycleEffect]], None],
    ) -> None:
        self.machine = machine
        self.execute = execute
        self._clock = clock
        self._job_directory = job_directory

    def prepared(self) -> None:
        """Continue the start of the next generation: what it restores is known."""
        self.execute(self.machine.on_prepared(self._job_directory.fence, self._clock.monotonic_ms()))

    def fail(self, cause: FailureCause) -> None:
        """Fail the job over."""
        self.execute(self.machine.on_failure(None, cause, self._clock.monotonic_ms()))

    def abandon(self, error: str) -> None:
        """End the job as FAILED, and delete nothing."""
        self._job_directory.keep_everything = True
        self.execute(self.machine.abandon(error, self._clock.monotonic_ms()))

    def finish(self) -> None:
        """End the job as FINISHED: everything up to its final checkpoint is committed."""
        self.execute(self.machine.finish(self._clock.monotonic_ms()))

    def provide(self, slots: int) -> None:
        """Submit what so many slots need, before they are needed."""
        self.execute(self.machine.provide(slots))

    def resize(self, slots: int) -> None:
        """Start with so many slots, instead of waiting for those that are missing."""
        self.execute(self.machine.resize(slots, self._clock.monotonic_ms()))

    def rescale(self, slots: int, cause: str) -> None:
        """End the generation, and have so many slots in the next one."""
        self.execute(self.machine.rescale(slots, cause, self._clock.monotonic_ms()))

    def release_unneeded(self) -> None:
        """Release what was provided and is not needed after all."""
        self.execute(self.machine.release_unneeded(self._clock.monotonic_ms()))
