"""Computes a restore at another parallelism: who gets which of the old in-flight data, and which event time it has
there.

Everything is data: shapes of the old and the new graph in, shares out. A *holder* is an old subtask; what it held of an
edge are the unread layers of its gate and, after them, the in-flight intervals of its channels. Each new consumer makes
layers of its own from its share. Rows that only partly belong to it are filtered when they are read, and the remaining
ones are numbered from 0: a layer is a sequence of its own, so that a later restore need not know its history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.elements import WATERMARK_MAX_MS
from penstock.protocol.values.keys import key_group_range
from penstock.protocol.values.metadata import (
    CALLS_PART,
    ChannelCapture,
    ChannelTime,
    EdgeShape,
    GroupFloor,
    Metadata,
    SubtaskSnapshot,
    VertexShape,
)
from penstock.protocol.values.topology import consumers_of, producers_of

T = TypeVar("T")

ANY_CONSUMER = ("forward", "rescale", "rebalance", "shuffle")
"""Partitionings that say nothing about where a row has to be: whole old channels move."""

_KEYED = "hash"
BROADCAST = "broadcast"


# ---- what has changed -------------------------------------------------------------------------------------------


def is_rescaled(metadata: Metadata, vertices: Sequence[VertexShape], edges: Sequence[EdgeShape]) -> bool:
    """Return whether anything runs at another parallelism, in other chains, or along other channels than in the
    checkpoint. A checkpoint that was taken while the job drained is restored the same way at any parallelism."""
    # 3.5: a checkpoint of a job that was draining is restored like one of another parallelism.
    if metadata.draining or {e.name for e in edges} != {e.name for e in metadata.edges}:
        return True
    if {tuple(v.operators) for v in vertices} != {tuple(v.operators) for v in metadata.vertices}:
        return True
    parallelism = {uid: v.parallelism for v in vertices for uid in v.operators}
    if any(parallelism.get(v.operators[0], v.parallelism) != v.parallelism for v in metadata.vertices):
        return True
    partitioners = {e.name: e.partitioner for e in edges}
    return any(partitioners.get(e.name, e.partitioner) != e.partitioner for e in metadata.edges)


def edges_in_flight(metadata: Metadata) -> frozenset[str]:
    """Return the names of the edges that the checkpoint holds rows of."""
    found: set[str] = set()
    for snapshot in metadata.subtasks:
        found.update(cut.edge for cut in snapshot.inputs if _has_rows(cut.captures))
        found.update(cut.edge for cut in snapshot.outputs if _has_rows(cut.captures))
        found.update(layer.edge for layer in snapshot.layers if layer.pieces)
    return frozenset(found)


def holds_rows(metadata: Metadata) -> bool:
    """Return whether the checkpoint holds rows in flight: on edges, or in operators that wait for answers."""
    calls = (part for snapshot in metadata.subtasks for part in snapshot.parts if part.name == CALLS_PART)
    return bool(edges_in_flight(metadata)) or any(not part.kind for part in calls)


def drains(metadata: Metadata, vertices: Sequence[VertexShape], edges: Sequence[EdgeShape]) -> bool:
    """Return whether the job has to drain: without rows in flight nothing can overtake anything."""
    return is_rescaled(metadata, vertices, edges) and holds_rows(metadata)


def _has_rows(captures: Iterable[ChannelCapture]) -> bool:
    return any(capture.pieces for capture in captures)


@dataclass(frozen=True)
class OldEdge:
    """Describes an edge as it was when the checkpoint was taken."""

    shape: EdgeShape
    source_parallelism: int
    target_parallelism: int

    @classmethod
    def find(cls, metadata: Metadata, name: str) -> OldEdge | None:
        shape = next((e for e in metadata.edges if e.name == name), None)
        if shape is None:
            return None
        parallelism = {v.index: v.parallelism for v in metadata.vertices}
        return cls(shape, parallelism[shape.source], parallelism[shape.target])

    def consumers_of(self, producer: int) -> range:
        return consumers_of(self.shape.pointwise, producer, self.source_parallelism, self.target_parallelism)

    def producers_of(self, consumer: int) -> range:
        return producers_of(self.shape.pointwise, consumer, self.source_parallelism, self.target_parallelism)


# ---- rows -------------------------------------------------------------------------------------------------------


class Filter(Enum):
    """Selects which rows of an old holder belong to the new consumer. KEY_GROUPS: the rows of the key groups that it
    owns. CUSTOM: the rows that the partitioner sends to it, when asked again with the row's key and the new number of
    consumers.
    """

    WHOLE = "whole"
    KEY_GROUPS = "key groups"
    CUSTOM = "custom"


@dataclass(frozen=True)
class Share:
    """Describes a new consumer's share of an old subtask's rows in flight. `holder`: the old subtask's number."""

    holder: int
    filter: Filter


def shares(partitioner: str, old: int, new: int, max_parallelism: int, consumer: int) -> list[Share]:
    """Return the shares of the new subtask `consumer` of `new` in an edge into a vertex that had `old` subtasks.
    `partitioner` is the edge's kind; `max_parallelism` of the consuming vertex. Every row goes to exactly one consumer,
    but rows of a broadcast go to all.
    """
    # 3.2: who gets which part of an old channel.
    if old == new:
        return [Share(consumer, Filter.WHOLE)]
    if partitioner == _KEYED:
        return _keyed_shares(old, new, max_parallelism, consumer)
    if partitioner == "custom":
        return [Share(holder, Filter.CUSTOM) for holder in range(old)]
    if partitioner == BROADCAST:  # its receivers have read the same rows (`receivers.py`), so each continues as 0 does
        return [Share(0, Filter.WHOLE)]
    if partitioner == "global":
        return [Share(holder, Filter.WHOLE) for holder in range(old)] if consumer == 0 else []
    if partitioner in ANY_CONSUMER:
        return [Share(holder, Filter.WHOLE) for holder in range(old) if holder * new // old == consumer]
    raise ValueError(f"rows in flight on a {partitioner} edge cannot be restored at another parallelism")


def _keyed_shares(old: int, new: int, max_parallelism: int, consumer: int) -> list[Share]:
    mine = key_group_range(max_parallelism, new, consumer)
    found = []
    for holder in range(old):
        theirs = key_group_range(max_parallelism, old, holder)
        if theirs.start >= mine.stop or mine.start >= theirs.stop:
            continue
        is_inside = mine.start <= theirs.start and theirs.stop <= mine.stop
        found.append(Share(holder, Filter.WHOLE if is_inside else Filter.KEY_GROUPS))
    return found


# ---- state ------------------------------------------------------------------------------------------------------


def state_holders(old: int, new: int, max_parallelism: int, subtask: int) -> list[int]:
    """Return the old subtasks whose keyed state the new one takes over, or a part of it."""
    if old == new:
        return [subtask]
    return [share.holder for share in _keyed_shares(old, new, max_parallelism, subtask)]


def redistributed(items: Sequence[Sequence[T]], new: int, subtask: int) -> list[T]:
    """Return the new subtask's share of the old ones' items (splits, a writer's state): its own at the same
    parallelism, else every item goes to exactly one subtask, round robin.
    """
    # 10.2: each split goes to one subtask, with what its generator knows.
    if len(items) == new:
        return list(items[subtask])
    everything = [item for of_one in items for item in of_one]
    return everything[subtask::new]


# ---- time -------------------------------------------------------------------------------------------------------


def telling(producers: Iterable[SubtaskSnapshot]) -> list[SubtaskSnapshot]:
    """Return the old producers whose time those behind them waited for. Those that have finished, or have emitted the
    last watermark and are about to, are left out, unless all have; idle ones are, too, unless all others are idle.
    Without this: a finished producer's final watermark leaks to a live one's channel, and every window fires.
    """
    unfinished = [p for p in producers if not p.finished]
    continuing = [p for p in unfinished if p.watermark_ms != WATERMARK_MAX_MS] or unfinished
    return [p for p in continuing if not p.idle] or continuing


def live_start(producers: Iterable[SubtaskSnapshot]) -> ChannelTime:
    """Return the initial time of an edge's live channels: the minimum over the emitted watermarks of the old producers
    that tell the time, and the maximum if all of them are idle, as in the watermark valve.
    """
    # 5.2b: a producer that has ended, is idle, or has emitted its last watermark sets no start.
    told = telling(producers)
    said = [WATERMARK_MIN_MS if p.watermark_ms is None else p.watermark_ms for p in told]
    combined = max if all(p.idle for p in told) else min
    return ChannelTime(combined(said, default=WATERMARK_MIN_MS))


def emitted_by_all(old: Iterable[SubtaskSnapshot]) -> int:
    """Return the watermark that all old subtasks have emitted that had not finished, whether idle or not."""
    said = [WATERMARK_MIN_MS if p.watermark_ms is None else p.watermark_ms for p in old if not p.finished]
    return min(said, default=WATERMARK_MIN_MS)


def floors(old: Sequence[SubtaskSnapshot], max_parallelism: int, key_groups: range) -> list[GroupFloor]:
    """Return the watermark that the former owner of each of `key_groups` had reached. `old`: the snapshots of all old
    subtasks, by number.
    """
    found: list[GroupFloor] = []
    for snapshot in old:
        owned = key_group_range(max_parallelism, len(old), snapshot.subtask)
        for group in range(max(owned.start, key_groups.start), min(owned.stop, key_groups.stop)):
            reached = [f.watermark_ms for f in snapshot.floors if f.first <= group < f.end]
            if snapshot.current_ms is not None:
                reached.append(snapshot.current_ms)
            floor_ms = max(reached, default=WATERMARK_MIN_MS)
            if floor_ms == WATERMARK_MIN_MS:
                continue
            if found and found[-1].end == group and found[-1].watermark_ms == floor_ms:
                found[-1] = GroupFloor(found[-1].first, group + 1, floor_ms)
            else:
                found.append(GroupFloor(group, group + 1, floor_ms))
    return found
