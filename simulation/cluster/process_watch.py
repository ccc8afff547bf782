"""Watches the messages and objects of a run's processes, for the checkers."""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import (
    Message,
    ReleaseVertices,
    Restored,
    SlotAck,
    SubtaskFailed,
    TriggerCheckpoint,
)
from penstock.storage.layout import SegmentName, parse
from simulation.checkers.durations import DurationChecker
from simulation.faults.fault_injector import FaultInjector
from simulation.jobs.stored_rows import DELETED
from simulation.processes.driver_process import Driver, DriverProcess, Statistics
from simulation.processes.present_job import PresentJob
from simulation.processes.slot_process import SlotProcess
from simulation.world.world import World


class ProcessWatch:
    """Watches the processes of all drivers. `durations`: None if the time that checkpoints take has no limit."""

    def __init__(
        self,
        world: World,
        job: PresentJob,
        drivers: list[Driver],
        statistics: Statistics,
        fault_injector: FaultInjector,
    ) -> None:
        self._world = world
        self._job = job
        self._drivers = drivers
        self._statistics = statistics
        self._fault_injector = fault_injector
        self.durations: DurationChecker | None = None
        self._newest_generation: Any = None
        self._triggered: set[tuple[int, Generation, int]] = set()
        """The checkpoints that a driver has triggered, by its number and its generation."""

    def on_sent(self, process: str, message: Message) -> None:
        # The slots of a job that was stopped may outlive it, and the next job numbers its generations from the start.
        if not self._job.is_left_by(self._driver_of(process)):
            self._job.answers.on_sent(process, message)
        if (slot := self.process_named(process)) is not None:
            slot.revocations.on_sent(message)
        if isinstance(message, SlotAck):
            if self.durations is not None:
                self.durations.on_acknowledged(message)
            self._fault_injector.on_acknowledged()
        if isinstance(message, SubtaskFailed):
            is_expected = self._job.expected_failure is not None and self._job.expected_failure in message.error
            if is_expected or "simulated" in message.error:
                return
            is_excused = self._reads_what_the_owner_deleted(process, message.error)
            if not is_excused and not self._job.declares_older_types(self._driver_of(process), message.error):
                self._world.violate(f"{process}: {message.operator} failed: {message.error}\n{message.traceback}")
        elif isinstance(message, Restored):
            self._statistics.replaced += self._seat_of(process) != message.slot
            if message.generation != self._newest_generation:
                self._newest_generation = message.generation
                self._statistics.generations += 1
                self._fault_injector.on_running()

    def on_told(self, number: int, message: Message) -> None:
        # A driver that was fenced, and does not know it yet, numbers its checkpoints as its successor does.
        if self._job.log is not None and self._job.log.owner == self._drivers[number].host.incarnation:
            self._job.predecessors.on_told(message)
        if isinstance(message, TriggerCheckpoint):
            self._triggered.add((number, message.generation, message.barrier.checkpoint_id))
        elif isinstance(message, ReleaseVertices):
            for checkpoint_id in message.checkpoints:
                if (number, message.generation, checkpoint_id) not in self._triggered:
                    self._world.violate(
                        f"a release waits for checkpoint {checkpoint_id}, which was not triggered in its generation"
                    )
        if self.durations is not None:
            self.durations.on_told(message)

    def _driver_of(self, slot: str) -> DriverProcess:
        """Return the driver that has started a slot's process."""
        return next(d.host for d in self._drivers if slot.startswith(f"{d.process.name}s"))

    def _seat_of(self, process: str) -> int:
        return next(p.slot for d in self._drivers for p in d.keeper.processes if p.process.name == process)

    def process_named(self, name: str) -> SlotProcess | None:
        return next((p for d in self._drivers for p in d.keeper.processes if p.process.name == name), None)

    def running_slot(self) -> SlotProcess | None:
        running = self._world.running
        return None if running is None else self.process_named(running.name)

    def on_created(self, name: str, data: bytes) -> None:
        if self._job.log is None:
            return
        self._job.log.on_created(name, data)
        found, slot = parse(name.removeprefix(f"{self._job.directory}/")), self.running_slot()
        if slot is not None and isinstance(found, SegmentName):
            slot.revocations.on_stored(found)

    def _reads_what_the_owner_deleted(self, process: str, error: str) -> bool:
        """Return whether a driver that has been fenced, and does not know it yet, restores or reads what its successor
        needs no more.
        """
        driver = next(d for d in self._drivers if process.startswith(d.process.name))
        return self._job.has_lost_the_log(driver.host) and ("is missing" in error or DELETED in error)
