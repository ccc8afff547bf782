"""Tests section 7: rows that wait for the answer of a slow service, while slots are killed and the job is rescaled."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.operators.calls.stored_calls import count_calls
from penstock.protocol.values.metadata import CALLS_PART
from penstock.storage.layout import LOG_FOLDER
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.call_branch import call
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import TIMEOUT, UNALIGNED, Scenario
from simulation.world.pace import Pace


class AnswersThatACheckpointHolds(Scenario):
    """Answers have come and wait behind one that takes long, when a checkpoint is taken. Then a slot dies. No answer of
    the checkpoint is asked for again."""

    section = 7
    rules = ("7.4a",)
    options = UNALIGNED
    pace = Pace(slot_start_ms=5.0, work_ms=0.5)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="owned", rows=100, parallelism=2, cost_ms=0.3, keys=6, timed=None)
        job.sink(call(job, source, True, False, 10, 20.0, "default", 2, cost_ms=0.1), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log = self.cluster.job.log
        if what == "create" and detail.startswith(LOG_FOLDER) and self.count < 4:
            assert log is not None
            parts = [] if log.newest is None else [part for s in log.newest.subtasks for part in s.parts]
            if sum(count_calls(part)[1] for part in parts if part.name == CALLS_PART) > 2:
                self.count += 1
                self.cluster.world.after(0.0, None, self.cluster.fault_injector.inject, "kill_slot")

    def has_happened(self) -> bool:
        return self.cluster.hooks.calls().spared > 0 and self.cluster.statistics.generations > 1


class CallsOverKillsAndRescales(Scenario):
    """Rows wait for answers, in order and not, behind three kinds of edges, while slots are killed and the job is
    rescaled. Each row comes out once, and none is late."""

    section = 7
    rules: ClassVar[tuple[str, ...]] = ("7.4b", "7.4c")
    options = TIMEOUT
    pace = Pace(slot_start_ms=5.0, work_ms=0.5)
    faults = FaultPlan(kinds=("kill_slot", "rescale_live", "kill_slot"), count=5, gap_ms=40.0)

    def declare(self, job: WorkloadBuilder) -> None:
        for number, edge in enumerate(("default", "keyed", "custom")):
            source = job.source(number, kind="owned", rows=60, parallelism=2, cost_ms=0.3, keys=6, timed="patient")
            answered = call(job, source, number > 0, number == 1, 10, 10.0, edge, 2, cost_ms=0.1)
            job.sink(job.delay(answered, 5, cost_ms=0.1), 2)

    def has_happened(self) -> bool:
        return self.cluster.statistics.generations > 1


SCENARIOS: list[type[Scenario]] = [AnswersThatACheckpointHolds, CallsOverKillsAndRescales]
