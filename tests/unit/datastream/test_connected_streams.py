"""Connects two streams: their keys must be equal kinds of values, or equal keys would meet in different subtasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.common import Types
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    Function,
    KeyedCoProcessFunction,
    MapFunction,
    SingleOutputStreamOperator,
    StreamExecutionEnvironment,
)
from penstock.graph.job_graph import Edge, Vertex
from penstock.graph.logical import OperatorKind, PartitionerKind


class Both(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> None:
        return None


class Expand(CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Iterator[Any]:
        yield value

    def flat_map2(self, value: Any) -> None:
        return None


class Process(CoProcessFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield value

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> None:
        return None


class KeyedProcess(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield value

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        return None


def pair(env: StreamExecutionEnvironment) -> tuple[SingleOutputStreamOperator, SingleOutputStreamOperator]:
    left = env.from_collection([1], Types.LONG()).name("left")
    return left, env.from_collection(["a"], Types.STRING()).name("right")


def built(env: StreamExecutionEnvironment, stream: DataStream) -> tuple[Vertex, tuple[Edge, ...]]:
    stream.sink_to(DiscardingSink())
    graph = env.get_job_graph()
    vertex = next(v for v in graph.vertices if v.operators[0].kind.two_inputs)
    return vertex, graph.inputs_of(vertex.index)


@pytest.mark.parametrize("method, function, kind, name", [
    ("map", Both(), OperatorKind.CO_MAP, "Co-Map"),
    ("flat_map", Expand(), OperatorKind.CO_FLAT_MAP, "Co-Flat Map"),
    ("process", Process(), OperatorKind.CO_PROCESS, "Co-Process"),
])  # fmt: skip
def test_two_inputs_into_one_operator(
    env: StreamExecutionEnvironment, method: str, function: Function, kind: OperatorKind, name: str
) -> None:
    left, right = pair(env)
    vertex, edges = built(env, getattr(left.connect(right), method)(function, Types.LONG()))
    operator = vertex.operators[0]
    assert (operator.kind, operator.function, operator.output_type) == (kind, function, Types.LONG())
    assert vertex.name == f"{name} -> Sink: DiscardingSink" and not vertex.keyed
    assert [(e.input_index, e.type) for e in edges] == [(0, Types.LONG()), (1, Types.STRING())]
    assert [e.name.split("-")[2] for e in edges] == ["0", "1"]


@pytest.mark.parametrize("method, function", [("map", Both()), ("flat_map", Expand()), ("process", KeyedProcess())])
@pytest.mark.parametrize("keys_after", [True, False])
def test_keyed_on_both_sides(
    env: StreamExecutionEnvironment, method: str, function: Function, keys_after: bool
) -> None:
    left, right = pair(env)
    if keys_after:
        connected = left.connect(right).key_by(str, lambda text: text, Types.STRING())
    else:
        connected = left.key_by(str, Types.STRING()).connect(right.key_by(lambda text: text, Types.STRING()))
    vertex, edges = built(env, getattr(connected, method)(function))
    assert vertex.keyed and vertex.operators[0].kind is OperatorKind.KEYED_CO_PROCESS
    assert [e.input_index for e in edges] == [0, 1]
    assert {e.partitioner.kind for e in edges} == {PartitionerKind.HASH}
    selector = edges[0].partitioner.key_selector
    assert selector is not None and selector(5) == "5"
    used = vertex.operators[0].function
    assert [list(used.process_element1(7, None)), used.process_element2("x", None)] == [[7], None]


USER = Types.ROW_NAMED(["shop", "id", "name"], [Types.LONG(), Types.LONG(), Types.STRING()])
ORDER = Types.ROW_NAMED(["number", "user", "shop"], [Types.INT(), Types.LONG(), Types.LONG()])


@pytest.mark.parametrize(
    "first, second, columns",
    [
        ("id", "user", [("id",), ("user",)]),
        (["shop", "id"], ["shop", "user"], [("shop", "id"), ("shop", "user")]),
    ],
)
def test_keys_that_are_columns(
    env: StreamExecutionEnvironment, first: str | list[str], second: str | list[str], columns: list[tuple[str, ...]]
) -> None:
    users, orders = env.from_collection([], USER), env.from_collection([], ORDER)
    vertex, edges = built(env, users.connect(orders).key_by(first, second).process(KeyedProcess()))
    assert vertex.keyed and [e.partitioner.key_columns for e in edges] == columns


@pytest.mark.parametrize("keys, error, says", [
    (("id", "number"), TypeError, "the keys of both inputs have one type, got LONG and INT"),
    ((["shop", "id"], "user"), TypeError, r"got TUPLE\(LONG, LONG\) and LONG"),
    (("id", lambda row: row.user), TypeError, "got LONG and no declared type"),
    (("id", "customer"), ValueError, "there is no column 'customer'; the columns are number"),
    (([], []), ValueError, "at least one name"),
    (("id", "user", Types.LONG()), TypeError, "the key has the type of its columns; leave key_type out"),
])  # fmt: skip
def test_columns_that_cannot_be_one_key(
    env: StreamExecutionEnvironment, keys: tuple[Any, ...], error: type[Exception], says: str
) -> None:
    users, orders = env.from_collection([], USER), env.from_collection([], ORDER)
    with pytest.raises(error, match=says):
        users.connect(orders).key_by(*keys).process(KeyedProcess())


def test_keying_anew_forgets_the_first_keys(env: StreamExecutionEnvironment) -> None:
    left, right = pair(env)
    connected = left.key_by(abs).connect(right).key_by(str, str, Types.STRING())
    _, edges = built(env, connected.process(KeyedProcess()))
    assert edges[0].partitioner.key_type == Types.STRING()


def test_a_union_is_one_input(env: StreamExecutionEnvironment) -> None:
    left, right = pair(env)
    _, edges = built(env, left.union(left).connect(right.union(right)).map(Both()))
    assert [e.input_index for e in edges] == [0, 0, 1, 1]
    assert len({e.name for e in edges}) == 4


def test_a_stream_with_itself(env: StreamExecutionEnvironment) -> None:
    left, _ = pair(env)
    _, edges = built(env, left.connect(left).map(Both()))
    assert [e.input_index for e in edges] == [0, 1] and len({e.name for e in edges}) == 2


def test_connected_streams_know_their_types(env: StreamExecutionEnvironment) -> None:
    left, right = pair(env)
    connected = left.connect(right)
    assert (connected.get_type1(), connected.get_type2()) == (Types.LONG(), Types.STRING())
    assert connected.get_execution_environment() is env


@pytest.mark.parametrize("call, error, says", [
    (lambda a, b: a.connect(5), TypeError, r"connect\(\) takes a stream, got 5"),
    (lambda a, b: a.connect(StreamExecutionEnvironment.get_execution_environment().from_collection([1])), ValueError,
     "one environment"),
    (lambda a, b: a.connect(b).map(abs), TypeError, "map.. of connected streams takes a CoMapFunction, got the call"),
    (lambda a, b: a.connect(b).flat_map(Both()), TypeError, "takes a CoFlatMapFunction"),
    (lambda a, b: a.connect(b).map(Both), TypeError, "was given the class Both"),
    (lambda a, b: a.connect(b).process(KeyedProcess()), TypeError, "not both keyed: call key_by"),
    (lambda a, b: a.key_by(abs).connect(b).process(KeyedProcess()), TypeError, "not both keyed"),
    (lambda a, b: a.connect(b).key_by(abs, str).process(MapFunction), TypeError, "was given the class MapFunction"),
    (lambda a, b: a.connect(b).process(str.upper), TypeError, "takes a CoProcessFunction, got the callable"),
    (lambda a, b: a.key_by(abs, Types.LONG()).connect(b.key_by(str)).process(KeyedProcess()), TypeError,
     "operator 'Keyed Co-Process': the keys of both inputs have one type, got LONG and no declared type"),
    (lambda a, b: a.key_by(abs, Types.LONG()).connect(b.key_by(str, Types.STRING())).map(Both()), TypeError,
     "got LONG and STRING"),
    (lambda a, b: a.connect(b).key_by(None, abs), TypeError, "takes a key selector"),
    (lambda a, b: a.connect(b).map(Both(), int), TypeError, r"write Types\.LONG"),
])  # fmt: skip
def test_what_cannot_be_connected(
    env: StreamExecutionEnvironment,
    call: Callable[[SingleOutputStreamOperator, SingleOutputStreamOperator], object],
    error: type[Exception],
    says: str,
) -> None:
    with pytest.raises(error, match=says):
        call(*pair(env))


def test_one_keyed_side_keeps_its_partitioning(env: StreamExecutionEnvironment) -> None:
    left, right = pair(env)
    vertex, edges = built(env, left.key_by(abs).connect(right).process(Process()))
    assert vertex.operators[0].kind is OperatorKind.CO_PROCESS
    assert [e.partitioner.kind for e in edges] == [PartitionerKind.HASH, PartitionerKind.REBALANCE]
