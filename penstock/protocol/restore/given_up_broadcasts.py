"""Gives all receivers of a broadcast the same broadcast state, where rows are given up that some of them had read.

Receivers are to read the same rows, so broadcast state is the same in all of them, and a restore at another parallelism
takes that of subtask 0. If rows are given up that some have read, the others will never read them. Then all receivers
get the state of the receiver that had read most rows. The rows that this one had not read are lost (with one producer:
the rows that nobody had read), and so are the changes that the others would have made to their own keys and lists.
(PROTOCOL 3.12)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from penstock.protocol.restore.receivers import uneven_broadcasts, unread_rows
from penstock.protocol.restore.rescale import OldEdge
from penstock.protocol.values.metadata import EdgeShape, Metadata, SubtaskSnapshot

_BROADCAST_STATE = "broadcast"
"""The kind of an `OperatorPart`."""


@dataclass(frozen=True)
class UnequalReceivers:
    """Describes broadcasts into one vertex whose receivers had read different rows, and whose rows are given up.
    `receiver`: the subtask that had read most. `have_state`: they have broadcast state. `in_the_way`: further
    broadcasts whose rows have to be given up, too.
    """

    vertex: int
    edges: tuple[EdgeShape, ...]
    receiver: int
    have_state: bool
    in_the_way: tuple[EdgeShape, ...] = ()


def unequal_receivers(whole: Metadata, left: Metadata, given_up: Collection[str]) -> list[UnequalReceivers]:
    """Return whose receivers differ for ever. `left`: what is left of the checkpoint `whole` without rows of the edges
    `given_up`.

    Nothing may be left that some receivers of the vertex have read and others have not: whoever gets another one's
    state would read it again, or never.
    """
    before, after = uneven_broadcasts(whole), uneven_broadcasts(left)
    found = []
    for vertex in dict.fromkeys(edge.target for edge in whole.edges):
        edges = [edge for edge in whole.edges if edge.target == vertex]
        equal_now = tuple(edge for edge in edges if edge.name in before - after)
        uneven = tuple(edge for edge in edges if edge.name in after)
        in_the_way = tuple(edge for edge in uneven if edge.name in given_up)
        have_state = _have_broadcast_state(whole, vertex)
        if equal_now and have_state:
            in_the_way = uneven
        if equal_now or in_the_way:
            furthest = _furthest(whole, vertex, equal_now)
            found.append(UnequalReceivers(vertex, equal_now, furthest, have_state, in_the_way))
    return found


def with_state_of_one(metadata: Metadata, unequal: Sequence[UnequalReceivers]) -> Metadata:
    """Return the metadata with the same broadcast state in all receivers that differ."""
    receivers = {of_one.vertex: of_one.receiver for of_one in unequal}
    states = {
        s.vertex: [part for part in s.parts if part.kind == _BROADCAST_STATE]
        for s in metadata.subtasks
        if receivers.get(s.vertex) == s.subtask
    }

    def changed(snapshot: SubtaskSnapshot) -> SubtaskSnapshot:
        if snapshot.vertex not in states:
            return snapshot
        own = [part for part in snapshot.parts if part.kind != _BROADCAST_STATE]
        return msgspec.structs.replace(snapshot, parts=[*own, *states[snapshot.vertex]])

    return msgspec.structs.replace(metadata, subtasks=[changed(snapshot) for snapshot in metadata.subtasks])


def _have_broadcast_state(metadata: Metadata, vertex: int) -> bool:
    return any(p.kind == _BROADCAST_STATE for s in metadata.subtasks if s.vertex == vertex for p in s.parts)


def _furthest(metadata: Metadata, vertex: int, edges: Sequence[EdgeShape]) -> int:
    """Return the subtask of the vertex with the fewest unread rows of these edges."""
    snapshots = {(s.vertex, s.subtask): s for s in metadata.subtasks}
    found = [edge for shape in edges if (edge := OldEdge.find(metadata, shape.name)) is not None]
    subtasks = [subtask for of_vertex, subtask in snapshots if of_vertex == vertex]
    return min(sorted(subtasks), key=lambda s: sum(unread_rows(edge, snapshots, s).total() for edge in found))
