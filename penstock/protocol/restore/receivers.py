"""Finds broadcast edges whose receivers stand at different rows, so that their number cannot change at once.

Such a checkpoint is restored in two steps. First the job runs at the parallelism that the checkpoint was taken at, with
its sources held, until all receivers have read the same rows. Then a checkpoint is taken, and the job continues from
that one at the parallelism that was asked for.

A producer sends the same rows in the same order to all receivers of a broadcast, so those that hold equally many unread
rows of it have read the same rows. Then broadcast state is the same in all of them, each effect has happened in all of
them or in none, and the unread rows can go to any number of receivers. The numbers of elements say nothing here: each
channel merges neighbouring watermarks for itself.

Without this: receiver 0 has applied row 7 to its keys, and receiver 1 has not. If the new receivers begin behind row 7,
its effect never reaches the keys of receiver 1; if they begin before it, it reaches those of receiver 0 twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from penstock.protocol.restore.rescale import BROADCAST, OldEdge
from penstock.protocol.values.metadata import EdgeShape, InflightRange, Metadata, SubtaskSnapshot, VertexShape

_Snapshots = dict[tuple[int, int], SubtaskSnapshot]


def uneven_broadcasts(metadata: Metadata) -> frozenset[str]:
    """Return the names of the broadcast edges whose receivers hold different numbers of unread rows of a producer."""
    # 6.1: receivers that have read different rows cannot change their number.
    snapshots = {(s.vertex, s.subtask): s for s in metadata.subtasks}
    found: set[str] = set()
    for shape in metadata.edges:
        edge = OldEdge.find(metadata, shape.name) if shape.partitioner == BROADCAST else None
        if edge is not None:
            unread = [unread_rows(edge, snapshots, consumer) for consumer in range(edge.target_parallelism)]
            if any(rows != unread[0] for rows in unread):
                found.add(shape.name)
    return frozenset(found)


def changed_receivers(
    metadata: Metadata, uneven: frozenset[str], vertices: Sequence[VertexShape], edges: Sequence[EdgeShape]
) -> frozenset[str]:
    """Return the `uneven` broadcasts that would have another number of receivers: they ask for two steps.
    `vertices` and `edges` describe the job that is to be restored."""
    parallelism = {vertex.index: vertex.parallelism for vertex in vertices}
    receivers = {edge.name: parallelism[edge.target] for edge in edges}
    found: set[str] = set()
    for name in uneven:
        old = OldEdge.find(metadata, name)
        if old is not None and receivers.get(name, old.target_parallelism) != old.target_parallelism:
            found.add(name)
    return frozenset(found)


def unread_rows(edge: OldEdge, snapshots: _Snapshots, consumer: int) -> Counter[int]:
    """Return the number of rows that a receiver had not read, by producer, in its layers and its channels."""
    name = edge.shape.name
    unread: Counter[int] = Counter()
    holder = snapshots.get((edge.shape.target, consumer))
    if holder is None:
        return unread
    for layer in holder.layers:
        if layer.edge == name:
            unread[layer.producer] += _rows_within(layer.pieces, layer.first, layer.end)
    cut = next((c for c in holder.inputs if c.edge == name), None)
    if cut is None:
        return unread
    for position, producer in enumerate(edge.producers_of(consumer)):
        sender = snapshots.get((edge.shape.source, producer))
        sent = next((o for o in sender.outputs if o.edge == name), None) if sender is not None else None
        if sent is None:
            continue
        pieces = [p for c in cut.captures if c.peer == producer for p in c.pieces]
        pieces += [p for c in sent.captures if c.peer == consumer for p in c.pieces]
        emitted = sent.emitted[consumer - edge.consumers_of(producer).start]
        unread[producer] += _rows_within(pieces, cut.applied[position], emitted)
    return unread


def _rows_within(pieces: Iterable[InflightRange], first: int, end: int) -> int:
    """Return the number of rows of the pieces with numbers in [first, end). No row of these is stored twice."""
    return sum(max(0, min(p.first + p.rows, end) - max(p.first, first)) for p in pieces)
