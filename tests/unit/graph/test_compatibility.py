"""Compares checkpoints with changed programs: what would lose state or rows is refused by name, all else fits."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

import msgspec
import pytest

from penstock.common import Configuration
from penstock.common.row_types.type_information import TypeInformation
from penstock.common.types import Types
from penstock.datastream.window import TimeWindow
from penstock.graph.builder import build_job_graph
from penstock.graph.compatibility import IncompatibleGraph, check, edge_shapes, vertex_shapes, with_max_parallelism
from penstock.graph.declared_columns import WindowAggregateSpec
from penstock.graph.declared_functions import WindowSpec
from penstock.graph.job_graph import JobGraph
from penstock.graph.logical import Input, LogicalGraph, Node, OperatorKind, Partitioner, PartitionerKind
from penstock.operators.windows.assigners.tumbling import Tumbling
from penstock.protocol.values.metadata import EdgeShape, VertexShape

HASH = Partitioner(PartitionerKind.HASH, key_selector=lambda row: row)
REBALANCE = Partitioner(PartitionerKind.REBALANCE)


def program(
    parallelism: int = 2,
    maximum: int = -1,
    map_uid: str = "map",
    edge: Partitioner = HASH,
    chained: bool = True,
    sink: bool = True,
    type_info: TypeInformation | None = None,
    windows: WindowSpec | WindowAggregateSpec | None = None,
) -> JobGraph:
    graph = LogicalGraph()
    source = graph.add(Node(0, OperatorKind.SOURCE, "events", object(), [], None, uid="events"))
    mapped = graph.add(Node(1, OperatorKind.MAP, "parse", object(), [Input(source)], type_info, uid=map_uid))
    reduce = windows or object()
    summed = graph.add(Node(2, OperatorKind.REDUCE, "sum", reduce, [Input(mapped, edge)], None, uid="sum"))
    if sink:
        graph.add(Node(3, OperatorKind.SINK, "out", object(), [Input(summed)], None, uid="out"))
    options = {"parallelism.default": parallelism, "pipeline.max-parallelism": maximum,
               "pipeline.operator-chaining.enabled": chained}  # fmt: skip
    return build_job_graph(graph, Configuration(options), "job")


def shapes(graph: JobGraph) -> tuple[list[VertexShape], list[EdgeShape]]:
    return vertex_shapes(graph), edge_shapes(graph)


def refusal(
    old: JobGraph, new: JobGraph, *, ignore_unclaimed_state: bool = False, in_flight: Container[str] | None = None
) -> str:
    with pytest.raises(IncompatibleGraph) as refused:
        check(*shapes(old), new, ignore_unclaimed_state, in_flight)
    return str(refused.value)


def test_the_same_program_fits() -> None:
    check(*shapes(program()), program())


def test_another_parallelism_fits() -> None:
    check(*shapes(program()), program(parallelism=3))
    check(*shapes(program(parallelism=4)), program(parallelism=1))


def test_changed_max_parallelism_is_refused() -> None:
    assert "vertex 'sum -> out' had max parallelism 128, now 256" in refusal(program(), program(maximum=256))


def test_the_max_parallelism_of_the_checkpoint_is_kept_where_the_program_says_none() -> None:
    old, wide = program(parallelism=2), program(parallelism=100)
    assert [v.max_parallelism for v in wide.vertices] == [256, 256]
    kept = with_max_parallelism(wide, vertex_shapes(old))
    assert [v.max_parallelism for v in kept.vertices] == [128, 128]
    check(*shapes(old), kept)
    given = program(maximum=256)
    assert with_max_parallelism(given, vertex_shapes(old)) is given


def test_more_subtasks_than_key_groups_are_refused() -> None:
    old, wide = program(), program(parallelism=200)
    text = refusal(old, with_max_parallelism(wide, vertex_shapes(old)))
    assert "vertex 'sum -> out' has parallelism 200 now" in text and "run it with at most 128" in text


@pytest.mark.parametrize(
    "spec",
    [
        WindowSpec(Tumbling(100), 0, None, None, None, None, None, TimeWindow),
        WindowAggregateSpec(("user",), (), Tumbling(100), 0, None),
    ],
)
def test_windows_of_another_size_or_offset_are_refused_before_they_would_lose_what_is_kept(
    spec: WindowSpec | WindowAggregateSpec,
) -> None:
    """[Kept is where a window starts: its timer finds no window of the new size, and its rows are never put out.]"""
    old = program(windows=spec)
    check(*shapes(old), program(windows=replace(spec, allowed_lateness_ms=5)))
    smaller = program(windows=replace(spec, assigner=Tumbling(80)))
    told = "operator 'sum' had tumbling windows (size 100 ms), now tumbling windows (size 80 ms)"
    assert told in refusal(old, smaller)
    later = program(windows=replace(spec, assigner=Tumbling(100, 10)))
    assert "now tumbling windows (size 100 ms, offset 10 ms)" in refusal(old, later)
    check(*shapes(program()), old)
    before_it_was_told = [msgspec.structs.replace(v, windows=None) for v in vertex_shapes(old)]
    check(before_it_was_told, edge_shapes(old), smaller)


def test_a_vanished_operator_is_refused_unless_its_state_may_be_dropped() -> None:
    text = refusal(program(), program(sink=False))
    assert "vertex 'sum -> out': the program has no operator 'out' (uid 'out') any more" in text
    assert "execution.state-recovery.ignore-unclaimed-state=true" in text
    check(*shapes(program()), program(sink=False), ignore_unclaimed_state=True)


def test_an_operator_that_lost_its_uid_is_one_that_vanished() -> None:
    assert "no operator 'parse' (uid 'map') any more" in refusal(program(), program(map_uid="renamed"))
    check(*shapes(program()), program(map_uid="renamed"), ignore_unclaimed_state=True, in_flight=())


def without_map() -> JobGraph:
    graph = LogicalGraph()
    source = graph.add(Node(0, OperatorKind.SOURCE, "events", object(), [], None, uid="events"))
    summed = graph.add(Node(1, OperatorKind.REDUCE, "sum", object(), [Input(source, HASH)], None, uid="sum"))
    graph.add(Node(2, OperatorKind.SINK, "out", object(), [Input(summed)], None, uid="out"))
    return build_job_graph(graph, Configuration({"parallelism.default": 2}), "job")


def test_rows_in_flight_on_a_vanished_edge_are_refused_whatever_the_option_says() -> None:
    """[A stateless map was removed: rows that were on their way to it and from it were read by nobody.]"""
    old = program()
    edge = next(e for e in old.edges if e.target == 1)
    told = refusal(old, without_map(), ignore_unclaimed_state=True, in_flight={edge.name})
    assert "the edge from 'parse' to 'sum' is gone (the program has no operator 'parse' (uid 'map') any more)" in told
    assert "holds rows that were on it" in told and "stop_with_savepoint(aligned=True)" in told
    assert "=true" not in told, "the option is not recommended for what it does not mend"
    assert "'parse' to 'sum' is gone" in refusal(old, without_map(), ignore_unclaimed_state=True)
    check(*shapes(old), without_map(), ignore_unclaimed_state=True, in_flight=())


def test_the_option_is_not_recommended_while_rows_are_in_flight() -> None:
    old = program()
    edge = next(e for e in old.edges if e.target == 1)
    told = refusal(old, without_map(), in_flight={edge.name})
    assert "vertex 'events -> parse': the program has no operator 'parse' (uid 'map') any more" in told
    assert "ignore-unclaimed-state=true" not in told and "stop_with_savepoint(aligned=True)" in told
    assert "ignore-unclaimed-state=true" in refusal(old, without_map(), in_flight=())


def test_a_keyed_operator_whose_key_is_gone_is_refused_for_its_state() -> None:
    graph = LogicalGraph()
    source = graph.add(Node(0, OperatorKind.SOURCE, "events", object(), [], None, uid="events"))
    mapped = graph.add(Node(1, OperatorKind.MAP, "parse", object(), [Input(source)], None, uid="map"))
    new = graph.add(Node(2, OperatorKind.MAP, "new", object(), [Input(mapped)], None, uid="new"))
    summed = graph.add(Node(3, OperatorKind.PROCESS, "sum", object(), [Input(new)], None, uid="sum"))
    graph.add(Node(4, OperatorKind.SINK, "out", object(), [Input(summed)], None, uid="out"))
    unkeyed = build_job_graph(graph, Configuration({"parallelism.default": 2}), "job")
    told = refusal(program(), unkeyed, in_flight=())
    assert "operator 'sum' read a keyed stream, and does not any more" in told


def test_a_new_operator_is_welcome() -> None:
    check(*shapes(program(sink=False)), program())


def test_changed_partitioning_is_refused_by_edge() -> None:
    text = refusal(program(), program(edge=REBALANCE))
    assert "the edge from 'parse' to 'sum' was partitioned by hash, now by rebalance" in text


@pytest.mark.parametrize("kinds", [("forward", "rebalance"), ("rebalance", "shuffle"), ("rescale", "forward")])
def test_edges_that_say_nothing_about_where_a_row_has_to_be_may_change(kinds: tuple[str, str]) -> None:
    old, new = (program(edge=Partitioner(PartitionerKind(k)), chained=False) for k in kinds)
    check(*shapes(old), new)


def test_another_number_of_receivers_of_a_broadcast_is_refused_while_they_have_read_different_rows() -> None:
    broadcast = Partitioner(PartitionerKind.BROADCAST)
    old, new = program(edge=broadcast), program(parallelism=3, edge=broadcast)
    text = refusal(old, new)
    assert "the edge from 'parse' to 'sum' is a broadcast from 2 to 2 subtasks, and some of these had read rows" in text
    assert "stop_with_savepoint(aligned=True)" in text
    check(*shapes(old), new, in_flight=frozenset())
    check(*shapes(old), new, uneven=frozenset())
    check(*shapes(old), old)


def test_rows_in_flight_must_have_the_same_columns() -> None:
    def typed(*fields: str) -> JobGraph:
        return program(type_info=Types.ROW_NAMED(list(fields), [Types.LONG()] * len(fields)))

    old, new = typed("user"), typed("user", "amount")
    text = refusal(old, new)
    assert "the edge from 'parse' to 'sum' carried rows of (user: int64, key: any), now (user: int64, amount" in text
    check(*shapes(old), new, in_flight=frozenset())
    check(*shapes(old), typed("user"), in_flight={old.edges[0].name})


def test_a_checkpoint_of_the_first_format_knows_no_columns() -> None:
    old = program()
    vertices, edges = shapes(old)
    check(vertices, [msgspec.structs.replace(e, columns="") for e in edges], program(parallelism=3))


def test_chains_may_change() -> None:
    check(*shapes(program()), program(chained=False))
    check(*shapes(program(chained=False)), program(), in_flight=())


def test_an_edge_that_is_chained_now_is_refused_while_it_has_rows() -> None:
    old = program(chained=False)
    first = next(e for e in old.edges if e.source == 0)
    told = refusal(old, program(), in_flight={first.name})
    assert "the edge from 'events' to 'parse' is gone (the two are connected in another way, or chained)" in told
    assert "stop_with_savepoint(aligned=True)" in told
    assert "the edge from 'events' to 'parse' is gone" in refusal(old, program())
    others = {e.name for e in old.edges if e.source == 1}
    check(*shapes(old), program(), in_flight=others)


def fixed_one(parallelism: int) -> JobGraph:
    graph = LogicalGraph()
    source = graph.add(Node(0, OperatorKind.SOURCE, "events", object(), [], None, parallelism=1, uid="events"))
    mapped = graph.add(Node(1, OperatorKind.MAP, "parse", object(), [Input(source)], None, uid="map"))
    graph.add(Node(2, OperatorKind.SINK, "out", object(), [Input(mapped)], None, parallelism=1, uid="out"))
    return build_job_graph(graph, Configuration({"parallelism.default": parallelism}), "job")


def test_another_parallelism_beside_a_fixed_one_breaks_and_joins_chains() -> None:
    one, three = fixed_one(1), fixed_one(3)
    assert len(one.vertices) == 1 and len(three.vertices) == 3
    check(*shapes(one), three)
    check(*shapes(three), one, in_flight=())
    assert "is gone" in refusal(three, one, in_flight={three.edges[0].name})


def test_all_differences_are_told_at_once() -> None:
    text = refusal(program(), program(parallelism=3, maximum=64, edge=REBALANCE))
    assert len(text.splitlines()) == 1 + 2 + 1
