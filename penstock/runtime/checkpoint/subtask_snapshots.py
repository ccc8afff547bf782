"""Describes a subtask's snapshot for the checkpoint's metadata, and writes what was in flight in it."""

from __future__ import annotations

import pyarrow as pa

from penstock.common.clock import Clock
from penstock.operators.batches import as_messages, wire_schema
from penstock.protocol.channel.captured import Captured
from penstock.protocol.values.metadata import (
    Capture,
    InflightRange,
    InputCut,
    LayerCut,
    NumberedEvent,
    OutputCut,
    SubtaskSnapshot,
)
from penstock.runtime.checkpoint.subtask_capture import CapturedChannel, SubtaskCapture
from penstock.storage.segments import SegmentWriter


def snapshot_of(capture: SubtaskCapture, segment: SegmentWriter, clock: Clock) -> SubtaskSnapshot:
    """Write the in-flight data, and describe the whole snapshot, whose keyed state is written. Raises `StoreError`."""
    before = segment.length_bytes
    inputs = _by_edge(segment, capture.inputs)
    outputs = _by_edge(segment, capture.outputs)
    layers = []
    for unread in capture.layers:
        layer = unread.layer
        schema = wire_schema(layer.live_edge)
        pieces, events = _pieces(segment, unread.captured, schema)
        ends = (layer.edge, layer.producer, layer.consumer)
        layers.append(LayerCut(*ends, unread.first, layer.end, pieces, events, unread.time))
    return SubtaskSnapshot(
        vertex=capture.subtask.vertex,
        subtask=capture.subtask.subtask,
        inputs=_input_cuts(capture, inputs),
        outputs=[OutputCut(edge.name, emitted, outputs.get(edge.name, [])) for edge, emitted in capture.emitted],
        layers=layers,
        keyed=capture.keyed,
        schemas=capture.state.schemas if capture.state is not None else [],
        parts=capture.parts,
        committables=capture.committables,
        watermark_ms=capture.time.emitted_ms,
        current_ms=capture.time.current_ms,
        floors=capture.time.floors,
        idle=capture.time.idle,
        pauses=capture.time.pauses,
        finished=capture.finished,
        unaligned=capture.cut.unaligned or any(c.captured for c in capture.outputs),
        persisted_bytes=segment.length_bytes - before,
        state_bytes=sum(k.length_bytes for k in capture.keyed),
        start_delay_ms=capture.cut.start_delay_ms,
        alignment_ms=capture.cut.alignment_ms,
        sync_ms=capture.sync_ms,
        async_ms=clock.monotonic_ms() - capture.cut.taken_ms,
    )


def _input_cuts(capture: SubtaskCapture, captured: dict[str, list[Capture]]) -> list[InputCut]:
    cuts: list[InputCut] = []
    at = 0
    for edge, applied in capture.applied:
        times = capture.time.channels[at : at + len(applied)]
        at += len(applied)
        cuts.append(InputCut(edge.name, applied, captured.get(edge.name, []), times))
    return cuts


def _by_edge(segment: SegmentWriter, channels: list[CapturedChannel]) -> dict[str, list[Capture]]:
    found: dict[str, list[Capture]] = {}
    for channel in channels:
        if channel.captured:
            pieces, events = _pieces(segment, channel.captured, wire_schema(channel.edge))
            found.setdefault(channel.edge.name, []).append(Capture(channel.peer, pieces, events))
    return found


def _pieces(
    segment: SegmentWriter, captured: Captured, schema: pa.Schema
) -> tuple[list[InflightRange], list[NumberedEvent]]:
    pieces = []
    for first, rows, message in as_messages(captured.rows, schema):
        offset, length_bytes, crc = segment.add([message])
        pieces.append(InflightRange(first, rows, 0, offset, length_bytes, crc))
    return pieces, [NumberedEvent(number, event) for number, event in captured.events]
