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
    """Return JSON: a list `nodes`, each with id, contents, parallelism and its predecessors."""
    nodes = [_plan_node(graph, vertex) for vertex in graph.vertices]
    return json.dumps({"name": graph.name, "nodes": nodes}, indent=2)


def _plan_node(graph: JobGraph, vertex: Vertex) -> dict[str, object]:
    return {
        "id": vertex.index,
        "uid": vertex.uid,
        "contents": vertex.name,
        "parallelism": vertex.parallelism,
        "max_parallelism": vertex.max_parallelism,
        "event_time": _event_time(graph, vertex),
        "operators": [
            {"id": o.uid, "name": o.name, "type": o.kind.value, "side_outputs": list(o.side_outputs)}
            | ({"connector": facts} if (facts := connector_of(o)) else {})
            for o in vertex.operators
        ],
        "predecessors": [
            {
                "id": e.source,
                "ship_strategy": e.partitioner.kind.value.upper(),
                "edge": e.name,
                "input": e.input_index,
                "side_output": e.side_output,
            }
            for e in graph.inputs_of(vertex.index)
        ],
    }


def _event_time(graph: JobGraph, vertex: Vertex) -> str | None:
    """Describe the origin of the vertex's time; None: it has none."""
    if vertex.clock is not None:
        return str(vertex.clock.watermark_strategy)
    return "that of its inputs" if any(e.timestamped for e in graph.inputs_of(vertex.index)) else None


def _type_text(edge: Edge) -> str:
    return "untyped" if edge.type is None else str(edge.type)


def _channels(edge: Edge) -> str:
    channels = sum(len(edge.consumers_of(p)) for p in range(edge.source_parallelism))
    return _count(channels, "channel", "channels")


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
