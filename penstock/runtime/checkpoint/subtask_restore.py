"""Restores a subtask from a checkpoint: keyed state, operator parts, time, and the layers of its gate.

At the same parallelism everywhere, and if the job was not draining, a subtask gets back exactly what was its own. A
channel's recovered elements precede its live ones, older layers first, and belong to the live channel's time.

Otherwise `penstock.protocol.restore.rescale` decides who gets what. Each share of an old channel becomes a layer and a
virtual channel of the watermark valve. Rows that belong to others are left out, and the rest is numbered from 0. The
live channels start new.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.graph.compatibility import edge_shapes, vertex_shapes
from penstock.graph.deployment import DeploymentPlan
from penstock.graph.job_graph import Edge
from penstock.graph.states import key_type
from penstock.protocol.channel.watermark_valve import AT_START, WATERMARK_MIN_MS
from penstock.protocol.restore import rescale
from penstock.protocol.restore.rescale import Filter, OldEdge, Share
from penstock.protocol.values.keys import key_group_range
from penstock.protocol.values.metadata import (
    Capture,
    ChannelTime,
    InflightRange,
    InputCut,
    Metadata,
    NumberedEvent,
    StateRange,
    SubtaskSnapshot,
    VertexShape,
)
from penstock.runtime.checkpoint.operator_state_restore import restore_operator_state
from penstock.runtime.checkpoint.restored_time import RestoredTime
from penstock.runtime.checkpoint.stored_ranges import stored_states, worth_keeping
from penstock.runtime.input.layers import Layer, RecoveredRows
from penstock.runtime.input.recovered import (
    Mask,
    RecoveredKeeper,
    filtered,
    number_after,
    of_key_groups,
    of_partition,
    read_elements,
)
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask
from penstock.state.backend import RestoringSubtask, StateBackend, StoredState
from penstock.state.operator_state import OperatorStateBackend
from penstock.storage.local_backup import LocalBackup
from penstock.storage.segments import read_range
from penstock.storage.store import ObjectStore


@dataclass(frozen=True)
class _Held:
    """Holds what an old subtask held of one old channel: unread elements [first, end), and the channel's time there."""

    producer: int
    consumer: int
    pieces: list[InflightRange]
    events: list[NumberedEvent]
    first: int
    end: int
    time: ChannelTime


class SubtaskRestore:
    """Restores one subtask; does nothing if there is no checkpoint to restore. `backup`: where copies are looked for
    first.
    """

    def __init__(
        self,
        plan: DeploymentPlan,
        subtask: DeployedSubtask,
        metadata: Metadata | None,
        store: ObjectStore | None,
        backup: LocalBackup | None = None,
    ) -> None:
        self._plan = plan
        self._subtask = subtask
        self._metadata = metadata
        self._store = store
        self._backup = backup
        self._keeper = RecoveredKeeper()
        self._snapshots: dict[tuple[int, int], SubtaskSnapshot] = {}
        self._old_vertices: dict[str, VertexShape] = {}
        """By operator uid: the vertex that had the operator. Chains may have changed since."""
        self._old: list[SubtaskSnapshot] = []
        """Snapshots of the vertex that had our head operator, by subtask."""
        self._old_edges: dict[str, OldEdge] = {}
        self.is_rescaled = False
        """Whether anything in the job runs at another parallelism than before, or it was draining."""
        if metadata is None:
            return
        self._snapshots = {(s.vertex, s.subtask): s for s in metadata.subtasks}
        self.is_rescaled = rescale.is_rescaled(metadata, vertex_shapes(plan.graph), edge_shapes(plan.graph))
        found_edges = (OldEdge.find(metadata, edge.name) for edge in plan.graph.inputs_of(subtask.id.vertex))
        self._old_edges = {edge.shape.name: edge for edge in found_edges if edge is not None}
        self._old_vertices = {uid: v for v in metadata.vertices for uid in v.operators}
        self._old = self._snapshots_of(subtask.vertex.uid)

    def _snapshots_of(self, operator: str) -> list[SubtaskSnapshot]:
        """Return the snapshots of the vertex that had the operator, by subtask; none if the operator is new."""
        old = self._old_vertices.get(operator)
        if old is None:
            return []
        found = (self._snapshots.get((old.index, number)) for number in range(old.parallelism))
        return [snapshot for snapshot in found if snapshot is not None]

    @property
    def _own(self) -> SubtaskSnapshot | None:
        """Return the snapshot of the same subtask; None if the vertex is new, or has another parallelism now."""
        same = len(self._old) == self._subtask.vertex.parallelism
        return self._old[self._subtask.id.subtask] if same else None

    def is_dealt_out(self, operator: str) -> bool:
        """Return whether the state of the operator's old subtasks is redistributed, because its vertex has another
        parallelism or another head now.
        """
        old = self._old_vertices.get(operator)
        vertex = self._subtask.vertex
        return old is not None and (old.parallelism != vertex.parallelism or old.operators[0] != vertex.uid)

    @property
    def was_finished(self) -> bool:
        """Return whether the subtask was finished. Partly finished operators continue with what is left of their
        state.
        """
        own = self._own
        return own.finished if own is not None else bool(self._old) and all(s.finished for s in self._old)

    # ---- state --------------------------------------------------------------------------------------------------

    def part(self, operator: str, name: str) -> list[bytes]:
        """Return the subtask's items of one part. At another parallelism every item goes to exactly one subtask. Only
        the state of watermark generators goes to all, and each takes what belongs to its splits.
        """
        items = [
            next((p.items for p in snapshot.parts if (p.operator, p.name, p.kind) == (operator, name, "")), [])
            for snapshot in self._snapshots_of(operator)
        ]
        if name == "watermarks" and self.is_dealt_out(operator):
            return [item for of_one in items for item in of_one]
        return rescale.redistributed(items, self._subtask.vertex.parallelism, self._subtask.id.subtask)

    def pending_commits(self, operator: str) -> tuple[bytes, ...]:
        """Return what the restored checkpoint names as prepared, by all subtasks of a sink."""
        if self._metadata is None:
            return ()
        own = [c for snapshot in self._metadata.subtasks for c in snapshot.committables]
        return tuple(c.data for c in [*self._metadata.unconfirmed_commits, *own] if c.operator == operator)

    def operator_state(self, backend: OperatorStateBackend) -> None:
        vertex, number = self._subtask.vertex, self._subtask.id.subtask
        for operator in vertex.operators:
            restore_operator_state(backend, operator.uid, self._snapshots_of(operator.uid), vertex.parallelism, number)

    @property
    def checkpoint_id(self) -> int | None:
        """Return the id of the checkpoint that is restored; None without any."""
        return None if self._metadata is None else self._metadata.checkpoint_id

    def keyed_state(self, backend: StateBackend) -> None:
        vertex, key_groups = self._subtask.vertex, self._subtask.key_groups
        number = self._subtask.id.subtask
        of_keys = key_type(self._plan.graph, vertex)
        self._tell_where_state_lies(backend)
        copied = self._restore_copy(backend, of_keys)
        if not self._old:
            return
        holders = rescale.state_holders(len(self._old), vertex.parallelism, vertex.max_parallelism, number)
        backend.check_room(self._stored_bytes(holders) - sum(kept.length_bytes for kept in copied))
        for holder in holders:
            snapshot = self._old[holder]
            for schema in snapshot.schemas:
                backend.restore_schema(schema, self._user_uid(schema.operator), of_keys)
            for kept in (k for k in snapshot.keyed if k not in copied):
                backend.restore(kept.operator, kept.name, self._read_state(kept), key_groups)

    def _restore_copy(self, backend: StateBackend, of_keys: str) -> set[StateRange]:
        """Let the backend restore what it has copies of, in its own form; return what that was."""
        metadata, own = self._metadata, self._own
        runs: dict[StoredState, StateRange] = {}
        if metadata is not None and own is not None and metadata.job_id == self._plan.job_id:
            segments = metadata.segments
            runs = dict(zip(stored_states(own.keyed, segments, frozenset(range(len(segments)))), own.keyed))

        def read(run: StoredState) -> bytes:
            return self._read_state(runs[run])

        subtask = RestoringSubtask(self._backup, self._subtask.key_groups, of_keys, tuple(runs), read)
        return {runs[run] for run in backend.restore_copy(subtask)}

    def _read_state(self, kept: StateRange) -> bytes:
        name = f"keyed state '{kept.name}' of operator '{self._operator_name(kept.operator)}'"
        return self._read(kept.segment, kept.offset, kept.length_bytes, kept.crc, name)

    def _stored_bytes(self, holders: Sequence[int]) -> int:
        """Return how many bytes the checkpoint has of the subtask's own key groups, at least. How much of what an old
        subtask has stored is in a part of its key groups is not known.
        """
        vertex, own = self._subtask.vertex, set(self._subtask.key_groups)
        whole = [h for h in holders if own.issuperset(key_group_range(vertex.max_parallelism, len(self._old), h))]
        return sum(kept.length_bytes for holder in whole for kept in self._old[holder].keyed)

    def _tell_where_state_lies(self, backend: StateBackend) -> None:
        """Report only what is the subtask's own: named by two subtasks, a third would later restore it twice."""
        metadata, own = self._metadata, self._own
        if metadata is not None and own is not None and metadata.job_id == self._plan.job_id:
            worth = worth_keeping((r for s in metadata.subtasks for r in s.keyed), metadata.segments)
            backend.on_restored(metadata.checkpoint_id, stored_states(own.keyed, metadata.segments, worth))

    def _operator_name(self, uid: str) -> str:
        return next((o.name for o in self._subtask.vertex.operators if o.uid == uid), uid)

    def _user_uid(self, uid: str) -> str:
        return next((o.user_uid or "" for o in self._subtask.vertex.operators if o.uid == uid), "")

    # ---- time ---------------------------------------------------------------------------------------------------

    def restored_time(self) -> RestoredTime:
        """Resume, after a rescale, at the minimum of the watermarks that the old subtasks of all its operators had
        emitted; each key group keeps its old owner's watermark as a floor.
        """
        own = self._own
        if not self.is_rescaled and own is not None:
            emitted_ms = WATERMARK_MIN_MS if own.watermark_ms is None else own.watermark_ms
            current_ms = emitted_ms if own.current_ms is None else own.current_ms
            return RestoredTime(current_ms, emitted_ms, tuple(own.floors), own.idle)
        vertex = self._subtask.vertex
        snapshots = [found for o in vertex.operators if (found := self._snapshots_of(o.uid))]
        said_ms = min((rescale.live_start(old).watermark_ms for old in snapshots), default=WATERMARK_MIN_MS)
        floors = rescale.floors(self._old, vertex.max_parallelism, self._subtask.key_groups) if vertex.keyed else []
        return RestoredTime(said_ms, said_ms, tuple(floors))

    # ---- what was in flight -------------------------------------------------------------------------------------

    def in_flight(self) -> None:
        """Put the layers in front of the gate and restore the time of its channels. If the job drains, the subtask is
        held from here on.
        """
        metadata = self._metadata
        if metadata is None:
            return
        if self.is_rescaled:
            self._rescaled_channels()
        elif self._own is not None:
            self._own_channels(self._own)
        if self._plan.holds_sources or (self.is_rescaled and rescale.edges_in_flight(metadata)):
            self._subtask.draining.hold()

    def _own_channels(self, own: SubtaskSnapshot) -> None:
        gate = self._subtask.gate
        times = []
        intervals: list[tuple[int, Edge, _Held]] = []
        for index, (edge, channel) in enumerate(zip(gate.edge_of, gate.channels)):
            cut = next((c for c in own.inputs if c.edge == edge.name), None)
            held = None if cut is None else self._interval(own, cut, edge.name, channel.id.producer)
            times.append(AT_START if held is None else held.time)
            if held is not None:
                intervals.append((index, edge, held))
        for layer in own.layers:
            index, edge = next(
                (i, e)
                for i, (e, c) in enumerate(zip(gate.edge_of, gate.channels))
                if e.name == layer.edge and c.id.producer == layer.producer
            )
            ends = (layer.producer, layer.consumer)
            self._add_layer(index, edge, _Held(*ends, layer.pieces, layer.events, layer.first, layer.end, AT_START))
        for index, edge, held in intervals:
            if held.first < held.end:
                self._add_layer(index, edge, held)
        self._subtask.valve.restore(times, self.restored_time().current_ms)

    def _add_layer(self, index: int, edge: Edge, held: _Held) -> None:
        found = read_elements(self._reader(edge, held), edge, held.pieces, held.events, held.first, held.end)
        elements = self._keeper.keep(found)
        layer = Layer(edge.name, held.producer, held.consumer, index, edge, held.first, held.end, elements)
        self._subtask.gate.layers.append(layer)

    # ---- rescaled -----------------------------------------------------------------------------------------------

    def _rescaled_channels(self) -> None:
        assert self._metadata is not None
        gate, vertex = self._subtask.gate, self._subtask.vertex
        start: dict[int, ChannelTime] = {}
        with_rows = rescale.edges_in_flight(self._metadata)
        for index, edge in enumerate(gate.edge_of):
            if edge.index in start:
                continue
            old = self._old_edges.get(edge.name)
            if old is None:
                start[edge.index] = self._start_of_new_edge(edge)
                continue
            producers = [self._snapshots[old.shape.source, p] for p in range(old.source_parallelism)]
            start[edge.index] = rescale.live_start(producers)
            if edge.name not in with_rows:
                continue
            ends = (old.target_parallelism, vertex.parallelism, vertex.max_parallelism)
            for share in rescale.shares(old.shape.partitioner, *ends, self._subtask.id.subtask):
                self._add_share(index, edge, old, share)
        self._subtask.valve.restore([start[edge.index] for edge in gate.edge_of])

    def _start_of_new_edge(self, edge: Edge) -> ChannelTime:
        """Return where the channels of an edge start that the checkpoint does not contain: at the watermark that the
        nearest operators above it in the checkpoint had emitted. New operators emit none before those do.
        """
        graph = self._plan.graph
        vertex = graph.vertices[edge.source]
        for operator in reversed(vertex.operators):
            if old := self._snapshots_of(operator.uid):
                return rescale.live_start(old)
            if operator.watermark_strategy is not None:
                return AT_START  # it emits its time again, and has emitted nothing yet
        above = [self._start_of_any_edge(e) for e in graph.inputs_of(vertex.index)]
        return min(above, key=lambda time: time.watermark_ms, default=AT_START)

    def _start_of_any_edge(self, edge: Edge) -> ChannelTime:
        old = OldEdge.find(self._metadata, edge.name) if self._metadata is not None else None
        if old is None:
            return self._start_of_new_edge(edge)
        return rescale.live_start([self._snapshots[old.shape.source, p] for p in range(old.source_parallelism)])

    def _add_share(self, index: int, edge: Edge, old: OldEdge, share: Share) -> None:
        mask = self._mask(edge, share.filter)
        for held in self._held(self._snapshots[old.shape.target, share.holder], edge.name, old, share.holder):
            found = read_elements(self._reader(edge, held), edge, held.pieces, held.events, held.first, held.end)
            elements = self._keeper.keep(found if mask is None else filtered(found, mask))
            first, end = (held.first, held.end) if mask is None else (0, number_after(elements))
            if not any(isinstance(element, RecoveredRows) for element in elements):
                continue  # without rows, its time could hold back nothing
            virtual = self._subtask.valve.add_virtual(held.time)
            layer = Layer(edge.name, held.producer, held.consumer, index, edge, first, end, elements, virtual)
            self._subtask.gate.layers.append(layer)

    def _mask(self, edge: Edge, rows: Filter) -> Mask | None:
        if rows is Filter.WHOLE:
            return None
        if rows is Filter.KEY_GROUPS:
            return of_key_groups(self._subtask.key_groups)
        producer = self._plan.graph.vertices[edge.source].operators[-1].name
        return of_partition(edge, self._subtask.id.subtask, producer)

    def _held(self, holder: SubtaskSnapshot, edge: str, old: OldEdge, number: int) -> Iterator[_Held]:
        """Yield what an old subtask held of an edge: of each channel the oldest first."""
        cut = next((c for c in holder.inputs if c.edge == edge), None)
        producers = old.producers_of(number)
        for layer in holder.layers:
            if layer.edge == edge:
                live = AT_START if cut is None else _time(cut, layer.producer - producers.start)
                ends = (layer.producer, layer.consumer)
                yield _Held(*ends, layer.pieces, layer.events, layer.first, layer.end, layer.time or live)
        if cut is None:
            return
        for producer in producers:
            held = self._interval(holder, cut, edge, producer)
            if held.first < held.end:
                yield held

    # ---- reading ------------------------------------------------------------------------------------------------

    def _interval(self, holder: SubtaskSnapshot, cut: InputCut, edge: str, producer: int) -> _Held:
        """Return [applied, emitted) of a channel, from what both its ends stored."""
        old = self._old_edges[edge]
        position = producer - old.producers_of(holder.subtask).start
        emitted, sent = self._producer_side(old, edge, producer, holder.subtask)
        pieces: list[InflightRange] = []
        events: list[NumberedEvent] = []
        for capture in [c for c in cut.captures if c.peer == producer] + sent:
            pieces += capture.pieces
            events += capture.events
        applied = cut.applied[position]
        return _Held(producer, holder.subtask, pieces, events, applied, emitted, _time(cut, position))

    def _producer_side(self, old: OldEdge, edge: str, producer: int, consumer: int) -> tuple[int, list[Capture]]:
        """Return what the producer's end of an old channel stored: `emitted`, and its captures."""
        snapshot = self._snapshots.get((old.shape.source, producer))
        cut = next((o for o in snapshot.outputs if o.edge == edge), None) if snapshot is not None else None
        if cut is None:
            return 0, []
        emitted = cut.emitted[consumer - old.consumers_of(producer).start]
        return emitted, [c for c in cut.captures if c.peer == consumer]

    def _reader(self, edge: Edge, held: _Held):  # type: ignore[no-untyped-def]
        name = f"in-flight data of channel {edge.name}[{held.producer} -> {held.consumer}]"
        return lambda piece: self._read(piece.segment, piece.offset, piece.length_bytes, piece.crc, name)

    def _read(self, segment: int, offset: int, length_bytes: int, crc: int, belongs_to: str) -> bytes:
        assert self._metadata is not None and self._store is not None
        path = self._metadata.segments[segment].path
        return read_range(self._store, path, offset, length_bytes, crc, belongs_to, self._backup)


def _time(cut: InputCut, position: int) -> ChannelTime:
    """Return the time of a channel; checkpoints of the first format contain none."""
    return cut.times[position] if 0 <= position < len(cut.times) else AT_START
