"""Tests clocks, two inputs, side outputs and columnar chains in the job graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from penstock.common import Configuration, Duration, Types, WatermarkStrategy
from penstock.common.row_types.type_information import TypeInformation
from penstock.graph.builder import GraphError, build_job_graph
from penstock.graph.describe import describe, execution_plan
from penstock.graph.job_graph import JobGraph
from penstock.graph.logical import (
    ChainingStrategy,
    Input,
    LogicalGraph,
    Node,
    OperatorKind,
    Partitioner,
    PartitionerKind,
)

K = OperatorKind
HASH = Partitioner(PartitionerKind.HASH, key_selector=lambda row: row)
TIME = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(20)).with_timestamp_column("at")
BARE = WatermarkStrategy.no_watermarks()


@dataclass
class Ends:
    """A source, as far as the graph looks at one."""

    bounded: bool


class Program:
    """Declares nodes; names are those of the nodes."""

    def __init__(self) -> None:
        self.graph = LogicalGraph()

    def add(
        self,
        name: str,
        kind: OperatorKind = K.MAP,
        inputs: Iterable[Node | Input] = (),
        function: object = None,
        type_: TypeInformation | None = None,
        **settings: Any,
    ) -> Node:
        """Add a node. `settings`: the fields of `Node` that have a default."""
        edges = [i if isinstance(i, Input) else Input(i) for i in inputs]
        return self.graph.add(Node(len(self.graph.nodes), kind, name, function, edges, type_, **settings))

    def source(self, name: str = "source", strategy: WatermarkStrategy = BARE, **settings: Any) -> Node:
        return self.add(name, K.SOURCE, watermark_strategy=strategy, **settings)

    def clock(self, name: str, *inputs: Node | Input, strategy: WatermarkStrategy = TIME, **settings: Any) -> Node:
        return self.add(name, K.TIMESTAMPS, inputs, strategy, **settings)

    def build(self, parallelism: int = 2, **options: object) -> JobGraph:
        configuration = Configuration({"parallelism.default": parallelism, **options})
        return build_job_graph(self.graph, configuration, "test")


def names(graph: JobGraph) -> list[str]:
    return [v.name for v in graph.vertices]


def clocks(graph: JobGraph) -> list[str | None]:
    return [None if v.clock is None else v.clock.name for v in graph.vertices]


# ---- clocks ---------------------------------------------------------------------------------------------------------


def test_timestamps_stand_behind_a_source_that_has_none() -> None:
    p = Program()
    p.add("sink", K.SINK, [p.add("map", inputs=[p.clock("clock", p.source())])])
    graph = p.build()
    assert names(graph) == ["source -> clock -> map -> sink"] and clocks(graph) == ["clock"]
    assert [o.timestamped for o in graph.vertices[0].operators] == [False, True, True, True]


def test_a_sources_own_strategy_is_its_vertexs_clock() -> None:
    p = Program()
    p.add("map", inputs=[p.source(strategy=TIME)])
    graph = p.build()
    assert names(graph) == ["source -> map"] and clocks(graph) == ["source"]
    assert [o.watermark_strategy for o in graph.vertices[0].operators] == [TIME, None]


@pytest.mark.parametrize("before", [
    lambda p: p.source(strategy=TIME),
    lambda p: p.source(strategy=BARE.with_timestamp_column("at")),
    lambda p: p.add("map", inputs=[p.source()]),
    lambda p: p.clock("first", p.source()),
    lambda p: p.add("batches", K.MAP_BATCHES, [p.source()]),
])  # fmt: skip
def test_otherwise_timestamps_begin_a_chain(before: Callable[[Program], Node]) -> None:
    p = Program()
    p.add("last", inputs=[p.clock("clock", before(p))])
    graph = p.build()
    assert graph.vertices[-1].name == "clock -> last" and clocks(graph)[-1] == "clock"
    assert len(graph.vertices) == 2 and graph.edges[0].partitioner.kind is PartitionerKind.FORWARD


def test_timestamps_behind_a_fork_or_a_union_begin_a_chain() -> None:
    p = Program()
    one, two = p.source("one"), p.source("two")
    p.clock("fork", one)
    p.clock("union", one, two)
    assert names(p.build()) == ["one", "two", "fork", "union"]


def test_without_a_strategy_a_vertex_follows_its_inputs() -> None:
    p = Program()
    timed = p.source("timed", TIME)
    p.add("reduce", K.REDUCE, [Input(timed, HASH)])
    p.add("untimed", inputs=[p.source("plain")])
    graph = p.build()
    assert names(graph) == ["timed", "reduce", "plain -> untimed"] and clocks(graph) == ["timed", None, None]
    assert [e.timestamped for e in graph.edges] == [True]


@pytest.mark.parametrize("strategy, timed", [
    (TIME, True), (BARE, False), (BARE.with_timestamp_column("at"), True), (BARE.with_idleness(5), True),
    (WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row), True),
])  # fmt: skip
def test_which_streams_carry_event_time(strategy: WatermarkStrategy, timed: bool) -> None:
    p = Program()
    by_source = p.source("a", strategy)
    by_operator = p.clock("b", p.add("m", inputs=[p.source()]), strategy=strategy)
    for start in (by_source, by_operator):
        p.add("keyed", K.KEYED_PROCESS, [Input(p.add("map", inputs=[start]), HASH)])
    graph = p.build()
    found = {graph.vertices[e.source].name: e.timestamped for e in graph.edges}
    assert found == {"a -> map": timed, "source -> m": False, "b -> map": timed}


def test_event_time_of_one_input_is_event_time_of_the_stream() -> None:
    p = Program()
    union = p.add("union", inputs=[p.source("timed", TIME), p.source("plain")])
    p.add("next", inputs=[Input(union, HASH)])
    graph = p.build()
    assert {graph.vertices[e.source].name: e.timestamped for e in graph.edges} == {
        "timed": True,
        "plain": False,
        "union": True,
    }


def keyed(*nodes: Node | Input) -> list[Input]:
    return [Input(n, HASH) if isinstance(n, Node) else replace(n, partitioner=HASH) for n in nodes]


@pytest.mark.parametrize("kind", [K.WINDOW, K.WINDOW_COLUMNS])
@pytest.mark.parametrize("bounded", [True, False])
def test_every_part_of_a_union_in_front_of_a_window_needs_event_time(kind: OperatorKind, bounded: bool) -> None:
    says = (
        r"operator 'counts': .* only a part has event time: 'old' has, 'new' has not; call "
        r"assign_timestamps_and_watermarks\(strategy\) on 'new' before union\(\)"
    )

    def old(p: Program) -> Node:
        return p.source("old", TIME)

    def new(p: Program) -> Node:
        return p.source("new", function=Ends(bounded))

    p = Program()
    p.add("counts", kind, keyed(old(p), new(p)))
    with pytest.raises(GraphError, match=says):
        p.build()
    p = Program()
    p.add("counts", kind, keyed(p.add("parse", inputs=[p.add("both", K.FILTER, [old(p), new(p)])])))
    with pytest.raises(GraphError, match=says):
        p.build()


def test_a_union_may_get_its_event_time_behind_it_or_in_every_part() -> None:
    p = Program()
    p.add("counts", K.WINDOW, keyed(p.clock("clock", p.source("old", TIME), p.source("new"))))
    p.add("more", K.WINDOW, keyed(p.source("third", TIME), p.clock("fourth clock", p.source("fourth"))))
    p.build()


def test_times_of_a_window_count_for_the_next_and_of_lines_that_could_not_be_read_there_are_none() -> None:
    p = Program()
    source = p.source(strategy=TIME)
    hours = p.add("hours", K.WINDOW, keyed(source))
    p.add("days", K.WINDOW, keyed(hours))
    p.build()
    p.add("counts", K.WINDOW, keyed(source, Input(source, side_output="malformed")))
    with pytest.raises(GraphError, match=r"'source' has, 'source' \(side output 'malformed'\) has not"):
        p.build()


def test_idleness_alone_gives_rows_no_time() -> None:
    p = Program()
    p.add("counts", K.WINDOW, keyed(p.source(strategy=BARE.with_idleness(1000))))
    with pytest.raises(GraphError, match="the rows from 'source' have no event time.*reads the time of rows, e.g. "):
        p.build()


def test_what_two_inputs_make_is_the_functions_affair() -> None:
    """Leaves to the function what it makes: often a row for each of the first input, that has event time, with what the
    second one knows of it."""
    p = Program()
    both = p.add("enrich", K.CO_PROCESS, [p.source("old", TIME), Input(p.source("names"), index=1)])
    p.add("counts", K.WINDOW, keyed(both))
    p.build()


@pytest.mark.parametrize("kind", [K.WINDOW, K.WINDOW_COLUMNS])
def test_windows_need_event_time(kind: OperatorKind) -> None:
    p = Program()
    p.add("counts", kind, [Input(p.add("parse", inputs=[p.source()]), HASH)])
    with pytest.raises(
        GraphError,
        match="operator 'counts': a window in event time, but the rows from 'parse' have no "
        r"event time; call assign_timestamps_and_watermarks\(strategy\) before key_by",
    ):
        p.build()
    q = Program()
    q.add("counts", kind, [Input(q.clock("clock", q.source()), HASH)])
    graph = q.build()
    assert names(graph) == ["source -> clock", "counts"] and graph.vertices[1].operators[0].timestamped


# ---- chains of rows and chains of columns ---------------------------------------------------------------------------


COLUMNAR = [K.MAP_BATCHES, K.PROJECT, K.FILTER_COLUMNS]
ROWS = [K.MAP, K.FLAT_MAP, K.FILTER, K.PROCESS]


@pytest.mark.parametrize("kinds", [ROWS, COLUMNAR])
def test_a_chain_is_of_one_sort(kinds: list[OperatorKind]) -> None:
    p = Program()
    last = p.source()
    for kind in kinds:
        last = p.add(kind.value, kind, [last])
    p.add("sink", K.SINK, [last])
    graph = p.build()
    assert len(graph.vertices) == 1 and graph.vertices[0].columnar is (kinds is COLUMNAR)


@pytest.mark.parametrize("first, second", [(ROWS[0], COLUMNAR[0]), (COLUMNAR[1], ROWS[2])])
def test_rows_and_columns_meet_at_a_forward_edge(first: OperatorKind, second: OperatorKind) -> None:
    p = Program()
    p.add("sink", K.SINK, [p.add("b", second, [p.add("a", first, [p.source()])])])
    graph = p.build()
    assert names(graph) == ["source -> a", "b -> sink"]
    assert [v.columnar for v in graph.vertices] == [first.columnar, second.columnar]
    assert graph.edges[0].partitioner.kind is PartitionerKind.FORWARD


def test_sources_timestamps_and_sinks_join_either() -> None:
    p = Program()
    p.add("sink", K.SINK, [p.add("batches", K.MAP_BATCHES, [p.clock("clock", p.source())])])
    p.add("bare", K.SINK, [p.source("other")])
    graph = p.build()
    assert names(graph) == ["source -> clock -> batches -> sink", "other -> bare"]
    assert [v.columnar for v in graph.vertices] == [True, True]


@pytest.mark.parametrize("kind", [k for k in K if k.keyed and not k.two_inputs])
def test_keyed_operators_begin_their_chain(kind: OperatorKind) -> None:
    p = Program()
    keyed = p.add("keyed", kind, [Input(p.source(strategy=TIME), HASH)])
    p.add("sink", K.SINK, [keyed])
    graph = p.build(parallelism=1)
    assert names(graph) == ["source", "keyed -> sink"] and graph.vertices[1].keyed


# ---- two inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [k for k in K if k.two_inputs])
def test_the_input_stands_in_the_edges_name(kind: OperatorKind) -> None:
    p = Program()
    one, two = p.source("one", type_=Types.LONG()), p.source("two", type_=Types.STRING())
    both = p.add("both", kind, [Input(one), Input(one), Input(two, index=1), Input(one, index=1)])
    p.add("sink", K.SINK, [both])
    graph = p.build()
    assert graph.vertices[-1].name == "both -> sink"
    assert [e.name.split("-")[2:] for e in graph.edges] == [["0", "0"], ["0", "1"], ["1", "0"], ["1", "0"]]
    assert [(e.input_index, e.type) for e in graph.edges] == [
        (0, Types.LONG()),
        (0, Types.LONG()),
        (1, Types.STRING()),
        (1, Types.LONG()),
    ]
    assert len({e.name for e in graph.edges}) == 4


def test_which_input_a_union_belongs_to_is_part_of_an_operators_id() -> None:
    def uid(indices: tuple[int, ...]) -> str:
        p = Program()
        sources = [p.source(name, uid=name) for name in "abc"]
        p.add("both", K.CO_MAP, [Input(s, index=i) for s, i in zip(sources, indices)])
        return p.build().vertices[-1].uid

    assert uid((0, 0, 1)) != uid((0, 1, 1))


# ---- side outputs ---------------------------------------------------------------------------------------------------


def test_a_side_output_ends_its_chain() -> None:
    p = Program()
    split = p.add("split", K.PROCESS, [p.source(strategy=TIME)], type_=Types.LONG())
    p.add("late", inputs=[Input(split, side_output="late", side_type=Types.STRING())], type_=Types.LONG())
    graph = p.build()
    assert names(graph) == ["source -> split", "late"]
    (edge,) = graph.edges
    assert (edge.side_output, edge.type, edge.timestamped) == ("late", Types.STRING(), True)
    assert graph.vertices[0].operators[-1].side_outputs == ("late",)
    assert graph.vertices[1].operators[0].input_type == Types.STRING()


def test_main_and_side_outputs_are_edges_of_their_own() -> None:
    p = Program()
    split = p.add("split", K.PROCESS, [p.source()])
    p.add("main", inputs=[split])
    for name in ("late", "odd", "late"):
        p.add(f"{name} rows", inputs=[Input(split, HASH, side_output=name)])
    graph = p.build()
    assert names(graph) == ["source -> split", "main", "late rows", "odd rows", "late rows"]
    assert [e.side_output for e in graph.edges] == [None, "late", "odd", "late"]
    assert graph.vertices[0].operators[-1].side_outputs == ("late", "odd")


def test_ids_of_what_reads_a_side_output_do_not_depend_on_the_order_of_declaration() -> None:
    def uids(outputs: list[str | None]) -> dict[str, str]:
        p = Program()
        split = p.add("split", K.PROCESS, [p.source()])
        for name in outputs:
            p.add(name or "main", inputs=[Input(split, side_output=name)])
        return {v.name: v.uid for v in p.build().vertices}

    assert uids([None, "late", "odd"]) == uids(["odd", None, "late"])


# ---- print ----------------------------------------------------------------------------------------------------------


def test_a_graph_prints_inputs_side_outputs_and_clocks() -> None:
    p = Program()
    orders = p.clock("clock", p.source("orders", type_=Types.LONG()), type_=Types.LONG())
    checked = p.add("check", K.PROCESS, [orders], type_=Types.LONG())
    prices = p.source("prices", type_=Types.STRING(), parallelism=1)
    both = p.add("join", K.KEYED_CO_PROCESS, [Input(checked, HASH), Input(prices, HASH, index=1)])
    p.add("bad", K.SINK, [Input(checked, side_output="bad", side_type=Types.STRING())])
    p.add("out", K.SINK, [both], chaining=ChainingStrategy.HEAD)
    graph = p.build()
    for operator in (o for v in graph.vertices for o in v.operators):
        assert len(operator.uid) == 32
    shown = describe(graph)
    for operator in (o for v in graph.vertices for o in v.operators):
        shown = shown.replace(f" (id {operator.uid})", "")
    assert (
        shown
        == """\
Job 'test': 5 vertices, 4 edges, 2 slots

[0] orders -> clock -> check
    parallelism 2 (max 128)
    event time: for_bounded_out_of_orderness(20 s), timestamps from column 'at'
    orders
    clock
    check

[1] prices
    parallelism 1 (max 128)
    prices

[2] join
    parallelism 2 (max 128, keyed)
    input 1 <- hash from [0] check: LONG, 4 channels
    input 2 <- hash from [1] prices: STRING, 2 channels
    event time: that of its inputs
    join

[3] bad
    parallelism 2 (max 128)
    <- forward from [0] check, side output 'bad': STRING, 2 channels
    event time: that of its inputs
    bad

[4] out
    parallelism 2 (max 128)
    <- forward from [2] join: untyped, 2 channels
    event time: that of its inputs
    out"""
    )
    nodes = json.loads(execution_plan(graph))["nodes"]
    assert [n["type"] for n in nodes] == ["orders", "clock", "check", "prices", "join", "bad", "out"]
    assert nodes[0]["event_time"].startswith("for_bounded") and nodes[3]["event_time"] is None
    assert nodes[2]["side_outputs"] == ["bad"]
    assert nodes[1]["predecessors"] == [{"id": 1, "ship_strategy": "FORWARD", "side": "second"}]
    assert [(i["id"], i["input"], i["side_output"]) for i in nodes[4]["predecessors"]] == [(3, 0, None), (4, 1, None)]
    assert (nodes[5]["predecessors"][0]["id"], nodes[5]["predecessors"][0]["side_output"]) == (3, "bad")
