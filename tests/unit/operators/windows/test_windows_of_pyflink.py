"""Declares windows as PyFlink's examples do, over their rows, and compares with what PyFlink prints for these."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.common.configuration import Configuration
from penstock.common.time import Time
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import ProcessWindowFunction, StreamExecutionEnvironment, WindowFunction
from penstock.datastream.functions import AllWindowFunction, ProcessAllWindowFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import (
    CountWindow,
    EventTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)
from tests.unit.operators.windows.test_window_semantics import run

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
COUNTED = Types.TUPLE([Types.STRING(), Types.INT(), Types.INT(), Types.INT()])


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(Configuration({"parallelism.default": 1}))


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class GapOfRow(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return int(element[1])


class Counted(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    def process(self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Any) -> Any:
        return [(key, context.window().start, context.window().end, len(list(elements)))]


EXAMPLES: dict[str, tuple[Any, tuple[int, ...], list[tuple[int, int, int]]]] = {
    "tumbling_time_window": (
        TumblingEventTimeWindows.of(Time.milliseconds(5)),
        (1, 2, 3, 4, 5, 8, 9, 15),
        [(0, 5, 4), (5, 10, 3), (15, 20, 1)],
    ),
    "sliding_time_window": (
        SlidingEventTimeWindows.of(Time.milliseconds(5), Time.milliseconds(2)),
        (1, 2, 3, 4, 5, 8, 9, 15),
        [(-2, 3, 2), (0, 5, 4), (2, 7, 4), (4, 9, 3), (6, 11, 2), (8, 13, 2), (12, 17, 1), (14, 19, 1)],
    ),
    "session_with_gap_window": (
        EventTimeSessionWindows.with_gap(Time.milliseconds(5)),
        (1, 2, 3, 4, 8, 9, 15),
        [(1, 14, 6), (15, 20, 1)],
    ),
    "session_with_dynamic_gap_window": (
        EventTimeSessionWindows.with_dynamic_gap(GapOfRow()),
        (1, 2, 3, 4, 8, 9, 15),
        [(1, 30, 7)],
    ),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_windows_of_time(env: StreamExecutionEnvironment, example: str) -> None:
    assigner, times, expected = EXAMPLES[example]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    rows = env.from_collection([("hi", time) for time in times], type_info=PAIR)
    timed = rows.assign_timestamps_and_watermarks(strategy)
    windows = timed.key_by(lambda x: x[0], key_type=Types.STRING()).window(assigner)
    assert run(env, windows.process(Counted(), COUNTED)) == [("hi", *bounds) for bounds in expected]


class Summed(WindowFunction[Any, Any, str, CountWindow]):
    def apply(self, key: str, window: CountWindow, inputs: Any) -> Any:
        return [(key, sum(number for number, _ in inputs))]


def numbers(env: StreamExecutionEnvironment) -> Any:
    rows = [(1, "hi"), (2, "hello"), (3, "hi"), (4, "hello"), (5, "hi"), (6, "hello"), (6, "hello")]
    return env.from_collection(rows, type_info=Types.TUPLE([Types.INT(), Types.STRING()]))


def test_windows_of_counts(env: StreamExecutionEnvironment) -> None:
    by_text = numbers(env).key_by(lambda x: x[1], key_type=Types.STRING())
    found = by_text.count_window(2).apply(Summed(), Types.TUPLE([Types.STRING(), Types.INT()]))
    assert run(env, found) == [("hi", 4), ("hello", 6), ("hello", 12)]


class SummedAll(AllWindowFunction[Any, Any, CountWindow]):
    def apply(self, window: CountWindow, inputs: Any) -> Any:
        yield window.id, sum(number for number, _ in inputs)


class Numbered(ProcessAllWindowFunction[Any, Any, CountWindow]):
    """Numbers the windows by state that all of them share."""

    def process(self, context: ProcessAllWindowFunction.Context[CountWindow], elements: Any) -> Any:
        state = context.global_state().get_state(ValueStateDescriptor("windows", Types.LONG()))
        state.update((state.value() or 0) + 1)
        yield state.value(), [number for number, _ in elements]


def test_windows_over_the_whole_stream(env: StreamExecutionEnvironment) -> None:
    by_three = numbers(env).count_window_all(3)
    assert run(env, by_three.apply(SummedAll())) == [(0, 6), (1, 15)]


def test_functions_of_windows_over_the_whole_stream(env: StreamExecutionEnvironment) -> None:
    found = numbers(env).count_window_all(3, 2).process(Numbered())
    assert found.get_parallelism() == 1
    assert run(env, found) == [(1, [1, 2, 3]), (2, [3, 4, 5]), (3, [5, 6, 6])]
    with pytest.raises(TypeError, match="takes a AllWindowFunction|takes an AllWindowFunction"):
        numbers(env).count_window_all(2).apply(Summed())
