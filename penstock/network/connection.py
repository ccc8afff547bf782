"""Orders the messages that wait to be sent on one connection (sans-IO).

Urgent frames leave ahead of everything that is not on the wire yet: at most the chunk that has begun is before them. An
urgent frame never passes an aligned barrier of its own channel, or barriers would change places on the channel: while
that barrier waits here, the frame leaves right after it. Everything else leaves in the order in which it came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from penstock.network.frame_codec import CHUNK_BYTES_MAX, continuation, encode
from penstock.protocol.values.elements import ChannelId
from penstock.protocol.values.frames import AlignedBarrier, Data, Frame

# A sendmsg takes at most IOV_MAX (1024) buffers.
_BUFFERS_MAX = 256


class _Barrier:
    """Holds an aligned barrier in the queue, and the urgent frames of its channel that came after it."""

    __slots__ = ("behind", "channel", "header")

    def __init__(self, channel: ChannelId, header: bytes) -> None:
        self.channel = channel
        self.header = header
        self.behind: list[bytes] = []


class _Payload:
    """Holds a data frame: `sent` bytes of its payload have been taken."""

    __slots__ = ("channel", "header", "payload", "sent")

    def __init__(self, channel: ChannelId, header: bytes, payload: memoryview) -> None:
        self.channel = channel
        self.header = header
        self.payload = payload
        self.sent = 0


class Outbox:
    """Queues outgoing frames. Not thread-safe: the owner holds its lock from `gather` to `advance`.

    `gather()` returns what to send next, at most a chunk's worth; `advance(sent)` takes how much of it the socket
    accepted. What has been gathered stays at the front, whatever is put meanwhile.
    """

    def __init__(self) -> None:
        self._taken: deque[memoryview] = deque()
        self._urgent: deque[bytes] = deque()
        self._ordered: deque[bytes | _Barrier | _Payload] = deque()
        self._last_barrier: dict[ChannelId, _Barrier] = {}
        self.queued_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._taken or self._urgent or self._ordered)

    def put(self, frame: Frame) -> None:
        header, payload = encode(frame)
        self.queued_bytes += len(header)
        if frame.urgent:
            barrier = self._last_barrier.get(frame.channel)
            if barrier is None:
                self._urgent.append(header)
            else:
                barrier.behind.append(header)
        elif isinstance(frame, Data):
            assert payload is not None
            self.queued_bytes += len(payload)
            self._ordered.append(_Payload(frame.channel, header, payload))
        elif isinstance(frame, AlignedBarrier):
            barrier = _Barrier(frame.channel, header)
            self._last_barrier[frame.channel] = barrier
            self._ordered.append(barrier)
        else:
            self._ordered.append(header)

    def gather(self) -> list[memoryview]:
        """Return the next buffers; [] if there is nothing to send."""
        taken = self._taken
        size = sum(map(len, taken))
        while size < CHUNK_BYTES_MAX and len(taken) < _BUFFERS_MAX:
            if self._urgent:
                buffers: Iterable[bytes | memoryview] = (self._urgent.popleft(),)
            elif self._ordered:
                buffers = self._take_ordered(self._ordered[0])
            else:
                break
            for buffer in buffers:
                taken.append(memoryview(buffer))
                size += len(buffer)
        return list(taken)

    def advance(self, sent_bytes: int) -> None:
        taken = self._taken
        self.queued_bytes -= sent_bytes
        while sent_bytes:
            first = taken.popleft()
            if sent_bytes < len(first):
                taken.appendleft(first[sent_bytes:])
                return
            sent_bytes -= len(first)

    def _take_ordered(self, item: bytes | _Barrier | _Payload) -> Iterable[bytes | memoryview]:
        if isinstance(item, _Payload):
            chunk = item.payload[item.sent : item.sent + CHUNK_BYTES_MAX]
            if item.sent:
                header = continuation(item.channel, len(chunk))
                self.queued_bytes += len(header)
            else:
                header = item.header
            item.sent += len(chunk)
            if item.sent == len(item.payload):
                self._ordered.popleft()
            return (header, chunk) if chunk else (header,)
        self._ordered.popleft()
        if isinstance(item, _Barrier):
            if self._last_barrier[item.channel] is item:
                del self._last_barrier[item.channel]
            return (item.header, *item.behind)
        return (item,)
