"""Attaches watermark strategies: one that does not fit, or is missing where that stops all time, is reported."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.memory.collection import CollectionSource
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    SingleOutputStreamOperator,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
)
from penstock.datastream._streams.strategy_checks import EventTimeWarning
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.data_stream import ColumnKeyedStream
from penstock.graph.logical import OperatorKind

EVENT = Types.ROW_NAMED(
    ["user", "at", "when", "seconds"], [Types.STRING(), Types.LONG(), Types.SQL_TIMESTAMP(), Types.INT()]
)
MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
NONE = WatermarkStrategy.no_watermarks()


class At(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        assert isinstance(value.at, int)
        return value.at


def source(env: StreamExecutionEnvironment, strategy: WatermarkStrategy = NONE) -> SingleOutputStreamOperator:
    return env.from_source(CollectionSource([], EVENT), strategy, "events")


@pytest.mark.parametrize("strategy", [
    MONOTONOUS.with_timestamp_assigner(At()), MONOTONOUS.with_timestamp_column("at"),
    MONOTONOUS.with_timestamp_column("when"), NONE.with_timestamp_column("at"),
])  # fmt: skip
def test_a_sources_strategy_stands_with_its_operator(
    env: StreamExecutionEnvironment, strategy: WatermarkStrategy
) -> None:
    source(env, strategy).sink_to(DiscardingSink())
    operator = env.get_job_graph().vertices[0].operators[0]
    assert operator.kind is OperatorKind.SOURCE and operator.watermark_strategy is strategy and operator.timestamped


def test_a_source_without_a_strategy_has_no_event_time(env: StreamExecutionEnvironment) -> None:
    source(env).sink_to(DiscardingSink())
    operator = env.get_job_graph().vertices[0].operators[0]
    assert operator.watermark_strategy is None and not operator.timestamped


def test_assigning_is_an_operator_of_its_own(env: StreamExecutionEnvironment) -> None:
    strategy = MONOTONOUS.with_timestamp_column("at")
    stream = source(env).filter(bool).assign_timestamps_and_watermarks(strategy)
    assert stream.get_type() == EVENT and stream.get_name() == "Timestamps/Watermarks"
    stream.name("clock").uid("clock").sink_to(DiscardingSink())
    graph = env.get_job_graph()
    assert [v.name for v in graph.vertices] == ["Source: events -> Filter", "clock -> Sink: DiscardingSink"]
    operator = graph.vertices[1].operators[0]
    assert operator.function is strategy is operator.watermark_strategy


@pytest.mark.parametrize("strategy, error, says", [
    (MONOTONOUS.with_timestamp_column("att"), ValueError, r"with_timestamp_column\(\): there is no column 'att'; the "
     r"columns are user \(string\), at"),
    (MONOTONOUS.with_timestamp_column("seconds"), TypeError, "the column is of type int32"),
    (MONOTONOUS.with_timestamp_column("user"), TypeError, "whole milliseconds"),
    (None, TypeError, "takes a WatermarkStrategy"),
    (At(), TypeError, "takes a WatermarkStrategy"),
])  # fmt: skip
def test_a_strategy_that_does_not_fit_the_rows(
    env: StreamExecutionEnvironment, strategy: WatermarkStrategy, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        source(env, strategy)
    assert str(caught.value).startswith("source 'events': ")
    with pytest.raises(error, match=says) as caught:
        source(env).assign_timestamps_and_watermarks(strategy)
    assert str(caught.value).startswith("assign_timestamps_and_watermarks(): ")


def test_a_stream_without_a_type_has_no_columns(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(TypeError, match=r"with_timestamp_column\('at'\) works on columns, .* no declared type"):
        source(env).map(str).assign_timestamps_and_watermarks(MONOTONOUS.with_timestamp_column("at"))


def test_watermarks_can_be_made_anew_from_the_timestamps_that_rows_have(env: StreamExecutionEnvironment) -> None:
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    timed = source(env, MONOTONOUS.with_timestamp_column("at"))
    timed.map(str).assign_timestamps_and_watermarks(bounded).sink_to(DiscardingSink())
    graph = env.get_job_graph()
    strategies = [v.clock.watermark_strategy for v in graph.vertices if v.clock is not None]
    assert [s.name for s in strategies if s is not None] == [MONOTONOUS.name, bounded.name]


# ---- who waits for watermarks that never come -----------------------------------------------------------------------

TIMED = MONOTONOUS.with_timestamp_column("at")


class Alarm(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        at_ms = ctx.timestamp()
        assert at_ms is not None
        ctx.timer_service().register_event_time_timer(at_ms + 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield timestamp


class Untimed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield value


class Both(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield value

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        return None

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> None:
        return None


def stream(
    env: StreamExecutionEnvironment, name: str, strategy: WatermarkStrategy = NONE, ends: bool = False
) -> SingleOutputStreamOperator:
    generator = DataGeneratorSource(row_of, 10 if ends else None, type_info=EVENT)
    return env.from_source(generator, strategy, name)


def test_a_strategy_in_the_place_of_the_name(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(TypeError, match=r"^from_source\(\) takes a source, its WatermarkStrategy and its name"):
        env.from_source(CollectionSource([], EVENT), "events", WatermarkStrategy.no_watermarks())  # type: ignore[arg-type]


def row_of(index: int) -> tuple[str, int, None, int]:
    return "north", index, None, 0


def union_of(
    env: StreamExecutionEnvironment, strategy: WatermarkStrategy = NONE, ends: bool = False
) -> ColumnKeyedStream:
    return stream(env, "old", TIMED).union(stream(env, "new", strategy, ends)).key_by("user")


@pytest.mark.parametrize("build", [
    lambda env: union_of(env).process(Alarm()),
    lambda env: stream(env, "old", TIMED).key_by("user").connect(stream(env, "new").key_by("user")).process(Both()),
    lambda env: stream(env, "new", NONE.with_timestamp_column("at")).key_by("user")
        .window(TumblingEventTimeWindows.of(Duration.of_seconds(1))).count(),
    lambda env: stream(env, "old", TIMED).connect(stream(env, "new")).process(Pair(), EVENT).key_by("user")
        .window(TumblingEventTimeWindows.of(Duration.of_seconds(1))).count(),
])  # fmt: skip
def test_an_endless_part_without_watermarks_is_warned_of_once_at_the_users_line(
    env: StreamExecutionEnvironment, build: Callable[[StreamExecutionEnvironment], SingleOutputStreamOperator]
) -> None:
    build(env).name("waits").sink_to(DiscardingSink())
    with pytest.warns(
        EventTimeWarning,
        match="still for 'waits': .* none ever come from 'Source: new', .* Call assign_timestamps_and_watermarks",
    ) as warned:
        env.execute()
    assert len(warned) == 1 and warned[0].filename == __file__


class Pair(CoProcessFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield value

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> None:
        return None


@pytest.mark.parametrize("build", [
    lambda env: union_of(env, ends=True).process(Alarm()),
    lambda env: union_of(env, strategy=NONE.with_idleness(1000)).process(Alarm()),
    lambda env: union_of(env, strategy=TIMED).process(Alarm()),
    lambda env: union_of(env).process(Untimed()),
    lambda env: union_of(env).map(str),
    lambda env: stream(env, "new").key_by("user").process(Alarm()),
])  # fmt: skip
def test_what_ends_is_idle_or_waited_for_by_nobody_is_no_matter(
    env: StreamExecutionEnvironment, build: Callable[[StreamExecutionEnvironment], SingleOutputStreamOperator]
) -> None:
    """Accepts all three: timers wait for an end; a program without any watermarks can only have timers of processing
    time."""
    build(env).sink_to(DiscardingSink())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.execute()


def test_watermarks_from_timestamps_need_one_in_every_part_of_a_union(env: StreamExecutionEnvironment) -> None:
    union = stream(env, "old", TIMED).union(stream(env, "new"))
    with pytest.warns(EventTimeWarning, match="reads timestamps, and some of the rows .* have none"):
        union.assign_timestamps_and_watermarks(MONOTONOUS)
    union.assign_timestamps_and_watermarks(TIMED)
