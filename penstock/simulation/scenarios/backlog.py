"""Tests section 10: a source that works off a backlog."""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.messages import TriggerCheckpoint
from penstock.simulation.faults import FaultPlan
from penstock.simulation.scenarios.scenario import Scenario
from penstock.simulation.workload import WorkloadBuilder


class NoCheckpointsDuringABacklog(Scenario):
    """A source has a dozen splits, of which all but two were there before. While these are handed out, and again after
    a restart from the beginning, no periodic checkpoint is triggered; behind them they come at their interval."""

    section = 10
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
        checkpoints = self.cluster.drivers[-1].host.master.checkpoints
        if checkpoints.sources is not None and checkpoints.generation == detail.generation:
            if checkpoints.sources.is_processing_backlog:
                self.cluster.world.violate(f"checkpoint {detail.barrier.checkpoint_id} is triggered during a backlog")
            self.count += 1


SCENARIOS: list[type[Scenario]] = [NoCheckpointsDuringABacklog]
