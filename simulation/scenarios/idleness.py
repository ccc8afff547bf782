"""Tests sections 5 and 10: idleness, with lateness checked. Only a silent split becomes idle, and event time does not
wait for an idle one."""

from __future__ import annotations

import math
from typing import Any

from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.elements import Idle
from penstock.protocol.values.frames import Event
from penstock.protocol.values.messages import ReleaseVertices
from penstock.protocol.values.metadata import Metadata, SubtaskSnapshot
from simulation.jobs import clocks
from simulation.jobs.idle_branch import APART, BEYOND, scripted, slowly
from simulation.jobs.scripted import Script, splits_in
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.rescaling import FULL, OFTEN, Rescaled
from simulation.scenarios.scenario import Scenario
from simulation.world.pace import Pace

_OPTIONS = FULL | OFTEN | {"execution.checkpointing.interval": "10 ms"}


class IdlenessCountsNoDraining(Rescaled):
    """An assigner in the middle of a graph reads nothing new while the job drains, for longer than its timeout: it is
    not idle when draining ends, because the others' time would advance and its rows would be late."""

    section = 10
    rules = ("10.4b",)
    options = _OPTIONS
    pace = Pace(control_ms=20.0, work_ms=0.5)

    def declare(self, job: WorkloadBuilder) -> None:
        scripts = tuple(Script(owner, owner * APART, ((0, 120),)) for owner in range(3))
        assigned = scripted(job, scripts, cost_ms=0.3, timeout_ms=60, at_source=False)
        job.sink(job.delay(job.delay(assigned, 1, cost_ms=1.5), 1, cost_ms=1.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        """Make each phase of draining longer than the timeout: the driver's next message is delayed."""
        super().observe(what, who, detail)
        if what == "down" and isinstance(detail, ReleaseVertices) and not detail.is_last:
            who.hold_back(80.0)

    def is_right(self, metadata: Metadata) -> bool:
        return bool(edges_in_flight(metadata)) and not metadata.draining


class ASplitPausesWhileAnotherIsBusy(Scenario):
    """A split pauses for longer than the timeout, while its neighbour in the same reader continues: time advances with
    the neighbour, and no row of the split is late when it comes back. Another reader pauses with all that it has, and
    is idle; it is restored meanwhile, and its time counts again when it comes back.
    """

    section = 10
    rules = ("10.4a",)
    options = _OPTIONS
    pace = Pace(slot_start_ms=5.0, work_ms=0.5)

    def __init__(self) -> None:
        super().__init__()
        self.candidates = self.advanced = 0
        self.is_looking = False
        self.is_calm: bool | None = None

    def declare(self, job: WorkloadBuilder) -> None:
        scripts = (
            Script(0, 0, (*slowly(0, 140), (None, 250), (400, 60))),
            Script(0, APART, ((0, 20), (None, 300), *slowly(300, 60))),
            # It comes back before the others go beyond it, and is there for longer than the first is.
            Script(1, 2 * APART, ((None, 120), *slowly(150, 140))),
        )
        paused = scripted(job, scripts, cost_ms=0.1, timeout_ms=40, at_source=True)
        job.sink(job.delay(paused, 30, cost_ms=0.05), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "create" and detail.endswith("_metadata") and not self.is_looking:
            self.is_looking = True
            self.cluster.world.after(0.0, None, self._look)

    def _look(self) -> None:
        self.is_looking = False
        metadata = self.cluster.job.log.newest if self.cluster.job.log is not None else None
        if metadata is None or metadata.is_final or self.cluster.is_over:
            return
        sources = [s for s in metadata.subtasks if splits_of(s)]
        steps = {split["script"]: split for s in sources for split in splits_of(s)}
        busy, pausing = steps.get(0), steps.get(1)
        if busy and pausing and pausing["step"] == 1 and 80 < busy["step"] < 280:
            self.candidates += 1
            source = next(s for s in sources if s.subtask == 0)
            self.advanced += (source.current_ms or 0) > 22 * clocks.STEP_MS
        is_idle = any(s.idle for s in sources if s.subtask == 1)
        if self.is_calm is None:
            self.is_calm = self.cluster.world.chance() < 0.4
        if is_idle and not self.count and not self.is_calm:
            self.count += 1
            self.cluster.fault_injector.inject("kill_slot")

    def has_happened(self) -> bool:
        if self.candidates >= 3 and not self.advanced:
            self.cluster.world.violate("while a split paused, time stood still beside it")
        return self.count > 0 or self.candidates >= 3


class AnIdleInputHasNotHeardOfTheEndOfAPause(Scenario):
    """A source pauses, and the subtasks behind it are idle. One of them is suspended. The source sends rows again, and
    pauses again. The other subtasks have read these rows, and emit a later watermark. The rows of the suspended subtask
    are not late. In half of the runs a slot is killed when a checkpoint of that time completes.
    """

    section = 5
    rules = ("5.10",)
    options = _OPTIONS | {
        "execution.checkpointing.interval": "30 ms",
        "execution.checkpointing.max-concurrent-checkpoints": 20,
    }
    pace = Pace(slot_start_ms=5.0, work_ms=0.5)
    is_parallel = True
    timeout_ms = 20
    standing_ms = 400.0

    def __init__(self) -> None:
        super().__init__()
        self.stands_until_ms: float | None = None
        self.completed = 0
        self.kills_behind: int | None = None

    def declare(self, job: WorkloadBuilder) -> None:
        steps = (*slowly(0, 30), (None, 100), *slowly(BEYOND, 60), (None, 100), *slowly(2 * BEYOND, 30))
        paused = scripted(job, (Script(0, 0, steps),), cost_ms=0.02, timeout_ms=self.timeout_ms, at_source=True)
        spread = job.repartition(paused, "rebalance", 3, cost_ms=0.02)
        job.sink(job.delay(spread, 1, cost_ms=0.02), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        """Let the process of the third subtask stand still a little after "idle" has come to it, once."""
        world = self.cluster.world
        if what == "frame" and isinstance(detail, Event) and isinstance(detail.event, Idle):
            channel = detail.channel
            if (channel.producer, channel.consumer) == (0, 2) and not self.count:
                self.count += 1
                self.stands_until_ms = until_ms = world.now_ms + self.standing_ms
                world.after(5.0, None, lambda: who.process.pause_until(until_ms))
                self.kills_behind = world.random.randint(1, 10) if world.chance() < 0.5 else None
        elif what == "create" and detail.endswith("_metadata") and world.now_ms > (self.stands_until_ms or math.inf):
            self.completed += 1
            if self.completed == self.kills_behind:
                world.after(world.chance(), None, self.cluster.fault_injector.kill_slot)


def splits_of(snapshot: SubtaskSnapshot) -> list[dict[str, int]]:
    return [split for part in snapshot.parts if part.name == "splits" for split in splits_in(part.items)]


SCENARIOS: list[type[Scenario]] = [
    IdlenessCountsNoDraining, ASplitPausesWhileAnotherIsBusy, AnIdleInputHasNotHeardOfTheEndOfAPause,
]  # fmt: skip
