"""Tests restoring into a changed graph: operators inserted and removed, chains broken and joined, parallelism 1 <-> n
beside an operator of a fixed parallelism. Every row once, every window once and whole, and state and timers found
again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.time import Time
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.fit import fitted
from penstock.graph.job_graph import JobGraph
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.metadata import Metadata
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_event_time_jobs import (
    FREQUENT,
    PAIR,
    ROWS,
    SIZE_MS,
    TRIPLE,
    Counts,
    expected_counts,
    time_of,
    timed,
)
from tests.unit.runtime.jobs.test_rescaled_jobs import TIMEOUTS, Cascade, checkpointed, finished


@dataclass(frozen=True)
class Shape:
    """Describes what of the program changes between two generations."""

    inserted: bool = False
    removed: bool = False
    broken: bool = False
    first: int | None = None
    """The fixed parallelism of the operator behind the source."""


Program = Callable[[StreamExecutionEnvironment, Shape], None]


def _before_the_key(env: StreamExecutionEnvironment, shape: Shape) -> Any:
    stream = timed(env).uid("source")
    stream = stream.map(lambda x: x, Types.LONG()).uid("first")
    if shape.first is not None:
        stream.set_parallelism(shape.first)
    if shape.broken:
        stream.start_new_chain()
    if shape.inserted:
        stream = stream.map(lambda x: x, Types.LONG()).uid("inserted")
    if not shape.removed:
        stream = stream.rebalance().map(lambda x: x, Types.LONG()).uid("removable")
    return stream


def windows(env: StreamExecutionEnvironment, shape: Shape) -> None:
    pairs = _before_the_key(env, shape).map(lambda x: (x % 5, 1), PAIR).uid("pairs")
    made = pairs.key_by(lambda p: p[0], Types.LONG()).window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE_MS)))
    made = made.reduce(lambda a, b: (a[0], a[1] + b[1]), window_function=Counts(), output_type=TRIPLE).uid("windows")
    made = made.map(lambda t: t, TRIPLE).uid("behind")
    if shape.broken:
        made.start_new_chain()
    if shape.inserted:
        made = made.filter(lambda t: True).uid("also inserted")
    made.sink_to(CommittedRows()).uid("sink")


class HeldBack(KeyedProcessFunction):
    """Holds each row until 40 ms after its event time; no row may be late."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.held = runtime_context.get_map_state(MapStateDescriptor("held", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        assert ctx.timestamp() == time_of(value) > ctx.timer_service().current_watermark(), "a row is late"
        at_ms = ctx.timestamp() + 40
        self.held.put(at_ms, [*(self.held.get(at_ms) or []), value])
        ctx.timer_service().register_event_time_timer(at_ms)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        held = self.held.get(timestamp)
        assert held is not None
        yield from held
        self.held.remove(timestamp)


def timers(env: StreamExecutionEnvironment, shape: Shape) -> None:
    held = _before_the_key(env, shape).key_by(lambda x: x % 5, Types.LONG()).process(HeldBack(), Types.LONG())
    held = held.uid("timers").map(lambda x: x, Types.LONG()).uid("behind")
    if shape.broken:
        held.start_new_chain()
    held.sink_to(CommittedRows()).uid("sink")


class Changing(Cascade):
    """Each generation runs what `next` says, if the checkpoint allows it, else what ran before."""

    options = FREQUENT

    def __init__(self, program: Program, seed: int) -> None:
        super().__init__(lambda env: None, seed)
        self.program = program
        self.shape = self.next = Shape()
        self.changed = self.refused = 0
        self.parallelism = 1
        self.next_graph: JobGraph | None = None

    def start_as(self, shape: Shape, parallelism: int) -> None:
        graph = graph_of(lambda env: self.program(env, shape), parallelism)
        if self.restored is not None:
            try:
                graph = fitted(graph, self.restored, ignore_unclaimed_state=True)
            except IncompatibleGraph as refusal:
                assert _vanished_with_rows(self.restored, graph), f"refused for nothing: {refusal}"
                self.refused += 1
                graph = graph_of(lambda env: self.program(env, self.shape), self.parallelism)
            else:
                assert not _vanished_with_rows(self.restored, graph), "rows in flight would be read by nobody"
                self.changed += (shape, parallelism) != (self.shape, self.parallelism)
                self.shape, self.parallelism = shape, parallelism
        else:
            self.shape, self.parallelism = shape, parallelism
        self.next_graph = graph
        self.start(self.parallelism)

    def graph(self, parallelism: int) -> JobGraph:
        assert self.next_graph is not None
        return self.next_graph


def _vanished_with_rows(metadata: Metadata, graph: JobGraph) -> bool:
    return bool(edges_in_flight(metadata) - {e.name for e in graph.edges})


def check(program: Program, rows: list[Any]) -> None:
    assert sorted(rows) == (expected_counts() if program is windows else list(range(ROWS)))


CHANGES = {
    "inserted": (Shape(), 2, Shape(inserted=True), 2),
    "inserted and removed again": (Shape(inserted=True), 2, Shape(), 2),
    "removed": (Shape(), 2, Shape(removed=True), 2),
    "chain broken": (Shape(), 2, Shape(broken=True), 2),
    "chain joined": (Shape(broken=True), 2, Shape(), 2),
    "1 to n beside a fixed 1": (Shape(first=1), 1, Shape(first=1), 3),
    "n to 1 beside a fixed 1": (Shape(first=1), 3, Shape(first=1), 1),
    "all at once": (Shape(broken=True, first=1), 3, Shape(inserted=True, removed=True), 1),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("program", [windows, timers])
def test_a_changed_graph_is_restored_from_an_aligned_checkpoint(program: Program, change: str) -> None:
    before, parallelism, after, then = CHANGES[change]
    for seed in range(3):
        job = Changing(program, seed)
        job.start_as(before, parallelism)
        job.crash_after(job.random.randrange(5, 80), TIMEOUTS["aligned"])
        assert job.restored is not None and not edges_in_flight(job.restored)
        job.start_as(after, then)
        assert job.changed == 1
        check(program, job.finish())


@pytest.mark.parametrize("program", [windows, timers])
def test_graphs_change_several_times_with_rows_in_flight_and_while_the_job_drains(program: Program) -> None:
    changed = refused = drained_again = in_flight = 0
    for seed in range(16):
        job = Changing(program, 200 + seed)
        draw = job.random
        job.start_as(Shape(), 2)
        for _ in range(5):
            job.crash_after(draw.randrange(30), draw.choice([0, 0, None, 1]))
            shape = Shape(draw.random() < 0.4, draw.random() < 0.4, draw.random() < 0.4, draw.choice([None, None, 1]))
            job.start_as(shape, draw.randrange(1, 4))
            in_flight += bool(edges_in_flight(job.restored)) if job.restored else 0
        check(program, job.finish())
        changed, refused = changed + job.changed, refused + job.refused
        drained_again += job.drained_again
    assert changed > 20 and refused and drained_again and in_flight


def _between_two_watermarks(turns: int) -> tuple[Changing, int | None]:
    """Return a job that was cut after so many turns, and what all its sources had said, if they had said anything and
    go on."""
    job = Changing(windows, 1)
    job.start_as(Shape(), 2)
    job.crash_after(turns, None)
    assert job.restored is not None
    source = next(v.index for v in job.restored.vertices if "numbers" in v.name)
    sources = [s for s in job.restored.subtasks if s.vertex == source]
    said = min(s.watermark_ms or WATERMARK_MIN_MS for s in sources)
    return job, None if said == WATERMARK_MIN_MS or any(s.finished for s in sources) else said


def test_the_channels_of_a_new_edge_start_at_what_the_operators_above_had_said() -> None:
    """They would otherwise hold back the time of what is behind them until each producer has said more."""
    job, said = next(found for turns in range(14, 90, 2) if (found := _between_two_watermarks(turns))[1])
    job.start_as(Shape(inserted=True, broken=True), 3)
    job.job.close()  # type: ignore[union-attr]
    live = {
        s.vertex.operators[0].user_uid: [t.watermark_ms for t in s.deployed.valve.times()]
        for s in job.job.subtasks.values()  # type: ignore[union-attr]
    }
    assert set(live["first"]) == {said}
    assert set(live["removable"]) == {said}, "the inserted operator says nothing before those above it do"


def _with_another_source(env: StreamExecutionEnvironment, more: bool, windowed: bool) -> None:
    rows = timed(env).uid("source")
    if more:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda number, _: number)
        rows = rows.union(env.from_source(NumberSequenceSource(10_000, 10_099), strategy, "more").uid("more"))
    keyed = rows.key_by(lambda x: x % 5, Types.LONG())
    if windowed:
        keyed = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE_MS)))
    keyed.reduce(lambda _, newer: newer).uid("reduce").sink_to(CommittedRows()).uid("sink")


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_finished_operator_reads_what_a_new_source_emits_but_its_event_time_has_ended(
    parallelism: int, windowed: bool
) -> None:
    before = graph_of(lambda env: _with_another_source(env, False, windowed), 2)
    job = SmallJob(before, Configuration(FREQUENT), generation=Generation(1, 1))
    job.rest()
    ended = checkpointed(job, 1, None)
    job.close()
    assert ended.committed and all(s.finished for s in ended.metadata.subtasks)
    after = graph_of(lambda env: _with_another_source(env, True, windowed), parallelism)
    after = fitted(after, ended.metadata, ignore_unclaimed_state=False)
    again = SmallJob(
        after, Configuration(FREQUENT), restored=ended.metadata, generation=Generation(1, 2), store=job.store
    )
    rows = finished(again, 2)
    again.close()
    assert sorted(rows) == ([] if windowed else list(range(10_000, 10_100))), "in windows they are late"
