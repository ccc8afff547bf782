"""Tests savepoints: sections 9 and 11."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.protocol.driver.coordinator import RETRY_FINAL_AFTER_MS, CoordinatorPhase
from penstock.protocol.driver.pending_checkpoints import CheckpointState
from penstock.protocol.driver.savepoint import Savepoint
from penstock.protocol.values.messages import ReachedEndOfData
from penstock.protocol.values.reasons import FailureReason
from penstock.storage.layout import LOG_FOLDER, METADATA_NAME, is_savepoint_segment, savepoint_segment_path
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import TIMEOUT, UNALIGNED, Scenario
from simulation.world.pace import SAVEPOINT_ROOT, Pace


class StopTakesNothingBehindItsSnapshot(Scenario):
    """A subtask that continued behind the snapshot of a stop would emit rows that nobody commits, and that a sink
    without transactions shows twice. From its snapshot on it takes no row, until the job ends or the savepoint has
    failed."""

    section = 9
    rules = ("9.3a",)
    options = UNALIGNED
    pace = Pace(step_ms=0.5)
    faults = FaultPlan(kinds=("stop_with_savepoint",), count=2, gap_ms=30.0)

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[Any, int] = {}

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "frame":
            return
        for runner in who.listener._deployment.runners:
            subtask = runner.opened
            if subtask is None or not subtask.deployed.machine.is_suspended:
                self._rows.pop(runner, None)
                continue
            self.count += 1
            before = self._rows.setdefault(runner, subtask.rows_in)
            if subtask.rows_in > before:
                self.cluster.world.violate(
                    f"{runner.name} took {subtask.rows_in - before} rows behind its last snapshot"
                )


class StopFailsInsideARow(Scenario):
    """The snapshot of a stop waits for the rest of a row, and its checkpoint expires meanwhile. Decided before the end
    and carried out behind it, the snapshot suspends the subtask for ever. The job continues after each such failure."""

    section = 9
    rules = ("9.3b",)
    options = TIMEOUT | {
        "penstock.network.overdraft-bytes-max": 0,
        "penstock.network.output-queue-bytes": 900,
        "execution.checkpointing.timeout": "40 ms",
    }
    faults = FaultPlan(kinds=("stop_with_savepoint", "expire_checkpoint"), count=6, gap_ms=15.0)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=30, parallelism=2, cost_ms=0.1, keys=8)
        burst = job.expand(job.repartition(source, "rebalance", 2, cost_ms=0.1), (10, 60), cost_ms=0.2)
        job.sink(job.count(burst, 2, cost_ms=1.0), 2)

    def has_happened(self) -> bool:
        return FailureReason.EXPIRED in self.cluster.statistics.aborted


class DrainFailsBehindTheEndOfItsSources(Scenario):
    """The job is drained, a slot is killed before the savepoint, and the job continues without it. A checkpoint that
    was triggered in between says that the sources have finished, and shows windows that have fired early: restarted
    from it, the job loses the rest of its rows."""

    section = 9
    rules = ("9.5",)
    options = UNALIGNED
    faults = FaultPlan(kinds=("drain_with_savepoint",), count=3, gap_ms=50.0)

    def __init__(self) -> None:
        super().__init__()
        self._drained: set[Savepoint] = set()

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=120, parallelism=2, cost_ms=0.5, keys=8)
        job.sink(job.count(source, 3, cost_ms=3.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "up" or not isinstance(detail, ReachedEndOfData):
            return
        stop = self.cluster.drivers[-1].host.master.coordinator.stopping.savepoint
        if stop is not None and stop.drains and stop not in self._drained:
            self._drained.add(stop)
            self.count += 1
            self.cluster.world.after(25.0, None, self._kill_unless_stopped)

    def _kill_unless_stopped(self) -> None:
        if not self.cluster.is_over and self.cluster.drivers[-1].host.has_begun:
            self.cluster.fault_injector.inject("kill_slot")


class StopBehindAFailedFinalCheckpoint(Scenario):
    """All data is processed, the final checkpoint fails, and the job is stopped with a savepoint, which is written
    slowly. The next attempt at the final checkpoint is due meanwhile. If it takes the savepoint a second time, this
    comes too late behind the job's end, is called not taken, and its directory, which the log names, is deleted."""

    section = 9
    rules = ("9.4b",)
    options = UNALIGNED | {"execution.checkpointing.timeout": "20 s"}

    def __init__(self) -> None:
        super().__init__()
        self._has_failed = False

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=30, parallelism=2, cost_ms=0.1, keys=8)
        job.sink(job.count(source, 2, cost_ms=0.1), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster = self.cluster
        if what == "create" and detail == METADATA_NAME and self._has_failed and not self.count:
            self.count += 1
            cluster.world.pass_time(2.0 * RETRY_FINAL_AFTER_MS)
        elif what == "up" and not self._has_failed and len(cluster.drivers) == 1:
            coordinator = cluster.drivers[-1].host.master.coordinator
            is_final = coordinator.phase is CoordinatorPhase.ENDING and any(
                pending.state is CheckpointState.TRIGGERED for pending in coordinator.pending
            )
            if is_final and coordinator.stopping.savepoint is None:
                self._has_failed = True
                for kind in ("expire_checkpoint", "stop_with_savepoint"):
                    cluster.world.after(0.0, None, cluster.fault_injector.inject_unless_over, kind)


class SavepointCommitsNothing(Scenario):
    """Output that a savepoint's writers prepare counts as committed, the job continues, and it is lost. Only what is in
    the log is committed: output that a savepoint has prepared is prepared again for the next checkpoint."""

    section = 11
    rules = ("11.13",)
    options = UNALIGNED
    faults = FaultPlan(kinds=("savepoint", "savepoint", "kill_slot"), count=8, gap_ms=15.0)

    def has_happened(self) -> bool:
        log = self.cluster.job.log
        return log is not None and log.savepoints > 0


class DriverDiesBehindTheEntryOfAStop(Scenario):
    """Kills the driver after the log's entry of the stop, before anything is committed. The next driver commits from
    that entry and ends: restarted from an earlier one, the job would repeat the work of a job that starts from the
    savepoint."""

    section = 11
    rules = ("11.14a",)
    options = UNALIGNED
    faults = FaultPlan(kinds=("stop_with_savepoint",), count=1, gap_ms=60.0)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log = self.cluster.job.log
        newest = None if log is None or self.count else log.newest
        if newest is not None and newest.savepoint is not None:
            self.count += 1
            self.cluster.world.after(0.0, None, self.cluster.fault_injector.inject, "kill_driver")


class NextDriverNamesTheSavepoint(DriverDiesBehindTheEntryOfAStop):
    """A job is stopped with a savepoint, next to an earlier one, and its driver dies before it has answered. The next
    driver ends the job. Unless it names the savepoint, the user knows of the earlier one only, starts from there, and
    gets output twice."""

    rules = ("11.14c",)
    faults = FaultPlan()

    def __init__(self) -> None:
        super().__init__()
        self._orders = ["savepoint", "stop_with_savepoint"]
        self._stopped_with: str | None = None
        self._warnings: list[str] = []

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        log, faults = self.cluster.job.log, self.cluster.fault_injector
        assert log is not None
        if what == "warn":
            self._warnings.append(detail)
        elif self.count == 1 and self._stopped_with is None:
            self._stopped_with = self.cluster.job.stopped_with
        elif what == "create" and detail.startswith(LOG_FOLDER) and log.published >= 2 and self._orders:
            if len(faults.orders.taken) == 2 - len(self._orders):
                self.cluster.world.after(0.0, None, faults.inject, self._orders.pop(0))

    def has_happened(self) -> bool:
        known, directory = self.cluster.fault_injector.orders.taken, self._stopped_with
        if directory is None or directory in known:
            return False
        if not any(directory in warning for warning in self._warnings):
            self.cluster.world.violate(f"the job has ended with {directory}, and its user knows {sorted(known)} only")
        return bool(known)


class _WithoutRoom(Scenario):
    """Checks that savepoints that cannot be written fail, leave nothing behind, and do not disturb the job."""

    section = 11
    options: ClassVar[dict[str, Any]] = UNALIGNED
    faults = FaultPlan(kinds=("savepoint",), count=8, gap_ms=15.0)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "create" and (is_savepoint_segment(detail) or detail == METADATA_NAME):
            self.on_written()

    def on_written(self) -> None:
        """Handle an object of a savepoint that is about to be written."""

    def has_happened(self) -> bool:
        cluster = self.cluster
        taken = tuple(f"{directory}/" for directory in cluster.fault_injector.orders.taken)
        left = [n for n in cluster.shared.objects if n.startswith(SAVEPOINT_ROOT) and not n.startswith(taken)]
        if left:
            cluster.world.violate(f"savepoints that have failed left {sorted(left)}")
        if cluster.statistics.generations > 1:
            cluster.world.violate("a savepoint that cannot be written has restarted the job")
        return self.count > 0 and cluster.job.log is not None and cluster.job.log.savepoints > 0


class SavepointDirectoryFillsUp(_WithoutRoom):
    """The store has no room for some objects of savepoints, or does not answer, although it has written them. These
    savepoints fail, and their objects are deleted, because others need the room."""

    rules = ("11.21b",)

    def __init__(self) -> None:
        super().__init__()
        self._written = 0

    def on_written(self) -> None:
        self._written += 1
        if self._written % 5 == 0:
            self.count += 1
            self.cluster.fail_next_store_call(is_carried_out=self.count % 2 == 1)


class SavepointStorageIsSilent(_WithoutRoom):
    """The storage of some savepoints does not answer the last writes in time. They expire as
    checkpoints that are not acknowledged do; what is written after all is deleted. Checkpoints continue, and nobody
    waits for ever."""

    rules = ("11.21d",)
    options = UNALIGNED | {"execution.checkpointing.timeout": "2 s"}

    def __init__(self) -> None:
        super().__init__()
        self._written = 0

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "create" and detail == METADATA_NAME:
            self._written += 1
            if self._written % 2:
                self.count += 1
                self.cluster.world.pass_time(3_000.0)
        elif what == "warn" and "has not said yet whether it is published" in detail:
            self.cluster.world.violate(f"a savepoint has no limit: {detail}")


class SavepointDirectoryIsRemoved(_WithoutRoom):
    """Somebody removes the directory of a savepoint while it is written. The savepoint fails, and the job, which needs
    nothing of it, continues."""

    rules = ("11.21c",)

    def on_written(self) -> None:
        shared = self.cluster.shared
        pending = list(self.cluster.drivers[-1].host.master.savepoints.pending)
        if len(pending) == 1 and self.count < 3 and (self.count + len(shared.objects)) % 2:
            self.count += 1
            shared.removed.add(f"{pending[0]}/")
            for name in [name for name in shared.objects if name.startswith(f"{pending[0]}/")]:
                del shared.objects[name]


class SavepointNameIsTaken(Scenario):
    """The first names that are drawn for a savepoint belong to directories of somebody else's savepoints.
    Written into one of them, it would find that the metadata exist, fail, and delete what is there."""

    section = 11
    rules = ("11.21a",)
    options = UNALIGNED
    faults = FaultPlan(kinds=("savepoint",), count=4, gap_ms=15.0)

    def __init__(self) -> None:
        super().__init__()
        self._opened: set[str] = set()
        self._foreign: dict[str, bytes] = {}

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "open" or not detail.startswith(SAVEPOINT_ROOT) or detail in self._opened:
            return
        self._opened.add(detail)
        if len(self._opened) % 3:
            self.count += 1
            names = (METADATA_NAME, savepoint_segment_path(0, self.count, "beef"))
            foreign = {f"{detail}/{name}": f"{name} of somebody else".encode() for name in names}
            self._foreign |= foreign
            self.cluster.shared.objects |= foreign

    def has_happened(self) -> bool:
        cluster, log = self.cluster, self.cluster.job.log
        if any(cluster.shared.objects.get(name) != data for name, data in self._foreign.items()):
            cluster.world.violate("a savepoint was written into somebody else's, and has deleted what was there")
        return self.count > 0 and log is not None and log.savepoints > 0


SCENARIOS: list[type[Scenario]] = [
    StopTakesNothingBehindItsSnapshot, StopFailsInsideARow, DrainFailsBehindTheEndOfItsSources,
    StopBehindAFailedFinalCheckpoint, SavepointCommitsNothing, SavepointStorageIsSilent,
    DriverDiesBehindTheEntryOfAStop, NextDriverNamesTheSavepoint, SavepointDirectoryFillsUp,
    SavepointDirectoryIsRemoved, SavepointNameIsTaken,
]  # fmt: skip
