"""Declares broadcast streams: the graph has one operator with both inputs, and what cannot be connected is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.common import Types
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import (
    BroadcastConnectedStream,
    BroadcastProcessFunction,
    BroadcastStream,
    DataStream,
    KeyedBroadcastProcessFunction,
    MapStateDescriptor,
    OutputTag,
    StreamExecutionEnvironment,
)
from penstock.graph.logical import OperatorKind, PartitionerKind
from penstock.graph.pickling import UnpicklableFunction, dumps

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
OTHERS = MapStateDescriptor("others")


class Plain(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        return None


class Keyed(KeyedBroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        return None


class Declared:
    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self.env = env
        self.rows = env.from_collection([1], Types.LONG()).name("rows")
        self.keyed = self.rows.key_by(lambda x: x, Types.LONG())
        self.rules = env.from_collection(["a"], Types.STRING()).name("rules")


def another_job() -> DataStream:
    return StreamExecutionEnvironment.get_execution_environment().from_collection([1])


@pytest.fixture
def streams(env: StreamExecutionEnvironment) -> Declared:
    return Declared(env)


@pytest.mark.parametrize("is_keyed", [False, True])
def test_a_stream_and_a_broadcast_one_are_the_inputs_of_one_operator(streams: Declared, is_keyed: bool) -> None:
    broadcast = streams.rules.broadcast(RULES, OTHERS)
    assert isinstance(broadcast, BroadcastStream)
    assert broadcast.input_stream is streams.rules and broadcast.broadcast_state_descriptors == [RULES, OTHERS]
    connected = (streams.keyed if is_keyed else streams.rows).connect(broadcast)
    assert isinstance(connected, BroadcastConnectedStream)
    assert connected.get_execution_environment() is streams.env
    function = Keyed() if is_keyed else Plain()
    connected.process(function, Types.LONG()).sink_to(DiscardingSink())
    graph = streams.env.get_job_graph()
    vertex = next(v for v in graph.vertices if v.operators[0].kind.two_inputs)
    head = vertex.operators[0]
    assert head.kind is (OperatorKind.KEYED_BROADCAST_PROCESS if is_keyed else OperatorKind.BROADCAST_PROCESS)
    assert head.name == ("Co-Process-Broadcast-Keyed" if is_keyed else "Co-Process-Broadcast")
    assert (head.function.process, head.function.descriptors) == (function, (RULES, OTHERS))
    first, second = graph.inputs_of(vertex.index)
    assert first.keyed == vertex.keyed == is_keyed
    assert (second.partitioner.kind, second.input_index, second.keyed) == (PartitionerKind.BROADCAST, 1, False)


def test_a_broadcast_without_descriptors_is_a_stream(streams: Declared) -> None:
    assert streams.rules.broadcast().map(str).get_type() is not None


@pytest.mark.parametrize("call, error, says", [
    (lambda s: s.rules.broadcast("rules"), TypeError, "takes MapStateDescriptors, .* got 'rules'"),
    (lambda s: s.rules.broadcast(RULES, 3), TypeError, "takes MapStateDescriptors, .* got 3"),
    (lambda s: s.rules.broadcast(RULES, MapStateDescriptor("rules")), ValueError, "two descriptors .* 'rules'"),
    (lambda s: s.keyed.broadcast(RULES), TypeError, r"broadcast\(\): cannot override the partitioning"),
    (lambda s: s.keyed.connect(s.rules.broadcast(RULES)).process(Plain()), TypeError,
     "given a BroadcastProcessFunction, but the stream is keyed"),
    (lambda s: s.rows.connect(s.rules.broadcast(RULES)).process(Keyed()), TypeError,
     "given a KeyedBroadcastProcessFunction, but the stream is not keyed: call key_by"),
    (lambda s: s.rows.connect(s.rules.broadcast(RULES)).process(str), TypeError, "takes a BroadcastProcessFunction"),
    (lambda s: s.keyed.connect(s.rules.broadcast(RULES)).process(Plain), TypeError, "give it an object: Plain"),
    (lambda s: s.rows.connect(another_job().broadcast(RULES)), ValueError,
     "streams of one environment"),
])  # fmt: skip
def test_what_cannot_be_connected_is_refused(
    streams: Declared, call: Callable[[Declared], object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        call(streams)


def test_a_missing_method_says_what_a_broadcast_stream_is_for(streams: Declared) -> None:
    with pytest.raises(AttributeError, match=r"go to the function of stream.connect\(broadcast_stream\)"):
        streams.rules.broadcast(RULES).map(str)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'BroadcastConnectedStream' object has no attribute 'proces'.*'process'"):
        streams.rows.connect(streams.rules.broadcast(RULES)).proces(Plain())  # type: ignore[attr-defined]


def test_it_may_emit_rows_to_side_outputs(streams: Declared) -> None:
    made = streams.rows.connect(streams.rules.broadcast(RULES)).process(Plain(), Types.LONG())
    assert made.get_side_output(OutputTag("aside", Types.STRING())).get_type() == Types.STRING()


def test_a_function_that_cannot_be_pickled_is_named(streams: Declared) -> None:
    function: Any = Plain()
    function.opened = iter(i for i in [1])
    streams.rows.connect(streams.rules.broadcast(RULES)).process(function, Types.LONG()).sink_to(DiscardingSink())
    with pytest.raises(UnpicklableFunction, match="operator 'Co-Process-Broadcast'.*attribute 'opened'"):
        dumps(streams.env.get_job_graph())
