"""Finds in a checkpoint what a subtask is restored from: the old subtasks of its operators, and its old edges."""

from __future__ import annotations

from penstock.graph.compatibility import edge_shapes, vertex_shapes
from penstock.graph.job_graph import JobGraph
from penstock.protocol.restore import rescale
from penstock.protocol.restore.rescale import OldEdge
from penstock.protocol.values.metadata import Metadata, SubtaskSnapshot, VertexShape
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask


class OldSubtasks:
    """Knows the snapshots of a checkpoint by who took them. Without a checkpoint there are none."""

    def __init__(self, graph: JobGraph, subtask: DeployedSubtask, metadata: Metadata | None) -> None:
        self._subtask = subtask
        self.metadata = metadata
        self.snapshots: dict[tuple[int, int], SubtaskSnapshot] = {}
        """All snapshots, by vertex and number of the old subtask."""
        self.vertices: dict[str, VertexShape] = {}
        """The vertex that had each operator, by the operator's uid. Chains may have changed since."""
        self.of_head: list[SubtaskSnapshot] = []
        """Snapshots of the vertex that had our head operator, by subtask."""
        self.edges: dict[str, OldEdge] = {}
        """The subtask's input edges that the checkpoint has, by name."""
        self.is_rescaled = False
        """True if anything in the job runs at another parallelism than before, or the job was draining."""
        if metadata is None:
            return
        self.snapshots = {(s.vertex, s.subtask): s for s in metadata.subtasks}
        self.is_rescaled = rescale.is_rescaled(metadata, vertex_shapes(graph), edge_shapes(graph))
        found_edges = (OldEdge.find(metadata, edge.name) for edge in graph.inputs_of(subtask.id.vertex))
        self.edges = {edge.shape.name: edge for edge in found_edges if edge is not None}
        self.vertices = {uid: v for v in metadata.vertices for uid in v.operators}
        self.of_head = self.of(subtask.vertex.uid)

    def of(self, operator: str) -> list[SubtaskSnapshot]:
        """Return the snapshots of the vertex that had the operator, by subtask; none if the operator is new."""
        old = self.vertices.get(operator)
        if old is None:
            return []
        found = (self.snapshots.get((old.index, number)) for number in range(old.parallelism))
        return [snapshot for snapshot in found if snapshot is not None]

    @property
    def own(self) -> SubtaskSnapshot | None:
        """Return the snapshot of the same subtask; None if the vertex is new, or has another parallelism now."""
        same = len(self.of_head) == self._subtask.vertex.parallelism
        return self.of_head[self._subtask.id.subtask] if same else None
