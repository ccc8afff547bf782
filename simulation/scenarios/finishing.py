"""Tests sections 9 and 10: finishing, and sources."""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.messages import ReachedEndOfData, SlotAck, SplitsAssigned, TriggerCheckpoint
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace


class FinishedProducerWithQueuedRows(Scenario):
    """Rows wait in a finished producer's queue; the checkpoint counts it as finished; they are lost. A finished
    subtask keeps answering barriers for what its queues hold.
    """

    section = 9
    rules = ("9.1a",)
    options = UNALIGNED | {"penstock.network.window-bytes": 700, "penstock.network.output-queue-bytes": 20_000}
    faults = FaultPlan(kinds=("kill_slot",), count=3, gap_ms=150.0)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=120, parallelism=2, cost_ms=0.05, keys=8)
        job.sink(job.count(source, 2, cost_ms=4.0), 2)

    def has_happened(self) -> bool:
        log = self.cluster.job.log
        assert log is not None
        return log.finished_with_rows > 0


class KilledBetweenEndOfDataAndFinalCheckpoint(Scenario):
    """A sink's last files are in nobody's snapshot; the checkpoint counts it as finished; they are lost. A slot is
    killed after everything has reached its end of data, before the final checkpoint is acknowledged."""

    section = 9
    rules = ("9.1b",)
    options = {"execution.checkpointing.interval": "200 ms"}

    def __init__(self) -> None:
        super().__init__()
        self._ended: set[Any] = set()

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "up" and isinstance(detail, ReachedEndOfData):
            self._ended.add((tuple(detail.generation), tuple(detail.subtask)))
            subtasks = sum(v.parallelism for v in self.cluster.workload.graph.vertices)
            newest = max(g for g, _ in self._ended)
            if sum(g == newest for g, _ in self._ended) == subtasks and self.count < 3:
                self.count += 1
                world = self.cluster.world
                world.after(world.chance() * 2, None, self.cluster.fault_injector.inject, "kill_slot")


class EndsWithoutCheckpoints(Scenario):
    """Without checkpoints a sink's output is committed at the end, by a round that collects committables only; a slot
    that is lost before starts the job from scratch, and nothing was visible."""

    section = 9
    rules = ("9.1b",)
    options = {"execution.checkpointing.interval": None}
    faults = FaultPlan(kinds=("kill_slot",), count=2, gap_ms=40.0)

    def has_happened(self) -> bool:
        return bool(self.cluster.output.committed) and self.cluster.job.log is None


class SplitBetweenEnumeratorAndReader(Scenario):
    """A split assigned before the enumerator's snapshot and handled after the reader's is in nobody's state. Many
    small splits are handed out while checkpoints come and slots go; splits and trigger take the same way."""

    section = 10
    rules = ("10.1",)
    options = UNALIGNED
    pace = Pace(control_ms=4.0)
    faults = FaultPlan(kinds=("kill_slot",), count=5, gap_ms=80.0)

    def __init__(self) -> None:
        super().__init__()
        self._triggered: dict[str, int] = {}

    def declare(self, job: WorkloadBuilder) -> None:
        sources = [job.source(i, kind="ranges", rows=60, parallelism=2, cost_ms=0.5, keys=8) for i in range(2)]
        job.sink(job.count(job.union(*sources), 2, cost_ms=0.1), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        """Count splits that come between a trigger and the slot's acknowledgement, or directly before a trigger."""
        if isinstance(detail, TriggerCheckpoint):
            self._triggered[who.process.name] = detail.barrier.checkpoint_id
        elif isinstance(detail, SlotAck):
            self._triggered.pop(who.process.name, None)
        elif what == "down" and isinstance(detail, SplitsAssigned) and detail.splits:
            self.count += who.process.name in self._triggered


SCENARIOS: list[type[Scenario]] = [
    FinishedProducerWithQueuedRows, KilledBetweenEndOfDataAndFinalCheckpoint, EndsWithoutCheckpoints,
    SplitBetweenEnumeratorAndReader,
]  # fmt: skip
