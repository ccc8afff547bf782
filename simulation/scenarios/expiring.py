"""Tests section 8: state that expires, over restarts and rescales."""

from __future__ import annotations

from typing import Any, ClassVar

from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.branches import expire
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace

INCREMENTAL: dict[str, Any] = UNALIGNED | {"execution.checkpointing.incremental": True}


class StateExpiresOverRestarts(Scenario):
    """Slots and drivers are killed, and the job is rescaled, while entries get old: some expire before a restart, some
    while nothing runs, some long after it. Nobody sees one that has expired, and none is lost before."""

    section = 8
    rules: ClassVar[tuple[str, ...]] = ("8.4a", "8.4c")
    options = INCREMENTAL
    pace = Pace(work_ms=0.5, slot_start_ms=20.0)
    faults = FaultPlan(kinds=("kill_slot", "rescale", "kill_driver"), count=6, gap_ms=50.0)
    cleanup: ClassVar[str] = "background"
    updates_on_read: ClassVar[bool] = False
    ttl_ms: ClassVar[int] = 40

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.5, keys=8, timed=None)
        expired = expire(job, source, self.ttl_ms, self.updates_on_read, False, self.cleanup, 3, 0.3)
        job.sink(expired, 2)

    def has_happened(self) -> bool:
        return self.cluster.statistics.generations > 1


class StateThatIsReadLivesOn(StateExpiresOverRestarts):
    """A read prolongs the life of an entry that nothing else changes. The next checkpoint stores the new time."""

    rules = ("8.4a",)
    cleanup = "none"
    updates_on_read = True
    ttl_ms = 120


class StateOnDiskExpiresOverRestarts(StateExpiresOverRestarts):
    """Repeats the schedule above with entries in RocksDB. Memory holds only those that were used lately, so an entry
    that a scan finds expired on disk may be younger in memory."""

    rules = ("8.4b",)
    options = INCREMENTAL | {"state.backend.type": "rocksdb", "penstock.state.rocksdb.object-cache-size": "20 kb"}


SCENARIOS: list[type[Scenario]] = [StateExpiresOverRestarts, StateThatIsReadLivesOn, StateOnDiskExpiresOverRestarts]
