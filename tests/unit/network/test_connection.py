"""Interleaves frames to be sent: urgent ones leave first, and those of each channel stay in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.network.connection import Outbox
from penstock.network.frame_codec import CHUNK_BYTES_MAX, HEADER_BYTES, FrameDecoder
from penstock.protocol.values.elements import Barrier, ChannelId, Watermark
from penstock.protocol.values.frames import (
    AlignedBarrier,
    CancelBarrier,
    CreditLimit,
    Data,
    Event,
    Frame,
    UrgentBarrier,
)

A, B = ChannelId(0, 0, 1), ChannelId(0, 0, 2)


def data(channel: ChannelId, first: int, size: int = 10) -> Data:
    return Data(channel, first, 1, size + 512, bytes(size))


def drain(out: Outbox, wire: bytearray | None = None) -> list[Any]:
    wire = bytearray() if wire is None else wire
    while buffers := out.gather():
        wire += b"".join(buffers)
        out.advance(sum(map(len, buffers)))
    assert out.queued_bytes == 0
    assert not out
    return FrameDecoder().feed(memoryview(bytes(wire)))


def test_urgent_frames_leave_first_and_in_their_order() -> None:
    out = Outbox()
    first, event, barrier = data(A, 0), Event(A, 1, Watermark(5)), UrgentBarrier(A, 2, 2, Barrier(1, 0))
    credit = CreditLimit(B, 100)
    for frame in (first, event, barrier, credit):
        out.put(frame)
    assert drain(out) == [barrier, credit, first, event]


def test_an_urgent_frame_passes_the_chunks_of_a_large_batch() -> None:
    out, wire = Outbox(), bytearray()
    large, after = data(A, 0, 3 * CHUNK_BYTES_MAX), data(A, 1)
    out.put(large)
    out.put(after)
    buffers = out.gather()
    wire += b"".join(buffers)[:1000]
    out.advance(1000)
    barrier = UrgentBarrier(A, 2, 2, Barrier(1, 0))
    out.put(barrier)
    while (buffers := out.gather()) and len(wire) < 2 * CHUNK_BYTES_MAX:
        wire += b"".join(buffers)
        out.advance(sum(map(len, buffers)))
    assert FrameDecoder().feed(memoryview(bytes(wire)))[0] == barrier
    assert drain(out, wire) == [barrier, large, after]


def test_an_urgent_frame_waits_for_the_aligned_barrier_of_its_own_channel_only() -> None:
    out = Outbox()
    aligned = AlignedBarrier(A, 1, Barrier(1, None))
    own, others = UrgentBarrier(A, 3, 3, Barrier(2, 0)), UrgentBarrier(B, 3, 3, Barrier(2, 0))
    cancel = CancelBarrier(A, 1)
    frames: list[Frame] = [data(A, 0), aligned, data(A, 1), own, others, cancel]
    for frame in frames:
        out.put(frame)
    assert drain(out) == [others, data(A, 0), aligned, own, cancel, data(A, 1)]


def test_once_the_aligned_barrier_has_left_urgent_frames_pass_again() -> None:
    out = Outbox()
    out.put(AlignedBarrier(A, 0, Barrier(1, None)))
    drain(out)
    out.put(data(A, 0))
    urgent = UrgentBarrier(A, 1, 1, Barrier(2, 0))
    out.put(urgent)
    assert drain(out) == [urgent, data(A, 0)]


def test_an_urgent_frame_goes_behind_the_last_of_several_aligned_barriers() -> None:
    out = Outbox()
    one, two = AlignedBarrier(A, 0, Barrier(1, None)), AlignedBarrier(A, 1, Barrier(2, None))
    urgent = UrgentBarrier(A, 1, 1, Barrier(3, 0))
    for frame in (one, data(A, 0), two, data(A, 1), urgent):
        out.put(frame)
    assert drain(out) == [one, data(A, 0), two, urgent, data(A, 1)]


steps = st.lists(
    st.tuples(st.sampled_from("dae" + "uc"), st.sampled_from([A, B]), st.integers(0, 150_000))
    | st.tuples(st.just("send"), st.none(), st.integers(1, 100_000)),
    max_size=40,
)


@given(steps)
def test_any_interleaving_of_putting_and_sending_keeps_the_order_of_each_channel(
    script: list[tuple[str, ChannelId, int]],
) -> None:
    out, wire = Outbox(), bytearray()
    put: list[Any] = []
    for number, (what, channel, size) in enumerate(script):
        if what == "send":
            sent = b"".join(out.gather())[:size]
            wire += sent
            out.advance(len(sent))
            continue
        made: dict[str, Callable[[], Frame]] = {
            "d": lambda: data(channel, number, size),
            "a": lambda: AlignedBarrier(channel, number, Barrier(number, None)),
            "e": lambda: Event(channel, number, Watermark(size)),
            "u": lambda: UrgentBarrier(channel, number, number, Barrier(number, 0)),
            "c": lambda: CreditLimit(channel, number),
        }
        frame = made[what]()
        put.append(frame)
        out.put(frame)
    arrived = drain(out, wire)
    assert len(arrived) == len(put)
    assert all(frame in arrived for frame in put)
    for channel in (A, B):
        mine = [f for f in put if f.channel == channel]
        came = [f for f in arrived if f.channel == channel]
        for urgent in (True, False):
            assert [f for f in came if f.urgent == urgent] == [f for f in mine if f.urgent == urgent]
        for frame in mine:
            if isinstance(frame, AlignedBarrier):
                later = [f for f in mine[mine.index(frame) + 1 :] if f.urgent]
                assert all(came.index(frame) < came.index(f) for f in later)


def test_many_small_frames_fit_one_write() -> None:
    out = Outbox()
    for number in range(100):
        out.put(Event(A, number, Watermark(number)))
    assert sum(map(len, out.gather())) == 100 * HEADER_BYTES
