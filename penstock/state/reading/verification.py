"""Finds every damaged range of a checkpoint: reads all of it, and says what is damaged in the words of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from penstock.protocol.values.keys import MAX_PARALLELISM_LIMIT, key_group_range
from penstock.protocol.values.metadata import InflightRange, Metadata, StateRange, VertexShape
from penstock.state.codecs import read_stream
from penstock.state.reading.checkpoint_location import CheckpointFiles
from penstock.storage.segments import DamagedRange, read_range

_ALL_KEY_GROUPS = range(MAX_PARALLELISM_LIMIT + 1)


class Damage(NamedTuple):
    """Describes a damaged range. `belongs_to` names operator and key groups, or the channel; `message` tells more."""

    belongs_to: str
    message: str


@dataclass
class Verified:
    """Holds the result: the numbers of ranges and bytes read, and the damaged ranges."""

    ranges: int = 0
    stored_bytes: int = 0
    damaged: list[Damage] = field(default_factory=list)


class _Range(NamedTuple):
    belongs_to: str
    stored: StateRange | InflightRange
    check: Callable[[bytes], str | None]


def verify(files: CheckpointFiles) -> Verified:
    """Read every range that the checkpoint names. Raises `StoreError` if the store does not answer."""
    found = Verified()
    for range_ in _ranges(files.metadata):
        stored = range_.stored
        path = files.metadata.segments[stored.segment].path
        found.ranges += 1
        found.stored_bytes += stored.length_bytes
        try:
            data = read_range(files.store, path, stored.offset, stored.length_bytes, stored.crc, range_.belongs_to)
        except DamagedRange as error:
            found.damaged.append(Damage(range_.belongs_to, str(error)))
            continue
        if (wrong := range_.check(data)) is not None:
            damage = DamagedRange(path, stored.offset, stored.length_bytes, range_.belongs_to, wrong)
            found.damaged.append(Damage(range_.belongs_to, str(damage)))
    return found


def _ranges(metadata: Metadata) -> Iterator[_Range]:
    vertices = {vertex.index: vertex for vertex in metadata.vertices}
    edges = {edge.name: edge for edge in metadata.edges}

    def channel(edge: str, producer: int, consumer: int) -> str:
        shape = edges.get(edge)
        if shape is None:
            return f"in-flight data of channel {producer} -> {consumer} of edge {edge}"
        ends = vertices[shape.source].operator_names[-1], vertices[shape.target].operator_names[0]
        return f"in-flight data of the channel from '{ends[0]}' ({producer}) to '{ends[1]}' ({consumer})"

    for snapshot in metadata.subtasks:
        vertex = vertices[snapshot.vertex]
        for run in snapshot.keyed:
            yield _Range(_described(vertex, snapshot.subtask, run), run, _checking_entries(run))
        own = snapshot.subtask
        pieces = [(channel(c.edge, p.peer, own), p.pieces) for c in snapshot.inputs for p in c.captures]
        pieces += [(channel(c.edge, own, p.peer), p.pieces) for c in snapshot.outputs for p in c.captures]
        pieces += [(channel(x.edge, x.producer, x.consumer) + ", recovered", x.pieces) for x in snapshot.layers]
        yield from (_Range(told, piece, _checked_message) for told, of_channel in pieces for piece in of_channel)


def _described(vertex: VertexShape, subtask: int, run: StateRange) -> str:
    name = vertex.operator_names[vertex.operators.index(run.operator)] if run.operator in vertex.operators else "?"
    groups = key_group_range(vertex.max_parallelism, vertex.parallelism, subtask)
    return (
        f"state '{run.name}' of operator '{name}', subtask {subtask} (key groups {groups.start} to {groups.stop - 1})"
    )


def _checking_entries(run: StateRange) -> Callable[[bytes], str | None]:
    def check(data: bytes) -> str | None:
        try:
            found = sum(batch.num_rows for batch in read_stream(data, _ALL_KEY_GROUPS).batches)
        except (pa.ArrowException, KeyError, OSError) as error:
            return f"it is no run of entries: {error}"
        return None if found == run.entries else f"it has {found} entries, but was written with {run.entries}"

    return check


def _checked_message(data: bytes) -> str | None:
    try:
        kind = pa.ipc.read_message(data).type
    except (pa.ArrowException, OSError, EOFError) as error:
        return f"it is no batch of rows: {error}"
    return None if kind == "record batch" else f"it is no batch of rows, but a {kind}"
