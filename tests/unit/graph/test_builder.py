"""Builds job graphs: what is chained, by which edge, and ids that must never change, since checkpoints name them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.common import Configuration, Types
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
from penstock.graph.operator_ids import DuplicateUid, uid_of
from penstock.graph.parallelism import default_max_parallelism

HASH = Partitioner(PartitionerKind.HASH, key_selector=lambda row: row)


class Program:
    """Declares nodes; names are those of the nodes."""

    def __init__(self) -> None:
        self.graph = LogicalGraph()

    def add(
        self,
        name: str,
        kind: OperatorKind = OperatorKind.MAP,
        inputs: Iterable[Node | Input] = (),
        type_: TypeInformation | None = None,
        **settings: Any,
    ) -> Node:
        """Add a node. `settings`: the fields of `Node` that have a default."""
        edges = [i if isinstance(i, Input) else Input(i) for i in inputs]
        return self.graph.add(Node(len(self.graph.nodes), kind, name, object(), edges, type_, **settings))

    def source(self, name: str = "source", **settings: Any) -> Node:
        return self.add(name, OperatorKind.SOURCE, **settings)

    def build(self, parallelism: int = 2, **options: object) -> JobGraph:
        configuration = Configuration({"parallelism.default": parallelism, **options})
        return build_job_graph(self.graph, configuration, "test")


def names(graph: JobGraph) -> list[str]:
    return [v.name for v in graph.vertices]


def edges(graph: JobGraph) -> list[tuple[str, str, str]]:
    name = [v.name for v in graph.vertices]
    return [(name[e.source], name[e.target], e.partitioner.kind.value) for e in graph.edges]


def test_a_line_of_equals_is_one_chain() -> None:
    p = Program()
    p.add("sink", OperatorKind.SINK, [p.add("filter", OperatorKind.FILTER, [p.add("map", inputs=[p.source()])])])
    graph = p.build()
    assert names(graph) == ["source -> map -> filter -> sink"]
    assert graph.edges == () and graph.slots == 2
    assert graph.vertices[0].is_source and not graph.vertices[0].keyed


@pytest.mark.parametrize("kind", [k for k in PartitionerKind if k is not PartitionerKind.FORWARD])
def test_only_forward_edges_are_chained(kind: PartitionerKind) -> None:
    p = Program()
    p.add("map", inputs=[Input(p.source(), Partitioner(kind, key_selector=abs, custom=divmod))])
    assert edges(p.build()) == [("source", "map", kind.value)]


def test_an_explicit_forward_edge_is_chained() -> None:
    p = Program()
    p.add("map", inputs=[Input(p.source(), Partitioner(PartitionerKind.FORWARD))])
    assert names(p.build()) == ["source -> map"]


def test_a_keyed_edge_is_never_chained_not_even_at_parallelism_one() -> None:
    p = Program()
    p.add("reduce", OperatorKind.REDUCE, [Input(p.source(), HASH)])
    graph = p.build(parallelism=1)
    assert edges(graph) == [("source", "reduce", "hash")]
    assert [v.keyed for v in graph.vertices] == [False, True]


def test_unequal_parallelism_is_rebalanced() -> None:
    p = Program()
    p.add("map", inputs=[p.source(parallelism=1)])
    assert edges(p.build()) == [("source", "map", "rebalance")]


def test_forward_with_unequal_parallelism_names_both_operators() -> None:
    p = Program()
    p.add("map", inputs=[Input(p.source(parallelism=1), Partitioner(PartitionerKind.FORWARD))])
    with pytest.raises(GraphError, match=r"'source' \(parallelism 1\) to operator 'map' \(parallelism 2\)"):
        p.build()


def test_a_fork_ends_its_chain_and_its_consumers_are_forward_vertices() -> None:
    p = Program()
    m = p.add("map", inputs=[p.source()])
    p.add("a", inputs=[m])
    p.add("b", inputs=[m])
    graph = p.build()
    assert names(graph) == ["source -> map", "a", "b"]
    assert edges(graph) == [("source -> map", "a", "forward"), ("source -> map", "b", "forward")]


def test_a_union_is_several_edges_with_one_input_index() -> None:
    p = Program()
    one, two = p.source("one"), p.source("two")
    p.add("map", inputs=[one, two, one])
    graph = p.build()
    assert edges(graph) == [("one", "map", "forward"), ("two", "map", "forward"), ("one", "map", "forward")]
    assert {e.input_index for e in graph.edges} == {0}
    assert len({e.name for e in graph.edges}) == 3
    assert graph.edges[0].name.endswith("-0-0") and graph.edges[2].name.endswith("-0-1")


@pytest.mark.parametrize(
    "settings, expected",
    [
        ([{}, {"chaining": ChainingStrategy.HEAD}, {}], ["a", "b -> c"]),
        ([{}, {"chaining": ChainingStrategy.NEVER}, {}], ["a", "b", "c"]),
        ([{"chaining": ChainingStrategy.NEVER}, {}, {}], ["a", "b -> c"]),
        ([{"chaining": ChainingStrategy.HEAD}, {}, {}], ["a -> b -> c"]),
        ([{}, {"max_parallelism": 64}, {"max_parallelism": 64}], ["a", "b -> c"]),
        ([{}, {}, {"parallelism": 3}], ["a -> b", "c"]),
    ],
)
def test_what_breaks_a_chain(settings: list[dict[str, Any]], expected: list[str]) -> None:
    p = Program()
    a = p.source("a", **settings[0])
    b = p.add("b", inputs=[a], **settings[1])
    p.add("c", inputs=[b], **settings[2])
    assert names(p.build()) == expected


def test_chaining_can_be_turned_off() -> None:
    p = Program()
    p.add("map", inputs=[p.source()])
    assert names(p.build(2, **{"pipeline.operator-chaining.enabled": "false"})) == ["source", "map"]


def test_vertices_stand_in_topological_order() -> None:
    p = Program()
    a = p.source("a")
    b = p.source("b")
    joined = p.add("union", inputs=[b, a])
    c = p.source("c")
    p.add("last", inputs=[Input(joined, HASH), Input(c, HASH)])
    graph = p.build()
    assert [v.index for v in graph.vertices] == list(range(len(graph.vertices)))
    assert [e.index for e in graph.edges] == list(range(len(graph.edges)))
    assert all(e.source < e.target for e in graph.edges)
    assert [e.target for e in graph.inputs_of(graph.vertices[-1].index)] == [graph.vertices[-1].index] * 2


def test_operators_know_their_types() -> None:
    p = Program()
    source = p.source(type_=Types.LONG())
    mapped = p.add("map", inputs=[source], type_=Types.STRING())
    p.add("sink", OperatorKind.SINK, [Input(mapped, HASH)], type_=Types.STRING())
    graph = p.build()
    operators = [o for v in graph.vertices for o in v.operators]
    assert [(o.input_type, o.output_type) for o in operators] == [
        (None, Types.LONG()),
        (Types.LONG(), Types.STRING()),
        (Types.STRING(), None),
    ]
    assert graph.edges[0].type == Types.STRING()


def test_nothing_declared_is_nothing_to_run() -> None:
    with pytest.raises(GraphError, match="nothing to execute"):
        Program().build()


# ---- max parallelism ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parallelism, expected",
    [(1, 128), (2, 128), (85, 128), (86, 256), (100, 256), (128, 256), (170, 256), (171, 256), (172, 512),
     (1000, 2048), (21845, 32768), (32768, 32768)],
)  # fmt: skip
def test_the_default_max_parallelism_is_flinks(parallelism: int, expected: int) -> None:
    assert default_max_parallelism(parallelism) == expected


def test_an_operators_max_parallelism_counts_before_the_jobs() -> None:
    p = Program()
    p.add("map", inputs=[p.source(max_parallelism=7)])
    assert [v.max_parallelism for v in p.build(2, **{"pipeline.max-parallelism": "50"}).vertices] == [7, 50]
    assert [v.max_parallelism for v in p.build().vertices] == [7, 128]


def test_more_parallelism_than_max_parallelism_is_refused() -> None:
    p = Program()
    p.source(max_parallelism=3)
    with pytest.raises(ValueError, match="'source': parallelism 4 is more than its max parallelism, 3"):
        p.build(parallelism=4)
    q = Program()
    q.source()
    with pytest.raises(ValueError, match="more than the job's max parallelism, 3"):
        q.build(parallelism=4, **{"pipeline.max-parallelism": "3"})


# ---- operator ids ---------------------------------------------------------------------------------------------------


def diamond(uid: str | None = None, middle_uid: str | None = None, with_more: bool = False) -> Program:
    p = Program()
    source = p.source(uid=uid)
    if with_more:
        p.source("unrelated", uid="other")
    left = p.add("left", inputs=[source])
    right = p.add("right", inputs=[source], uid=middle_uid)
    joined = p.add("joined", OperatorKind.REDUCE, [Input(left, HASH), Input(right, HASH)])
    p.add("sink", OperatorKind.SINK, [joined])
    if with_more:
        p.add("second sink", OperatorKind.SINK, [joined])
    return p


def ids(program: Program, **options: Any) -> dict[str, str]:
    return {o.name: o.uid for v in program.build(**options).vertices for o in v.operators}


GOLDEN = {
    "source": "8ac1873921c3fe47a5f8d21a989bd830",
    "left": "866419bb9f62392ce091a85041296b39",
}


def test_ids_are_the_same_for_ever() -> None:
    """These stand in users' checkpoints. If this fails, state of jobs without uids is lost."""
    found = ids(diamond())
    assert {k: found[k] for k in GOLDEN} == GOLDEN
    assert uid_of("word-count") == "4d4bf17a5fb9038e0d9fc7d0dbf6d5d6"
    assert found == GOLDEN | {
        "right": "2db11b985a4e6b97085ff3fb95a59553",
        "joined": "ebe41948a7aee712b8df3703e7757f8a",
        "sink": "d334c8f4df6bb19aca9c7095ca5f3aa2",
    }


def test_ids_do_not_depend_on_parallelism_chaining_or_what_is_added_elsewhere() -> None:
    plain = ids(diamond())
    assert ids(diamond(), parallelism=7) == plain
    assert ids(diamond(), **{"pipeline.operator-chaining.enabled": "false"}) == plain
    more = ids(diamond(with_more=True))
    assert {name: more[name] for name in plain} == plain


def test_a_users_uid_is_the_id_and_moves_what_follows() -> None:
    plain, named = ids(diamond()), ids(diamond(middle_uid="mine"))
    assert named["right"] == uid_of("mine")
    assert named["left"] == plain["left"] and named["joined"] != plain["joined"]
    assert len(set(named.values())) == 5


def test_the_same_uid_twice_names_both() -> None:
    with pytest.raises(DuplicateUid, match="operators 'source' and 'right' have the same uid 'x'"):
        diamond(uid="x", middle_uid="x").build()


def test_edge_names_are_made_of_ids() -> None:
    graph = diamond().build()
    found = ids(diamond())
    assert {e.name for e in graph.edges} == {
        f"{found['source']}-{found['left']}-0-0",
        f"{found['source']}-{found['right']}-0-0",
        f"{found['left']}-{found['joined']}-0-0",
        f"{found['right']}-{found['joined']}-0-0",
    }


# ---- channels and print ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sources", range(1, 8))
@pytest.mark.parametrize("targets", range(1, 8))
@pytest.mark.parametrize("kind", [PartitionerKind.RESCALE, PartitionerKind.REBALANCE, PartitionerKind.HASH])
def test_both_ends_agree_on_who_is_connected(sources: int, targets: int, kind: PartitionerKind) -> None:
    p = Program()
    source = p.source(parallelism=sources)
    p.add("map", inputs=[Input(source, Partitioner(kind, key_selector=abs))], parallelism=targets)
    edge = p.build().edges[0]
    pairs = {(a, b) for a in range(sources) for b in edge.consumers_of(a)}
    assert pairs == {(a, b) for b in range(targets) for a in edge.producers_of(b)}
    assert {a for a, _ in pairs} == set(range(sources)) and {b for _, b in pairs} == set(range(targets))
    if kind is PartitionerKind.RESCALE:
        assert len(pairs) == max(sources, targets)


def test_a_graph_prints_itself() -> None:
    p = Program()
    source = p.source(parallelism=1, type_=Types.LONG())
    mapped = p.add("map", inputs=[source], uid="my-map")
    p.add("sum", OperatorKind.REDUCE, [Input(mapped, HASH)])
    assert (
        describe(p.build())
        == f"""\
Job 'test': 3 vertices, 2 edges, 2 slots

[0] source
    parallelism 1 (max 128)
    source (id {GOLDEN["source"]})

[1] map
    parallelism 2 (max 128)
    <- rebalance from [0] source: LONG, 2 channels
    map (uid 'my-map')

[2] sum
    parallelism 2 (max 128, keyed)
    <- hash from [1] map: untyped, 4 channels
    sum (id {ids(p)["sum"]})"""
    )
    plan = json.loads(execution_plan(p.build()))
    assert [n["contents"] for n in plan["nodes"]] == ["source", "map", "sum"]
    assert [n["pact"] for n in plan["nodes"]] == ["Data Source", "Operator", "Operator"]
    assert [n["id"] for n in plan["nodes"]] == [1, 2, 3]
    before = plan["nodes"][2]["predecessors"][0]
    assert (before["id"], before["ship_strategy"], before["side"]) == (2, "HASH", "second")
