"""Tests section 1: in-flight data is an interval of numbers."""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.elements import ChannelId
from penstock.protocol.values.frames import Data, Event, UrgentBarrier
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace

KILLS = FaultPlan(kinds=("kill_slot",), count=3, gap_ms=60.0)


class BarrierOvertakesHandedRows(Scenario):
    """The connection has taken frame 41; the subtask captures 42 and 43; the urgent barrier leaves before 41. A window
    that closes when the barrier arrives would lose 41, so it closes at the number `handed`.
    """

    section = 1
    rules = ("1.2",)
    options = UNALIGNED
    pace = Pace(data_ms=4.0)
    faults = KILLS

    def __init__(self) -> None:
        super().__init__()
        self._received: dict[tuple[str, ChannelId], int] = {}

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "frame":
            return
        place = (who.process.name, detail.channel)
        if isinstance(detail, Data):
            self._received[place] = detail.first + detail.rows
        elif isinstance(detail, Event):
            self._received[place] = detail.number + 1
        elif isinstance(detail, UrgentBarrier) and detail.handed > self._received.get(place, 0):
            self.count += 1


class RowsBehindAnUrgentBarrier(Scenario):
    """The subtask looks at its mailbox, which is empty; barrier N and then frame e arrive; it takes e: applied is
    more than emitted. Here a subtask's barriers and rows come through one mailbox, and it takes all mail before it
    works: e cannot be taken before N has been. The schedule's frames do arrive in one go; no coverage is violated."""

    section = 1
    rules = ("1.3",)
    options = UNALIGNED
    pace = Pace(step_ms=3.0, data_ms=0.2)
    faults = KILLS

    def __init__(self) -> None:
        super().__init__()
        self._waiting: set[tuple[str, ChannelId]] = set()

    def observe(self, what: str, who: Any, detail: Any) -> None:
        """Count rows that arrive directly after a barrier of their channel, before the subtask's next step."""
        if what != "frame":
            return
        place = (who.process.name, detail.channel)
        if isinstance(detail, UrgentBarrier):
            self._waiting.add(place)
        elif isinstance(detail, Data) and place in self._waiting:
            mailbox = next(
                r.mailbox
                for r in who.listener._deployment.runners
                if r.deployed.vertex.index == self.cluster.workload.graph.edges[detail.channel.edge].target
            )
            self._waiting.discard(place)
            self.count += any(isinstance(m, UrgentBarrier) and m.channel == detail.channel for m in mailbox.mail)


class WatermarkInItsPlace(Scenario):
    """A watermark treated as control overtakes rows and makes them late. The last watermark and the end of data are
    captured among the rows that they follow, and restored there."""

    section = 1
    rules = ("1.1",)
    options = UNALIGNED
    pace = Pace(data_ms=6.0)
    faults = FaultPlan(kinds=("kill_slot",), count=6, gap_ms=40.0)

    def declare(self, job: WorkloadBuilder) -> None:
        fast = job.source(kind="sequence", rows=24, parallelism=2, cost_ms=0.02, keys=8)
        job.sink(job.count(job.repartition(fast, "rebalance", 2, cost_ms=0.02), 3, cost_ms=3.0), 2)

    def has_happened(self) -> bool:
        log = self.cluster.job.log
        assert log is not None
        return log.inflight_events > 0


SCENARIOS: list[type[Scenario]] = [BarrierOvertakesHandedRows, RowsBehindAnUrgentBarrier, WatermarkInItsPlace]
