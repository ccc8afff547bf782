"""Declares side outputs: each is a stream of its own with one type, and operators without any have none to ask for."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cloudpickle
import pytest

from penstock.common import Time, Types, WatermarkStrategy
from penstock.connectors.memory.collection import CollectionSource
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import (
    CoProcessFunction,
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    SingleOutputStreamOperator,
    StreamExecutionEnvironment,
    TimeWindow,
    TumblingEventTimeWindows,
    WindowedStream,
)

ODD = OutputTag("odd", Types.LONG())
LATE = OutputTag("late")


class Split(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield (ODD, value) if value % 2 else value


class KeyedSplit(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield (ODD, value) if value % 2 else value


class CoSplit(CoProcessFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield ODD, value

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield value


class Rows(ProcessWindowFunction[Any, Any, Any, TimeWindow]):
    def process(
        self, key: Any, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Any]
    ) -> Iterable[Any]:
        return elements


def numbers(env: StreamExecutionEnvironment) -> SingleOutputStreamOperator:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row)
    return env.from_source(CollectionSource([1], Types.LONG()), strategy, "numbers")


def window(env: StreamExecutionEnvironment) -> WindowedStream:
    return numbers(env).key_by(abs).window(TumblingEventTimeWindows.of(Time.milliseconds(5)))


Make = Callable[[StreamExecutionEnvironment], SingleOutputStreamOperator]
WITH_SIDE_OUTPUTS: list[Make] = [
    lambda env: numbers(env).process(Split()),
    lambda env: numbers(env).key_by(abs).process(KeyedSplit()),
    lambda env: numbers(env).connect(numbers(env)).process(CoSplit()),
    lambda env: window(env).process(Rows()),
    lambda env: window(env).reduce(max, Rows()),
]


@pytest.mark.parametrize("make", WITH_SIDE_OUTPUTS)
def test_side_outputs_are_streams_of_their_own(env: StreamExecutionEnvironment, make: Make) -> None:
    stream = make(env)
    odd = stream.get_side_output(ODD)
    assert odd.get_type() == Types.LONG()
    odd.rebalance().map(str).sink_to(DiscardingSink())
    stream.sink_to(DiscardingSink())
    graph = env.get_job_graph()
    producer = next(v for v in graph.vertices if v.operators[-1].side_outputs)
    assert producer.operators[-1].side_outputs == ("odd",)
    side, main = graph.outputs_of(producer.index)
    assert (side.side_output, side.type) == ("odd", Types.LONG()) and main.side_output is None
    assert graph.vertices[side.target].operators[0].input_type == Types.LONG()


@pytest.mark.parametrize("follow", [
    lambda side: side.key_by(abs).map(str), lambda side: side.union(side).map(str), lambda side: side.broadcast(),
    lambda side: side.partition_custom(lambda key, n: 0, abs).map(str),
    lambda side: side.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps()),
    lambda side: side.connect(side).process(CoSplit()),
])  # fmt: skip
def test_whatever_follows_reads_the_side_output(
    env: StreamExecutionEnvironment, follow: Callable[[DataStream], DataStream]
) -> None:
    side = numbers(env).process(Split()).get_side_output(ODD)
    follow(side).sink_to(DiscardingSink())
    graph = env.get_job_graph()
    producer = next(v for v in graph.vertices if v.operators[-1].side_outputs)
    assert {e.side_output for e in graph.outputs_of(producer.index)} == {"odd"}


@pytest.mark.parametrize("make, says", [
    (lambda env: numbers(env), "operator 'Source: numbers' has no side outputs"),
    (lambda env: numbers(env).map(str), "operator 'Map' has no side outputs: process functions have them"),
    (lambda env: numbers(env).key_by(abs).map(str), "operator 'Map' has no side outputs"),
    (lambda env: numbers(env).key_by(abs).reduce(max), "operator 'Keyed Reduce' has no side outputs"),
    (lambda env: window(env).reduce(max), "has no window function that could put rows out sideways"),
    (lambda env: window(env).side_output_late_data(LATE).reduce(max), "which is under the tag 'late'"),
    (lambda env: numbers(env).rebalance(), "belongs to an operator"),
])  # fmt: skip
def test_operators_without_side_outputs(env: StreamExecutionEnvironment, make: Make, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        make(env).get_side_output(ODD)


class Strict(CollectionSource):
    """Puts what it cannot read aside."""

    rejected_tag_id = "bad rows"
    rejected_type = Types.STRING()


def test_a_sources_side_output_is_what_it_cannot_read(env: StreamExecutionEnvironment) -> None:
    source = env.from_source(Strict([1], Types.LONG()), WatermarkStrategy.no_watermarks(), "lines")
    assert source.get_side_output(OutputTag("bad rows")).get_type() == Types.STRING()
    with pytest.raises(TypeError, match="'Source: lines' puts the rows that it cannot read .* the tag 'bad rows'"):
        source.get_side_output(ODD)
    with pytest.raises(TypeError, match="'bad rows' has the type STRING .* now LONG"):
        source.get_side_output(OutputTag("bad rows", Types.LONG()))
    source.get_side_output(OutputTag("bad rows", Types.STRING())).sink_to(DiscardingSink())
    source.sink_to(DiscardingSink())
    graph = env.get_job_graph()
    assert graph.vertices[0].operators[0].side_outputs == ("bad rows",)
    assert [e.type for e in graph.edges] == [Types.STRING(), Types.LONG()]


def test_a_tag_has_one_type(env: StreamExecutionEnvironment) -> None:
    stream = numbers(env).process(Split())
    stream.get_side_output(ODD)
    assert stream.get_side_output(OutputTag("odd")).get_type() == Types.LONG()
    with pytest.raises(TypeError, match="'odd' has the type LONG where it was used first, now STRING"):
        stream.get_side_output(OutputTag("odd", Types.STRING()))
    with pytest.raises(TypeError, match="takes an OutputTag, .* got 'odd'"):
        stream.get_side_output("odd")  # type: ignore[arg-type]


def test_a_side_output_is_not_its_operator(env: StreamExecutionEnvironment) -> None:
    side = numbers(env).process(Split()).get_side_output(ODD)
    with pytest.raises(TypeError, match=r"name\(\) belongs to an operator; .* side output"):
        side.name("mine")


def test_tags_are_known_by_their_id() -> None:
    copy = pickle.loads(cloudpickle.dumps(ODD))
    assert copy == ODD == OutputTag("odd") and hash(copy) == hash(ODD) and copy.type_info == Types.LONG()
    assert ODD != LATE and ODD != "odd"
    assert repr(ODD) == "OutputTag('odd', LONG)"
    assert OutputTag("rows", [Types.LONG()]).type_info == Types.ROW([Types.LONG()])


@pytest.mark.parametrize("arguments, error, says", [
    (("",), ValueError, "non-empty"), ((None,), ValueError, "non-empty"), (("x", int), TypeError, "made by Types"),
])  # fmt: skip
def test_tags_that_cannot_be(arguments: tuple[Any, ...], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        OutputTag(*arguments)
