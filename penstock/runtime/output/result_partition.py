"""Implements the output edges of a subtask: queue, send while there is credit, let barriers pass.

Outputs never block in the middle of a slice: what a slice emits is queued in full, and the next slice starts when there
is room again.
"""

from __future__ import annotations

from typing import Any, Callable

import pyarrow as pa

from penstock.common.limits import USUAL, Limits
from penstock.graph.job_graph import Edge
from penstock.operators.batches import compact, joined, message_of, row_type
from penstock.protocol.channel.ends import OutputChannel
from penstock.protocol.channel.flow_control import BoundSizer
from penstock.protocol.values.elements import ChannelId, InBandEvent
from penstock.protocol.values.frames import (
    FRAME_OVERHEAD_BYTES,
    JOINED_FLUSH_BYTES,
    CreditWanted,
    Data,
    Frame,
)
from penstock.runtime.output.routing import Routed, Router

_ROOM_SHARE_MIN = 4
_FLUSHES_PER_BOUND = 16

Send = Callable[[int, Frame], None]
"""(slot, frame): by reference to a subtask of our own slot, over a connection to any other."""


class ResultPartition:
    """Implements one output edge. `slot` is our own; subtask i of every vertex lives in slot i."""

    def __init__(
        self,
        edge: Edge,
        producer: int,
        router: Router,
        slot: int,
        send: Send,
        sizer: BoundSizer,
        initial_credit_bytes: list[int],
        buffer_timeout_ms: float,
        monotonic_ms: Callable[[], float],
        limits: Limits = USUAL,
    ) -> None:
        self.edge = edge
        self.router = router
        self._type = row_type(edge.type)
        self._send = send
        self._sizer = sizer
        self._buffer_timeout_ms = buffer_timeout_ms
        self._monotonic_ms = monotonic_ms
        self.channels = [
            OutputChannel(
                ChannelId(edge.index, producer, consumer),
                credit,
                limits.joined_frame_bytes,
                joined if consumer == slot else message_of,
            )
            for consumer, credit in zip(edge.consumers_of(producer), initial_credit_bytes, strict=True)
        ]
        self.position_of = {c.id: i for i, c in enumerate(self.channels)}
        self._oldest_ms: list[float | None] = [None] * len(self.channels)
        self._none_waits: list[float | None] = [None] * len(self.channels)
        self._held_since_ms: float | None = None
        flush_bytes = limits.joined_flush_bytes
        self._flush_bytes_min = JOINED_FLUSH_BYTES if flush_bytes is None else flush_bytes
        self.queued_bytes = 0
        self.bytes_out = 0

    @property
    def has_room(self) -> bool:
        """Return whether the next slice may start. A few bytes of room are not enough: slices of a row or two would
        result.
        """
        bound_bytes = self._sizer.bound_bytes
        return bound_bytes - self.queued_bytes >= bound_bytes // _ROOM_SHARE_MIN

    @property
    def room_bytes(self) -> int:
        return self._sizer.bound_bytes - self.queued_bytes

    def resize(self, now_ms: float) -> bool:
        """Fit the queue's bound to what has left since the last call. Returns whether it has grown."""
        before_bytes = self._sizer.bound_bytes
        self._sizer.update(self.bytes_out, now_ms)
        return self._sizer.bound_bytes > before_bytes

    @property
    def _flush_bytes(self) -> int:
        """Return the bytes at which a queue is sent although its producer is busy making more. The faster the stream,
        the more: a frame costs both ends as much as a thousand rows of columns.
        """
        return max(self._flush_bytes_min, self._sizer.bound_bytes // _FLUSHES_PER_BOUND)

    @property
    def emitted(self) -> list[int]:
        return [c.emitted for c in self.channels]

    def emit(self, batch: pa.RecordBatch, rows: list[Any] | None, now_ms: float, batch_bytes: int) -> int:
        """Queue all rows of a batch except those that the router holds; return how many bytes were queued. `rows`: the
        same as Python objects, if they exist already. `batch_bytes`: its size, which Arrow computes slowly.
        """
        if rows is None and self.router.needs_rows:
            rows = self._type.decode(batch)
        batches = self.router.route(batch, rows)
        # A router gives the batch itself to all that get rows, or to none.
        are_whole = bool(batches) and batches[0][1] is batch
        emitted_bytes = self._enqueue(batches, batch_bytes, are_whole, now_ms)
        if not self.router.holds:
            self._held_since_ms = None
        elif self._held_since_ms is None:
            self._held_since_ms = now_ms
        return emitted_bytes

    def flush_held(self) -> None:
        """Queue the rows that the router holds: before whatever follows the rows on this edge, and before a
        snapshot."""
        if self._held_since_ms is None:
            return
        batches = self.router.flush_held()
        self._enqueue(batches, sum(batch.nbytes for _, batch in batches), False, self._held_since_ms)
        self._held_since_ms = None

    def _enqueue(self, batches: Routed, parent_bytes: int, are_whole: bool, since_ms: float) -> int:
        """Queue routed rows; return their bytes. `parent_bytes`: of the batch that they are slices of, or, if
        `are_whole`, that each of them is. `since_ms`: when they began to wait.
        """
        emitted_bytes = 0
        for position, batch in batches:
            batch_bytes = parent_bytes
            if not are_whole:
                batch, batch_bytes = compact(batch, parent_bytes)
            emitted_bytes += batch_bytes
            size_bytes = batch_bytes + FRAME_OVERHEAD_BYTES
            self.channels[position].enqueue_rows(batch.num_rows, size_bytes, batch)
            self.queued_bytes += size_bytes
            if self._oldest_ms[position] is None:
                self._oldest_ms[position] = since_ms
        return emitted_bytes

    def emit_event(self, event: InBandEvent) -> None:
        self.flush_held()
        for channel in self.channels:
            channel.enqueue_event(event)
            self._drain(channel)

    def flush(self, now_ms: float, idle: bool) -> float | None:
        """Send the rows that may leave: everything when the subtask is idle, else what is large or old enough. Returns
        when to call again at the latest (what then still waits, waits for credit).
        """
        next_ms: float | None = None
        if self._held_since_ms is not None:
            next_ms = self._held_since_ms + self._buffer_timeout_ms
            if now_ms >= next_ms or (idle and self.has_room):
                self.flush_held()
                next_ms = None
        if self._oldest_ms == self._none_waits:
            return next_ms
        flush_bytes = self._flush_bytes
        for position, channel in enumerate(self.channels):
            oldest_ms = self._oldest_ms[position]
            if oldest_ms is None:
                continue
            due_ms = oldest_ms + self._buffer_timeout_ms
            if idle or now_ms >= due_ms or channel.queued_bytes >= flush_bytes:
                self._drain(channel)
                if not channel.queue:
                    self._oldest_ms[position] = None
            elif not channel.queue:
                self._oldest_ms[position] = None
            elif next_ms is None or due_ms < next_ms:
                next_ms = due_ms
        return next_ms

    def grant(self, channel: ChannelId, limit_bytes: int) -> None:
        """Send the rows that waited for this credit."""
        output = self.channels[self.position_of[channel]]
        output.grant(limit_bytes)
        if output.queue:
            self._drain(output)

    def _drain(self, channel: OutputChannel) -> None:
        consumer_slot = channel.id.consumer
        joined_bytes = 2 * self._flush_bytes
        now_ms = self._monotonic_ms()
        while (frame := channel.pop(now_ms, joined_bytes)) is not None:
            if isinstance(frame, Data):
                self.queued_bytes -= frame.size_bytes
                self.bytes_out += frame.size_bytes
            self._send(consumer_slot, frame)
        if (wanted_bytes := channel.credit_wanted()) is not None:
            self._send(consumer_slot, CreditWanted(channel.id, wanted_bytes))

    def send_queued(self, position: int) -> None:
        """Send the sendable part of one consumer's queue, which ends with a barrier."""
        self._drain(self.channels[position])
