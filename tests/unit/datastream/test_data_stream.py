"""Declares streams by every method: the graph says what was typed, and what makes no sense is refused at its line."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.memory.collection import CollectionSource
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
    SingleOutputStreamOperator,
    StreamExecutionEnvironment,
)
from penstock.graph.job_graph import JobGraph, Operator
from penstock.graph.logical import OperatorKind, PartitionerKind

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
ROWS = [("a", 1), ("b", 2)]


def operators(graph: JobGraph) -> list[Operator]:
    return [o for v in graph.vertices for o in v.operators]


def only(env: StreamExecutionEnvironment, kind: OperatorKind) -> Operator:
    found = [o for o in operators(env.get_job_graph()) if o.kind is kind]
    assert len(found) == 1
    return found[0]


class Rich(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened_with = runtime_context

    def map(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        self.closed = True


class Process(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value


class KeyedProcess(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield value


class First(KeySelector):
    def get_key(self, value: Any) -> Any:
        return value[0]


# ---- functions ------------------------------------------------------------------------------------------------------


def test_callables_become_functions_of_the_operators_kind(env: StreamExecutionEnvironment) -> None:
    s = env.from_collection(ROWS, PAIR)
    s.map(lambda r: r[1] + 1).sink_to(DiscardingSink())
    s.flat_map(lambda r: [r] * r[1]).sink_to(DiscardingSink())
    s.filter(lambda r: r[1] > 1).sink_to(DiscardingSink())
    s.key_by(lambda r: r[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(DiscardingSink())
    assert only(env, OperatorKind.MAP).function.map(("a", 1)) == 2
    assert list(only(env, OperatorKind.FLAT_MAP).function.flat_map(("a", 2))) == [("a", 2)] * 2
    assert only(env, OperatorKind.FILTER).function.filter(("a", 1)) is False
    assert only(env, OperatorKind.REDUCE).function.reduce(("a", 1), ("a", 2)) == ("a", 3)
    for operator in operators(env.get_job_graph()):
        copy = pickle.loads(cloudpickle.dumps(operator.function))
        assert type(copy) is type(operator.function)


def test_functions_are_taken_as_they_are(env: StreamExecutionEnvironment) -> None:
    function = Rich()
    env.from_collection(ROWS).map(function).sink_to(DiscardingSink())
    assert only(env, OperatorKind.MAP).function is function


async def awaiting(row: object) -> object:
    return row


class AwaitingMap(MapFunction):
    async def map(self, value: object) -> object:
        return value


class AwaitingCall:
    async def __call__(self, value: object) -> list[object]:
        return [value]


@pytest.mark.parametrize("kind", [MapFunction, FlatMapFunction, FilterFunction, ReduceFunction, ProcessFunction,
                                  KeyedProcessFunction, KeySelector, Partitioner])  # fmt: skip
def test_an_unfinished_function_cannot_be_made(kind: type[object]) -> None:
    with pytest.raises(TypeError, match="abstract"):
        kind()


def test_a_keyed_map_is_a_keyed_process_function_that_opens_the_users(env: StreamExecutionEnvironment) -> None:
    function = Rich()
    env.from_collection(ROWS, PAIR).key_by(First()).map(function, PAIR).sink_to(DiscardingSink())
    operator = only(env, OperatorKind.KEYED_PROCESS)
    context = object()
    operator.function.open(context)
    assert function.opened_with is context
    assert list(operator.function.process_element(("a", 1), None)) == [("a", 1)]
    operator.function.close()
    assert function.closed and (operator.name, operator.output_type) == ("Map", PAIR)


def test_keyed_filters_and_flat_maps(env: StreamExecutionEnvironment) -> None:
    k = env.from_collection([1, 2, 3], Types.LONG()).key_by(lambda v: v % 2)
    k.filter(lambda v: v > 1).sink_to(DiscardingSink())
    k.flat_map(lambda v: None if v == 1 else [v, v]).sink_to(DiscardingSink())
    by_name = {o.name: o for o in operators(env.get_job_graph())}
    passes = by_name["Filter"].function.process_element
    assert list(passes(2, None)) == [2] and not passes(1, None)
    assert by_name["Filter"].output_type == Types.LONG()
    expand = by_name["Flat Map"].function.process_element
    assert list(expand(2, None)) == [2, 2] and expand(1, None) is None


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda s: s.map(3), r"map\(\) takes a MapFunction or a callable, got 3"),
        (lambda s: s.map(Rich), r"was given the class Rich; give it an object: Rich\(\)"),
        (lambda s: s.map(Process()), "got a Process, which is a ProcessFunction"),
        (lambda s: s.map(awaiting), r"map\(\) does not await functions, and awaiting .*AsyncDataStream.unordered_wait"),
        (lambda s: s.map(AwaitingMap()), r"does not await functions, and AwaitingMap\.map is declared as 'async def'"),
        (lambda s: s.flat_map(AwaitingCall()), r"does not await functions, and AwaitingCall is declared"),
        (lambda s: s.key_by(awaiting), r"key_by\(\) does not await functions"),
        (lambda s: s.process(KeyedProcess()), "takes a ProcessFunction .* which is a KeyedProcessFunction"),
        (lambda s: s.process(KeyedProcess()), r"write stream\.key_by\(\.\.\.\)\.process\(KeyedProcess\(\)\)$"),
        (lambda s: s.process(lambda v: v), r"process\(\) takes a ProcessFunction, got the callable .*flat_map"),
        (lambda s: s.key_by(First()).process(Process()), "takes a KeyedProcessFunction"),
        (lambda s: s.key_by(0), r"lambda row: row\[0\]"),
        (lambda s: s.key_by(First), "takes a key selector"),
        (lambda s: s.key_by(First(), str), r"write Types\.STRING\(\)"),
        (lambda s: s.key_by(First(), Types.LIST(Types.LONG())), "cannot be the type of a key"),
        (lambda s: s.map(str, int), r"operator 'Map': a stream's type is made by Types.*write Types\.LONG\(\)"),
        (lambda s: s.partition_custom(3, First()), "takes a Partitioner or a callable"),
        (lambda s: s.sink_to(DiscardingSink), r"sink_to\(\) takes a Sink"),
        (lambda s: s.sink_to(print), r"sink_to\(\) takes a Sink"),
        (lambda s: s.union(3), "takes streams"),
        (lambda s: s.union(s.map(str, Types.STRING())), "streams of one type, got TUPLE.* and STRING"),
        (lambda s: s.key_by(First()).rebalance(), r"rebalance\(\): cannot override the partitioning of a keyed stream"),
        (lambda s: s.rebalance().name("x"), r"name\(\) belongs to an operator"),
        (lambda s: s.key_by(First()).uid("x"), r"uid\(\) belongs to an operator"),
        (lambda s: s.name(""), "non-empty string"),
        (lambda s: s.uid(3), "non-empty string"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(
    env: StreamExecutionEnvironment, call: Callable[[SingleOutputStreamOperator], object], says: str
) -> None:
    s = env.from_collection(ROWS, PAIR)
    with pytest.raises(TypeError, match=says):
        call(s)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda s: s.map(str).set_parallelism(0), "operator 'Map': parallelism is a whole number of at least 1, got 0"),
        (lambda s: s.map(str).set_parallelism(2.0), "at least 1, got 2.0"),
        (lambda s: s.set_parallelism(2), "'Source: Collection Source' runs in one subtask only"),
        (lambda s: s.map(str).set_max_parallelism(40_000), "between 1 and 32768"),
        (lambda s: s.map(str).set_parallelism(4).set_max_parallelism(3), "3 is less than its parallelism 4"),
        (lambda s: s.map(str).set_max_parallelism(3).set_parallelism(4), "4 is more than its max parallelism 3"),
        (lambda s: s.uid("x").map(str).uid("x"), "operator 'Map' is taken by operator 'Source: Collection"),
        (lambda s: s.set_uid_hash("12"), "32 hex digits"),
        (lambda s: s.set_buffer_timeout(-2), "buffer timeout"),
        (lambda s: s.execute_and_collect(limit=0), "limit"),
        (lambda s: s.union(), "at least one stream"),
        (lambda s: s.key_by("name"), r"there is no column 'name'; the columns are f0 \(string\), f1 \(int64\)"),
    ],
)
def test_values_that_cannot_be(
    env: StreamExecutionEnvironment, call: Callable[[SingleOutputStreamOperator], object], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        call(env.from_collection(ROWS, PAIR))


# ---- edges ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["rebalance", "rescale", "shuffle", "global_", "broadcast"])
def test_partitioning_is_on_the_edge(env: StreamExecutionEnvironment, method: str) -> None:
    getattr(env.from_collection(ROWS, PAIR).map(str), method)().sink_to(DiscardingSink())
    edge = env.get_job_graph().edges[-1]
    assert edge.partitioner.kind is PartitionerKind(method.rstrip("_"))


def test_custom_partitioning(env: StreamExecutionEnvironment) -> None:
    class Mod(Partitioner):
        def partition(self, key: int, num_partitions: int) -> int:
            return key % num_partitions

    env.from_collection(ROWS, PAIR).partition_custom(Mod(), lambda r: r[1]).sink_to(DiscardingSink())
    partitioner = env.get_job_graph().edges[0].partitioner
    assert partitioner.kind is PartitionerKind.CUSTOM
    assert partitioner.custom is not None and partitioner.key_selector is not None
    assert partitioner.custom(partitioner.key_selector(("a", 5)), 3) == 2


def test_the_last_partitioning_counts(env: StreamExecutionEnvironment) -> None:
    s = env.from_collection(ROWS, PAIR).map(str)
    s.rebalance().shuffle().sink_to(DiscardingSink())
    s.rebalance().key_by(lambda r: r, Types.STRING()).sink_to(DiscardingSink())
    graph = env.get_job_graph()
    kinds = [e.partitioner.kind for e in graph.edges[1:]]
    assert kinds == [PartitionerKind.SHUFFLE, PartitionerKind.HASH]
    partitioner = graph.edges[2].partitioner
    assert partitioner.key_type == Types.STRING()
    assert partitioner.key_selector is not None and partitioner.key_selector("x") == "x"


def test_keying_a_union_keys_every_input(env: StreamExecutionEnvironment) -> None:
    a, b = env.from_collection(ROWS, PAIR), env.from_collection(ROWS, PAIR)
    a.union(b).key_by(First()).reduce(max).sink_to(DiscardingSink())
    graph = env.get_job_graph()
    keyed = [e for e in graph.edges if e.partitioner.kind is PartitionerKind.HASH]
    assert [graph.vertices[e.source].is_source for e in keyed] == [True, True]
    assert len({e.target for e in keyed}) == 1 and graph.vertices[keyed[0].target].keyed
    assert all(e.type == PAIR for e in keyed)


def test_a_stream_united_with_itself_is_two_edges(env: StreamExecutionEnvironment) -> None:
    s = env.from_collection(ROWS, PAIR)
    s.union(s).sink_to(DiscardingSink())
    assert len({e.name for e in env.get_job_graph().edges}) == 2


def test_the_union_of_keyed_streams_forgets_the_key(env: StreamExecutionEnvironment) -> None:
    s = env.from_collection(ROWS, PAIR)
    s.key_by(First()).union(s).sink_to(DiscardingSink())
    assert {e.partitioner.kind for e in env.get_job_graph().edges} == {PartitionerKind.REBALANCE}


def test_keying_a_keyed_stream_replaces_the_key(env: StreamExecutionEnvironment) -> None:
    env.from_collection(ROWS, PAIR).key_by(First()).key_by(lambda r: r[1]).reduce(max).sink_to(DiscardingSink())
    selector = env.get_job_graph().edges[0].partitioner.key_selector
    assert selector is not None and selector(("a", 7)) == 7


# ---- settings -------------------------------------------------------------------------------------------------------


def test_names_uids_and_settings_reach_the_job_graph(env: StreamExecutionEnvironment) -> None:
    s = env.from_collection(ROWS, PAIR).name("pairs").uid("p")
    m = s.map(lambda r: r, PAIR).name("identity").uid("i").set_parallelism(3).set_max_parallelism(30)
    m.disable_chaining().set_buffer_timeout(7).sink_to(DiscardingSink()).name("nowhere").uid("n").set_parallelism(3)
    graph = env.get_job_graph("named")
    assert [v.name for v in graph.vertices] == ["pairs", "identity", "nowhere"]
    assert [o.user_uid for o in operators(graph)] == ["p", "i", "n"]
    assert (graph.vertices[1].parallelism, graph.vertices[1].max_parallelism) == (3, 30)
    assert [e.buffer_timeout_ms for e in graph.edges] == [None, 7]
    assert graph.slots == 3 and graph.name == "named"


def test_a_uid_hash_is_the_id_itself(env: StreamExecutionEnvironment) -> None:
    env.from_collection(ROWS).set_uid_hash("0123456789abcdef" * 2).sink_to(DiscardingSink())
    assert env.get_job_graph().vertices[0].uid == "0123456789abcdef" * 2


def test_start_new_chain(env: StreamExecutionEnvironment) -> None:
    s = env.from_collection(ROWS, PAIR).map(str).set_parallelism(1)
    s.map(str).set_parallelism(1).start_new_chain().map(str).set_parallelism(1).sink_to(DiscardingSink())
    assert [v.name for v in env.get_job_graph().vertices][:2] == ["Source: Collection Source -> Map", "Map -> Map"]


def test_force_non_parallel(env: StreamExecutionEnvironment) -> None:
    m = env.from_collection(ROWS).map(str)
    m.force_non_parallel()
    with pytest.raises(ValueError, match="one subtask only"):
        m.set_parallelism(2)
    assert m.get_parallelism() == 1


def test_types_follow_the_stream(env: StreamExecutionEnvironment) -> None:
    s = env.from_collection(ROWS, PAIR)
    assert s.get_type() == PAIR and s.filter(bool).get_type() == PAIR and s.rebalance().get_type() == PAIR
    assert s.map(str).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert s.key_by(First(), Types.STRING()).get_key_type() == Types.STRING()
    assert s.key_by(First()).reduce(max).get_type() == PAIR
    assert s.union(s).get_type() == PAIR


# ---- sources --------------------------------------------------------------------------------------------------------


def test_a_row_that_does_not_fit_is_refused_when_the_source_is_declared(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(Exception, match=r"row 1 of the collection, field 'f1': 'x' \(str\) does not fit LONG"):
        env.from_collection([("a", 1), ("b", "x")], PAIR)


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda env: env.from_source(3, WatermarkStrategy.no_watermarks(), "s"), TypeError, "takes a Source"),
        (lambda env: env.from_source(CollectionSource([1]), None, "s"), TypeError, "takes a WatermarkStrategy"),
        (lambda env: env.from_source(CollectionSource([1], Types.LONG()), WatermarkStrategy.no_watermarks(), "s",
                                     Types.STRING()), TypeError, "produces LONG, type_info says STRING"),
        (lambda env: env.from_collection([1], int), TypeError, r"write Types\.LONG\(\)"),
    ],
)  # fmt: skip
def test_sources_that_cannot_be(
    env: StreamExecutionEnvironment,
    call: Callable[[StreamExecutionEnvironment], object],
    error: type[Exception],
    says: str,
) -> None:
    with pytest.raises(error, match=says):
        call(env)


def test_a_source_knows_its_type_or_is_told(env: StreamExecutionEnvironment) -> None:
    no = WatermarkStrategy.no_watermarks()
    assert env.from_source(CollectionSource([1], Types.LONG()), no, "a").get_type() == Types.LONG()
    assert env.from_source(CollectionSource([1]), no, "b", Types.LONG()).get_type() == Types.LONG()
    assert env.from_source(CollectionSource([1]), no, "c").get_name() == "Source: c"
