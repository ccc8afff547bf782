"""Declares windows: each timestamp is in one of them, and size, lateness and functions reach the graph."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cloudpickle
import pytest

from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.connectors.memory.collection import CollectionSource
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import (
    AggregateFunction,
    EventTimeSessionWindows,
    Function,
    KeyedStream,
    OutputTag,
    ProcessWindowFunction,
    ReduceFunction,
    SingleOutputStreamOperator,
    StreamExecutionEnvironment,
    TimeWindow,
    TumblingEventTimeWindows,
    WindowFunction,
)
from penstock.graph.builder import GraphError
from penstock.graph.declared_functions import WindowSpec
from penstock.graph.logical import OperatorKind
from penstock.operators.windows.assigners.tumbling import Tumbling

EVENT = Types.TUPLE([Types.STRING(), Types.LONG()])
TEN_SECONDS = TumblingEventTimeWindows.of(Duration.of_seconds(10))


class Sum(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], value1[1] + value2[1]


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]


class WithEnd(ProcessWindowFunction[Any, Any, Any, TimeWindow]):
    def process(
        self, key: Any, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Any]
    ) -> Iterator[Any]:
        for element in elements:
            yield key, context.window().end, element


class Apply(WindowFunction[Any, Any, Any, TimeWindow]):
    def apply(self, key: Any, window: TimeWindow, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, window.start, len(list(inputs)))]


def keyed(env: StreamExecutionEnvironment) -> KeyedStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row[1])
    stream = env.from_source(CollectionSource([], EVENT), strategy, "events")
    return stream.key_by(lambda row: row[0], Types.STRING())


def spec_of(stream: SingleOutputStreamOperator) -> WindowSpec:
    stream.sink_to(DiscardingSink())
    vertex = next(
        v
        for v in stream.get_execution_environment().get_job_graph().vertices
        if v.operators[0].kind is OperatorKind.WINDOW
    )
    assert vertex.keyed and pickle.loads(cloudpickle.dumps(vertex.operators[0])).kind is OperatorKind.WINDOW
    spec = vertex.operators[0].function
    assert isinstance(spec, WindowSpec)
    return spec


def test_reduce(env: StreamExecutionEnvironment) -> None:
    function = Sum()
    stream = keyed(env).window(TEN_SECONDS).reduce(function)
    assert stream.get_type() == EVENT
    spec = spec_of(stream)
    assert spec == WindowSpec(Tumbling(10_000), 0, None, function, None, None, EVENT, TimeWindow)


def test_reduce_with_a_callable_and_a_window_function(env: StreamExecutionEnvironment) -> None:
    stream = keyed(env).window(TEN_SECONDS).reduce(lambda a, b: max(a, b), WithEnd())
    assert stream.get_type() == Types.PICKLED_BYTE_ARRAY()
    spec = spec_of(stream)
    assert spec.reduce.reduce(1, 2) == 2 and isinstance(spec.process, WithEnd) and spec.element_type == EVENT


def test_aggregate(env: StreamExecutionEnvironment) -> None:
    accumulator = Types.TUPLE([Types.LONG(), Types.LONG()])
    windowed = keyed(env).window(TEN_SECONDS)
    stream = windowed.aggregate(Mean(), Apply(), accumulator_type=accumulator, output_type=Types.DOUBLE())
    assert stream.get_type() == Types.DOUBLE() and stream.get_name() == "Window Aggregate"
    spec = spec_of(stream)
    assert isinstance(spec.aggregate, Mean) and isinstance(spec.process, Apply)
    assert spec.element_type == accumulator and spec.reduce is None


@pytest.mark.parametrize("method, function", [("process", WithEnd()), ("apply", Apply())])
def test_functions_of_whole_windows_keep_the_rows(
    env: StreamExecutionEnvironment, method: str, function: Function
) -> None:
    stream = getattr(keyed(env).window(TEN_SECONDS), method)(function, Types.STRING())
    spec = spec_of(stream)
    assert (spec.reduce, spec.aggregate, spec.process, spec.element_type) == (None, None, function, EVENT)


def test_offset_and_lateness_and_the_tag_of_late_rows(env: StreamExecutionEnvironment) -> None:
    late = OutputTag("late", EVENT)
    windows = TumblingEventTimeWindows.of(Time.hours(24), Time.hours(-8))
    windowed = keyed(env).window(windows).allowed_lateness(1500).side_output_late_data(late)
    stream = windowed.reduce(Sum())
    assert stream.get_side_output(late).get_type() == EVENT
    spec = spec_of(stream)
    assert spec.assigner == Tumbling(86_400_000, -28_800_000)
    assert (spec.allowed_lateness_ms, spec.late_tag) == (1500, "late")


def test_late_rows_have_the_streams_type_where_the_tag_says_none(env: StreamExecutionEnvironment) -> None:
    late = OutputTag("late")
    stream = keyed(env).window(TEN_SECONDS).side_output_late_data(late).reduce(Sum())
    assert stream.get_side_output(late).get_type() == EVENT


@pytest.mark.parametrize("call, error, says", [
    (lambda k: k.window(TumblingEventTimeWindows), TypeError, "was given the class TumblingEventTimeWindows"),
    (lambda k: k.window(Time.seconds(5)), TypeError, r"e.g. TumblingEventTimeWindows.of\(size, offset\); got"),
    (lambda k: k.window(TEN_SECONDS).allowed_lateness(-1), ValueError, "got -1"),
    (lambda k: k.window(TEN_SECONDS).side_output_late_data("late"), TypeError, "takes an OutputTag"),
    (lambda k: k.window(TEN_SECONDS).side_output_late_data(OutputTag("late", Types.LONG())), TypeError,
     "late rows have the type of the stream"),
    (lambda k: k.window(TEN_SECONDS).process(Apply()), TypeError, "takes a ProcessWindowFunction"),
    (lambda k: k.window(TEN_SECONDS).process(lambda k, c, e: e), TypeError, "takes a ProcessWindowFunction, got the"),
    (lambda k: k.window(TEN_SECONDS).apply(WithEnd()), TypeError, "takes a WindowFunction"),
    (lambda k: k.window(TEN_SECONDS).aggregate(Sum()), TypeError, "takes an AggregateFunction"),
    (lambda k: k.window(TEN_SECONDS).reduce(Mean()), TypeError, "takes a ReduceFunction"),
    (lambda k: k.window(TEN_SECONDS).reduce(Sum(), Mean()), TypeError, "ProcessWindowFunction"),
    (lambda k: k.window(TEN_SECONDS).aggregate(Mean(), accumulator_type=int), TypeError, r"write Types\.LONG"),
])  # fmt: skip
def test_what_a_window_cannot_be(
    env: StreamExecutionEnvironment, call: Callable[[KeyedStream], object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        call(keyed(env))


def test_a_window_over_rows_without_event_time_is_refused(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([("a", 1)], EVENT).key_by(lambda row: row[0])
    stream.window(TEN_SECONDS).reduce(Sum()).name("hourly").sink_to(DiscardingSink())
    with pytest.raises(
        GraphError,
        match="operator 'hourly': .* rows from 'Source: Collection Source' have no event "
        r"time; call assign_timestamps_and_watermarks\(strategy\)",
    ):
        env.get_job_graph()


# ---- windows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timestamp, offset, start", [
    (0, 0, 0), (9_999, 0, 0), (10_000, 0, 10_000), (-1, 0, -10_000), (-10_000, 0, -10_000), (3_000, 4_000, -6_000),
    (4_000, 4_000, 4_000), (-6_001, 4_000, -16_000), (3_000, -4_000, -4_000),
])  # fmt: skip
def test_every_timestamp_is_in_one_window(timestamp: int, offset: int, start: int) -> None:
    assert TimeWindow.get_window_start_with_offset(timestamp, offset, 10_000) == start
    window = TimeWindow(start, start + 10_000)
    assert window.start <= timestamp <= window.max_timestamp() == start + 9_999


def test_time_windows_are_ordered_by_time() -> None:
    assert TimeWindow(0, 10) < TimeWindow(10, 20) and len({TimeWindow(0, 10), TimeWindow(0, 10)}) == 1


@pytest.mark.parametrize("arguments, error, says", [
    ((Duration(0),), ValueError, "more than 0 ms"),
    ((Time.seconds(-1),), ValueError, "more than 0 ms"),
    ((Time.seconds(1), Time.seconds(1)), ValueError, "the offset is less than the size"),
    ((Time.seconds(1), Time.seconds(-1)), ValueError, "the offset is less than the size"),
    ((Duration(1),), ValueError, "whole number of milliseconds"),
    ((None,), TypeError, "the size is a Duration or a Time"),
    ((Time.seconds(1), "soon"), TypeError, "the offset is a Duration or a Time"),
])  # fmt: skip
def test_windows_that_cannot_be(arguments: tuple[Any, ...], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        TumblingEventTimeWindows.of(*arguments)


@pytest.mark.parametrize("gap, error", [("soon", TypeError), (Duration(1), ValueError), (Duration(0), ValueError)])
def test_a_gap_that_cannot_be(gap: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^EventTimeSessionWindows(\.with_gap\(\))?: the gap is "):
        EventTimeSessionWindows.with_gap(gap)


def test_windows_say_what_they_are() -> None:
    assert str(TEN_SECONDS) == "TumblingEventTimeWindows(10 s)"
    assert str(TumblingEventTimeWindows.of(Time.days(1), Time.hours(-8))) == (
        "TumblingEventTimeWindows(1 d, offset -28800000 ms)"
    )
