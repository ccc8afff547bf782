"""Holds the rows of a subtask that wait for an answer, or whose answer waits to be emitted, with their watermarks.

Rows and watermarks stand in the order in which they came. A watermark ends a *segment*. Answers leave the first segment
only, so no row passes a watermark, in neither direction (Flink: unordered means unordered between two watermarks).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

_KEPT_FACTOR = 4
"""Copies the waiting rows out of their batches once these have so many times more rows than the queue has room for."""


class CallBatch:
    """Holds rows as they came through their edge, with all columns, for snapshots and further attempts. `edge`: its
    name. `rows`: the decoded rows, which the function may change."""

    __slots__ = ("batch", "edge")

    def __init__(self, batch: pa.RecordBatch, edge: str) -> None:
        self.batch = batch
        self.edge = edge


class Call:
    """Represents one row and what is known of its answer: a list of rows, or None while there is none."""

    __slots__ = ("number", "origin", "index", "timestamp_ms", "answer", "attempts", "expires_ms", "segment")

    def __init__(self, number: int, origin: CallBatch, index: int, timestamp_ms: int | None) -> None:
        self.number = number
        self.origin = origin
        self.index = index
        self.timestamp_ms = timestamp_ms
        self.answer: list[Any] | None = None
        self.attempts = 0
        self.expires_ms = 0.0
        self.segment: Segment | None = None


class Segment:
    """Holds the rows between two watermarks. `watermark_ms`: the one that ends it; None: it is the last segment."""

    __slots__ = ("calls", "answered", "watermark_ms")

    def __init__(self) -> None:
        self.calls: dict[int, Call] = {}
        self.answered: deque[Call] = deque()
        """The calls in the order of their answers, where this is the order in which they leave."""
        self.watermark_ms: int | None = None


class CallQueue:
    """Queues calls. `capacity`: the number of calls from which on it is full. `ordered`: the answer of each call waits
    for those before it.
    """

    def __init__(self, capacity: int, ordered: bool) -> None:
        self.capacity = capacity
        self.size = 0
        self._ordered = ordered
        self._segments: deque[Segment] = deque([Segment()])
        self._kept_rows = 0
        """The number of rows in the batches of the calls, emitted ones included."""

    @property
    def is_full(self) -> bool:
        return self.size >= self.capacity

    @property
    def is_empty(self) -> bool:
        """Return whether neither a row nor a watermark waits."""
        return not self.size and len(self._segments) == 1

    def add_batch(self, batch: pa.RecordBatch, edge: str) -> CallBatch:
        """Return the origin of the next calls."""
        if self._kept_rows > _KEPT_FACTOR * (self.capacity + batch.num_rows):
            self._compact()
        self._kept_rows += batch.num_rows
        return CallBatch(batch, edge)

    def add(self, call: Call) -> None:
        """Put a call behind all others."""
        segment = self._segments[-1]
        segment.calls[call.number] = call
        call.segment = segment
        self.size += 1
        if call.answer is not None and not self._ordered:
            segment.answered.append(call)

    def add_watermark(self, watermark_ms: int) -> None:
        """Put a watermark behind all calls. One that has no call before it takes the place of the one before."""
        last = self._segments[-1]
        if not last.calls and len(self._segments) > 1:
            self._segments[-2].watermark_ms = watermark_ms
            return
        last.watermark_ms = watermark_ms
        self._segments.append(Segment())

    def complete(self, call: Call, answer: list[Any]) -> None:
        """Note the answer of a call."""
        assert call.segment is not None
        call.answer = answer
        if not self._ordered:
            call.segment.answered.append(call)

    # ---- what leaves --------------------------------------------------------------------------------------------

    def ready(self, calls_max: int) -> list[Call]:
        """Return the calls whose answers may leave now, first to last."""
        segment = self._segments[0]
        if not self._ordered:
            return list(islice(segment.answered, calls_max))
        found = []
        for call in islice(segment.calls.values(), calls_max):
            if call.answer is None:
                break
            found.append(call)
        return found

    def remove(self, calls: Iterable[Call]) -> None:
        """Remove calls whose answers have left: the first of those that `ready` returned."""
        segment = self._segments[0]
        for call in calls:
            del segment.calls[call.number]
            if not self._ordered:
                segment.answered.popleft()
            self.size -= 1
        if not self.size:
            self._kept_rows = 0

    def pop_watermark(self) -> int | None:
        """Remove and return the watermark that no call precedes; None if there is none."""
        segment = self._segments[0]
        if segment.calls or segment.watermark_ms is None:
            return None
        self._segments.popleft()
        return segment.watermark_ms

    # ---- what a snapshot holds ----------------------------------------------------------------------------------

    def calls(self) -> Iterator[Call]:
        """Yield all calls in the order of their rows."""
        for segment in self._segments:
            yield from segment.calls.values()

    def watermarks(self) -> list[tuple[int, int]]:
        """Return (number of calls before it, watermark) of each watermark."""
        found, before = [], 0
        for segment in self._segments:
            before += len(segment.calls)
            if segment.watermark_ms is not None:
                found.append((before, segment.watermark_ms))
        return found

    def _compact(self) -> None:
        """Copy the rows of the calls that wait. Without this: each keeps the batch that it came with."""
        self._kept_rows = 0
        for edge, calls in by_edge(self.calls()).items():
            origin = CallBatch(rows_of(calls), edge)
            self._kept_rows += len(calls)
            for index, call in enumerate(calls):
                call.origin, call.index = origin, index


def by_edge(calls: Iterable[Call]) -> dict[str, list[Call]]:
    """Return the calls by the names of the edges that their rows came through."""
    found: dict[str, list[Call]] = {}
    for call in calls:
        found.setdefault(call.origin.edge, []).append(call)
    return found


def rows_of(calls: Iterable[Call]) -> pa.RecordBatch:
    """Return a batch with the rows of some calls of one edge, at least one."""
    runs: list[tuple[pa.RecordBatch, list[int]]] = []
    for call in calls:
        batch = call.origin.batch
        if runs and runs[-1][0] is batch:
            runs[-1][1].append(call.index)
        else:
            runs.append((batch, [call.index]))
    taken = [batch.take(pa.array(indices, pa.int64())) for batch, indices in runs]
    return taken[0] if len(taken) == 1 else pa.concat_batches(taken)
