"""Tests sections 3 and 5: restoring at the same parallelism, and watermarks meanwhile."""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.elements import WATERMARK_MAX_MS
from penstock.protocol.values.messages import Deploy, Restore, StartRun
from penstock.storage.layout import METADATA_NAME
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace


class CheckpointBeforeRecoveredDataIsRead(Scenario):
    """A restored job takes its first checkpoint before it has read what was in flight, and is killed again: what is
    unread of each layer is in that checkpoint, and once only."""

    section = 3
    rules = ("3.1",)
    options = UNALIGNED | {"penstock.network.window-bytes": 20_000, "penstock.network.output-queue-bytes": 20_000}
    pace = Pace(data_ms=1.0, work_ms=0.5)

    def __init__(self) -> None:
        super().__init__()
        self._published = 0

    def declare(self, job: WorkloadBuilder) -> None:
        fast = job.source(kind="sequence", rows=120, parallelism=2, cost_ms=0.01, keys=8)
        job.sink(job.count(fast, 3, cost_ms=2.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "create" and detail.startswith("log/") and len(self.cluster.statistics.faults) < 4:
            self._published += 1
            if self._published % 3 == 0:
                self.cluster.world.after(2.0, None, self.cluster.fault_injector.inject, "kill_slot")

    def has_happened(self) -> bool:
        log = self.cluster.job.log
        assert log is not None
        return log.layers > 0


class RestoredWhileItIsRestored(Scenario):
    """A slot is lost between `connected` and `run`, again and again: the generation ends in every phase, and each
    restore reads the same checkpoint."""

    section = 3
    rules = ("3.1",)
    options = UNALIGNED
    pace = Pace(control_ms=3.0)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster, log = self.cluster, self.cluster.job.log
        if what != "down" or log is None:
            return
        if not self.count and isinstance(detail, StartRun):
            self.count = 1
            cluster.world.after(100.0, None, cluster.fault_injector.inject, "kill_slot")
        elif 1 <= self.count < 4 and log.published and isinstance(detail, (Deploy, Restore, StartRun)[self.count - 1]):
            self.count += 1
            cluster.world.after(cluster.world.chance() * 4, None, cluster.fault_injector.inject, "kill_slot")

    def has_happened(self) -> bool:
        return self.count == 4


class FinalWatermarkOfOneOfTwo(Scenario):
    """A finished producer's final watermark leaks to a live one's: every window fires. The final watermark of a short
    source must not pass a union with a long one before that has ended, checkpoints and restores in between
    included."""

    section = 5
    rules = ("5.2a",)
    options = UNALIGNED
    faults = FaultPlan(kinds=("kill_slot",), count=3, gap_ms=60.0)

    def declare(self, job: WorkloadBuilder) -> None:
        short = job.source(0, kind="sequence", rows=10, parallelism=1, cost_ms=0.02, keys=4)
        long = job.source(1, kind="sequence", rows=120, parallelism=2, cost_ms=1.0, keys=4)
        job.sink(job.count(job.union(short, long), 2, cost_ms=0.2), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "create" or not detail.endswith(METADATA_NAME):
            return
        for driver in self.cluster.drivers:
            for slot in driver.keeper.processes:
                deployment = slot.runtime._deployment
                for runner in deployment.runners if deployment is not None else ():
                    self._look_at(runner.deployed)

    def _look_at(self, subtask: Any) -> None:
        valve = subtask.valve
        if not subtask.gate.channels or valve.all_ended:
            return
        said_the_last = [t.watermark_ms == WATERMARK_MAX_MS for t in valve.times()]
        if any(said_the_last):
            self.count += 1
            if valve.current_ms == WATERMARK_MAX_MS and not all(said_the_last):
                self.cluster.world.violate(f"{subtask.id}: the final watermark passed before all producers had ended")


SCENARIOS: list[type[Scenario]] = [
    CheckpointBeforeRecoveredDataIsRead, RestoredWhileItIsRestored, FinalWatermarkOfOneOfTwo,
]  # fmt: skip
