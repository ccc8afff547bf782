"""Describes a subtask's snapshot for the checkpoint's metadata, and writes what was in flight in it."""

from __future__ import annotations

import msgspec

from penstock.common.clock import Clock
from penstock.operators.batches import as_messages, wire_schema
from penstock.protocol.channel.captured import Captured
from penstock.protocol.values.metadata import (
    ChannelCapture,
    InflightRange,
    InputCut,
    NumberedEvent,
    OutputCut,
    SubtaskSnapshot,
)
from penstock.runtime.checkpoint.capture import Capture
from penstock.storage.segments import SegmentWriter


def snapshot_of(capture: Capture, segment: SegmentWriter, clock: Clock) -> SubtaskSnapshot:
    """Write the in-flight data, and describe the whole snapshot, whose keyed state is written. Raises `StoreError`."""
    before, cut, time, edges = segment.length_bytes, capture.cut, capture.time, capture.edges
    schemas = {edge.name: wire_schema(edge) for edge in edges.values()}

    def stored(captured: Captured, edge: str) -> tuple[list[InflightRange], list[NumberedEvent]]:
        pieces = []
        for first, rows, message in as_messages(captured.rows, schemas[edge]):
            offset, length_bytes, crc = segment.add([message])
            pieces.append(InflightRange(first, rows, 0, offset, length_bytes, crc))
        return pieces, [NumberedEvent(number, event) for number, event in captured.events]

    inputs: dict[int, InputCut] = {}
    for (channel, number), of_channel in zip(cut.applied.items(), time.channels, strict=True):
        into = inputs.setdefault(channel.edge, InputCut(edges[channel.edge].name, [], [], []))
        into.applied.append(number)
        into.times.append(of_channel)
    for channel, captured in cut.inputs.items():
        into = inputs[channel.edge]
        into.captures.append(ChannelCapture(channel.producer, *stored(captured, into.edge)))
    outputs: dict[int, OutputCut] = {}
    for channel, number in cut.emitted.items():
        outputs.setdefault(channel.edge, OutputCut(edges[channel.edge].name, [], [])).emitted.append(number)
    for channel, captured in cut.outputs.items():
        out = outputs[channel.edge]
        out.captures.append(ChannelCapture(channel.consumer, *stored(captured, out.edge)))
    layers = []
    for layer, captured in capture.layers:
        pieces, events = stored(captured, layer.edge)
        layers.append(msgspec.structs.replace(layer, pieces=pieces, events=events))
    return SubtaskSnapshot(
        vertex=capture.subtask.vertex,
        subtask=capture.subtask.subtask,
        inputs=list(inputs.values()),
        outputs=list(outputs.values()),
        layers=layers,
        keyed=capture.keyed,
        schemas=capture.state.schemas if capture.state is not None else [],
        parts=capture.parts,
        committables=capture.committables,
        watermark_ms=time.emitted_ms,
        current_ms=time.current_ms,
        floors=time.floors,
        idle=time.idle,
        pauses=time.pauses,
        finished=capture.finished,
        unaligned=cut.unaligned or bool(cut.outputs),
        persisted_bytes=segment.length_bytes - before,
        state_bytes=sum(k.length_bytes for k in capture.keyed),
        start_delay_ms=cut.start_delay_ms,
        alignment_ms=cut.alignment_ms,
        sync_ms=capture.sync_ms,
        async_ms=clock.monotonic_ms() - cut.taken_ms,
    )
