"""Tests what holds for every program: who is chained to whom, who has the time, what travels on an edge."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.graph.builder import build_job_graph
from penstock.graph.logical import (
    ChainingStrategy,
    Input,
    LogicalGraph,
    Node,
    OperatorKind,
    Partitioner,
    PartitionerKind,
)
from penstock.graph.timed_nodes import WINDOW_KINDS, Timed, nodes_with_event_time, timed_input, timed_rows

K = OperatorKind
TIMED = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
STRATEGIES = st.sampled_from([WatermarkStrategy.no_watermarks(), TIMED])
HASH = Partitioner(PartitionerKind.HASH, key_selector=abs)
PARTITIONERS = st.sampled_from([None, None, None, Partitioner(PartitionerKind.REBALANCE), HASH])
WITH_SIDE_OUTPUTS = (K.PROCESS, K.KEYED_PROCESS, K.CO_PROCESS, K.KEYED_CO_PROCESS, *WINDOW_KINDS)
NEUTRAL = (K.SOURCE, K.TIMESTAMPS, K.SINK)


@st.composite
def programs(draw: st.DrawFn) -> LogicalGraph:
    graph = LogicalGraph()

    def add(kind: K, inputs: list[Input], strategy: WatermarkStrategy | None = None) -> None:
        node = Node(len(graph.nodes), kind, f"{kind.value} {len(graph.nodes)}", None, inputs, Types.LONG())
        node.watermark_strategy = strategy
        node.parallelism = draw(st.sampled_from([None, None, 1, 3]))
        node.chaining = draw(st.sampled_from([ChainingStrategy.ALWAYS] * 4 + list(ChainingStrategy)))
        if kind is K.TIMESTAMPS:
            node.function = draw(STRATEGIES)
        graph.add(node)

    def source() -> None:
        add(K.SOURCE, [], strategy=draw(STRATEGIES))

    def read(keyed: bool, index: int = 0) -> Input:
        node = draw(st.sampled_from([n for n in graph.nodes if n.kind is not K.SINK]))
        side = "side" if node.kind in WITH_SIDE_OUTPUTS and draw(st.booleans()) else None
        partitioner = HASH if keyed else draw(PARTITIONERS)
        return Input(node, partitioner, side, Types.STRING() if side else None, index)

    source()
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(list(K)))
        if kind is K.SOURCE:
            source()
            continue
        inputs = [read(kind.keyed) for _ in range(draw(st.sampled_from([1, 1, 1, 2])))]
        if kind.two_inputs:
            inputs.append(read(kind.keyed, index=1))
        if kind in WINDOW_KINDS and {timed_input(timed_rows(graph), i) for i in inputs} != {Timed.ALL}:
            continue
        add(kind, inputs)
    return graph


@settings(max_examples=100, deadline=None)
@given(programs(), st.integers(1, 3))
def test_what_holds_for_every_program(program: LogicalGraph, parallelism: int) -> None:
    graph = build_job_graph(program, Configuration({"parallelism.default": parallelism}), "any")
    node_of = {node.name: node for node in program.nodes}
    timed = nodes_with_event_time(program)
    assert sorted(o.name for v in graph.vertices for o in v.operators) == sorted(node_of)

    for vertex in graph.vertices:
        kinds = [o.kind for o in vertex.operators]
        # Rows or columns, not both; keyed operators, those of two inputs and sources are heads.
        assert len({kind.columnar for kind in kinds if kind not in NEUTRAL}) <= 1
        assert not any(kind.keyed or kind.two_inputs or kind is K.SOURCE for kind in kinds[1:])
        assert K.SINK not in kinds[:-1]
        # One clock, and all operators but a source behind it.
        clocks = [at for at, o in enumerate(vertex.operators) if o.watermark_strategy is not None]
        assert len(clocks) <= 1
        if clocks and clocks[0] > 0:
            assert clocks == [1] and kinds[:2] == [K.SOURCE, K.TIMESTAMPS]
        for at, operator in enumerate(vertex.operators):
            assert operator.timestamped is (node_of[operator.name] in timed)
            if at:
                (only,) = node_of[operator.name].inputs
                assert only.node.name == vertex.operators[at - 1].name and only.side_output is None
        # Side outputs are only at the end of a chain.
        assert not any(o.side_outputs for o in vertex.operators[:-1])

    # Every input is an edge or a place in a chain, and an edge says what travels on it.
    inputs = sum(len(node.inputs) for node in program.nodes)
    assert inputs == len(graph.edges) + sum(len(v.operators) - 1 for v in graph.vertices)
    assert len({e.name for e in graph.edges}) == len(graph.edges)
    for edge in graph.edges:
        source, target = graph.vertices[edge.source], graph.vertices[edge.target]
        assert edge.source < edge.target
        assert edge.timestamped is source.operators[-1].timestamped
        assert edge.type == (Types.STRING() if edge.side_output else Types.LONG())
        assert edge.side_output is None or edge.side_output in source.operators[-1].side_outputs
        assert edge.input_index in ((0, 1) if target.operators[0].kind.two_inputs else (0,))
        assert (edge.partitioner.kind is PartitionerKind.HASH) <= target.keyed
