"""Tests section 10: a source that works off a backlog."""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.messages import TriggerCheckpoint
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import Scenario


class NoCheckpointsDuringABacklog(Scenario):
    """A source has a dozen splits, of which all but two were there before. While these are handed out, and again after
    a restart from the beginning, no periodic checkpoint is triggered; behind them they come at their interval."""

    section = 10
    rules = ("10.5",)
    options = {"execution.checkpointing.interval-during-backlog": "0 ms"}
    faults = FaultPlan(kinds=("kill_slot",), count=1, gap_ms=100.0)

    def __init__(self) -> None:
        super().__init__()
        self.handed_out_ms: float | None = None

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=240, parallelism=2, cost_ms=0.5, keys=8, timed=None, newest=2)
        job.sink(job.count(source, 2, cost_ms=0.1), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "down" or not isinstance(detail, TriggerCheckpoint):
            return
        running = self.cluster.drivers[-1].host.master.running
        if running.sources is not None and running.id == detail.generation:
            if running.sources.is_processing_backlog:
                self.cluster.world.violate(f"checkpoint {detail.barrier.checkpoint_id} is triggered during a backlog")
            self.count += 1


class NoCheckpointsBeforeTheLastSource(NoCheckpointsDuringABacklog):
    """A hybrid source reads ranges, and then a sequence. Slots are killed in both. There are no periodic checkpoints
    before all readers have finished the ranges, although some wait for the others; each row comes once."""

    rules = ("10.5",)
    faults = FaultPlan(kinds=("kill_slot",), count=3, gap_ms=60.0)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="hybrid", rows=400, parallelism=3, cost_ms=0.5, keys=8, timed=None)
        job.sink(job.count(source, 2, cost_ms=0.1), 2)


SCENARIOS: list[type[Scenario]] = [NoCheckpointsDuringABacklog, NoCheckpointsBeforeTheLastSource]
