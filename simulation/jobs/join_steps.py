"""Declares joins of two timed streams, whose pairs are known before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.common.time import Time
from penstock.common.types import Types
from penstock.datastream.functions import JoinFunction, ProcessJoinFunction
from penstock.datastream.window import TumblingEventTimeWindows
from simulation.jobs import clocks
from simulation.jobs import simulated_functions as f
from simulation.jobs.choices import PlanError, step
from simulation.jobs.streams import Stream
from simulation.jobs.timed_steps import timed
from simulation.world import world_hooks
from simulation.world.world_hooks import Row

if TYPE_CHECKING:
    from simulation.jobs.workload import WorkloadBuilder

_SPLITS_MAX = 10_000


def pair_of(left: Row, right: Row) -> Row:
    """Return the row that is emitted for a pair. No two pairs have the same."""
    return left[0] * _SPLITS_MAX + right[0], left[1], left[2], right[1], 0


class Pairs(f.Busy, JoinFunction):
    def join(self, first: Row, second: Row) -> Row:
        self.work()
        return pair_of(first, second)


class NearPairs(f.Busy, ProcessJoinFunction):
    """Emits pairs, and checks that the times are those of the rows."""

    def __init__(self, name: str, sides: tuple[clocks.Clock, clocks.Clock], cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.name = name
        self.sides = sides

    def process_element(self, left: Row, right: Row, ctx: Any) -> Any:
        self.work()
        times = ctx.get_left_timestamp(), ctx.get_right_timestamp()
        if times != (self.sides[0](left), self.sides[1](right)) or ctx.get_timestamp() != max(times):
            world_hooks.current().violate(f"{self.name}: the pair {left}, {right} has the times {times}")
        yield pair_of(left, right)


@step
def join(
    job: WorkloadBuilder,
    first: Stream,
    second: Stream,
    by_window: bool | None = None,
    size_ms: int | None = None,
    lower_ms: int | None = None,
) -> Stream:
    """Join two streams by a window, or by an interval of `size_ms` that begins `lower_ms` from each row's time."""
    random = job.random
    if not job.is_drawing and not (first.expected.patient and second.expected.patient):
        raise PlanError("it needs inputs of which nothing is late")
    by_window = job.choose("by_window", lambda: random.random() < 0.4, by_window)
    size_ms = job.choose("size_ms", lambda: random.choice((5, 15, 30)), size_ms)
    lower_ms = job.choose("lower_ms", lambda: random.choice((-60, -20, -5, 0, 40)), lower_ms)
    left, right = job.typed(first), job.typed(second)
    sides, name = (timed(left), timed(right)), f"join {len(job.words)}"
    found: Any
    if by_window:
        steps = left.stream.join(right.stream).where(f.key_of, key_type=Types.LONG()).equal_to(f.key_of)
        found = steps.window(TumblingEventTimeWindows(size_ms)).apply(Pairs(job.cost_ms()), f.ROW_TYPE)
    else:
        keyed = [side.stream.key_by(f.key_of, Types.LONG()) for side in (left, right)]
        interval = keyed[0].interval_join(keyed[1])
        interval.between(Time.milliseconds(lower_ms), Time.milliseconds(lower_ms + size_ms))
        found = interval.process(NearPairs(name, sides, job.cost_ms()), f.ROW_TYPE)

    def meet(left_ms: int, right_ms: int) -> bool:
        if by_window:
            return left_ms // size_ms == right_ms // size_ms
        return left_ms + lower_ms <= right_ms <= left_ms + lower_ms + size_ms

    rows = tuple(
        pair_of(a, b)
        for a in left.expected.rows
        for b in right.expected.rows
        if a[2] == b[2] and meet(sides[0](a), sides[1](b))
    )
    expected = replace(left.expected, rows=rows, ordered=False, exact=True, clock=None, patient=False)
    return job.finish(found, job.parallelism(), expected, name, True, [left, right], "keyed")
