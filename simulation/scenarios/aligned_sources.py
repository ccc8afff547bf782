"""Tests section 5 on sources that stay together in event time."""

from __future__ import annotations

from typing import Any

from penstock.runtime.subtask.feeds import SourceFeed
from penstock.runtime.subtask.subtask import Phase
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario

ROWS = 150
DRIFT_MS = 100


class FastSourceWaitsForItsGroup(Scenario):
    """A source with cheap rows and one with expensive rows cover the same event time. Without the group the first has
    read everything before the other has read a quarter, and whatever joins them keeps all its rows. It pauses instead,
    also after a restart, and is neither idle nor stuck then."""

    section = 5
    rules = ("5.7",)
    options = UNALIGNED | {"pipeline.auto-watermark-interval": "2 ms"}
    faults = FaultPlan(kinds=("kill_slot",), count=2, gap_ms=60.0)

    def declare(self, job: WorkloadBuilder) -> None:
        fast = job.source(0, "ranges", ROWS, 1, 0.02, 8, "patient", drift_ms=DRIFT_MS)
        slow = job.source(1, "ranges", ROWS, 1, 4.0, 8, "patient", drift_ms=DRIFT_MS)
        job.sink(job.count(job.union(fast, slow), 2, cost_ms=0.02), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "frame":
            return
        sources = [s for s in self._subtasks() if isinstance(s.feed, SourceFeed) and s.phase is not Phase.OPENED]
        if len(sources) != 2:
            return
        fast, slow = sources
        alignment = fast.feed._alignment
        if alignment is None:
            return
        self.count += fast.event_time.generation.watermark_ms > alignment._limit_ms
        if fast.phase is Phase.FINISHED and slow.phase is Phase.RUNNING and slow.rows_in < ROWS // 4:
            self.cluster.world.violate(f"the fast source has ended, and the slow one has read {slow.rows_in} rows")

    def _subtasks(self) -> list[Any]:
        found = []
        for driver in self.cluster.drivers:
            for slot in driver.keeper.processes:
                deployment = slot.runtime._deployment
                found += [r.opened for r in deployment.runners if r.opened] if deployment is not None else []
        return sorted(found, key=lambda subtask: subtask.id)


SCENARIOS: list[type[Scenario]] = [FastSourceWaitsForItsGroup]
