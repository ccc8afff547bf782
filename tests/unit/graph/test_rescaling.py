"""Tests the graph of a running job at another parallelism."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock.common import Configuration, Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.builder import build_job_graph
from penstock.graph.job_graph import JobGraph
from penstock.graph.logical import Input, LogicalGraph, Node, OperatorKind, Partitioner, PartitionerKind
from penstock.graph.rescaled_graph import RescaleRefused, rescaled
from tests.unit.runtime.jobs.small_job import CommittedRows, graph_of

HASH = Partitioner(PartitionerKind.HASH, key_selector=lambda row: row)
REBALANCE = Partitioner(PartitionerKind.REBALANCE)


def program(parallelism: int = 2, sink: int | None = None, maximum: int = -1, whole: bool = False) -> JobGraph:
    """events, parse -> sum, from which scale and other get rows over forward edges -> out. `whole`: nobody can split
    the sum.
    """
    graph = LogicalGraph()
    source = graph.add(Node(0, OperatorKind.SOURCE, "events", object(), [], None, uid="events"))
    parse = graph.add(Node(1, OperatorKind.MAP, "parse", object(), [Input(source)], None, uid="parse"))
    total = graph.add(Node(2, OperatorKind.REDUCE, "sum", object(), [Input(parse, HASH)], None, uid="sum"))
    if whole:
        total.parallelism = total.max_parallelism = 1
    scale = graph.add(Node(3, OperatorKind.MAP, "scale", object(), [Input(total)], None, uid="scale"))
    other = graph.add(Node(4, OperatorKind.MAP, "other", object(), [Input(total)], None, uid="other"))
    inputs = [Input(scale, REBALANCE), Input(other, REBALANCE)]
    out = graph.add(Node(5, OperatorKind.SINK, "out", object(), inputs, None, uid="out"))
    out.parallelism = sink
    options = {"parallelism.default": parallelism, "pipeline.max-parallelism": maximum}
    return build_job_graph(graph, Configuration(options), "job")


def levels(graph: JobGraph) -> dict[str, int]:
    return {operator.name: vertex.parallelism for vertex in graph.vertices for operator in vertex.operators}


def test_the_whole_job_gets_the_parallelism_and_its_edges_follow() -> None:
    graph = rescaled(program(2), program(2), 3)
    assert set(levels(graph).values()) == {3} and graph.slots == 3
    for edge in graph.edges:
        assert edge.source_parallelism == graph.vertices[edge.source].parallelism
        assert edge.target_parallelism == graph.vertices[edge.target].parallelism


def test_what_has_less_in_the_program_keeps_it_as_far_as_there_are_slots() -> None:
    declared = program(4, sink=2)
    down = rescaled(declared, declared, 1)
    assert set(levels(down).values()) == {1}
    up = rescaled(down, declared, 6)
    assert levels(up) == {"events": 6, "parse": 6, "sum": 6, "scale": 6, "other": 6, "out": 2}


def test_what_cannot_be_split_stays_whole() -> None:
    declared = program(2, whole=True)
    assert levels(rescaled(declared, declared, 3))["sum"] == 1


def test_single_operators_change_with_those_that_forward_edges_join_to_them() -> None:
    graph = rescaled(program(2), program(2), {"scale": 4})
    assert levels(graph) == {"events": 2, "parse": 2, "sum": 4, "scale": 4, "other": 4, "out": 2}


@pytest.mark.parametrize(
    ("parallelism", "told"),
    [
        (0, "the parallelism of the job must be a whole number above 0, not 0"),
        (True, "must be a whole number above 0, not True"),
        ({"sum": -1}, "the parallelism of 'sum' must be a whole number above 0, not -1"),
        ({"sum": "3"}, "not '3'"),
        ({"nobody": 2}, "no operator has the uid or the name 'nobody'; there are 'events', 'parse', 'sum'"),
        ({"sum": 2, "scale": 3}, "'sum' and 'scale' are joined by forward edges, so they have the same parallelism"),
        (9, "vertex 'events -> parse' cannot have parallelism 9: its max parallelism is 8"),
    ],
)
def test_what_the_job_cannot_have_is_refused_by_name(parallelism: Any, told: str) -> None:
    graph = program(2, maximum=8)
    with pytest.raises(RescaleRefused, match=re.escape(told)):
        rescaled(graph, graph, parallelism)


def non_parallel(env: StreamExecutionEnvironment) -> None:
    """Declare a source of one subtask, with a map on a forward edge, and a sink that can have more."""
    env.set_parallelism(2)
    env.disable_operator_chaining()
    lines = env.from_collection([1, 2, 3], Types.LONG()).name("lines").uid("lines").force_non_parallel()
    parsed = lines.map(lambda line: line, Types.LONG()).name("parse").uid("parse").set_parallelism(1)
    parsed.rebalance().sink_to(CommittedRows()).name("out").uid("out")


@pytest.mark.parametrize("name", ["lines", "parse"])
def test_a_source_that_cannot_be_split_says_so(name: str) -> None:
    graph = graph_of(non_parallel)
    with pytest.raises(RescaleRefused) as refused:
        rescaled(graph, graph, {name: 3})
    told = str(refused.value)
    assert told.startswith("source 'lines' cannot have parallelism 3: it has one subtask and cannot be split")
    assert "force_non_parallel()" in told and "by which its state is split" not in told
    assert set(levels(rescaled(graph, graph, {"out": 3})).values()) == {1, 3}
    assert levels(rescaled(graph, graph, 3)) == levels(rescaled(graph, graph, {"out": 3}))


def test_another_vertex_that_cannot_be_split_says_so() -> None:
    graph = program(2, whole=True)
    with pytest.raises(RescaleRefused, match=r"^vertex 'sum' cannot have parallelism 2: it has one subtask"):
        rescaled(graph, graph, {"sum": 2})
