"""Tests windows, timers and side outputs row by row, with a watermark behind each row, beside the rules of Flink
written down in a few lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from random import Random
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.common.configuration import Configuration
from penstock.common.program.failures import OperatorFailure
from penstock.common.watermark_strategy import Watermark, WatermarkGenerator
from penstock.connectors.memory.collection import CollectionSource
from penstock.datastream import (
    AggregateFunction,
    CoProcessFunction,
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TimeDomain,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WindowFunction,
)
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob

END = 2**63 - 1
LONG = Types.LONG()
EVENT = Types.TUPLE([LONG, LONG, LONG])
"""Key, timestamp, the watermark that follows (-1: none)."""


class RowByRow(CollectionSource):
    """Each row is a batch, and so a slice, of its own."""

    def create_reader(self, context: Any) -> Any:
        reader = super().create_reader(context)
        read = reader.read
        reader.read = lambda rows_max: read(1)  # type: ignore[method-assign]
        return reader


class Punctuated(WatermarkGenerator):
    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        if event[2] >= 0:
            output.emit_watermark(Watermark(event[2]))

    def on_periodic_emit(self, output: Any) -> None: ...


def events(env: StreamExecutionEnvironment, rows: list[tuple[int, int, int]]) -> Any:
    strategy = WatermarkStrategy.for_generator(Punctuated).with_timestamp_assigner(lambda row, _: row[1])
    return env.from_source(RowByRow(rows, EVENT), strategy, "events")


def keyed(env: StreamExecutionEnvironment, rows: list[tuple[int, int, int]]) -> Any:
    return events(env, rows).key_by(lambda row: row[0], LONG)


def run(env: StreamExecutionEnvironment, *streams: Any) -> list[Any]:
    """Return what comes out of the streams, in the order of each."""
    for stream in streams:
        stream.sink_to(CommittedRows())
    job = SmallJob(env.get_job_graph("job"))
    try:
        job.rest()
        assert job.all_at_end
        job.trigger(1, None)
        job.run()
        return job.complete(1).committed
    finally:
        job.close()


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(Configuration({"parallelism.default": 1}))


# ---- windows --------------------------------------------------------------------------------------------------------


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Seen(ProcessWindowFunction[int, Any, int, Any]):
    """Puts out which firing of its window this is, and what is left when the window is over."""

    def __init__(self) -> None:
        self.firings = ValueStateDescriptor("firings", LONG)

    def process(self, key: int, context: Any, elements: Any) -> Any:
        (count,) = elements
        of_window = context.window_state().get_state(self.firings)
        of_key = context.global_state().get_state(self.firings)
        of_window.update((of_window.value() or 0) + 1)
        of_key.update((of_key.value() or 0) + 1)
        yield key, context.window().start, count, of_window.value(), of_key.value()

    def clear(self, context: Any) -> None:
        context.window_state().get_state(self.firings).clear()


Late = tuple[int, int, int]
Result = tuple[int, int, int, int, int]


def windows_of_flink(
    rows: list[tuple[int, int, int]], size: int, offset: int, lateness: int
) -> tuple[list[Result], list[Late]]:
    """(results, late rows)."""
    watermark = -(2**63)
    contents: dict[tuple[int, int], int] = defaultdict(int)
    of_window: dict[tuple[int, int], int] = defaultdict(int)
    of_key: dict[int, int] = defaultdict(int)
    results: list[Result] = []
    late: list[Late] = []

    def fire(key: int, start: int) -> None:
        of_window[key, start] += 1
        of_key[key] += 1
        results.append((key, start, contents[key, start], of_window[key, start], of_key[key]))

    for row in [*rows, None]:
        follows = END if row is None else row[2]
        if row is not None:
            key, at, _ = row
            start = at - (at - offset) % size
            last = start + size - 1
            if min(last + lateness, END) <= watermark:
                late.append(row)
            else:
                contents[key, start] += 1
                if last <= watermark:
                    fire(key, start)
        if follows > watermark:
            before, watermark = watermark, follows
            for key, start in sorted(contents, key=lambda window: window[1]):
                if before < start + size - 1 <= watermark:
                    fire(key, start)
            for key, start in list(contents):
                if min(start + size - 1 + lateness, END) <= watermark:
                    del contents[key, start], of_window[key, start]
    return results, late


@pytest.mark.parametrize("lateness", [0, 1, 7, 10, 25, END - 100, END])
@pytest.mark.parametrize("offset, seed", [(0, 1), (0, 2), (3, 3), (-4, 4)])
def test_windows_fire_as_in_flink(env: StreamExecutionEnvironment, lateness: int, offset: int, seed: int) -> None:
    random = Random(f"{lateness} {offset} {seed}")
    rows: list[Late] = []
    reached = 0
    for _ in range(120):
        at = max(0, reached + random.randrange(-35, 30))
        follows = reached + random.randrange(1, 13) if random.random() < 0.5 else -1
        rows.append((random.randrange(3), at, follows))
        reached = max(reached, follows)
    late = OutputTag("late")
    windowed = keyed(env, rows).window(TumblingEventTimeWindows(10, offset)).allowed_lateness(lateness)
    made = windowed.side_output_late_data(late).aggregate(Count(), Seen(), LONG)
    found = run(env, made, made.get_side_output(late))
    results, late_rows = windows_of_flink(rows, 10, offset, lateness)
    assert len(late_rows) > 3 or lateness > 25, "nothing was late"
    assert lateness < 7 or any(r[3] > 1 for r in results), "nothing was late, but within the allowed lateness"
    for key in range(3):
        assert [r for r in found if len(r) == 5 and r[0] == key] == [r for r in results if r[0] == key]
    assert [r for r in found if len(r) == 3] == late_rows


@pytest.mark.parametrize("at", [END - 5, 5 - 2**63])
def test_a_timestamp_whose_window_leaves_64_bits_shows_its_row(env: StreamExecutionEnvironment, at: int) -> None:
    """[It stood in state that no checkpoint could write: each one was declined.]"""
    with pytest.raises(OperatorFailure, match=rf"no window fits in 64 bits.*the row was \(1, {at}, -1\)"):
        run(env, keyed(env, [(1, at, -1)]).window(TumblingEventTimeWindows(1_000)).apply(Rows()))


class EndlessTimer(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(END + ctx.timestamp())
        return ()


def test_times_beyond_64_bits_are_refused_where_they_are_said(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(OperatorFailure, match="a timer's time .milliseconds. must fit in 64 bits, got"):
        run(env, keyed(env, [(1, 1, -1)]).process(EndlessTimer(), EVENT))


def test_a_timestamp_and_a_watermark_beyond_64_bits_name_their_row_or_generator(
    env: StreamExecutionEnvironment,
) -> None:
    beyond = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row[1] + END)
    with pytest.raises(OperatorFailure, match="row 0 of the collection: a row's timestamp .* must fit in 64 bits, got"):
        run(env, env.from_source(RowByRow([(1, 1, -1)], EVENT), beyond, "events"))
    with pytest.raises(ValueError, match="watermark's timestamp .milliseconds. must fit in 64 bits"):
        Watermark(END + 1)


class Rows(WindowFunction[Any, Any, int, Any]):
    def apply(self, key: int, window: Any, inputs: Any) -> Any:
        yield key, window.start, window.end, [row[1] for row in inputs]


def test_a_window_keeps_its_rows_in_their_order(env: StreamExecutionEnvironment) -> None:
    rows = [(1, 5, -1), (1, 3, -1), (2, 4, -1), (1, 12, -1), (1, 5, 9), (1, 11, -1)]
    made = keyed(env, rows).window(TumblingEventTimeWindows(10)).apply(Rows())
    assert run(env, made) == [(1, 0, 10, [5, 3, 5]), (2, 0, 10, [4]), (1, 10, 20, [12, 11])]


class Sorted(ProcessWindowFunction[Any, Any, int, Any]):
    ODD = OutputTag("odd", EVENT)

    def process(self, key: int, context: Any, elements: Any) -> Any:
        for row in elements:
            yield (Sorted.ODD, row) if row[1] % 2 else row


def test_a_window_functions_side_output_and_its_timestamps(env: StreamExecutionEnvironment) -> None:
    class Time(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
            yield value[1], ctx.timestamp()

    rows = [(1, 1, -1), (1, 2, -1), (1, 13, 9), (1, 14, -1)]
    made = keyed(env, rows).window(TumblingEventTimeWindows(10)).process(Sorted(), EVENT)
    even, odd = made.process(Time()), made.get_side_output(OutputTag("odd", EVENT)).process(Time())
    assert sorted(run(env, even, odd)) == [(1, 9), (2, 9), (13, 19), (14, 19)]


def test_late_rows_without_a_tag_are_dropped(env: StreamExecutionEnvironment) -> None:
    made = keyed(env, [(1, 5, 20), (1, 6, -1), (1, 25, -1)]).window(TumblingEventTimeWindows(10)).aggregate(Count())
    assert run(env, made) == [1, 1]


# ---- timers and side outputs ----------------------------------------------------------------------------------------


class Timers(KeyedProcessFunction):
    """Each row sets a timer 10 later, and takes back the one that the row before it set, where its key is odd."""

    OTHER = OutputTag("other", Types.TUPLE([LONG, Types.STRING()]))

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", LONG))

    def process_element(self, value: Any, ctx: Any) -> Any:
        timers, last = ctx.timer_service(), self.last.value()
        if value[0] % 2 and last is not None:
            timers.delete_event_time_timer(last + 10)
        self.last.update(ctx.timestamp())
        timers.register_event_time_timer(value[1] + 10)
        timers.register_event_time_timer(value[1] + 10)
        timers.delete_event_time_timer(value[1] + 11)
        yield Timers.OTHER, (value[0], "row")
        yield OutputTag("nobody reads this"), value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        assert ctx.timestamp() == timestamp and ctx.time_domain() is TimeDomain.EVENT_TIME
        assert ctx.timer_service().current_watermark() >= timestamp
        yield ctx.get_current_key(), timestamp
        yield Timers.OTHER, (ctx.get_current_key(), "timer")


def test_timers_are_of_their_key_and_fire_once_in_their_order(env: StreamExecutionEnvironment) -> None:
    rows = [(1, 5, -1), (2, 3, -1), (1, 9, -1), (2, 6, -1), (2, 6, 14), (1, 20, -1)]
    made = keyed(env, rows).process(Timers(), Types.TUPLE([LONG, LONG]))
    found = run(env, made, made.get_side_output(Timers.OTHER))
    assert [row for row in found if isinstance(row[1], int)] == [(2, 13), (2, 16), (1, 30)]
    side = [row for row in found if isinstance(row[1], str)]
    assert sorted(side) == sorted([(r[0], "row") for r in rows] + [(2, "timer")] * 2 + [(1, "timer")])
    assert side.index((2, "timer")) == 5, "it fires after the row that the watermark came with"


class Chain(KeyedProcessFunction):
    """A timer that sets the next one, and one in the past."""

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(10)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        if timestamp < 40:
            ctx.timer_service().register_event_time_timer(timestamp + 10)
        if timestamp == 20:
            ctx.timer_service().register_event_time_timer(5)
        yield timestamp, min(ctx.timer_service().current_watermark(), 99)


def test_timers_set_by_timers_fire_up_to_the_watermark(env: StreamExecutionEnvironment) -> None:
    made = keyed(env, [(1, 1, 25), (1, 1, 26), (1, 1, -1)]).process(Chain())
    at_once = [10, 20, 5, 15, 25]
    assert run(env, made) == [(t, 25) for t in at_once] + [(t, 26) for t in at_once] + [
        (t, 99) for t in [*at_once, 30, 35, 40, 45]
    ]


@pytest.mark.parametrize(
    "made, says",
    [
        ((Timers.OTHER, (1, 2)), r"'sorter': .* 2 \(int\) does not fit STRING.* \(side output 'other'\); the row was"),
        ((Timers.OTHER,), "'sorter': a row that it put out does not fit its declared type .* it has 1 fields"),
    ],
)
def test_a_side_row_that_does_not_fit(env: StreamExecutionEnvironment, made: tuple[Any, ...], says: str) -> None:
    class Bad(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
            yield made

    stream = events(env, [(1, 1, -1)]).process(Bad(), EVENT).name("sorter")
    with pytest.raises(OperatorFailure, match=says):
        run(env, stream, stream.get_side_output(Timers.OTHER))


# ---- what cannot be -------------------------------------------------------------------------------------------------


class Number(ProcessWindowFunction[Any, Any, int, Any]):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        return 7


class NumberOfTimers(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(5)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return 7


class NoTime(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(None)


@pytest.mark.parametrize("made, says", [
    (lambda keys: keys.window(TumblingEventTimeWindows(10)).process(Number()),
     "'Window Process': it must yield its rows, .* it returned 7"),
    (lambda keys: keys.process(NumberOfTimers()), "'Keyed Process': it must yield its rows, .* it returned 7"),
    (lambda keys: keys.process(NoTime()), "a timer's time is an int .milliseconds., got None"),
])  # fmt: skip
def test_functions_that_put_out_no_rows_or_want_no_time(
    env: StreamExecutionEnvironment, made: Callable[[KeyedStream], DataStream], says: str
) -> None:
    with pytest.raises(OperatorFailure, match=says):
        run(env, made(keyed(env, [(1, 1, -1)])))


class FromBoth(CoProcessFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield value

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield value


def test_rows_without_event_time_are_in_no_window(env: StreamExecutionEnvironment) -> None:
    """Names the operator: of a union before it runs, of what a function of two inputs puts out, when it has done so."""
    untimed = env.from_collection([(1, 1, -1)], EVENT)
    both = events(env, []).connect(untimed).process(FromBoth(), EVENT).key_by(lambda row: row[0])
    with pytest.raises(OperatorFailure, match=r"timestamp is None.* the row was \(1, 1, -1\)"):
        run(env, both.window(TumblingEventTimeWindows(10)).apply(Rows()))


def test_instants_become_milliseconds_that_are_rounded_down(env: StreamExecutionEnvironment) -> None:
    class Time(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
            yield ctx.timestamp()

    before, after = datetime(1969, 12, 31, 23, 59, 59, 999_500), datetime(1970, 1, 1, 0, 0, 1, 999)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("value")
    source = env.from_source(CollectionSource([before, after], Types.SQL_TIMESTAMP()), strategy, "instants")
    assert run(env, source.process(Time())) == [-1, 1000]
