"""Whether what a checkpoint holds can be given to a program: its vertices and edges against the new job graph.

This release restores at the same parallelism and along the same edges; everything that differs is refused by name,
before the job starts.
"""

from __future__ import annotations

from typing import Sequence

from penstock.graph.job_graph import Edge, JobGraph, Vertex
from penstock.protocol.snapshot import EdgeShape, VertexShape


class IncompatibleGraph(ValueError):
    """The message has one line for each difference, and the way out."""


def vertex_shapes(graph: JobGraph) -> list[VertexShape]:
    """What a checkpoint's metadata says of the vertices."""
    return [
        VertexShape(
            index=v.index,
            name=v.name,
            operators=[o.uid for o in v.operators],
            operator_names=[o.name for o in v.operators],
            parallelism=v.parallelism,
            max_parallelism=v.max_parallelism,
        )
        for v in graph.vertices
    ]


def edge_shapes(graph: JobGraph) -> list[EdgeShape]:
    return [
        EdgeShape(e.name, e.source, e.target, e.partitioner.kind.value, e.partitioner.pointwise) for e in graph.edges
    ]


def check(
    vertices: Sequence[VertexShape], edges: Sequence[EdgeShape], graph: JobGraph, ignore_unclaimed_state: bool = False
) -> None:
    """Raises `IncompatibleGraph`. Operators that the program has not any more may vanish with
    `ignore_unclaimed_state` (`execution.state-recovery.ignore-unclaimed-state`); their edges vanish with them."""
    problems: list[str] = []
    operators_now = {o.uid: v for v in graph.vertices for o in v.operators}
    vanished = {uid for v in vertices for uid in v.operators if uid not in operators_now}
    for old in vertices:
        _check_vertex(old, operators_now, vanished, ignore_unclaimed_state, problems)
    _check_edges(edges, vertices, graph, vanished, problems)
    if problems:
        raise IncompatibleGraph("the checkpoint does not fit the program:\n  " + "\n  ".join(problems))


def _check_vertex(
    old: VertexShape, operators_now: dict[str, Vertex], vanished: set[str], may_vanish: bool, problems: list[str]
) -> None:
    names = dict(zip(old.operators, old.operator_names))
    gone = [names[uid] for uid in old.operators if uid in vanished]
    if gone and not may_vanish:
        problems.append(
            f"vertex '{old.name}': the program has no operator {_quoted(gone)} any more (give operators a uid() so "
            "that they are found again, or drop their state with execution.state-recovery.ignore-unclaimed-state=true)"
        )
    staying = [uid for uid in old.operators if uid not in vanished]
    if not staying:
        return
    found = {operators_now[uid].index: operators_now[uid] for uid in staying}
    if len(found) > 1 or [o.uid for o in next(iter(found.values())).operators if o.uid in staying] != staying:
        problems.append(
            f"vertex '{old.name}': its operators are chained in another way now "
            f"({_quoted(v.name for v in found.values())}); restoring across changed chains comes with a later release"
        )
        return
    now = next(iter(found.values()))
    if now.parallelism != old.parallelism:
        problems.append(
            f"restoring at another parallelism comes with a later release: vertex '{old.name}' had {old.parallelism}, "
            f"now {now.parallelism}; run it with {old.parallelism}"
        )
    if now.max_parallelism != old.max_parallelism:
        problems.append(
            f"vertex '{old.name}' had max parallelism {old.max_parallelism}, now {now.max_parallelism}, and its state "
            f"is split by it for ever; set it to {old.max_parallelism} (pipeline.max-parallelism)"
        )


def _check_edges(
    edges: Sequence[EdgeShape], vertices: Sequence[VertexShape], graph: JobGraph, vanished: set[str],
    problems: list[str],
) -> None:  # fmt: skip
    by_index = {v.index: v for v in vertices}
    edges_now: dict[str, Edge] = {e.name: e for e in graph.edges}
    for old in edges:
        source, target = by_index[old.source], by_index[old.target]
        if {source.operators[-1], target.operators[0]} & vanished:
            continue
        label = f"the edge from '{source.operator_names[-1]}' to '{target.operator_names[0]}'"
        now = edges_now.get(old.name)
        if now is None:
            problems.append(f"{label} is gone, and the checkpoint may hold rows that were on it")
        elif now.partitioner.kind.value != old.partitioner:
            problems.append(
                f"{label} was partitioned by {old.partitioner}, now by {now.partitioner.kind.value}; restoring across "
                "a changed partitioning comes with a later release"
            )


def _quoted(names: object) -> str:
    return ", ".join(f"'{n}'" for n in names)  # type: ignore[attr-defined]
