"""Tests section 3 for copies of checkpoints on the slots' own disks."""

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


SCENARIOS: list[type[Scenario]] = [RestartFromDamagedCopies]
