"""Drains in phases, so that a restore at another parallelism keeps the order of rows across several hops.

All vertices are held at first. They are released by their distance from the sinks (longest path), nearest first. The
next phase follows when, of all released vertices, every layer is read and everything emitted is applied. Sources come
last, all at once; then draining is over. So nothing younger is sent towards a subtask that still has recovered rows to
read. Without this: rows of a split wait on a forward edge at map 1; the split's new reader feeds map 2, which overtakes
them on the way to the same key.

Reports come at any time, and the newest of each subtask counts. A set of them is final if every subtask has read its
layers and is idle, and the sums of each edge are equal, however old the single reports are. Nothing comes in from
above, so consider the topmost subtask that was active after its report: it would have received an element that its
producers count as emitted and that it does not count as applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.protocol.values.elements import SubtaskId
from penstock.protocol.values.messages import DrainReport


@dataclass(frozen=True)
class ReleaseVertices:
    """Release the subtasks of these vertices. `is_last`: they are the sources, and draining is over for all
    vertices.
    """

    vertices: tuple[int, ...]
    is_last: bool


def phases(vertices: int, edges: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Return the vertices in the order of their release. `edges`: (source, target); vertices are in topological
    order.
    """
    distance = [0] * vertices
    has_inputs = [False] * vertices
    for vertex in reversed(range(vertices)):
        distance[vertex] = max((distance[target] + 1 for source, target in edges if source == vertex), default=0)
    for _, target in edges:
        has_inputs[target] = True
    inner = sorted({distance[v] for v in range(vertices) if has_inputs[v]})
    found = [tuple(v for v in range(vertices) if has_inputs[v] and distance[v] == d) for d in inner]
    return [*found, tuple(v for v in range(vertices) if not has_inputs[v])]


class Draining:
    """Tracks the reports of a draining job. `parallelism` by vertex; `edges`: (source vertex, target vertex) by edge
    number. `holds_sources`: the sources are never released, because the job is restored in two steps (`receivers.py`).
    """

    def __init__(
        self, parallelism: Sequence[int], edges: Sequence[tuple[int, int]], holds_sources: bool = False
    ) -> None:
        self._parallelism = parallelism
        self._edges = edges
        self._phases = phases(len(parallelism), edges)
        if holds_sources:
            self._phases.pop()
        self._holds_sources = holds_sources
        self._released: set[int] = set()
        self._reports: dict[SubtaskId, DrainReport] = {}
        self._waits_for = 0
        """Released subtasks that have not reported to be idle, with all layers read."""
        self._on_their_way = [0] * len(edges)
        """Elements emitted less elements applied, by edge, as the newest reports of released subtasks count them."""
        self.is_over = False
        self.is_drained = False
        """True if nothing that was recovered is still in flight."""

    def start(self) -> ReleaseVertices:
        return self._next()

    def on_report(self, report: DrainReport) -> ReleaseVertices | None:
        subtask = SubtaskId(*report.subtask)
        known = self._reports.get(subtask)
        if self.is_over or (known is not None and known.sequence >= report.sequence):
            return None
        self._reports[subtask] = report
        if subtask.vertex in self._released:
            if known is not None:
                self._count(known, -1)
            self._count(report, 1)
        if not self._is_final():
            return None
        self.is_drained |= not self._phases
        return self._next() if self._phases else None

    def _next(self) -> ReleaseVertices:
        vertices = self._phases.pop(0)
        self._released.update(vertices)
        for vertex in vertices:
            self._waits_for += self._parallelism[vertex]
            for subtask in range(self._parallelism[vertex]):
                if (known := self._reports.get(SubtaskId(vertex, subtask))) is not None:
                    self._count(known, 1)
        self.is_over = not self._phases and not self._holds_sources
        self.is_drained |= self.is_over
        return ReleaseVertices(vertices, self.is_over)

    def _count(self, report: DrainReport, sign: int) -> None:
        if report.layers_read and report.idle:
            self._waits_for -= sign
        for edge, count in report.applied.items():
            self._on_their_way[edge] -= sign * count
        for edge, count in report.emitted.items():
            self._on_their_way[edge] += sign * count

    def _is_final(self) -> bool:
        # 3.3a: all that is released has read its layers, and nothing is on its way.
        return self._waits_for == 0 and not any(self._on_their_way)
