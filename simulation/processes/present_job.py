"""Knows the present job of a run: its directory, its log with what checks it, and which drivers are of it."""

from __future__ import annotations

from penstock.common.options import CheckpointingOptions, StateRecoveryOptions
from penstock.common.options.modes import RecoveryClaimMode
from penstock.protocol.values.log_entries import Ended
from penstock.protocol.values.metadata import Metadata
from penstock.storage.layout import METADATA_NAME
from penstock.storage.metadata_file import decode_metadata
from simulation.checkers.log_checker import LogChecker
from simulation.checkers.output_checks import AnswerChecker
from simulation.checkers.predecessor_checker import PredecessorChecker
from simulation.jobs.workload import Workload
from simulation.processes.driver_process import Driver, DriverProcess
from simulation.world.faulty_store import SharedObjects
from simulation.world.pace import CHECKPOINT_ROOT
from simulation.world.world import World

JOB_ID = "5eed" * 8


class PresentJob:
    """Knows the present job until `start_from` begins another one. `log`: None for a job without checkpoints."""

    def __init__(self, world: World, workload: Workload, shared: SharedObjects, drivers: list[Driver]) -> None:
        self._world = world
        self._workload = workload
        self._shared = shared
        self._drivers = drivers
        self.has_checkpoints = workload.configuration.get(CheckpointingOptions.CHECKPOINTING_INTERVAL) is not None
        self.directory = f"{CHECKPOINT_ROOT}/{JOB_ID}"
        self.log = LogChecker(world, workload, shared, self.directory) if self.has_checkpoints else None
        self.answers = AnswerChecker(world)
        self.predecessors = PredecessorChecker(world, self.pending_checkpoints)
        self.started_from: Metadata | None = None
        """The checkpoint or savepoint that the job was started from, if it is not the first."""
        self.expected_failure: str | None = None
        """The error that the job has to fail with, for a scenario that nothing can mend."""
        self.is_resumed_after_failure = False
        """True if somebody resumes the job when it has failed for good."""
        self.is_resumed_after_cancel = False
        """True if somebody resumes it, at another parallelism, when it has been cancelled."""
        self._earlier_logs: list[LogChecker] = []
        self._claimed: set[str] = set()
        """The checkpoints and savepoints that jobs were started from, and own."""

    def start_from(self, path: str, job_id: str) -> None:
        """Continue as another job, which starts from a checkpoint or savepoint of this one."""
        assert self.log is not None
        before = self.log
        self._earlier_logs.append(before)
        metadata_path = f"{path}/{METADATA_NAME}"
        self.started_from = decode_metadata(self._shared.objects[metadata_path], metadata_path)
        self.directory = f"{CHECKPOINT_ROOT}/{job_id}"
        self.answers = AnswerChecker(self._world)  # its generations and checkpoints are numbered from the start again
        self.predecessors = PredecessorChecker(self._world, self.pending_checkpoints)
        self.log = LogChecker(self._world, self._workload, self._shared, self.directory)
        self.log.committable |= before.committable
        self.log.note(self.started_from)
        self.log.told = before.told
        self._workload.configuration.set("pipeline.job-id", job_id)
        self._workload.configuration.set("execution.state-recovery.path", path)
        if self._workload.configuration.get(StateRecoveryOptions.RESTORE_MODE) is RecoveryClaimMode.CLAIM:
            self._claimed.add(path)

    # ---- what its log says --------------------------------------------------------------------------------------

    def on_deleted(self, name: str) -> None:
        if self.log is not None:
            self.log.on_deleted(name)
        self.predecessors.on_deleted(name.removeprefix(f"{self.directory}/"))

    @property
    def stopped_with(self) -> str | None:
        """Return the savepoint that the job was stopped with: somebody starts a new job from it."""
        newest = None if self.log is None else self.log.newest
        return None if newest is None else newest.savepoint

    @property
    def is_ended_in_log(self) -> bool:
        return self.log is not None and any(isinstance(e, Ended) for e in self.log.entries)

    def check_savepoint(self, directory: str) -> None:
        """Check a savepoint reported to a user: of this job, or of an earlier one whose driver slept over its end. A
        job that was started from it meanwhile may own it, and have deleted it.
        """
        if directory in self._claimed:
            return
        log = next((earlier for earlier in self._earlier_logs if earlier.has_written(directory)), self.log)
        if log is not None:
            log.check_savepoint(directory)

    # ---- its drivers --------------------------------------------------------------------------------------------

    def has_lost_the_log(self, driver: DriverProcess) -> bool:
        """Return whether another driver owns the log, whether this one knows it or not."""
        return self.log is not None and self.log.owner != driver.incarnation

    @property
    def has_lost_its_owner(self) -> bool:
        """Return whether no driver lives that owns the log: nobody deletes anything."""
        living = (d.host for d in self._drivers if d.process.is_alive)
        return all(self.has_lost_the_log(driver) for driver in living)

    def is_left_by(self, driver: DriverProcess) -> bool:
        """Return whether the driver is of an earlier job, from whose savepoint or checkpoint this one has started."""
        return driver.has_begun and self.has_checkpoints and driver.master.job.identity.directory != self.directory

    def some_driver_continues(self) -> bool:
        living = [d.host for d in self._drivers if d.process.is_alive and not d.host.has_ended]
        return any(not self.is_left_by(driver) for driver in living)

    def declares_older_types(self, driver: DriverProcess, error: str) -> bool:
        """Return whether a driver fails because a later one, with a later program, has taken the newest checkpoint. One
        that began to start earlier may own the log again after it.
        """
        newest = self.log.newest if self.log is not None else None
        if newest is None or "is declared as" not in error:
            return False
        begun = [d.host.incarnation for d in self._drivers]
        return newest.incarnation in begun and begun.index(driver.incarnation) < begun.index(newest.incarnation)

    def pending_checkpoints(self) -> list[int]:
        """Return the pending checkpoints of the driver that owns the log."""
        owners = [d.host for d in self._drivers if d.process.is_alive and not self.has_lost_the_log(d.host)]
        return [number for host in owners if host.has_begun for number in host.master.coordinator.pending.ids]
