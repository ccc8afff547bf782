"""Tests section 5: the time that a subtask resumes at, and what waits there for the next watermark."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from penstock.common.types import Types
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.elements import Active
from penstock.protocol.values.metadata import Metadata, SubtaskSnapshot
from penstock.simulation import clocks
from penstock.simulation import simulated_functions as f
from penstock.simulation import timed_functions as t
from penstock.simulation.added_branches import drawn_from
from penstock.simulation.idle_branch import BEYOND, scripted, slowly
from penstock.simulation.scenarios.rescaling import FULL, OFTEN, Rescaled
from penstock.simulation.scenarios.scenario import Scenario
from penstock.simulation.scripted import Script
from penstock.simulation.settings import Pace
from penstock.simulation.streams import Stream
from penstock.simulation.workload import WorkloadBuilder

_FOUR_SUBTASKS = 7
"""The seed of a delay with four subtasks."""


class _OneSource(Rescaled):
    section = 5
    options = FULL | OFTEN | {"execution.checkpointing.max-concurrent-checkpoints": 4}
    pace = Pace(step_ms=2.0, data_ms=40.0, control_ms=0.2, work_ms=0.5)
    is_parallel = True

    def delayed(self, job: WorkloadBuilder, pauses_ms: tuple[int, ...], timeout_ms: int) -> Stream:
        """Declare one source, whose only split pauses, and a delay behind it."""
        pauses = ((None, pause_ms) for pause_ms in pauses_ms)
        scripts = (Script(0, 0, (*slowly(0, 30), *pauses, *slowly(BEYOND, 60))),)
        with drawn_from(job, Random(_FOUR_SUBTASKS)):
            return job.delay(
                scripted(job, scripts, cost_ms=0.02, timeout_ms=timeout_ms, at_source=True), 1, cost_ms=0.5
            )


class AnIdleOwnerHasUnreadRows(_OneSource):
    """A source comes back from a pause. Some subtasks behind it have read on; to another one, which is idle, "active"
    and rows are on their way. A vertex below is rescaled. No row is late: all come from one split."""

    resumes_max = 1

    def declare(self, job: WorkloadBuilder) -> None:
        delayed = self.delayed(job, (400,), timeout_ms=150)
        delayed.group.root().pinned = True
        job.sink(job.repartition(delayed, "custom", 2, cost_ms=0.02), 2)

    def is_right(self, metadata: Metadata) -> bool:
        (timed,) = {shape.target for shape in metadata.edges if shape.source == 0}
        unfinished = [s for s in metadata.subtasks if s.vertex == timed and not s.finished]
        furthest_ms = max((s.watermark_ms or 0 for s in unfinished if not s.idle), default=0)
        return any(
            s.idle and furthest_ms > (s.watermark_ms or 0) + 100 and _comes_back(metadata, s) for s in unfinished
        )


def _comes_back(metadata: Metadata, subtask: SubtaskSnapshot) -> bool:
    """Return whether "active" and rows behind it are on their way to a subtask."""
    edges = {cut.edge for cut in subtask.inputs}
    sent = (c for s in metadata.subtasks for out in s.outputs if out.edge in edges for c in out.captures)
    captures = [c for cut in subtask.inputs for c in cut.captures] + [c for c in sent if c.peer == subtask.subtask]
    is_active = any(isinstance(event.event, Active) for capture in captures for event in capture.events)
    return is_active and any(capture.pieces for capture in captures)


class TheWatermarkOfASilentSourceIsInFlight(_OneSource):
    """A watermark is on its way, and no row, to some subtasks; then the job is rescaled, and the source says nothing
    for long. All subtasks reach that watermark meanwhile."""

    resumes_max = 1000  # it looks at every checkpoint

    def __init__(self) -> None:
        super().__init__()
        self.said_ms: int | None = None
        self.has_reached = False

    def declare(self, job: WorkloadBuilder) -> None:
        delayed = self.delayed(job, (3000, 3000), timeout_ms=600)
        job.sink(delayed, delayed.parallelism)

    def is_right(self, metadata: Metadata) -> bool:
        source_ms = max(s.watermark_ms or 0 for s in metadata.subtasks if s.vertex == 0)
        least_ms = min(s.current_ms or 0 for s in metadata.subtasks if s.vertex == 1)
        if self.said_ms is not None:
            self.has_reached = self.has_reached or (source_ms == self.said_ms == least_ms)
            return False
        if least_ms >= source_ms or not 70 < source_ms < 100 or edges_in_flight(metadata):
            return False
        self.said_ms = source_ms
        return True

    def has_happened(self) -> bool:
        if self.count and not self.has_reached:
            self.cluster.world.violate(f"time has never been {self.said_ms} before the source came back")
        return super().has_happened()


class TimersRegisteredLate(Rescaled):
    """A checkpoint holds timers that were registered when their time had passed, and rows in flight that precede the
    next watermark. Whoever owns these keys then, and whatever others have said, the timers wait for it."""

    section = 5
    options = FULL | OFTEN | {"execution.checkpointing.interval": "10 ms"}
    resumes_max = 4

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.1, keys=3, timed="patient")
        held = t.UntilTheNextWatermark("held back", clocks.RowTime(), False, 0.5)
        after = source.stream.key_by(f.key_of, Types.LONG()).process(held, f.ROW_TYPE)
        expected = replace(source.expected, ordered=False, clock=None, patient=False)
        job.sink(job.finish(after, 2, expected, "held back", True, [source], "keyed"), 2)

    def is_right(self, metadata: Metadata) -> bool:
        waits = any(
            s.current_ms == s.watermark_ms and any(r.name == "held" for r in s.keyed) for s in metadata.subtasks
        )
        if waits and self.cluster.world.chance() < 0.3:
            self.count += 1
            self.cluster.fault_injector.inject("kill_slot")
            return False
        return waits and bool(edges_in_flight(metadata))


SCENARIOS: list[type[Scenario]] = [
    AnIdleOwnerHasUnreadRows,
    TheWatermarkOfASilentSourceIsInFlight,
    TimersRegisteredLate,
]
