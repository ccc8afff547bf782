"""Tests section 3: resuming with a changed graph."""

from __future__ import annotations

from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.metadata import Metadata
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.rescaling import FULL, OFTEN, Rescaled
from simulation.scenarios.scenario import Scenario
from simulation.world.pace import Pace

_BOTH_KINDS = (
    FULL
    | OFTEN
    | {
        "execution.checkpointing.interval": "10 ms",
        "execution.checkpointing.aligned-checkpoint-timeout": "10 ms",
    }
)


class GraphChangesAtEveryResume(Rescaled):
    """Operators are inserted and removed, chains broken and joined, at other parallelisms, again and again. From a
    checkpoint without rows on the edges that vanish, the job continues as if nothing had happened: state, timers and
    the rows that a sink's writer holds are found again, and time starts where the operators above had been. With rows
    there, the graph is refused, and the previous one continues.
    """

    rules = ("3.7",)
    options = _BOTH_KINDS
    resumes_max = 8
    changes_graph = True
    pace = Pace(work_ms=0.5)

    def __init__(self) -> None:
        super().__init__()
        self.without_rows = 0

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.3, keys=8, timed="patient")
        passed = job.repartition(source, "forward", cost_ms=0.1)
        held = job.delay(job.repartition(passed, "custom", 2, cost_ms=0.1), 30, cost_ms=0.3)
        job.sink(job.window(held, "rows", 25), 2, held_rows_max=5)

    def is_right(self, metadata: Metadata) -> bool:
        self.without_rows += not edges_in_flight(metadata)
        return True

    def has_happened(self) -> bool:
        statistics = self.cluster.statistics
        return statistics.refused > 0 and statistics.rescales > statistics.refused and self.without_rows > 0


SCENARIOS: list[type[Scenario]] = [GraphChangesAtEveryResume]
