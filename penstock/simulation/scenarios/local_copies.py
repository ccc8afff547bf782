"""Tests section 3 for copies of checkpoints on the slots' own disks, and for state that comes while the job runs."""

from __future__ import annotations

from penstock.simulation.faults import FaultPlan
from penstock.simulation.scenarios.scenario import UNALIGNED, Scenario
from penstock.simulation.scenarios.stored_state import declare_many_keys
from penstock.simulation.workload import WorkloadBuilder


class RestartFromDamagedCopies(Scenario):
    """Slots are killed again and again, and restored from the copies that they have left on the disk. Some of these
    were damaged since, and some were never written because the disk was full: what they lack comes from the store."""

    section = 3
    options = UNALIGNED | {"execution.checkpointing.local-backup.enabled": True}
    faults = FaultPlan(kinds=("kill_slot", "kill_slot", "kill_two_slots", "kill_driver"), count=8, gap_ms=40.0)

    def declare(self, job: WorkloadBuilder) -> None:
        declare_many_keys(job)

    def has_happened(self) -> bool:
        disk = self.cluster.world.disk
        return disk.read_bytes > 0 and disk.found > 0 and disk.refused > 0


class RestartWithDatabasesAsTheyWere(Scenario):
    """Slots are killed again and again, and open the databases that they had, which were copied at any time between two
    checkpoints, with changes that the restored one does not have, and without those that it has."""

    section = 3
    options = RestartFromDamagedCopies.options | {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": True,
    }
    faults = FaultPlan(kinds=("kill_slot", "kill_slot", "kill_two_slots", "kill_driver"), count=6, gap_ms=60.0)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=500, parallelism=2, cost_ms=1.0, keys=100)
        job.sink(job.count(source, 3, cost_ms=0.2), 2)

    def has_happened(self) -> bool:
        return self.cluster.world.disk.opened_databases > 0


class RestoredWhileItRuns(Scenario):
    """Slots and drivers are killed, and savepoints are taken, while subtasks load the state that they have restored.
    Checkpoints that name the runs of that state subsume each other, and some store everything: what nobody names any
    more is deleted at once."""

    section = 3
    options = UNALIGNED | {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": True,
        "penstock.state.rocksdb.range-size": "60 b",
        "penstock.state.rocksdb.object-cache-size": "20 kb",
    }
    faults = FaultPlan(kinds=("kill_slot", "kill_two_slots", "kill_driver", "savepoint"), count=12, gap_ms=90.0)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=1200, parallelism=2, cost_ms=1.0, keys=100)
        job.sink(job.count(source, 3, cost_ms=0.2), 2)

    def has_happened(self) -> bool:
        return self.cluster.world.lazy_restores.parts > 0


SCENARIOS: list[type[Scenario]] = [RestartFromDamagedCopies, RestartWithDatabasesAsTheyWere, RestoredWhileItRuns]
