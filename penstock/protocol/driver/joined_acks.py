"""Joins the acknowledgements of all slots to the segments and subtasks of a checkpoint's metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from penstock.protocol.values.messages import SlotAck
from penstock.protocol.values.metadata import (
    ChannelCapture,
    InflightRange,
    InputCut,
    LayerCut,
    OutputCut,
    Segment,
    StateRange,
    SubtaskSnapshot,
)

_Cut = TypeVar("_Cut", InputCut, OutputCut)


def joined(acks: Sequence[SlotAck]) -> tuple[list[Segment], list[SubtaskSnapshot]]:
    """Join the acknowledgements. Each slot counts the segments that it names, the metadata counts those of all."""
    segments: list[Segment] = []
    places: dict[str, int] = {}
    subtasks: list[SubtaskSnapshot] = []

    def place_of(segment: Segment) -> int:
        place = places.setdefault(segment.path, len(segments))
        if place == len(segments):
            segments.append(segment)
        return place

    for ack in acks:
        own = 0 if ack.segment is None else place_of(ack.segment)
        moved = [own, *map(place_of, ack.earlier)]
        subtasks += ack.subtasks if moved == [0] else [_moved(s, moved) for s in ack.subtasks]
    return segments, subtasks


def _moved(snapshot: SubtaskSnapshot, places: list[int]) -> SubtaskSnapshot:
    """Return the snapshot with the metadata's numbers of segments. `places`: by the slot's."""

    def piece(p: InflightRange) -> InflightRange:
        return InflightRange(p.first, p.rows, places[p.segment], p.offset, p.length_bytes, p.crc)

    def capture(c: ChannelCapture) -> ChannelCapture:
        return ChannelCapture(c.peer, [piece(p) for p in c.pieces], c.events)

    def cut(c: _Cut) -> _Cut:
        return msgspec.structs.replace(c, captures=[capture(x) for x in c.captures]) if c.captures else c

    def layer(c: LayerCut) -> LayerCut:
        return msgspec.structs.replace(c, pieces=[piece(p) for p in c.pieces])

    def state(r: StateRange) -> StateRange:
        return msgspec.structs.replace(r, segment=places[r.segment])

    return msgspec.structs.replace(
        snapshot,
        inputs=[cut(c) for c in snapshot.inputs],
        outputs=[cut(c) for c in snapshot.outputs],
        layers=[layer(c) for c in snapshot.layers],
        keyed=[state(r) for r in snapshot.keyed],
    )
