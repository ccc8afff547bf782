"""Cuts encoded frames anywhere: those decoded are those sent, and garbage neither crashes nor takes memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.network.connection import Outbox
from penstock.network.frame_codec import CHUNK_BYTES_MAX, HEADER_BYTES, FrameDecoder, FrameError, encode
from penstock.protocol.values.elements import Active, Barrier, ChannelId, EndOfData, Idle, Pauses, Watermark
from penstock.protocol.values.frames import (
    AlignedBarrier,
    CancelBarrier,
    CreditLimit,
    CreditWanted,
    Data,
    Event,
    UrgentBarrier,
)

numbers = st.integers(0, 2**62)
small = st.integers(0, 2**32 - 1)
channels = st.builds(ChannelId, small, small, small)
barriers = st.builds(
    Barrier, numbers, st.none() | st.integers(0, 2**31), st.floats(0, 1e12, allow_nan=False), st.booleans()
)
events = (
    st.builds(Watermark, st.integers(-(2**63), 2**63 - 1))
    | st.builds(Pauses, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
    | st.sampled_from([Idle(), Active(), EndOfData()])
)
frames = st.one_of(
    st.builds(Data, channels, numbers, st.integers(1, 2**31), numbers, st.binary(max_size=300), numbers),
    st.builds(Event, channels, numbers, events),
    st.builds(AlignedBarrier, channels, numbers, barriers),
    st.builds(UrgentBarrier, channels, numbers, numbers, barriers),
    st.builds(CancelBarrier, channels, numbers),
    st.builds(CreditLimit, channels, numbers),
    st.builds(CreditWanted, channels, numbers),
)


def wire_of(*sent: Any) -> bytes:
    """Return what one connection writes for frames that are put one after the other and leave at once."""
    out, wire = Outbox(), bytearray()
    for frame in sent:
        out.put(frame)
        while buffers := out.gather():
            wire += b"".join(buffers)
            out.advance(sum(map(len, buffers)))
    return bytes(wire)


def decoded(wire: bytes, cuts: Iterable[int] = ()) -> list[Any]:
    decoder, found, at = FrameDecoder(), [], 0
    for cut in [*sorted(cuts), len(wire)]:
        if cut > at:
            found += decoder.feed(memoryview(wire)[at:cut])
            at = cut
    return found


@given(st.lists(frames, max_size=6), st.lists(st.integers(0, 2000), max_size=12))
def test_whatever_the_fragments_the_frames_are_those_sent(sent: list[Any], cuts: list[int]) -> None:
    wire = wire_of(*sent)
    assert decoded(wire, [c for c in cuts if c < len(wire)]) == sent


def test_every_single_byte_border() -> None:
    barrier = Barrier(7, 40, 1.5)
    channel = ChannelId(1, 2, 3)
    sent = [UrgentBarrier(channel, 9, 5, barrier), Data(channel, 0, 3, 600, b"rows"), Event(channel, 3, Watermark(-1))]
    wire = wire_of(*sent)
    assert decoded(wire, range(1, len(wire))) == sent


def test_a_large_payload_travels_in_chunks_and_arrives_in_one_piece() -> None:
    payload = bytes(range(256)) * 1000
    frame = Data(ChannelId(0, 0, 1), 10, 1000, len(payload) + 512, payload)
    wire = wire_of(frame)
    assert len(wire) == len(payload) + HEADER_BYTES * -(-len(payload) // CHUNK_BYTES_MAX)
    assert decoded(wire, range(0, len(wire), 1013)) == [frame]


@pytest.mark.parametrize("rows", [1, 100, 100_000])
@pytest.mark.parametrize("step", [777, 1 << 30])
def test_arrow_reads_a_received_payload_in_place(rows: int, step: int) -> None:
    batch = pa.record_batch({"a": pa.array(range(rows), pa.int64()), "s": [str(i) for i in range(rows)]})
    wire = wire_of(Data(ChannelId(0, 0, 1), 0, rows, batch.nbytes, batch.serialize()))
    (frame,) = decoded(wire, range(step, len(wire), step))
    received = pa.py_buffer(frame.payload)
    assert received.address % 16 == 0
    read = pa.ipc.read_record_batch(received, batch.schema)
    assert read.equals(batch)
    start = received.address
    assert start <= read.column(0).buffers()[1].address < start + received.size


def test_the_payload_is_not_copied_on_its_way_out() -> None:
    payload = bytearray(b"x" * 1000)
    _, view = encode(Data(ChannelId(0, 0, 0), 0, 1, 1512, payload))
    assert view is not None
    assert ctypes.addressof(ctypes.c_char.from_buffer(view)) == ctypes.addressof(ctypes.c_char.from_buffer(payload))


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        (b"GET / HTTP/1.1\r\n\r\n" + b" " * 100, "where a frame should start"),
        (b"P!", "where a frame should start"),
        (b"PF\x09" + bytes(60), "version 9"),
        (b"PF\x01\x63" + bytes(60), "unknown kind 99"),
    ],
)
def test_garbage_is_refused(wire: bytes, says: str) -> None:
    with pytest.raises(FrameError, match=says):
        FrameDecoder().feed(memoryview(wire))


def test_a_payload_beyond_the_limit_is_refused_before_memory_is_taken_for_it() -> None:
    wire = wire_of(Data(ChannelId(4, 0, 0), 0, 1, 1, bytes(5000)))
    with pytest.raises(FrameError, match="5000 bytes .* limits are 4096"):
        FrameDecoder(frame_bytes_max=4096).feed(memoryview(wire))


def test_a_continuation_of_nothing_is_refused() -> None:
    wire = wire_of(Data(ChannelId(0, 0, 0), 0, 1, 1, bytes(CHUNK_BYTES_MAX + 1)))
    with pytest.raises(FrameError, match="without a data frame"):
        FrameDecoder().feed(memoryview(wire)[HEADER_BYTES + CHUNK_BYTES_MAX :])


@given(st.binary(min_size=2, max_size=200))
def test_no_bytes_crash_the_decoder(garbage: bytes) -> None:
    decoder = FrameDecoder(frame_bytes_max=1 << 16)
    try:
        decoder.feed(memoryview(garbage))
    except FrameError:
        pass
    else:
        assert garbage[:2] == b"PF"
