from __future__ import annotations

import pytest

from penstock.common import Configuration
from penstock.graph.builder import build_job_graph
from penstock.graph.compatibility import IncompatibleGraph, check, edge_shapes, vertex_shapes
from penstock.graph.logical import Input, LogicalGraph, Node, OperatorKind, Partitioner, PartitionerKind

HASH = Partitioner(PartitionerKind.HASH, key_selector=lambda row: row)
REBALANCE = Partitioner(PartitionerKind.REBALANCE)


def program(parallelism=2, maximum=-1, map_uid="map", edge=HASH, chained=True, sink=True):
    graph = LogicalGraph()
    source = graph.add(Node(0, OperatorKind.SOURCE, "events", object(), [], None, uid="events"))
    mapped = graph.add(Node(1, OperatorKind.MAP, "parse", object(), [Input(source)], None, uid=map_uid))
    summed = graph.add(Node(2, OperatorKind.REDUCE, "sum", object(), [Input(mapped, edge)], None, uid="sum"))
    if sink:
        graph.add(Node(3, OperatorKind.SINK, "out", object(), [Input(summed)], None, uid="out"))
    options = {"parallelism.default": parallelism, "pipeline.max-parallelism": maximum,
               "pipeline.operator-chaining.enabled": chained}  # fmt: skip
    return build_job_graph(graph, Configuration(options), "job")


def shapes(graph):
    return vertex_shapes(graph), edge_shapes(graph)


def refusal(old, new, **options):
    with pytest.raises(IncompatibleGraph) as refused:
        check(*shapes(old), new, **options)
    return str(refused.value)


def test_the_same_program_fits():
    check(*shapes(program()), program())


def test_changed_parallelism_is_refused_by_vertex():
    text = refusal(program(), program(parallelism=3))
    assert ("restoring at another parallelism comes with a later release: vertex 'events -> parse' had 2, now 3; "
            "run it with 2") in text
    assert "vertex 'sum -> out' had 2, now 3" in text


def test_changed_max_parallelism_is_refused():
    assert "vertex 'sum -> out' had max parallelism 128, now 256" in refusal(program(), program(maximum=256))


def test_a_vanished_operator_is_refused_unless_its_state_may_be_dropped():
    text = refusal(program(), program(sink=False))
    assert "vertex 'sum -> out': the program has no operator 'out' any more" in text
    assert "execution.state-recovery.ignore-unclaimed-state=true" in text
    check(*shapes(program()), program(sink=False), ignore_unclaimed_state=True)


def test_an_operator_that_lost_its_uid_is_one_that_vanished():
    assert "no operator 'parse' any more" in refusal(program(), program(map_uid="renamed"))
    check(*shapes(program()), program(map_uid="renamed"), ignore_unclaimed_state=True)


def test_a_new_operator_is_welcome():
    check(*shapes(program(sink=False)), program())


def test_changed_partitioning_is_refused_by_edge():
    text = refusal(program(), program(edge=REBALANCE))
    assert "the edge from 'parse' to 'sum' was partitioned by hash, now by rebalance" in text


def test_changed_chains_are_refused():
    text = refusal(program(), program(chained=False))
    assert "vertex 'events -> parse': its operators are chained in another way now ('events', 'parse')" in text


def test_an_edge_that_is_chained_now_is_refused():
    assert "the edge from 'events' to 'parse' is gone" in refusal(program(chained=False), program())


def test_all_differences_are_told_at_once():
    text = refusal(program(), program(parallelism=3, maximum=64, edge=REBALANCE))
    assert len(text.splitlines()) == 1 + 2 + 2 + 1
