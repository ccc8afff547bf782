"""Drains a generation that was restored at another parallelism: sends the releases that `protocol.restore.drain_phases`
decides.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.graph.compatibility import edge_shapes, vertex_shapes
from penstock.graph.job_graph import JobGraph
from penstock.protocol.restore.drain_phases import Draining, ReleaseVertices
from penstock.protocol.restore.rescale import drains
from penstock.protocol.values import messages
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import DrainReport, Message
from penstock.protocol.values.metadata import Metadata


class JobDrain:
    """Drains one generation. `pending` returns the ids of its checkpoints that have been triggered and have not
    ended. `holds_sources`: the first of two steps of a restore, at the end of which the sources are still held.
    """

    def __init__(
        self,
        graph: JobGraph,
        restored: Metadata | None,
        generation: Generation,
        pending: Callable[[], list[int]],
        broadcast: Callable[[Message], None],
        holds_sources: bool = False,
    ) -> None:
        self._generation = generation
        self._pending = pending
        self._broadcast = broadcast
        self._draining: Draining | None = None
        if holds_sources or (restored is not None and drains(restored, vertex_shapes(graph), edge_shapes(graph))):
            edges = [(edge.source, edge.target) for edge in graph.edges]
            self._draining = Draining([vertex.parallelism for vertex in graph.vertices], edges, holds_sources)

    @property
    def is_over(self) -> bool:
        return self._draining is None or self._draining.is_over

    @property
    def is_drained(self) -> bool:
        """Return whether everything that was recovered is read. The sources may still be held."""
        return self._draining is None or self._draining.is_drained

    def begin(self) -> None:
        """Begin, once every subtask of the generation runs and is held."""
        if self._draining is not None:
            self._release(self._draining.start())

    def on_report(self, report: DrainReport) -> None:
        if self._draining is not None and (following := self._draining.on_report(report)) is not None:
            self._release(following)

    def _release(self, release: ReleaseVertices) -> None:
        pending = sorted(self._pending())
        self._broadcast(messages.ReleaseVertices(self._generation, list(release.vertices), pending, release.is_last))
