"""Encodes `penstock.protocol.values.frames` as bytes: a fixed header, and after it what only some kinds have.

A data frame's payload travels untouched, in chunks of at most `CHUNK_BYTES_MAX`: the first has the frame's header,
the others are continuations. Frames without payload may stand between two chunks; another data frame may not, so a
continuation needs no name. Nothing here is ever unpickled, and nothing but the payload is longer than a header and a
barrier.
"""

from __future__ import annotations

import struct
from typing import Any

from penstock.protocol.values.elements import (
    Active,
    Barrier,
    ChannelId,
    EndOfData,
    Idle,
    InBandEvent,
    Pauses,
    SnapshotKind,
    Watermark,
)
from penstock.protocol.values.frames import (
    AlignedBarrier,
    CancelBarrier,
    CreditLimit,
    CreditWanted,
    Data,
    Event,
    Frame,
    UrgentBarrier,
)

CHUNK_BYTES_MAX = 64 * 1024
FRAME_BYTES_MAX = 1 << 30

_MAGIC = b"PF"
_VERSION = 1

# magic, version, kind, edge, producer, consumer, bytes of this chunk, bytes of the whole payload,
# first | number | position | emitted | checkpoint id | limit | wanted, rows | handed | event tag,
# size in bytes | timestamp | clock, bytes that are wanted | count of pauses
_HEADER = struct.Struct("<2sBBIIIIIqqqq")
HEADER_BYTES = _HEADER.size
# checkpoint id, alignment timeout in ms (-1: none), age in ms, kind of snapshot, id of the predecessor (-1: none)
_BARRIER = struct.Struct("<qqdBq")

_DATA, _CONTINUATION, _EVENT, _ALIGNED_BARRIER, _URGENT_BARRIER, _CANCEL_BARRIER, _CREDIT_LIMIT = range(1, 8)
_CREDIT_WANTED = 8
_WATERMARK, _IDLE, _ACTIVE, _END_OF_DATA, _PAUSES = range(1, 6)


class FrameError(Exception):
    """Signals that the other end does not send our frames: close the connection."""


def encode(frame: Frame) -> tuple[bytes, memoryview | None]:
    """Return the header (of the first chunk, for data) and the payload, which is not copied.

    Raises `FrameError` where a payload is larger than `FRAME_BYTES_MAX`.
    """
    edge, producer, consumer = frame.channel

    def header(kind: int, a: int, b: int = 0, c: int = 0, d: int = 0, chunk: int = 0, total: int = 0) -> bytes:
        return _HEADER.pack(_MAGIC, _VERSION, kind, edge, producer, consumer, chunk, total, a, b, c, d)

    match frame:
        case Data():
            payload = memoryview(frame.payload).cast("B")
            total = len(payload)
            if total > FRAME_BYTES_MAX:
                raise FrameError(f"a batch of {total} bytes on {frame.channel} is larger than {FRAME_BYTES_MAX} bytes")
            chunk = min(total, CHUNK_BYTES_MAX)
            return header(_DATA, frame.first, frame.rows, frame.size_bytes, frame.wanted_bytes, chunk, total), payload
        case CreditLimit():
            return header(_CREDIT_LIMIT, frame.limit_bytes), None
        case CreditWanted():
            return header(_CREDIT_WANTED, frame.wanted_bytes), None
        case Event():
            return header(_EVENT, frame.number, *_encode_event(frame.event)), None
        case UrgentBarrier():
            barrier = _encode_barrier(frame.barrier)
            size = _BARRIER.size
            return header(_URGENT_BARRIER, frame.emitted, frame.handed, 0, 0, size, size) + barrier, None
        case AlignedBarrier():
            barrier = _encode_barrier(frame.barrier)
            size = _BARRIER.size
            return header(_ALIGNED_BARRIER, frame.position, 0, 0, 0, size, size) + barrier, None
        case CancelBarrier():
            return header(_CANCEL_BARRIER, frame.checkpoint_id), None
    raise FrameError(f"{type(frame).__name__} is not a frame")


def continuation(channel: ChannelId, chunk_bytes: int) -> bytes:
    """Return the header of a further chunk of a data frame."""
    return _HEADER.pack(_MAGIC, _VERSION, _CONTINUATION, *channel, chunk_bytes, 0, 0, 0, 0, 0)


def _encode_event(event: InBandEvent) -> tuple[int, int, int]:
    match event:
        case Watermark(timestamp_ms=timestamp_ms):
            return _WATERMARK, timestamp_ms, 0
        case Idle():
            return _IDLE, 0, 0
        case Active():
            return _ACTIVE, 0, 0
        case EndOfData():
            return _END_OF_DATA, 0, 0
        case Pauses(clock, count):
            return _PAUSES, clock, count
    raise FrameError(f"{type(event).__name__} is not an in-band event")


def _encode_barrier(barrier: Barrier) -> bytes:
    timeout_ms = -1 if barrier.alignment_timeout_ms is None else barrier.alignment_timeout_ms
    predecessor_id = -1 if barrier.predecessor_id is None else barrier.predecessor_id
    return _BARRIER.pack(barrier.checkpoint_id, timeout_ms, barrier.age_ms, barrier.kind, predecessor_id)


def _decode_barrier(data: bytes | bytearray) -> Barrier:
    checkpoint_id, timeout_ms, age_ms, number, predecessor_id = _BARRIER.unpack(data)
    try:
        kind = SnapshotKind(number)
    except ValueError:
        raise FrameError(f"a barrier of the unknown kind {number}") from None
    timeout = None if timeout_ms < 0 else timeout_ms
    return Barrier(checkpoint_id, timeout, age_ms, kind, None if predecessor_id < 0 else predecessor_id)


class FrameDecoder:
    """Decodes bytes, in parts of any size, to frames. Each data frame's payload gets a buffer of its own. It starts at
    a multiple of 16 bytes, so that Arrow reads it in place, and keeps nothing else in memory.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._header = bytearray()  # of a chunk whose header has arrived in part
        self._chunk: tuple[int, ChannelId, int, int, int, int] | None = None
        self._chunk_left = 0
        self._small = bytearray()  # what follows the header of a frame that is not data
        self._data: tuple[ChannelId, int, int, int, int] | None = None
        self._payload = bytearray()
        self._filled = 0

    def feed(self, received: memoryview) -> list[Frame]:
        """Return the complete frames. Raises `FrameError` for anything that is not a frame; discard the decoder
        afterwards.
        """
        frames: list[Frame] = []
        at, end = 0, len(received)
        while at < end:
            if self._chunk is None:
                if not self._header and end - at >= HEADER_BYTES:
                    fields = _HEADER.unpack_from(received, at)
                    at += HEADER_BYTES
                else:
                    take = min(HEADER_BYTES - len(self._header), end - at)
                    self._header += received[at : at + take]
                    at += take
                    if len(self._header) < HEADER_BYTES:
                        self._check_start()
                        break
                    fields = _HEADER.unpack(self._header)
                    self._header.clear()
                frame = self._begin(fields, received, at, end)
                if frame is not None:
                    frames.append(frame)
                    at += fields[6]
                    continue
                if self._chunk_left:
                    continue
            else:
                take = min(self._chunk_left, end - at)
                part = received[at : at + take]
                if self._chunk[0] in (_DATA, _CONTINUATION):
                    self._payload[self._filled : self._filled + take] = part
                    self._filled += take
                else:
                    self._small += part
                at += take
                self._chunk_left -= take
                if self._chunk_left:
                    break
            frame = self._end()
            if frame is not None:
                frames.append(frame)
        return frames

    def _check_start(self) -> None:
        start = bytes(self._header[:2])
        if start != _MAGIC[: len(start)]:
            raise FrameError(f"received {start!r} where a frame should start")

    def _begin(self, fields: tuple[Any, ...], received: memoryview, at: int, end: int) -> Frame | None:
        """Start a chunk. A data frame of one chunk that has been received whole is returned at once."""
        magic, version, kind, edge, producer, consumer, chunk, total, a, b, c, d = fields
        if magic != _MAGIC:
            raise FrameError(f"received {magic!r} where a frame should start")
        if version != _VERSION:
            raise FrameError(f"received a frame of version {version}; this process speaks version {_VERSION}")
        channel = ChannelId(edge, producer, consumer)
        if kind == _DATA:
            if self._data is not None:
                raise FrameError(f"a data frame of {channel} began inside one of {self._data[0]}")
            if total > self._frame_bytes_max or chunk > total or chunk > CHUNK_BYTES_MAX or (total and not chunk):
                raise FrameError(
                    f"a data frame of {total} bytes with a chunk of {chunk} on {channel}; the limits are "
                    f"{self._frame_bytes_max} and {CHUNK_BYTES_MAX} bytes"
                )
            if chunk == total <= end - at:
                return Data(channel, a, b, c, bytes(received[at : at + total]), d)
            self._data = (channel, a, b, c, d)
            self._payload = bytearray(total)
            self._filled = 0
        elif kind == _CONTINUATION:
            if self._data is None or self._data[0] != channel:
                raise FrameError(f"a continuation on {channel} without a data frame before it")
            if not 0 < chunk <= min(CHUNK_BYTES_MAX, len(self._payload) - self._filled):
                raise FrameError(f"a chunk of {chunk} bytes on {channel} is longer than what is left of its frame")
        else:
            expected = _BARRIER.size if kind in (_ALIGNED_BARRIER, _URGENT_BARRIER) else 0
            if not _DATA <= kind <= _CREDIT_WANTED or chunk != expected:
                raise FrameError(f"a frame of unknown kind {kind} with {chunk} bytes on {channel}")
        self._chunk = (kind, channel, a, b, c, d)
        self._chunk_left = chunk
        return None

    def _end(self) -> Frame | None:
        assert self._chunk is not None
        kind, channel, a, b, c, d = self._chunk
        self._chunk = None
        if kind in (_DATA, _CONTINUATION):
            if self._filled < len(self._payload):
                return None
            assert self._data is not None
            channel, first, rows, size_bytes, wanted_bytes = self._data
            payload, self._payload, self._data = self._payload, bytearray(), None
            return Data(channel, first, rows, size_bytes, payload, wanted_bytes)
        if kind == _CREDIT_LIMIT:
            return CreditLimit(channel, a)
        if kind == _CREDIT_WANTED:
            return CreditWanted(channel, a)
        if kind == _CANCEL_BARRIER:
            return CancelBarrier(channel, a)
        if kind == _EVENT:
            return Event(channel, a, _decode_event(b, c, d))
        barrier = _decode_barrier(self._small)
        self._small.clear()
        if kind == _ALIGNED_BARRIER:
            return AlignedBarrier(channel, a, barrier)
        return UrgentBarrier(channel, a, b, barrier)


def _decode_event(tag: int, first: int, second: int) -> InBandEvent:
    match tag:
        case 1:
            return Watermark(first)
        case 2:
            return Idle()
        case 3:
            return Active()
        case 4:
            return EndOfData()
        case 5:
            return Pauses(first, second)
    raise FrameError(f"received an in-band event of unknown kind {tag}")
