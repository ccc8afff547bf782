"""Restores the calls of a subtask: the rows that waited for an answer, and the answers that waited to leave.

At another parallelism they are dealt out like rows in flight on the edge that they came through. Those of a broadcast
stay one each: every copy of a row that was received is answered once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.graph.job_graph import Edge
from penstock.operators.batches import row_type, wire_schema
from penstock.operators.calls.async_operator import AsyncOperator
from penstock.operators.calls.stored_calls import Mask, RestoredCall, StoredCalls, decode_calls, restored_calls
from penstock.protocol.restore import rescale
from penstock.protocol.restore.rescale import Filter, OldEdge
from penstock.protocol.values.metadata import CALLS_PART, Metadata, SubtaskSnapshot
from penstock.runtime.input.recovered import of_key_groups, of_partition
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask

_NEW_EDGE = "forward"


class CallsRestore:
    """Finds the calls of one subtask in a checkpoint. `old`: the snapshots of all old subtasks of the operator, by
    number. `edges`: the subtask's input edges. `producers`: the names of the operators before them, by vertex.
    """

    def __init__(
        self,
        subtask: DeployedSubtask,
        old: list[SubtaskSnapshot],
        metadata: Metadata,
        edges: list[Edge],
        producers: dict[int, str],
    ) -> None:
        self._subtask = subtask
        self._old = old
        self._metadata = metadata
        self._edges = {edge.name: edge for edge in edges}
        self._producers = producers

    def restore(self, operator: AsyncOperator) -> None:
        """Put the calls into the operator's queue. Raises `StateSchemaError`."""
        calls: list[RestoredCall] = []
        watermarks: list[tuple[int, int]] = []
        for holder, snapshot in enumerate(self._old):
            for stored in self._stored(snapshot, operator.operator.uid):
                calls += restored_calls(
                    stored,
                    operator,
                    lambda edge: self._schema(edge, operator),
                    lambda edge, holder=holder: self._mask(edge, holder),  # type: ignore[misc]
                )
                if len(self._old) == self._subtask.vertex.parallelism and holder == self._subtask.id.subtask:
                    watermarks += stored.watermarks
        operator.restore(calls, watermarks)

    @staticmethod
    def _stored(snapshot: SubtaskSnapshot, uid: str) -> list[StoredCalls]:
        parts = [p for p in snapshot.parts if (p.operator, p.name, p.kind) == (uid, CALLS_PART, "")]
        return [decode_calls(item) for part in parts for item in part.items]

    def _schema(self, name: str, operator: AsyncOperator) -> pa.Schema:
        edge = self._edges.get(name)
        return row_type(operator.operator.input_type).schema if edge is None else wire_schema(edge)

    def _mask(self, name: str, holder: int) -> Mask:
        """Return which rows of an old subtask belong to ours, of those that came through an edge."""
        vertex, number = self._subtask.vertex, self._subtask.id.subtask
        old = OldEdge.find(self._metadata, name)
        partitioner = _NEW_EDGE if old is None or name not in self._edges else old.shape.partitioner
        if partitioner == rescale.BROADCAST:
            partitioner = _NEW_EDGE
        ends = (len(self._old), vertex.parallelism, vertex.max_parallelism)
        share = next((s for s in rescale.shares(partitioner, *ends, number) if s.holder == holder), None)
        if share is None:
            return lambda batch: np.zeros(batch.num_rows, bool)
        if share.filter is Filter.KEY_GROUPS:
            return of_key_groups(self._subtask.key_groups)
        if share.filter is Filter.CUSTOM:
            edge = self._edges[name]
            return of_partition(edge, number, self._producers[edge.source])
        return lambda batch: np.ones(batch.num_rows, bool)
