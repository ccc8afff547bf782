"""Implements the two ends of a channel: numbered elements, barriers among them, credit, and what a checkpoint captures.

Both ends are owned by one subtask each, and everything that arrives for a subtask arrives through its one mailbox, in
order. So nothing here is shared between threads, and "pop to send" and "turn unaligned" exclude each other because
they are calls of the same owner.

What a checkpoint N captures is arithmetic. The producer's snapshot fixes `emitted`, the consumer's fixes `applied`,
and what is in flight in N is exactly [applied, emitted). An unaligned barrier says `handed`, the first number that
the producer has not handed to the connection yet: the producer stores [handed, emitted), which it still has, and the
consumer stores [applied, handed), which it has or is about to receive. The window at the consumer closes at that
number, never at the arrival of a frame: urgent barriers overtake frames that are on their way.

An aligned barrier stands in the queue in its place, and has no number. It can be *turned* at either end: taken out of
the queue and treated as if it had been urgent, with its place as `emitted`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple, cast

import msgspec

from penstock.protocol.channel.captured import Captured
from penstock.protocol.values.elements import WATERMARK_MAX_MS, Barrier, ChannelId, InBandEvent, Watermark
from penstock.protocol.values.frames import AlignedBarrier, Data, Event, UrgentBarrier

JOINED_FRAME_BYTES = 32 * 1024
"""Neighbouring rows of a queue leave as one frame up to about this size."""


class ProtocolError(Exception):
    """Signals that the other end, or our own runtime, broke a rule of the protocol. It names the channel and ends the
    generation.
    """


class Overtaken(NamedTuple):
    """Describes a barrier that leaves a queue ahead of `captured`, which the producer stores. `frame` is None for a
    purely aligned barrier: it may not capture anything, so its checkpoint has to be declined and the consumer notified.
    """

    barrier: Barrier
    frame: UrgentBarrier | None
    captured: Captured


class OutputChannel:
    """Holds the producer's end of a channel: what is queued, and what the consumer's credit still allows.

    Elements below `handed` were handed to the connection, those in [handed, emitted) are in `queue`. `sent_bytes` and
    `limit_bytes` count from the generation's start, so a limit that comes late or twice does no harm. Neighbouring rows
    leave as one frame up to `joined_frame_bytes` (JOINED_FRAME_BYTES).
    """

    __slots__ = (
        "id", "emitted", "handed", "queue", "queued_bytes", "sent_bytes", "limit_bytes", "_wanted_bytes", "_fixed",
        "_barriers", "_triggered_ms", "_joined_frame_bytes", "_join",
    )  # fmt: skip

    def __init__(
        self,
        channel: ChannelId,
        initial_credit_bytes: int,
        joined_frame_bytes: int | None = None,
        join: Callable[[list[Any]], Any] = list,
    ) -> None:
        self.id = channel
        self._join = join
        self._joined_frame_bytes = JOINED_FRAME_BYTES if joined_frame_bytes is None else joined_frame_bytes
        self.emitted = 0
        self.handed = 0
        self.queue: deque[Data | Event | AlignedBarrier] = deque()
        self.queued_bytes = 0
        self.sent_bytes = 0
        self.limit_bytes = initial_credit_bytes
        self._wanted_bytes = 0
        """The credit that the consumer knows to be wanted."""
        self._fixed = 0
        """The number that the newest snapshot has fixed as `emitted`: elements below it may not change any more."""
        self._barriers = 0
        """The number of aligned barriers in the queue."""
        self._triggered_ms: dict[int, float] = {}
        """checkpoint -> when it was triggered, of the barriers in the queue"""

    def enqueue_rows(self, rows: int, size_bytes: int, payload: Any) -> None:
        self.queue.append(Data(self.id, self.emitted, rows, size_bytes, payload))
        self.queued_bytes += size_bytes
        # 1.1: each row has the next number of its channel.
        self.emitted += rows

    def enqueue_event(self, event: InBandEvent) -> None:
        """Append an in-band event. Adjacent watermarks merge into the number of the first, but only above the numbers
        that a snapshot has fixed: an element below them already is in a checkpoint with its old value.
        """
        last = self.queue[-1] if self.queue else None
        # 5.8: the last watermark stays apart, for the one before it counts where all others are idle.
        if (
            isinstance(event, Watermark)
            and event.timestamp_ms != WATERMARK_MAX_MS
            and isinstance(last, Event)
            and isinstance(last.event, Watermark)
            and last.number >= self._fixed
        ):
            self.queue[-1] = Event(self.id, last.number, event)
            return
        self.queue.append(Event(self.id, self.emitted, event))
        self.emitted += 1

    def enqueue_barrier(self, barrier: Barrier, now_ms: float) -> None:
        """Put an aligned barrier in its place."""
        waiting = (e.barrier for e in self.queue if isinstance(e, AlignedBarrier)) if self._barriers else ()
        if any(b.checkpoint_id >= barrier.checkpoint_id for b in waiting):
            raise ProtocolError(f"channel {self.id}: barrier {barrier.checkpoint_id} behind a newer or equal one")
        self.queue.append(AlignedBarrier(self.id, self.emitted, barrier))
        self._triggered_ms[barrier.checkpoint_id] = now_ms - barrier.age_ms
        self._barriers += 1
        self._fixed = self.emitted

    def overtake(self, barrier: Barrier) -> list[Overtaken]:
        """Send an unaligned barrier ahead of everything. Older barriers in the queue are turned first, in order."""
        # 2.1: older barriers of the queue turn first, in order.
        turned = [self._turn(e.barrier) for e in list(self.queue) if isinstance(e, AlignedBarrier)]
        captured = Captured()
        for element in cast("deque[Data | Event]", self.queue):  # no barriers are left in it
            captured.add(element, self.handed, None)
        self._fixed = self.emitted
        turned.append(Overtaken(barrier, UrgentBarrier(self.id, self.emitted, self.handed, barrier), captured))
        return turned

    def turn(self, checkpoint_id: int) -> list[Overtaken]:
        """Turn this barrier and all older ones unaligned, because its alignment timeout has passed here. Returns what
        they overtook; empty if the barrier has left the queue already.
        """
        waiting = [e.barrier for e in self.queue if isinstance(e, AlignedBarrier)]
        if all(b.checkpoint_id != checkpoint_id for b in waiting):
            return []
        return [self._turn(b) for b in waiting if b.checkpoint_id <= checkpoint_id]

    def _turn(self, barrier: Barrier) -> Overtaken:
        captured = Captured()
        for place, element in enumerate(self.queue):
            if isinstance(element, AlignedBarrier):
                if element.barrier.checkpoint_id != barrier.checkpoint_id:
                    continue
                del self.queue[place]
                self._forget(barrier)
                if barrier.alignment_timeout_ms is None:
                    return Overtaken(barrier, None, Captured())
                frame = UrgentBarrier(self.id, element.position, self.handed, barrier)
                return Overtaken(barrier, frame, captured)
            # 2.2: what stands before the barrier belongs to the checkpoint.
            captured.add(element, self.handed, None)
        raise ProtocolError(f"channel {self.id}: barrier {barrier.checkpoint_id} is not in the queue")

    def drop_barrier(self, checkpoint_id: int) -> bool:
        """Remove the barrier of an ended checkpoint from the queue. Returns False if it has left already."""
        for place, element in enumerate(self.queue):
            if isinstance(element, AlignedBarrier) and element.barrier.checkpoint_id == checkpoint_id:
                del self.queue[place]
                self._forget(element.barrier)
                return True
        return False

    def _forget(self, barrier: Barrier) -> None:
        self._barriers -= 1
        del self._triggered_ms[barrier.checkpoint_id]

    def holds_barrier(self, checkpoint_id: int) -> bool:
        return self._barriers > 0 and any(
            isinstance(e, AlignedBarrier) and e.barrier.checkpoint_id == checkpoint_id for e in self.queue
        )

    def grant(self, limit_bytes: int) -> None:
        """Accept a credit limit from the consumer. Limits never fall, so repeated and late ones are harmless."""
        if limit_bytes > self.limit_bytes:
            self.limit_bytes = limit_bytes

    def credit_wanted(self) -> int | None:
        """Return the credit that all rows need, sent ones included, if rows wait for credit and the consumer cannot
        know it from what it was told. Ask when nothing more may leave.
        """
        if not self.queued_bytes or self.sent_bytes < self.limit_bytes or self._wanted_bytes > self.sent_bytes:
            return None
        self._wanted_bytes = self.sent_bytes + self.queued_bytes
        return self._wanted_bytes

    def pop(self, now_ms: float, joined_bytes: int = 0) -> Data | Event | AlignedBarrier | None:
        """Return the next frame to hand to the connection; None without elements or without credit for them.

        The time that a barrier has waited here is added to its age, because the alignment timeout counts from the
        trigger. Without this: the timeout starts again at every vertex whose output queue is full.

        One batch may leave whenever any credit is left, so that a large row passes a small window. Neighbouring rows
        leave together as far as the credit lasts, up to `joined_bytes` where that is more than a frame's usual size.
        """
        if not self.queue:
            return None
        element = self.queue[0]
        if not isinstance(element, Data):
            self.queue.popleft()
            if isinstance(element, Event):
                self.handed = element.number + 1
                return element
            age_ms = now_ms - self._triggered_ms[element.barrier.checkpoint_id]
            self._forget(element.barrier)
            return AlignedBarrier(self.id, element.position, msgspec.structs.replace(element.barrier, age_ms=age_ms))
        if self.sent_bytes >= self.limit_bytes:
            return None
        first, size_bytes, rows = element.first, 0, 0
        joined_bytes = min(max(joined_bytes, self._joined_frame_bytes), self.limit_bytes - self.sent_bytes)
        payloads: list[Any] = []
        while self.queue and isinstance(element := self.queue[0], Data):
            if payloads and size_bytes + element.size_bytes > joined_bytes:
                break
            self.queue.popleft()
            payloads.append(element.payload)
            size_bytes += element.size_bytes
            rows += element.rows
        self.queued_bytes -= size_bytes
        self.sent_bytes += size_bytes
        self.handed = first + rows
        wanted_bytes = 0
        if self.queued_bytes:
            wanted_bytes = self._wanted_bytes = self.sent_bytes + self.queued_bytes
        return Data(self.id, first, rows, size_bytes, self._join(payloads), wanted_bytes)


@dataclass(slots=True)
class Window:
    """Describes the elements of one channel that a consumer stores for one checkpoint: [start, until). It is open until
    `until` is known and everything below it has been received.
    """

    checkpoint_id: int
    start: int
    until: int | None
    captured: Captured = field(default_factory=Captured)


class InputChannel:
    """Holds the consumer's end of a channel. It always has a window of `window_bytes`, which may be 0; what it needs
    beyond that it gets from `pool`. `changed` is called whenever the pool has to look at it again.
    """

    __slots__ = (
        "id", "received", "applied", "queue", "queued_bytes", "window_bytes", "granted_bytes", "received_bytes",
        "wanted_bytes", "applied_bytes", "_head_taken", "windows", "blocked_by", "changed",
    )  # fmt: skip

    def __init__(self, channel: ChannelId, window_bytes: int) -> None:
        self.id = channel
        self.received = 0
        self.applied = 0
        self.queue: deque[Data | Event | AlignedBarrier] = deque()
        self.queued_bytes = 0
        self.window_bytes = window_bytes
        self.granted_bytes = window_bytes
        self.received_bytes = 0
        self.wanted_bytes = 0
        """The credit of all rows that the producer has reported, received ones included."""
        self.applied_bytes = 0
        self._head_taken = 0
        self.windows: dict[int, Window] = {}
        """By checkpoint: what is captured for it."""
        self.blocked_by: set[int] = set()
        """Checkpoints whose barrier was reached here, and not on all other channels yet."""
        self.changed: Callable[[InputChannel], None] = _nobody_shares

    def receive(self, element: Data | Event) -> Sequence[int]:
        """Queue rows or an event; return the checkpoints whose window this closed."""
        first = element.first if isinstance(element, Data) else element.number
        if first != self.received:
            raise ProtocolError(f"channel {self.id}: expected element {self.received}, got {first}")
        self.queue.append(element)
        if isinstance(element, Data):
            self.received += element.rows
            self.queued_bytes += element.size_bytes
            self.received_bytes += element.size_bytes
            self.want(max(element.wanted_bytes, self.received_bytes))
        else:
            self.received += 1
        if not self.windows:
            return ()
        closed = []
        for window in self.windows.values():
            window.captured.add(element, window.start, window.until)
            if window.until is not None and self.received >= window.until:
                closed.append(window.checkpoint_id)
        return closed

    def receive_barrier(self, frame: AlignedBarrier) -> None:
        if frame.position != self.received:
            raise ProtocolError(f"channel {self.id}: barrier at {frame.position}, but {self.received} elements came")
        self.queue.append(frame)

    def want(self, wanted_bytes: int) -> None:
        """Accept the total that the producer wants to send, in bytes. It never falls, so repeated and late ones are
        harmless."""
        self.wanted_bytes = max(self.wanted_bytes, wanted_bytes)
        self.changed(self)

    @property
    def blocked(self) -> bool:
        return bool(self.blocked_by)

    def block(self, checkpoint_id: int) -> None:
        self.blocked_by.add(checkpoint_id)
        self.changed(self)

    def unblock(self, checkpoint_id: int) -> None:
        self.blocked_by.discard(checkpoint_id)
        self.changed(self)

    def head(self) -> Data | Event | AlignedBarrier | None:
        """Return the next element or barrier; None if there is none, or if the channel is blocked."""
        # 2.6: a blocked channel has no head.
        return self.queue[0] if self.queue and not self.blocked_by else None

    @property
    def head_skip(self) -> int:
        """Return the number of rows of the head that have been applied already."""
        return self._head_taken

    def apply_rows(self, rows: int) -> None:
        """Record that `rows` more rows of the head have been applied."""
        element = self.queue[0]
        if not isinstance(element, Data) or self._head_taken + rows > element.rows:
            raise ProtocolError(f"channel {self.id}: {rows} rows applied that are not there")
        self.applied += rows
        self._head_taken += rows
        if self._head_taken == element.rows:
            self.queue.popleft()
            self._head_taken = 0
            self.queued_bytes -= element.size_bytes
            self.applied_bytes += element.size_bytes
            self.changed(self)

    def apply_event(self) -> InBandEvent:
        """Take the event at the head."""
        event = self.queue.popleft()
        if not isinstance(event, Event):
            raise ProtocolError(f"channel {self.id}: the head is no event")
        self.applied += 1
        return event.event

    def pass_barrier(self) -> AlignedBarrier:
        """Take the barrier at the head: it has been reached."""
        barrier = self.queue.popleft()
        if not isinstance(barrier, AlignedBarrier):
            raise ProtocolError(f"channel {self.id}: the head is no barrier")
        return barrier

    def take_out_barrier(self, checkpoint_id: int) -> None:
        """Remove a barrier that was turned, or whose checkpoint has ended, from its place in the queue."""
        for place, element in enumerate(self.queue):
            if isinstance(element, AlignedBarrier) and element.barrier.checkpoint_id == checkpoint_id:
                del self.queue[place]
                return

    def open_window(self, checkpoint_id: int, until: int | None) -> bool:
        """Start to capture from `applied` on; return whether the window is closed already."""
        if until is not None and until < self.applied:
            raise ProtocolError(f"channel {self.id}: checkpoint {checkpoint_id} ends at {until} before {self.applied}")
        window = Window(checkpoint_id, self.applied, until)
        for element in self.queue:
            if not isinstance(element, AlignedBarrier):
                window.captured.add(element, window.start, until)
        self.windows[checkpoint_id] = window
        return until is not None and self.received >= until

    def limit_window(self, checkpoint_id: int, until: int) -> bool:
        """Set the number at which the window ends, because the barrier has come. Returns whether the window is
        closed.
        """
        window = self.windows[checkpoint_id]
        if until < window.start:
            raise ProtocolError(f"channel {self.id}: checkpoint {checkpoint_id} ends at {until} before {window.start}")
        window.until = until
        # 1.2: the consumer stores up to `handed`; what lies behind is stored by the producer.
        window.captured.trim(until)
        return self.received >= until

    def take_window(self, checkpoint_id: int) -> Captured:
        """Return the captured elements of a closed window, and forget the window."""
        return self.windows.pop(checkpoint_id).captured

    def discard_window(self, checkpoint_id: int) -> None:
        self.windows.pop(checkpoint_id, None)

    def credit_due(self) -> int | None:
        """Return the limit to grant, once at least a quarter of the window has been applied since the last one. Until
        then the producer has three quarters of a window, so an idle consumer needs no other rule.
        """
        # 4.1: the limit is absolute, and never falls.
        limit = self.applied_bytes + self.window_bytes
        if self.window_bytes and limit - self.granted_bytes >= max(1, self.window_bytes // 4):
            self.granted_bytes = limit
            return limit
        return None


def _nobody_shares(channel: InputChannel) -> None:
    """Ignore the change: the channel has a window of its own only."""
