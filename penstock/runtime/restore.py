"""What a subtask gets back from a checkpoint: keyed state, operator parts, and the layers of its gate.

Same parallelism everywhere: a channel's recovered elements precede its live ones, older layers first. (Restoring at
another parallelism is refused before a job starts.)
"""

from __future__ import annotations

from penstock.protocol.coverage import EdgeTopology
from penstock.protocol.snapshot import Capture, LayerCut, Metadata, NumberedEvent, Piece, SubtaskSnapshot
from penstock.runtime.batches import as_batch, wire_schema
from penstock.runtime.deployment import DeploymentPlan
from penstock.runtime.layers import Layer, RecoveredEvent, RecoveredRows
from penstock.runtime.subtask import Subtask
from penstock.state.hash_map import HashMapStateBackend
from penstock.storage.segments import read_range
from penstock.storage.store import ObjectStore


class SubtaskRestore:
    """Empty where there is nothing to restore from."""

    def __init__(
        self, plan: DeploymentPlan, subtask: Subtask, metadata: Metadata | None, store: ObjectStore | None
    ) -> None:
        self._plan = plan
        self._subtask = subtask
        self._metadata = metadata
        self._store = store
        self._snapshots: dict[tuple[int, int], SubtaskSnapshot] = {}
        self._own: SubtaskSnapshot | None = None
        if metadata is not None:
            self._snapshots = {(s.vertex, s.subtask): s for s in metadata.subtasks}
            old_vertex = self._old_vertex(metadata)
            if old_vertex is not None:
                self._own = self._snapshots.get((old_vertex, subtask.id.subtask))

    def _old_vertex(self, metadata: Metadata) -> int | None:
        """The vertex in the checkpoint that had our head operator: indexes may have moved."""
        uid = self._subtask.vertex.uid
        return next((v.index for v in metadata.vertices if uid in v.operators), None)

    @property
    def was_finished(self) -> bool:
        return self._own is not None and self._own.finished

    def part(self, operator: str, name: str) -> list[bytes]:
        parts = self._own.parts if self._own is not None else []
        return next((p.items for p in parts if p.operator == operator and p.name == name), [])

    def keyed_state(self, backend: HashMapStateBackend) -> None:
        if self._own is None:
            return
        for schema in self._own.schemas:
            backend.restore_schema(schema)
        for kept in self._own.keyed:
            name = f"keyed state '{kept.name}' of operator '{self._operator_name(kept.operator)}'"
            data = self._read(kept.segment, kept.offset, kept.length_bytes, kept.crc, name)
            backend.restore(kept.operator, kept.name, data, self._subtask.key_groups)

    def _operator_name(self, uid: str) -> str:
        return next((o.name for o in self._subtask.vertex.operators if o.uid == uid), uid)

    def in_flight(self) -> None:
        """Puts the layers in front of the gate. All rows are read here, and so checked, before the job runs."""
        if self._own is None or self._metadata is None:
            return
        gate = self._subtask.gate
        own = self._own
        if own.watermark_ms is not None:
            self._subtask.valve.current_ms = own.watermark_ms
        for layer in own.layers:
            gate.layers.append(self._old_layer(layer))
        for index, (edge, channel) in enumerate(zip(gate.edge_of, gate.channels)):
            producer = channel.id.producer
            cut = next((i for i in own.inputs if i.edge == edge.name), None)
            if cut is None:
                continue
            applied = cut.applied[producer - edge.producers_of(own.subtask).start]
            emitted, sent = self._producer_side(edge, producer)
            if applied >= emitted:
                continue
            pieces: list[Piece] = []
            events: list[NumberedEvent] = []
            for capture in [c for c in cut.captures if c.peer == producer] + sent:
                pieces += capture.pieces
                events += capture.events
            elements = self._elements(edge.name, producer, index, pieces, events, applied, emitted)
            layer = Layer(edge.name, producer, own.subtask, index, edge, applied, emitted, elements)
            gate.layers.append(layer)

    def _producer_side(self, edge: EdgeTopology, producer: int) -> tuple[int, list[Capture]]:
        """The other end of one of our old channels: `emitted`, and what it stored."""
        own, metadata = self._own, self._metadata
        assert own is not None and metadata is not None
        source = next((e.source for e in metadata.edges if e.name == edge.name), -1)
        snapshot = self._snapshots.get((source, producer))
        cut = next((o for o in snapshot.outputs if o.edge == edge.name), None) if snapshot is not None else None
        if cut is None:
            return 0, []
        emitted = cut.emitted[own.subtask - edge.consumers_of(producer).start]
        return emitted, [c for c in cut.captures if c.peer == own.subtask]

    def _old_layer(self, cut: LayerCut) -> Layer:
        gate = self._subtask.gate
        index, edge = next(
            (i, e)
            for i, (e, c) in enumerate(zip(gate.edge_of, gate.channels))
            if e.name == cut.edge and c.id.producer == cut.producer
        )
        elements = self._elements(cut.edge, cut.producer, index, cut.pieces, cut.events, cut.first, cut.end)
        return Layer(cut.edge, cut.producer, cut.consumer, index, edge, cut.first, cut.end, elements)

    def _elements(
        self, edge: str, producer: int, channel: int, pieces: list[Piece], events: list[NumberedEvent],
        first: int, end: int,
    ) -> list[RecoveredRows | RecoveredEvent]:  # fmt: skip
        """Elements [first, end) in order; what was stored beyond is trimmed."""
        schema = wire_schema(self._subtask.gate.edge_of[channel])
        found: list[tuple[int, RecoveredRows | RecoveredEvent]] = []
        for piece in pieces:
            start, stop = max(piece.first, first), min(piece.first + piece.rows, end)
            if start >= stop:
                continue
            name = f"in-flight data of channel {edge}[{producer} -> {self._subtask.id.subtask}]"
            data = self._read(piece.segment, piece.offset, piece.length_bytes, piece.crc, name)
            batch = as_batch(data, schema).slice(start - piece.first, stop - start)
            found.append((start, RecoveredRows(start, stop - start, batch)))
        for event in events:
            if first <= event.number < end:
                found.append((event.number, RecoveredEvent(event.number, event.event)))
        return [element for _, element in sorted(found, key=lambda x: x[0])]

    def _read(self, segment: int, offset: int, length_bytes: int, crc: int, belongs_to: str) -> bytes:
        assert self._metadata is not None and self._store is not None
        path = self._metadata.segments[segment].path
        return read_range(self._store, path, offset, length_bytes, crc, belongs_to)
