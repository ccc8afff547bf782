"""Tests section 5: the event time at which a subtask resumes, and the timers that wait for the next watermark."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import msgspec

from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.elements import Active
from penstock.protocol.values.metadata import Metadata, SubtaskSnapshot
from simulation.jobs import clocks
from simulation.jobs import simulated_functions as f
from simulation.jobs import timed_functions as t
from simulation.jobs.branches import drawn_from
from simulation.jobs.idle_branch import APART, BEYOND, scripted, slowly
from simulation.jobs.scripted import Script
from simulation.jobs.streams import Stream
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.idleness import splits_of
from simulation.scenarios.rescaling import FULL, OFTEN, Rescaled
from simulation.scenarios.scenario import Scenario
from simulation.world.pace import Pace

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

    rules = ("5.2d",)
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
    """A watermark is on its way, and no row, to some subtasks; then the job is rescaled, and the source is silent for a
    long time. Meanwhile all subtasks reach that watermark."""

    rules = ("5.2e",)
    resumes_max = 1000  # it looks at every checkpoint

    def __init__(self) -> None:
        super().__init__()
        self.said_ms: int | None = None
        self.has_reached = False

    def declare(self, job: WorkloadBuilder) -> None:
        # It never says that it is idle, either: that would be an event, and all that is behind it would look again.
        delayed = self.delayed(job, (3000, 3000), timeout_ms=10**6)
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


_PAUSE = 59
"""The step at which a split of 30 rows, and pauses between them, begins to pause for long."""


class AClockHasNotBeenAskedSinceItsLastRow(Rescaled):
    """A watermark generator in the middle of the graph has seen rows, and has not emitted their watermark before a
    checkpoint. Then it is rescaled, and the source is silent for a long time. Meanwhile all subtasks behind the
    generator reach that watermark."""

    section = 5
    rules = ("5.2f",)
    options = FULL | {"pipeline.auto-watermark-interval": "300 ms", "execution.checkpointing.interval": "40 ms"}
    pace = Pace(slot_start_ms=5.0, work_ms=0.5)
    resumes_max = 1000  # it looks at every checkpoint

    def __init__(self) -> None:
        super().__init__()
        self.due_ms: int | None = None
        self.has_reached = False

    def declare(self, job: WorkloadBuilder) -> None:
        self.timed = self.declare_clock(job)
        job.sink(job.delay(self.timed, 1, cost_ms=0.1), 2)

    def declare_clock(self, job: WorkloadBuilder) -> Stream:
        return _timed_again(job, self.declare_source(job), clocks.bounded(), "rebalance")

    def declare_source(self, job: WorkloadBuilder, names_splits: bool = True) -> Stream:
        steps = slowly(0, 30)
        assert len(steps) == _PAUSE
        scripts = (Script(0, 0, (*steps, (None, 3000), (None, 1500), *slowly(BEYOND, 20))),)
        return scripted(job, scripts, cost_ms=0.02, timeout_ms=10**6, at_source=True, names_splits=names_splits)

    def is_clock(self, parts: set[str]) -> bool:
        """Return whether a subtask with such parts in its state is one of the clock's."""
        return parts == {"watermarks"}

    def is_right(self, metadata: Metadata) -> bool:
        clocks_now = [s for s in metadata.subtasks if self.is_clock({p.name for p in s.parts}) and not s.finished]
        if self.due_ms is not None:
            behind = [s for s in metadata.subtasks if any(r.name == "held" for r in s.keyed)]
            told = [s.watermark_ms for s in clocks_now] + [s.current_ms for s in behind]
            self.has_reached = self.has_reached or all(said_ms == self.due_ms for said_ms in told)
            return False
        largest = [_largest_ms(s) for s in clocks_now]
        pausing = any(split["step"] == _PAUSE for s in metadata.subtasks for split in splits_of(s))
        due_ms = min(largest) - clocks.BOUND_MS - 1
        if (
            not pausing
            or due_ms < 0
            or edges_in_flight(metadata)
            or due_ms <= min(s.watermark_ms or 0 for s in clocks_now)
        ):
            return False
        self.due_ms = due_ms
        self.timed.group.root().parallelism += 1
        return True

    def has_happened(self) -> bool:
        if self.count and not self.has_reached:
            self.cluster.world.violate(f"time has never been {self.due_ms} before the source came back")
        return super().has_happened()


class ASourceWithoutSplitsHasNotBeenAsked(AClockHasNotBeenAskedSinceItsLastRow):
    """Repeats the schedule above with a source without splits, so no state moves to another subtask."""

    rules = ("5.2f",)

    def declare_clock(self, job: WorkloadBuilder) -> Stream:
        return self.declare_source(job, names_splits=False)

    def is_clock(self, parts: set[str]) -> bool:
        return "watermarks" in parts


def _timed_again(job: WorkloadBuilder, before: Stream, strategy: WatermarkStrategy, edge: str) -> Stream:
    """Declare a clock of two subtasks in the middle of the graph."""
    strategy = strategy.with_timestamp_assigner(clocks.Assigner(clocks.RowTime()))
    stream = before.stream
    moved = stream.rebalance() if edge == "rebalance" else stream.partition_custom(_to_the_first, f.key_of)
    expected = replace(before.expected, ordered=False, clock=clocks.RowTime(), patient=False)
    made = moved.assign_timestamps_and_watermarks(strategy)
    timed = job.finish(made, 2, expected, "clock", before.typed, [before], edge)
    timed.group.root().pinned = True
    return timed


def _to_the_first(key: int, parallelism: int) -> int:
    return 0


def _largest_ms(subtask: SubtaskSnapshot) -> int:
    """Return the largest timestamp that a clock has seen."""
    (item,) = next(part.items for part in subtask.parts if part.name == "watermarks")
    state = msgspec.msgpack.decode(item)["generator"]
    return int.from_bytes(state, "little", signed=True) if state else -(2**40)


class AClockHasSubtasksWithoutRows(Rescaled):
    """No row ever comes to some subtasks of a clock in the middle of the graph, after a start and after a rescale. The
    clock says by itself that they are idle, and time advances behind it, long before the source ends."""

    section = 5
    rules = ("5.2g",)
    options = FULL | OFTEN
    resumes_max = 1000  # it looks at every checkpoint

    def __init__(self) -> None:
        super().__init__()
        self.reached_ms = 0
        self.advanced = False

    def declare(self, job: WorkloadBuilder) -> None:
        scripts = (Script(0, 0, tuple(slowly(0, 200))),)
        source = scripted(job, scripts, cost_ms=0.02, timeout_ms=10**6, at_source=True)
        self.timed = _timed_again(job, source, WatermarkStrategy.for_generator(clocks.IdleWhenAskedInVain), "custom")
        job.sink(job.delay(self.timed, 1, cost_ms=0.02), 2)

    def is_right(self, metadata: Metadata) -> bool:
        keyed = [s for s in metadata.subtasks if any(r.name == "held" for r in s.keyed)]
        now_ms = min((s.current_ms or 0 for s in keyed), default=0)
        if not self.reached_ms < now_ms < 550:
            return False
        self.advanced = True
        if self.resumes or now_ms > 250:
            return False
        self.reached_ms, self.advanced = now_ms, False
        self.timed.group.root().parallelism = 3
        return True

    def has_happened(self) -> bool:
        if not self.advanced:
            self.cluster.world.violate(f"time has never been later than {self.reached_ms} before the end")
        return super().has_happened()


class ASourceHasMoreSubtasksThanSplits(AClockHasSubtasksWithoutRows):
    """A subtask of a source has no split and may get one later, after a start and after a rescale. Its splits have no
    timeout. Time advances behind it, long before the source ends."""

    rules = ("5.9",)

    def declare(self, job: WorkloadBuilder) -> None:
        scripts = (Script(0, 0, tuple(slowly(0, 200))),)
        self.timed = scripted(job, scripts, cost_ms=0.02, timeout_ms=10**6, at_source=True, without_splits=1)
        job.sink(job.delay(self.timed, 1, cost_ms=0.02), 2)


class AllSourcesAreSilentTheOneAheadFirst(Rescaled):
    """Two sources become silent, the one that is ahead first; in some runs the job is rescaled meanwhile. All that is
    behind them reaches the time of the one ahead before either comes back."""

    section = 5
    rules = ("5.8a",)
    options = FULL | OFTEN | {"execution.checkpointing.interval": "25 ms"}
    pace = Pace(slot_start_ms=5.0, work_ms=0.5)
    resumes_max = 1000  # it looks at every checkpoint

    def __init__(self) -> None:
        super().__init__()
        self.were_silent = self.has_reached = False
        self.is_rescaled: bool | None = None

    def declare(self, job: WorkloadBuilder) -> None:
        silence = ((None, 400), (None, 400), (None, 400))  # a restore ends one pause
        scripts = (
            Script(0, 0, (*slowly(0, 70), *silence, *slowly(BEYOND, 10))),
            Script(1, APART, (*slowly(0, 20, apart_ms=30), *silence, (None, 800), *slowly(2 * BEYOND, 10))),
        )
        paused = scripted(job, scripts, cost_ms=0.02, timeout_ms=60, at_source=True)
        self.delayed = job.delay(paused, 30, cost_ms=0.05)
        job.sink(self.delayed, 2)

    def is_right(self, metadata: Metadata) -> bool:
        sources = [s for s in metadata.subtasks if splits_of(s)]
        steps = sorted((split["script"], split["step"]) for s in sources for split in splits_of(s))
        has_come_back = any(step >= _AHEAD + 3 for script, step in steps if script == 0)
        if has_come_back or len(steps) < 2 or steps[0][1] < _AHEAD:
            return False
        behind = [s.current_ms or 0 for s in metadata.subtasks if any(r.name == "held" for r in s.keyed)]
        self.has_reached = self.has_reached or min(behind, default=0) > 60 * clocks.STEP_MS
        is_silent = steps[1][1] >= _BEHIND and all(s.idle for s in sources)
        self.were_silent = self.were_silent or is_silent
        if self.is_rescaled is None:
            self.is_rescaled = self.cluster.world.chance() < 0.5
        return is_silent and self.is_rescaled and self.resumes == 0

    def has_happened(self) -> bool:
        if self.were_silent and not self.has_reached:
            self.cluster.world.violate("time has never been that of the source ahead before either came back")
        return self.were_silent


_AHEAD = 139
_BEHIND = 39
"""The steps at which splits of 70 and of 20 rows, with pauses between them, begin to pause for long."""


class TimersRegisteredLate(Rescaled):
    """A checkpoint holds timers that were registered when their time had passed, and rows in flight that precede the
    next watermark. After a restore the timers wait for that watermark, whichever subtask owns their keys, and whatever
    watermarks other channels have had."""

    section = 5
    rules = ("5.1c",)
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
    AClockHasNotBeenAskedSinceItsLastRow,
    ASourceWithoutSplitsHasNotBeenAsked,
    AClockHasSubtasksWithoutRows,
    ASourceHasMoreSubtasksThanSplits,
    AllSourcesAreSilentTheOneAheadFirst,
    TimersRegisteredLate,
]
