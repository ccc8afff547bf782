"""Restores the in-flight data of a subtask: the layers of its gate, and the time of its channels.

At the same parallelism everywhere, and if the job was not draining, a channel's recovered elements precede its live
ones, older layers first, and belong to the live channel's time.

Otherwise each share of an old channel becomes a layer and a virtual channel of the watermark valve. Rows that belong to
others are left out, and the rest is numbered from 0. The live channels start new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.graph.deployment import DeploymentPlan
from penstock.graph.job_graph import Edge
from penstock.protocol.channel.watermark_valve import AT_START
from penstock.protocol.restore import rescale
from penstock.protocol.restore.rescale import Filter, OldEdge, Share
from penstock.protocol.values.metadata import (
    ChannelCapture,
    ChannelTime,
    InflightRange,
    InputCut,
    NumberedEvent,
    SubtaskSnapshot,
)
from penstock.runtime.checkpoint.old_subtasks import OldSubtasks
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


@dataclass(frozen=True)
class _Held:
    """Holds an old subtask's share of one old channel: unread elements [first, end), and the channel's time there."""

    producer: int
    consumer: int
    pieces: list[InflightRange]
    events: list[NumberedEvent]
    first: int
    end: int
    time: ChannelTime


class InFlightRestore:
    """Restores the channels of one subtask. `read` gets the segment, offset, length and checksum of a range, and the
    name of its channel, for errors.
    """

    def __init__(
        self,
        plan: DeploymentPlan,
        subtask: DeployedSubtask,
        old: OldSubtasks,
        read: Callable[[int, int, int, int, str], bytes],
        recovered_bytes_max: int | None = None,
    ) -> None:
        self._plan = plan
        self._subtask = subtask
        self._old = old
        self._read = read
        self._keeper = RecoveredKeeper(recovered_bytes_max)

    def restore(self, current_ms: int) -> None:
        """Put the layers in front of the gate and restore the time of its channels. If the job drains, the subtask is
        held from here on. `current_ms`: the subtask's restored time.
        """
        metadata = self._old.metadata
        if metadata is None:
            return
        if self._old.is_rescaled:
            self._rescaled_channels()
        elif self._old.own is not None:
            self._own_channels(self._old.own, current_ms)
        if self._plan.holds_sources or (self._old.is_rescaled and rescale.holds_rows(metadata)):
            self._subtask.draining.hold()

    def _own_channels(self, own: SubtaskSnapshot, current_ms: int) -> None:
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
        self._subtask.valve.restore(times, current_ms, own.pauses)

    def _add_layer(self, index: int, edge: Edge, held: _Held) -> None:
        found = read_elements(self._reader(edge, held), edge, held.pieces, held.events, held.first, held.end)
        elements = self._keeper.keep(found)
        layer = Layer(edge.name, held.producer, held.consumer, index, held.first, held.end, elements)
        self._subtask.gate.layers.append(layer)

    # ---- rescaled -----------------------------------------------------------------------------------------------

    def _rescaled_channels(self) -> None:
        assert self._old.metadata is not None
        gate, vertex = self._subtask.gate, self._subtask.vertex
        start: dict[int, ChannelTime] = {}
        with_rows = rescale.edges_in_flight(self._old.metadata)
        for index, edge in enumerate(gate.edge_of):
            if edge.index in start:
                continue
            old = self._old.edges.get(edge.name)
            if old is None:
                start[edge.index] = self._start_of_new_edge(edge)
                continue
            producers = [self._old.snapshots[old.shape.source, p] for p in range(old.source_parallelism)]
            start[edge.index] = rescale.live_start(producers)
            if edge.name not in with_rows:
                continue
            ends = (old.target_parallelism, vertex.parallelism, vertex.max_parallelism)
            for share in rescale.shares(old.shape.partitioner, *ends, self._subtask.id.subtask):
                self._add_share(index, edge, old, share)
        self._subtask.valve.restore([start[edge.index] for edge in gate.edge_of])

    def _start_of_new_edge(self, edge: Edge) -> ChannelTime:
        """Return the start time of the channels of an edge that the checkpoint does not contain: at the watermark that
        the nearest operators above it in the checkpoint had emitted. New operators emit none before those do.
        """
        # 3.7: a new edge starts at its producers' time.
        graph = self._plan.graph
        vertex = graph.vertices[edge.source]
        for operator in reversed(vertex.operators):
            if old := self._old.of(operator.uid):
                return rescale.live_start(old)
            if operator.watermark_strategy is not None:
                return AT_START  # it emits its time again, and has emitted nothing yet
        above = [self._start_of_any_edge(e) for e in graph.inputs_of(vertex.index)]
        return min(above, key=lambda time: time.watermark_ms, default=AT_START)

    def _start_of_any_edge(self, edge: Edge) -> ChannelTime:
        old = OldEdge.find(self._old.metadata, edge.name) if self._old.metadata is not None else None
        if old is None:
            return self._start_of_new_edge(edge)
        return rescale.live_start([self._old.snapshots[old.shape.source, p] for p in range(old.source_parallelism)])

    def _add_share(self, index: int, edge: Edge, old: OldEdge, share: Share) -> None:
        mask = self._mask(edge, share.filter)
        for held in self._held(self._old.snapshots[old.shape.target, share.holder], edge.name, old, share.holder):
            found = read_elements(self._reader(edge, held), edge, held.pieces, held.events, held.first, held.end)
            elements = self._keeper.keep(found if mask is None else filtered(found, mask))
            first, end = (held.first, held.end) if mask is None else (0, number_after(elements))
            if not any(isinstance(element, RecoveredRows) for element in elements):
                continue  # without rows, its time could hold back nothing
            virtual = self._subtask.valve.add_virtual(held.time)
            layer = Layer(edge.name, held.producer, held.consumer, index, first, end, elements, virtual)
            self._subtask.gate.layers.append(layer)

    def _mask(self, edge: Edge, rows: Filter) -> Mask | None:
        if rows is Filter.WHOLE:
            return None
        if rows is Filter.KEY_GROUPS:
            return of_key_groups(self._subtask.key_groups)
        producer = self._plan.graph.vertices[edge.source].operators[-1].name
        return of_partition(edge, self._subtask.id.subtask, producer)

    def _held(self, holder: SubtaskSnapshot, edge: str, old: OldEdge, number: int) -> Iterator[_Held]:
        """Yield an old subtask's share of an edge: of each channel the oldest first."""
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
        old = self._old.edges[edge]
        position = producer - old.producers_of(holder.subtask).start
        emitted, sent = self._producer_side(old, edge, producer, holder.subtask)
        pieces: list[InflightRange] = []
        events: list[NumberedEvent] = []
        for capture in [c for c in cut.captures if c.peer == producer] + sent:
            pieces += capture.pieces
            events += capture.events
        applied = cut.applied[position]
        return _Held(producer, holder.subtask, pieces, events, applied, emitted, _time(cut, position))

    def _producer_side(self, old: OldEdge, edge: str, producer: int, consumer: int) -> tuple[int, list[ChannelCapture]]:
        """Return the stored part of the producer's end of an old channel: `emitted`, and its captures."""
        snapshot = self._old.snapshots.get((old.shape.source, producer))
        cut = next((o for o in snapshot.outputs if o.edge == edge), None) if snapshot is not None else None
        if cut is None:
            return 0, []
        emitted = cut.emitted[consumer - old.consumers_of(producer).start]
        return emitted, [c for c in cut.captures if c.peer == consumer]

    def _reader(self, edge: Edge, held: _Held) -> Callable[[InflightRange], bytes]:
        name = f"in-flight data of channel {edge.name}[{held.producer} -> {held.consumer}]"
        return lambda piece: self._read(piece.segment, piece.offset, piece.length_bytes, piece.crc, name)


def _time(cut: InputCut, position: int) -> ChannelTime:
    """Return the time of a channel; checkpoints of the first format contain none."""
    return cut.times[position] if 0 <= position < len(cut.times) else AT_START
