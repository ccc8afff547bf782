"""Declares windows that a trigger fires, of the clock, of event time or of no time. Each row leaves its window once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.common.time import Time
from penstock.common.types import Types
from penstock.datastream.functions import AggregateFunction, ProcessWindowFunction
from penstock.datastream.state import ReducingStateDescriptor
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from simulation.jobs import simulated_functions as f
from simulation.jobs.choices import PlanError, step
from simulation.jobs.streams import Stream
from simulation.world import world_hooks

if TYPE_CHECKING:
    from simulation.jobs.workload import WorkloadBuilder

KINDS = ("clock", "clock sessions", "rows", "early", "early sessions", "early by the clock", "evicted sessions")


class Leaving(f.Busy, ProcessWindowFunction[Any, Any, Any, Any]):
    """Emits the rows of a window, or of the only list of them."""

    def __init__(self, name: str, folds: bool, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.name = name
        self.folds = folds

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        self.work()
        rows = next(iter(elements)) if self.folds else list(elements)
        window = context.window()
        others = [row for row in rows if row[2] != key]
        if not rows or others or (isinstance(window, TimeWindow) and window.start >= window.end):
            world_hooks.current().violate(f"{self.name}: window {window} of key {key!r} holds {others[:3]}")
        yield from rows


class AsList(AggregateFunction):
    """Keeps the rows, so that each is accounted for."""

    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        return [*accumulator, value]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return [*acc_a, *acc_b]


class RowsOrEnd(Trigger[Any, Any]):
    """Fires whenever a window has some rows more, and at its end. Counts in state of its own."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.counted = ReducingStateDescriptor("counted", lambda a, b: a + b, Types.LONG())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        ctx.register_event_time_timer(window.max_timestamp())
        counted = ctx.get_partitioned_state(self.counted)
        counted.add(1)
        if counted.get() < self.rows:
            return TriggerResult.CONTINUE
        counted.clear()
        return TriggerResult.FIRE_AND_PURGE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        ctx.merge_partitioned_state(self.counted)
        ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self.counted).clear()
        ctx.delete_event_time_timer(window.max_timestamp())


class ByTheClock(RowsOrEnd):
    """Fires by the clock, too, as a trigger of the API says."""

    def __init__(self, rows: int, interval_ms: int) -> None:
        super().__init__(rows)
        self.clock = ContinuousProcessingTimeTrigger(interval_ms)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        self.clock.on_element(element, timestamp, window, ctx)
        return super().on_element(element, timestamp, window, ctx)

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        result = self.clock.on_processing_time(time, window, ctx)
        return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result

    def on_merge(self, window: Any, ctx: Any) -> None:
        super().on_merge(window, ctx)
        self.clock.on_merge(window, ctx)

    def clear(self, window: Any, ctx: Any) -> None:
        super().clear(window, ctx)
        self.clock.clear(window, ctx)


def windows_of(kind: str, rows: int, size_ms: int) -> tuple[Any, Any]:
    """Return the assigner and the trigger (None: the assigner's own)."""
    match kind:
        case "clock":
            return TumblingProcessingTimeWindows.of(Time.milliseconds(size_ms), Time.milliseconds(3)), None
        case "clock sessions":
            return ProcessingTimeSessionWindows.with_gap(Time.milliseconds(max(1, size_ms // 10))), None
        case "rows":
            return GlobalWindows.create(), RowsOrEnd(rows)
        case "early":
            return TumblingEventTimeWindows(size_ms), PurgingTrigger.of(
                ContinuousEventTimeTrigger(max(1, size_ms // 4))
            )
        case "early sessions" | "evicted sessions":
            return EventTimeSessionWindows(max(1, size_ms // 2)), RowsOrEnd(rows)
        case _:
            return EventTimeSessionWindows(max(1, size_ms // 2)), ByTheClock(rows, max(1, size_ms // 4))


@step
def fire(
    job: WorkloadBuilder,
    before: Stream,
    kind: str | None = None,
    rows: int | None = None,
    size_ms: int | None = None,
    folds: bool | None = None,
) -> Stream:
    """Collect rows in windows, which emit each of them once: when the trigger fires, or at the end of the data."""
    random = job.random
    if not job.is_drawing and not before.expected.patient:
        raise PlanError("it needs an input of which nothing is late")
    kind = job.choose("kind", lambda: random.choice(KINDS), kind)
    rows = job.choose("rows", lambda: random.choice((1, 2, 5, 100)), rows)
    size_ms = job.choose("size_ms", lambda: random.choice((20, 50, 200)), size_ms)
    folds = job.choose("folds", lambda: random.random() < 0.5, folds)
    before = job.typed(before)
    name = f"fire {len(job.words)}"
    assigner, trigger = windows_of(kind, rows, size_ms)
    windows: Any = before.stream.key_by(f.key_of, Types.LONG()).window(assigner)
    if trigger is not None:
        windows = windows.trigger(trigger)
    if kind == "evicted sessions":  # an evictor that leaves all rows: the window keeps them with their times
        windows = windows.evictor(CountEvictor.of(10**6))
    leaving = Leaving(name, folds, job.cost_ms())
    fired = windows.aggregate(AsList(), leaving, None, f.ROW_TYPE) if folds else windows.process(leaving, f.ROW_TYPE)
    expected = replace(before.expected, ordered=False, clock=None, patient=False)
    return job.finish(fired, job.parallelism(), expected, name, True, [before], "keyed")
