"""Prints a job graph: as text for people, as JSON for programs."""

from __future__ import annotations

import json

from penstock.graph.job_graph import Edge, JobGraph, Operator, Vertex
from penstock.graph.logical import OperatorKind


def describe(graph: JobGraph) -> str:
    """Describe vertices with their chains, parallelism and the edges that come in, a few lines for each."""
    lines = [
        f"Job '{graph.name}': {_count(len(graph.vertices), 'vertex', 'vertices')}, "
        f"{_count(len(graph.edges), 'edge', 'edges')}, {_count(graph.slots, 'slot', 'slots')}"
    ]
    for vertex in graph.vertices:
        lines.append("")
        lines.append(f"[{vertex.index}] {vertex.name}")
        keyed = ", keyed" if vertex.keyed else ""
        lines.append(f"    parallelism {vertex.parallelism} (max {vertex.max_parallelism}{keyed})")
        for edge in graph.inputs_of(vertex.index):
            source = graph.vertices[edge.source]
            to = f"input {edge.input_index + 1} " if vertex.operators[0].kind.two_inputs else ""
            phase = "" if edge.partitioner.partial is None else " of partial aggregates"
            side = "" if edge.side_output is None else f", side output {edge.side_output!r}"
            lines.append(
                f"    {to}<- {edge.partitioner.kind.value}{phase} from [{source.index}] "
                f"{source.operators[-1].name}{side}: {_type_text(edge)}, {_channels(edge)}"
            )
        if (time := _event_time(graph, vertex)) is not None:
            lines.append(f"    event time: {time}")
        for operator in vertex.operators:
            uid = f"uid '{operator.user_uid}'" if operator.user_uid else f"id {operator.uid}"
            facts = ", ".join(f"{name} {value}" for name, value in connector_of(operator).items())
            lines.append(f"    {operator.name} ({uid})" + (f": {facts}" if facts else ""))
    return "\n".join(lines)


def connector_of(operator: Operator) -> dict[str, str]:
    """Return a source's or sink's description of itself; {} for other operators."""
    if operator.kind not in (OperatorKind.SOURCE, OperatorKind.SINK):
        return {}
    described = getattr(operator.function, "describe", None)
    return dict(described()) if callable(described) else {}


def execution_plan(graph: JobGraph) -> str:
    """Return Flink's JSON: a list `nodes`, one for each operator, with `type`, `pact`, `contents` and `predecessors`.

    A node also has the operator's `uid`, the `vertex` whose chain it runs in, and more.
    """
    first = 1
    ids: dict[int, range] = {}
    for vertex in graph.vertices:
        ids[vertex.index] = range(first, first + len(vertex.operators))
        first += len(vertex.operators)
    nodes = [node for vertex in graph.vertices for node in _plan_nodes(graph, vertex, ids)]
    return json.dumps({"name": graph.name, "nodes": nodes}, indent=2)


def _plan_nodes(graph: JobGraph, vertex: Vertex, ids: dict[int, range]) -> list[dict[str, object]]:
    """Return the nodes of a chain. Within it each operator is the predecessor of the next, by a forward edge."""
    nodes = []
    for place, operator in enumerate(vertex.operators):
        node: dict[str, object] = {
            "id": ids[vertex.index][place],
            "type": operator.name,
            "pact": _PACTS.get(operator.kind, "Operator"),
            "contents": operator.name,
            "parallelism": vertex.parallelism,
            "max_parallelism": vertex.max_parallelism,
            "uid": operator.uid,
            "kind": operator.kind.value,
            "vertex": vertex.index,
            "side_outputs": list(operator.side_outputs),
            "event_time": _event_time(graph, vertex),
        }
        if facts := connector_of(operator):
            node["connector"] = facts
        if place:
            node["predecessors"] = [{"id": ids[vertex.index][place - 1], "ship_strategy": "FORWARD", "side": "second"}]
        elif edges := graph.inputs_of(vertex.index):
            node["predecessors"] = [
                {
                    "id": ids[edge.source][-1] if edge.side_output is None else _tagged(graph, edge, ids),
                    "ship_strategy": edge.partitioner.kind.value.upper(),
                    "side": "second",
                    "edge": edge.name,
                    "input": edge.input_index,
                    "side_output": edge.side_output,
                }
                for edge in edges
            ]
        nodes.append(node)
    return nodes


_PACTS = {OperatorKind.SOURCE: "Data Source", OperatorKind.SINK: "Data Sink"}


def _tagged(graph: JobGraph, edge: Edge, ids: dict[int, range]) -> int:
    """Return the id of the operator that emits the edge's side output."""
    operators = graph.vertices[edge.source].operators
    place = next(i for i, operator in enumerate(operators) if edge.side_output in operator.side_outputs)
    return ids[edge.source][place]


def _event_time(graph: JobGraph, vertex: Vertex) -> str | None:
    """Describe the origin of the vertex's time; None: it has none."""
    if vertex.clock is not None:
        return str(vertex.clock.watermark_strategy)
    return "that of its inputs" if any(e.timestamped for e in graph.inputs_of(vertex.index)) else None


def _type_text(edge: Edge) -> str:
    return "untyped" if edge.type is None else edge.type.text


def _channels(edge: Edge) -> str:
    channels = sum(len(edge.consumers_of(p)) for p in range(edge.source_parallelism))
    return _count(channels, "channel", "channels")


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
