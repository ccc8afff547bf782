"""Computes the graph of a running job at another parallelism.

Vertices that are joined by forward edges live in the same slots, so they change together. A parallelism for the whole
job is that of all vertices that have the greatest one in the program; those that have less keep what the program says,
as far as there are slots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from penstock.graph.job_graph import JobGraph, Vertex
from penstock.graph.logical import PartitionerKind
from penstock.protocol.values.metadata import VertexShape

Parallelism = int | Mapping[str, int]
"""Sets the parallelism of the whole job, or of single vertices by the uid, or the name, of one of their operators."""


class RescaleRefused(ValueError):
    """Signals a parallelism that the job cannot have. The message says why."""


def rescaled(graph: JobGraph, declared: JobGraph, parallelism: Parallelism) -> JobGraph:
    """Return the graph at another parallelism.

    Args:
        graph: What runs now.
        declared: The same graph with the parallelism that the program has given.
        parallelism: Of the job, or of vertices by the uid or name of an operator; the others stay as they are.

    Raises:
        RescaleRefused: It is no number above 0, exceeds the max parallelism of a vertex, names nothing or too much,
            or says two things of vertices that change together.
    """
    groups = list(_joined(graph))
    if isinstance(parallelism, Mapping):
        wanted = _by_name(graph, groups, parallelism)
    else:
        _check_number(parallelism, "the job")
        wanted = {group: _of_job(declared, group, parallelism) for group in groups}
    found = {vertex: n for group, n in wanted.items() for vertex in group}
    for vertex in graph.vertices:
        n = found.get(vertex.index, vertex.parallelism)
        if n > vertex.max_parallelism:
            if vertex.max_parallelism == 1:
                raise RescaleRefused(_cannot_be_split(vertex, n))
            raise RescaleRefused(
                f"vertex '{vertex.name}' cannot have parallelism {n}: its max parallelism is {vertex.max_parallelism}, "
                "by which its state is split"
            )
    return _with_parallelism(graph, found)


def _cannot_be_split(vertex: Vertex, parallelism: int) -> str:
    what = "source" if vertex.is_source else "vertex"
    return (
        f"{what} '{vertex.name}' cannot have parallelism {parallelism}: it has one subtask and cannot be split, "
        "because its max parallelism is 1 (set_max_parallelism(1) or force_non_parallel() in the program). So it is "
        "with what forward edges join to it; other vertices can be rescaled by their own uids"
    )


def as_taken(graph: JobGraph, vertices: Sequence[VertexShape], receivers: Collection[str]) -> JobGraph:
    """Return the graph at the parallelism that a checkpoint was taken at. Operators that it does not know stay as they
    are. Vertices that change together now, and had different ones, get that of the receivers among them.

    Args:
        graph: The job that is restored from the checkpoint.
        vertices: Those of the checkpoint.
        receivers: Names of the broadcast edges whose receivers must be as many as they were.
    """
    old = {uid: vertex.parallelism for vertex in vertices for uid in vertex.operators}
    targets = {edge.target for edge in graph.edges if edge.name in receivers}
    found: dict[int, int] = {}
    for group in _joined(graph):
        had = {old[o.uid] for vertex in group for o in graph.vertices[vertex].operators if o.uid in old}
        if len(had) > 1:
            heads = (graph.vertices[vertex].uid for vertex in group if vertex in targets)
            had = {old[uid] for uid in heads if uid in old}
        if len(had) == 1:
            found |= dict.fromkeys(group, had.pop())
    return _with_parallelism(graph, found)


def _with_parallelism(graph: JobGraph, found: Mapping[int, int]) -> JobGraph:
    """Return the graph with other parallelisms, by number of the vertex."""
    vertices = [replace(v, parallelism=found.get(v.index, v.parallelism)) for v in graph.vertices]
    edges = tuple(
        replace(
            edge,
            source_parallelism=vertices[edge.source].parallelism,
            target_parallelism=vertices[edge.target].parallelism,
        )
        for edge in graph.edges
    )
    return replace(graph, vertices=tuple(vertices), edges=edges)


def _joined(graph: JobGraph) -> Iterator[tuple[int, ...]]:
    """Yield the vertices that change together."""
    group_of = {vertex.index: {vertex.index} for vertex in graph.vertices}
    for edge in graph.edges:
        if edge.partitioner.kind is PartitionerKind.FORWARD:
            joined = group_of[edge.source] | group_of[edge.target]
            for vertex in joined:
                group_of[vertex] = joined
    seen: set[int] = set()
    for group in group_of.values():
        if not group & seen:
            seen |= group
            yield tuple(sorted(group))


def _of_job(declared: JobGraph, group: tuple[int, ...], parallelism: int) -> int:
    vertices = [declared.vertices[index] for index in group]
    if any(vertex.max_parallelism == 1 for vertex in vertices):
        return 1
    program = vertices[0].parallelism
    return parallelism if program == declared.slots else min(program, parallelism)


def _by_name(
    graph: JobGraph, groups: list[tuple[int, ...]], parallelism: Mapping[str, int]
) -> dict[tuple[int, ...], int]:
    wanted: dict[tuple[int, ...], int] = {}
    said_by: dict[tuple[int, ...], str] = {}
    for name, n in parallelism.items():
        vertex = _named(graph, name)
        _check_number(n, f"'{name}'")
        group = next(group for group in groups if vertex.index in group)
        if wanted.setdefault(group, n) != n:
            raise RescaleRefused(
                f"'{said_by[group]}' and '{name}' are joined by forward edges, so they have the same parallelism, not "
                f"{wanted[group]} and {n}"
            )
        said_by.setdefault(group, name)
    return wanted


def _named(graph: JobGraph, name: str) -> Vertex:
    for of in ("user_uid", "uid", "name"):
        found = [v for v in graph.vertices if any(getattr(o, of) == name for o in v.operators)]
        if len(found) == 1:
            return found[0]
        if found:
            raise RescaleRefused(f"several operators are named '{name}': give them uids, and name one by its uid")
    known = ", ".join(f"'{o.user_uid or o.name}'" for v in graph.vertices for o in v.operators)
    raise RescaleRefused(f"no operator has the uid or the name '{name}'; there are {known}")


def _check_number(parallelism: int, of: str) -> None:
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        raise RescaleRefused(f"the parallelism of {of} must be a whole number above 0, not {parallelism!r}")
