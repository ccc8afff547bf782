"""Tests sections 2, 3 and 4: how long checkpoints and draining take if nothing goes wrong."""

from __future__ import annotations

from typing import Any

from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.messages import ReleaseVertices, SlotAck, StartRun
from penstock.protocol.values.metadata import Metadata
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.rescaling import Rescaled
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace


class CheckpointsUnderPressureAreQuick(Scenario):
    """Every queue is full of rows, each of which takes long, and nothing goes wrong. A checkpoint is over soon after
    its alignment timeout, whatever waits: behind a barrier at the input, before one in an output queue."""

    section = 2
    rules = ("2.5",)
    options = UNALIGNED | {
        "execution.checkpointing.aligned-checkpoint-timeout": "5 ms",
        "penstock.network.window-bytes": 20_000,
        "penstock.network.output-queue-bytes": 20_000,
        "penstock.network.overdraft-bytes-max": 1_000_000,
    }
    pace = Pace(step_ms=0.05, data_ms=0.2, control_ms=0.2, work_ms=0.5)
    bounds_durations = True

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=100, parallelism=2, cost_ms=0.02, keys=8)
        passed = job.repartition(source, "rebalance", 3, cost_ms=0.02)
        job.sink(job.count(passed, 2, cost_ms=8.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "up" and isinstance(detail, SlotAck):
            self.count += any(s.persisted_bytes for s in detail.subtasks)


class OneTimeoutOnTheWholeWay(CheckpointsUnderPressureAreQuick):
    """Barriers wait before full queues at each of several vertices in a row. The alignment timeout counts from the
    trigger, once on the whole way, and not again at each vertex."""

    rules = ("2.5",)
    options = CheckpointsUnderPressureAreQuick.options | {
        "execution.checkpointing.aligned-checkpoint-timeout": "250 ms",
        "penstock.network.output-queue-bytes": 4_000,
        "penstock.network.window-bytes": 4_000,
    }

    def declare(self, job: WorkloadBuilder) -> None:
        stream = job.source(kind="sequence", rows=200, parallelism=1, cost_ms=0.02, keys=8)
        for cost_ms in (8.0, 9.0, 10.0):
            stream = job.count(stream, 1, cost_ms=cost_ms)
        job.sink(stream, 1)


class NoRoomInTheMiddleOfASlice(CheckpointsUnderPressureAreQuick):
    """One row becomes sixty, for which the output has no room, and the consumer is slow. A slice that waits there until
    all of them have left holds up the barrier that was to overtake them."""

    section = 4
    rules = ("4.4",)
    options = CheckpointsUnderPressureAreQuick.options | {
        "penstock.network.window-bytes": 1_000,
        "penstock.network.output-queue-bytes": 1_000,
    }

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=8, parallelism=1, cost_ms=0.02, keys=8)
        expanded = job.expand(job.repartition(source, "rebalance", 2, cost_ms=0.02), (60, 60), cost_ms=0.02)
        job.sink(job.count(expanded, 2, cost_ms=8.0), 2)


class DrainDuringACheckpoint(Rescaled):
    """While the job drains, an aligned checkpoint is under way that takes long to become durable. A release waits until
    the checkpoint has ended at the subtask, which is soon, and not until it is published."""

    rules = ("3.4b",)
    pace = Pace(step_ms=0.05, data_ms=0.2, control_ms=0.2, work_ms=300.0)
    resumes_max = 1
    is_parallel = True

    rows = 100
    cost_ms = (0.5, 0.5, 0.5, 1.0)
    limit_ms = 1.2 * rows * sum(cost_ms)
    """All rows are on their way, and pass all operators one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.began_ms = 0.0
        self.waited = 0
        """The number of releases that named a checkpoint."""

    def is_right(self, metadata: Metadata) -> bool:
        if not edges_in_flight(metadata):
            return False
        self.cluster.workload.configuration.set("execution.checkpointing.aligned-checkpoint-timeout", "5 s")
        return True

    def declare(self, job: WorkloadBuilder) -> None:
        stream = job.source(kind="ranges", rows=self.rows, parallelism=2, cost_ms=0.02, keys=8, timed=None)
        for cost_ms in self.cost_ms[:-1]:
            stream = job.repartition(stream, "custom", 2, cost_ms=cost_ms)
        job.sink(job.count(stream, 3, cost_ms=self.cost_ms[-1]), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        world = self.cluster.world
        if what == "down" and isinstance(detail, StartRun):
            self.began_ms = world.now_ms
        elif what == "down" and isinstance(detail, ReleaseVertices):
            self.waited += bool(detail.checkpoints)
            took_ms = world.now_ms - self.began_ms
            if detail.is_last and took_ms > self.limit_ms:
                world.violate(f"draining took {took_ms:.0f} ms, for which it has {self.limit_ms:.0f} ms")

    def has_happened(self) -> bool:
        return super().has_happened() and self.waited > 0


SCENARIOS: list[type[Scenario]] = [
    CheckpointsUnderPressureAreQuick, OneTimeoutOnTheWholeWay, NoRoomInTheMiddleOfASlice, DrainDuringACheckpoint,
]  # fmt: skip
