"""Tests section 8: state that nobody asks for over restarts, and attributes that functions keep next to their state."""

from __future__ import annotations

from collections import Counter

from penstock.common.types import Types
from penstock.protocol.values.metadata import Metadata
from simulation.jobs import simulated_functions as f
from simulation.jobs.idle_branch import scripted
from simulation.jobs.scripted import Script
from simulation.jobs.simulated_functions import AskLate
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.idleness import splits_of
from simulation.scenarios.rescaling import FULL, Rescaled
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.scenarios.state import KILLS
from simulation.world.pace import Pace


class StateFirstAskedForAfterSeveralRestarts(Rescaled):
    """State is restored, and nobody asks for it until the job has been rescaled, restarted and rescaled again. Each
    checkpoint in between holds it unchanged: each subtask stores the state of its own key groups."""

    section = 8
    rules = ("8.2",)
    options = FULL | {"execution.checkpointing.interval": "10 ms"}
    pace = Pace(slot_start_ms=5.0, work_ms=0.5, step_ms=0.05)
    kept_to, asked_from, rows = 60, 200, 240

    def __init__(self) -> None:
        super().__init__()
        self.restarts = 0

    def declare(self, job: WorkloadBuilder) -> None:
        source = scripted(job, (Script(0, 0, ((0, self.rows),)),), cost_ms=1.0, timeout_ms=10**6, at_source=True)
        expected = Counter(row[2] for row in source.expected.rows if row[1] < self.kept_to)
        function = AskLate(self.kept_to, self.asked_from, dict(expected), 0.05)
        after = source.stream.key_by(f.key_of, Types.LONG()).process(function, f.ROW_TYPE)
        job.sink(job.finish(after, 2, source.expected, "ask late", True, [source], "keyed"), 2)

    def is_right(self, metadata: Metadata) -> bool:
        read = [split["done"] for s in metadata.subtasks for split in splits_of(s)]
        if not read or not self.kept_to + 40 < read[0] < self.asked_from - 20:
            return False
        self.restarts += 1
        if self.restarts % 2 == 0:
            self.cluster.fault_injector.inject("kill_slot")
            return False
        return True

    def has_happened(self) -> bool:
        return self.restarts > 2


class FunctionsThatKeepRows(Scenario):
    """Functions keep rows in `self`, which no checkpoint sees. A restart inside living processes gives each generation
    functions of its own, which have seen nothing; no row is lost or doubled by what the old ones keep."""

    section = 8
    rules = ("8.3",)
    options = UNALIGNED
    faults = KILLS

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=100, parallelism=2, cost_ms=0.3, keys=8)
        hoard = source.stream.rebalance().map(f.Hoard(0.3), f.ROW_TYPE)
        kept = job.finish(hoard, 2, source.expected, "hoard", True, [source], "rebalance")
        job.sink(job.count(kept, 2, cost_ms=0.5), 2)

    def has_happened(self) -> bool:
        return self.cluster.statistics.generations > 1


SCENARIOS: list[type[Scenario]] = [StateFirstAskedForAfterSeveralRestarts, FunctionsThatKeepRows]
