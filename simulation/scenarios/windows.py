"""Tests section 5: windows that overlap, are merged or have triggers, while slots are killed and jobs rescaled."""

from __future__ import annotations

from typing import ClassVar

from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.join_steps import join
from simulation.jobs.trigger_steps import KINDS, fire
from simulation.jobs.window_branch import join_sessions, slide
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace


class SlidingWindowsOverKillsAndRescales(Scenario):
    """Windows overlap, over rows and over columns, while slots are killed and the job is rescaled. A row counts once in
    each window that it belongs to, and no window fires twice."""

    section = 5
    rules: ClassVar[tuple[str, ...]] = ("5.11a",)
    options = UNALIGNED
    pace = Pace(slot_start_ms=5.0, work_ms=0.5)
    faults = FaultPlan(kinds=("kill_slot", "rescale_live", "kill_slot"), count=4, gap_ms=40.0)

    def declare(self, job: WorkloadBuilder) -> None:
        for by_column in (False, True):
            source = job.source(
                int(by_column), kind="owned", rows=100, parallelism=2, cost_ms=0.3, keys=6, timed="patient"
            )
            job.sink(slide(job, source, by_column, size_ms=50, slide_ms=10), 2)

    def has_happened(self) -> bool:
        return self.cluster.statistics.generations > 1


class SessionsOverKillsAndRescales(SlidingWindowsOverKillsAndRescales):
    """Rows join sessions of their key, while slots are killed and the job is rescaled. Each session fires once, with
    all its rows.
    """

    rules = ("5.11a", "5.11b")

    def declare(self, job: WorkloadBuilder) -> None:
        for folds in (False, True):
            source = job.source(
                int(folds), kind="owned", rows=100, parallelism=2, cost_ms=0.3, keys=4 if folds else 6, timed="patient"
            )
            job.sink(join_sessions(job, source, gap_ms=17, folds=folds), 2)


class TriggeredWindowsOverKillsAndRescales(SlidingWindowsOverKillsAndRescales):
    """Triggers fire windows of the clock, of numbers of rows and early ones, and remove their rows, while slots are
    killed and the job is rescaled. Each row leaves its window once; the last ones leave with the end of the data.
    """

    rules = ("5.11a", "5.12a", "5.12b")

    def declare(self, job: WorkloadBuilder) -> None:
        for number, kind in enumerate(KINDS):
            joins = "sessions" in kind
            source = job.source(
                number, kind="owned", rows=100 if joins else 60, parallelism=2, cost_ms=0.3, keys=6, timed="patient"
            )
            folds = number % 2 == 0
            job.sink(fire(job, source, kind, rows=100 if joins else 3, size_ms=34, folds=folds), 2)


class JoinsOverKillsAndRescales(SlidingWindowsOverKillsAndRescales):
    """Rows of two streams are joined by windows and by intervals, while slots are killed and the job is rescaled. Each
    pair is found once, whichever of its rows came first.
    """

    rules = ("5.13",)

    def declare(self, job: WorkloadBuilder) -> None:
        for number, lower_ms in enumerate((None, -60, 60)):
            left, right = (
                job.source(
                    2 * number + side, kind="owned", rows=50, parallelism=2, cost_ms=0.3, keys=5, timed="patient"
                )
                for side in range(2)
            )
            job.sink(join(job, left, right, lower_ms is None, size_ms=15, lower_ms=lower_ms or 0), 2)


SCENARIOS: list[type[Scenario]] = [
    SlidingWindowsOverKillsAndRescales,
    SessionsOverKillsAndRescales,
    TriggeredWindowsOverKillsAndRescales,
    JoinsOverKillsAndRescales,
]
