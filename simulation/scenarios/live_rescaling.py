"""Tests rescales of a running job: section 12."""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.elements import SnapshotKind
from penstock.protocol.values.messages import TriggerCheckpoint
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.savepoints import StopTakesNothingBehindItsSnapshot
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace


class RescaleTakesNothingBehindItsCheckpoint(StopTakesNothingBehindItsSnapshot):
    """A subtask that continues behind the checkpoint of a rescale emits rows that come again after the restart, and a
    sink without transactions shows them twice. From its snapshot on it takes no row."""

    section = 12
    rules = ("12.5a",)
    faults = FaultPlan(kinds=("rescale_live",), count=8, gap_ms=20.0)


class RescalesFollowEachOther(Scenario):
    """One rescale comes after the other, while rows in flight of those before are still to be read, while checkpoints
    are written and published, and while slots are lost. Each checkpoint describes the graph that ran when it was
    triggered, and the job restarts from the newest."""

    section = 12
    rules = ("12.5b", "12.6", "12.7")
    options = UNALIGNED | {"execution.checkpointing.max-concurrent-checkpoints": 4}
    pace = Pace(work_ms=8.0, upload_ms=(0.0, 20.0), slot_start_ms=10.0)
    faults = FaultPlan(kinds=("rescale_live",) * 5 + ("kill_slot",), count=8, gap_ms=25.0)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=70, parallelism=2, cost_ms=0.5, keys=8)
        spread = job.repartition(source, "rebalance", 3, cost_ms=0.5)
        job.sink(job.count(spread, 2, cost_ms=1.0), 1)

    def has_happened(self) -> bool:
        return self.cluster.statistics.rescales > 1


class RescaleMeetsTheEndOfItsDriver(Scenario):
    """The driver dies at any step of a rescale. The next one resumes from the newest checkpoint in the log, the one of
    the rescale or the one before, at the parallelism of its program."""

    section = 12
    rules = ("12.5",)
    options = UNALIGNED
    pace = Pace(work_ms=8.0)
    faults = FaultPlan(kinds=("rescale_live",), count=6, gap_ms=60.0)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        is_taken = isinstance(detail, TriggerCheckpoint) and detail.barrier.kind is SnapshotKind.RESCALE
        if what == "down" and is_taken and self.count < 3:
            self.count += 1
            world = self.cluster.world
            world.after(world.chance() * 60, None, self.cluster.fault_injector.inject, "kill_driver")


SCENARIOS: list[type[Scenario]] = [
    RescaleTakesNothingBehindItsCheckpoint, RescalesFollowEachOther, RescaleMeetsTheEndOfItsDriver,
]  # fmt: skip
