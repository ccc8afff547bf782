"""Builds a checkpoint's metadata from the acknowledgements of all slots, if they cover every channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from penstock.graph.compatibility import edge_shapes, vertex_shapes
from penstock.graph.job_graph import JobGraph
from penstock.protocol.driver.coverage import verify
from penstock.protocol.driver.driver_effects import PublishCheckpoint
from penstock.protocol.log.publication import NewCheckpoint
from penstock.protocol.values.messages import SlotAck
from penstock.protocol.values.metadata import (
    FORMAT_VERSION,
    Capture,
    Committable,
    EnumeratorState,
    InflightRange,
    InputCut,
    LayerCut,
    Metadata,
    OutputCut,
    Segment,
    StateRange,
    SubtaskSnapshot,
)
from penstock.storage.layout import metadata_path
from penstock.storage.metadata_file import encode_metadata, metadata_crc

VIOLATIONS_NAMED_MAX = 5

_Cut = TypeVar("_Cut", InputCut, OutputCut)


class NotCovered(Exception):
    """Signals that the stored elements do not cover the in-flight data, or name a segment that may be deleted: a bug of
    ours. Names the channels, or the segments.
    """


def assemble(
    graph: JobGraph,
    job_id: str,
    job_name: str,
    incarnation: str,
    publish: PublishCheckpoint,
    trigger_wall_ms: int,
    enumerators: Sequence[EnumeratorState],
    unconfirmed: Sequence[Committable],
    draining: bool = False,
    newest_id: int = 0,
    earlier: frozenset[str] = frozenset(),
) -> NewCheckpoint:
    """Build the metadata. `draining`: whether the job was draining when the checkpoint was triggered. `newest_id`: the
    newest canonical checkpoint, whose output is committed or among `unconfirmed`. `earlier`: the segments of its
    predecessor, which it may name besides its own. Raises `NotCovered`.
    """
    segments, subtasks = _joined(publish.acks)
    own = frozenset[str]().union(*(ack.own for ack in publish.acks))
    if foreign := sorted({segment.path for segment in segments} - own - earlier):
        raise NotCovered(f"it names segments that nothing keeps for it: {', '.join(foreign[:VIOLATIONS_NAMED_MAX])}")
    violations = verify(graph.edges, subtasks, draining)
    if violations:
        more = len(violations) - VIOLATIONS_NAMED_MAX
        named = "; ".join(violations[:VIOLATIONS_NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")
        raise NotCovered(f"in-flight data is incomplete: {named}")
    checkpoint_id = publish.barrier.checkpoint_id
    metadata = Metadata(
        FORMAT_VERSION,
        job_id,
        job_name,
        checkpoint_id,
        publish.generation.fence,
        publish.generation.counter,
        incarnation,
        trigger_wall_ms,
        draining,
        vertex_shapes(graph),
        edge_shapes(graph),
        segments,
        without_committables(subtasks, newest_id),
        list(enumerators),
        list(unconfirmed),
        publish.is_final,
    )
    data = encode_metadata(metadata)
    return NewCheckpoint(metadata, metadata_path(checkpoint_id), data, metadata_crc(data))


def committables_of(metadata: Metadata) -> list[Committable]:
    """Return the committables that a restore of this checkpoint commits again, in order."""
    own = (_named_by(metadata.checkpoint_id, c) for s in metadata.subtasks for c in s.committables)
    return [*metadata.unconfirmed_commits, *own]


def confirmed_id(metadata: Metadata) -> int:
    """Return the newest checkpoint up to which no restore of this one commits anything again that was prepared."""
    named = [c.prepared_for for c in committables_of(metadata)]
    return min(named, default=metadata.checkpoint_id + 1) - 1


def _named_by(checkpoint_id: int, committable: Committable) -> Committable:
    return msgspec.structs.replace(committable, checkpoint_id=checkpoint_id)


def without_committables(subtasks: list[SubtaskSnapshot], newest_id: int) -> list[SubtaskSnapshot]:
    """Leave out the output that the checkpoint `newest_id` has named: snapshots of later ones that were pending then
    name it again. Without this: it is committed with each of them, when its user may have moved it away."""

    def without(snapshot: SubtaskSnapshot) -> SubtaskSnapshot:
        kept = [c for c in snapshot.committables if c.prepared_for > newest_id]
        if len(kept) == len(snapshot.committables):
            return snapshot
        return msgspec.structs.replace(snapshot, committables=kept)

    return [without(snapshot) for snapshot in subtasks] if newest_id else subtasks


def _joined(acks: Sequence[SlotAck]) -> tuple[list[Segment], list[SubtaskSnapshot]]:
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

    def capture(c: Capture) -> Capture:
        return Capture(c.peer, [piece(p) for p in c.pieces], c.events)

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
