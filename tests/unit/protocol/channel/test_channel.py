"""Tests both ends of a channel, against Flink's facts of the sender's side (reference 7.10) and our rules of numbers.

Where ours differs from Flink on purpose: data behind an aligned barrier leaves at once (the receiver does not read on,
and the window bounds what waits there), so there is nothing to resume at the sender; in-band events are numbered, and
captured like rows; the sender of a timeoutable barrier has no future that a second barrier could fail.
"""

from __future__ import annotations

import pytest

from penstock.protocol.channel.captured import Captured
from penstock.protocol.channel.ends import (
    JOINED_FRAME_BYTES,
    InputChannel,
    OutputChannel,
    Overtaken,
    ProtocolError,
)
from penstock.protocol.values.elements import Active, Barrier, ChannelId, EndOfData, Idle, Watermark
from penstock.protocol.values.frames import AlignedBarrier, Data, Event, UrgentBarrier

CHANNEL = ChannelId(3, 1, 2)


def outlet(credit_bytes: int = 1 << 30) -> OutputChannel:
    return OutputChannel(CHANNEL, credit_bytes)


def inlet(window_bytes: int = 1 << 30) -> InputChannel:
    return InputChannel(CHANNEL, window_bytes)


def rows(first: int, count: int, size_bytes: int = 100) -> Data:
    return Data(CHANNEL, first, count, size_bytes, f"rows {first}")


def summary(captured: Captured) -> list[tuple[int, int]]:
    """(first, rows) of rows, (number, -1) of events, in order of numbers."""
    return sorted([(r.first, r.rows) for r in captured.rows] + [(n, -1) for n, _ in captured.events])


def payload(frame: object) -> object:
    assert isinstance(frame, Data)
    return frame.payload


def watermarks(out: OutputChannel) -> list[int]:
    """Return the timestamps of a queue that holds nothing but watermarks."""
    found = []
    for element in out.queue:
        assert isinstance(element, Event) and isinstance(element.event, Watermark)
        found.append(element.event.timestamp_ms)
    return found


def urgent(turned: Overtaken) -> UrgentBarrier:
    assert turned.frame is not None
    return turned.frame


# ---- the producer's end -----------------------------------------------------------------------------------------


def test_elements_are_numbered_when_they_are_queued() -> None:
    out = outlet()
    out.enqueue_rows(3, 100, "a")
    out.enqueue_event(Watermark(7))
    out.enqueue_rows(2, 100, "b")
    assert out.emitted == 6 and out.handed == 0
    assert out.pop(0.0) == Data(CHANNEL, 0, 3, 100, ["a"], 200)
    assert out.handed == 3
    assert out.pop(0.0) == Event(CHANNEL, 3, Watermark(7))
    assert out.pop(0.0) == Data(CHANNEL, 4, 2, 100, ["b"])
    assert out.handed == 6 and out.pop(0.0) is None and out.queued_bytes == 0


def test_small_neighbours_leave_as_one_frame_up_to_its_size() -> None:
    out = outlet()
    for i in range(5):
        out.enqueue_rows(1, JOINED_FRAME_BYTES // 2, i)
    assert [payload(out.pop(0.0)) for _ in range(3)] == [[0, 1], [2, 3], [4]]
    out.enqueue_rows(1, 10 * JOINED_FRAME_BYTES, "large")
    out.enqueue_rows(1, 1, "small")
    assert [payload(out.pop(0.0)) for _ in range(2)] == [["large"], ["small"]], "a large one leaves alone, never split"


def test_an_unaligned_barrier_overtakes_the_queue_and_all_of_it_is_captured() -> None:
    """testBarrierOvertaking; the event is captured, too, because it has a number here."""
    out = outlet()
    out.enqueue_rows(1, 100, "1")
    out.enqueue_rows(2, 100, "2")
    out.enqueue_event(Idle())
    out.enqueue_rows(4, 100, "4")
    ((barrier, frame, captured),) = out.overtake(Barrier(1, 0))
    assert frame == UrgentBarrier(CHANNEL, 8, 0, Barrier(1, 0)) and barrier.checkpoint_id == 1
    assert summary(captured) == [(0, 1), (1, 2), (3, -1), (4, 4)]
    left = [type(f).__name__ for f in iter(lambda: out.pop(0.0), None)]
    assert left == ["Data", "Event", "Data"], "the queue is as it was"


def test_what_was_handed_over_is_left_to_the_consumer() -> None:
    """The connection has taken [0, 2): the barrier says so, and only the rest is captured here."""
    out = outlet()
    out.enqueue_rows(2, 100, "a")
    out.pop(0.0)
    out.enqueue_rows(3, 100, "b")
    ((_, frame, captured),) = out.overtake(Barrier(1, 0))
    assert frame is not None and (frame.emitted, frame.handed) == (5, 2)
    assert summary(captured) == [(2, 3)]


def test_an_aligned_barrier_leaves_in_its_place_without_credit() -> None:
    """testConsumeTimeoutableCheckpointBarrierQuickly."""
    out = outlet()
    out.enqueue_rows(3, 100, "a")
    out.enqueue_barrier(Barrier(1, 100), 0.0)
    out.enqueue_rows(1, 100, "b")
    assert out.holds_barrier(1) and not out.holds_barrier(2)
    assert isinstance(out.pop(0.0), Data)
    assert out.pop(0.0) == AlignedBarrier(CHANNEL, 3, Barrier(1, 100))
    assert not out.holds_barrier(1)
    assert out.turn(1) == [], "its deadline comes too late, and finds nothing to turn"
    assert out.pop(0.0) == Data(CHANNEL, 3, 1, 100, ["b"]), "data behind it does not wait here"


def test_a_timed_out_barrier_captures_what_stands_before_it_and_no_more() -> None:
    """testTimeoutAlignedToUnalignedBarrier."""
    out = outlet()
    out.enqueue_rows(1, 100, "a")
    out.enqueue_rows(1, 100, "b")
    out.enqueue_barrier(Barrier(1, 100), 0.0)
    out.enqueue_rows(5, 100, "after")
    ((_, frame, captured),) = out.turn(1)
    assert frame == UrgentBarrier(CHANNEL, 2, 0, Barrier(1, 100)), "its cut is its place"
    assert summary(captured) == [(0, 1), (1, 1)]
    assert out.pop(0.0) == Data(CHANNEL, 0, 7, 300, ["a", "b", "after"]), "the rows leave once"
    assert out.turn(1) == []


def test_turning_one_turns_older_ones_first_and_leaves_newer_ones() -> None:
    out = outlet()
    for checkpoint_id in (1, 2, 3):
        out.enqueue_rows(1, 100, "x")
        out.enqueue_barrier(Barrier(checkpoint_id, 100), 0.0)
    turned = out.turn(2)
    assert [(t.barrier.checkpoint_id, urgent(t).emitted, summary(t.captured)) for t in turned] == [
        (1, 1, [(0, 1)]),
        (2, 2, [(0, 1), (1, 1)]),
    ]
    assert out.holds_barrier(3)
    later = out.overtake(Barrier(4, 0))
    assert [t.barrier.checkpoint_id for t in later] == [3, 4]


def test_a_purely_aligned_barrier_is_not_turned_but_refused() -> None:
    out = outlet()
    out.enqueue_rows(1, 100, "x")
    out.enqueue_barrier(Barrier(1, None), 0.0)
    refused, urgent = out.overtake(Barrier(2, 0))
    assert refused.frame is None and not refused.captured
    assert urgent.barrier.checkpoint_id == 2 and summary(urgent.captured) == [(0, 1)]


def test_barriers_never_pass_each_other_and_come_once() -> None:
    out = outlet()
    out.enqueue_barrier(Barrier(2, 100), 0.0)
    for checkpoint_id in (1, 2):
        with pytest.raises(ProtocolError, match="behind a newer or equal one"):
            out.enqueue_barrier(Barrier(checkpoint_id, 100), 0.0)
    assert out.drop_barrier(2) and not out.drop_barrier(2)
    assert out.pop(0.0) is None


def test_priority_on_an_empty_queue_captures_nothing() -> None:
    """testAvailabilityAfterPriority."""
    out = outlet()
    ((_, frame, captured),) = out.overtake(Barrier(1, 0))
    assert frame is not None and (frame.emitted, frame.handed) == (0, 0)
    assert not captured


def test_neighbouring_watermarks_merge_into_the_number_of_the_first() -> None:
    out = outlet()
    out.enqueue_event(Watermark(1))
    out.enqueue_event(Watermark(5))
    assert (out.emitted, list(out.queue)) == (1, [Event(CHANNEL, 0, Watermark(5))])
    out.enqueue_event(Idle())
    out.enqueue_event(Active())
    out.enqueue_event(Watermark(6))
    out.enqueue_rows(1, 100, "x")
    out.enqueue_event(Watermark(7))
    assert [e.number for e in out.queue if isinstance(e, Event)] == [0, 1, 2, 3, 5]


def test_a_watermark_that_a_snapshot_has_fixed_keeps_its_value() -> None:
    """N stored number 0 as watermark 1; merged, the same number would mean 5 for the consumer."""
    out = outlet()
    out.enqueue_event(Watermark(1))
    out.overtake(Barrier(1, 0))
    out.enqueue_event(Watermark(5))
    assert watermarks(out) == [1, 5]
    turned = outlet()
    turned.enqueue_event(Watermark(1))
    turned.enqueue_barrier(Barrier(1, 100), 0.0)
    turned.turn(1)
    turned.enqueue_event(Watermark(5))
    assert watermarks(turned) == [1, 5]


def test_one_frame_leaves_while_any_credit_is_left_and_events_and_barriers_need_none() -> None:
    out = outlet(credit_bytes=10)
    out.enqueue_rows(1, 50_000, "large")
    out.enqueue_rows(1, 50_000, "next")
    out.enqueue_event(EndOfData())
    assert payload(out.pop(0.0)) == ["large"]
    assert out.pop(0.0) is None
    out.grant(50_000)
    assert out.pop(0.0) is None, "all of that has been used already"
    out.grant(40_000)
    out.grant(50_001)
    assert payload(out.pop(0.0)) == ["next"], "an old limit that comes late changes nothing"
    assert isinstance(out.pop(0.0), Event)
    out.enqueue_barrier(Barrier(1, None), 0.0)
    assert isinstance(out.pop(0.0), AlignedBarrier)


# ---- the consumer's end -----------------------------------------------------------------------------------------


def test_elements_arrive_in_their_order_or_not_at_all() -> None:
    into = inlet()
    into.receive(rows(0, 3))
    into.receive(Event(CHANNEL, 3, Idle()))
    for wrong in (rows(3, 1), rows(5, 1), Event(CHANNEL, 5, Idle())):
        with pytest.raises(ProtocolError, match=r"ChannelId\(edge=3, producer=1, consumer=2\): expected element 4"):
            into.receive(wrong)
    with pytest.raises(ProtocolError, match="barrier at 9, but 4 elements came"):
        into.receive_barrier(AlignedBarrier(CHANNEL, 9, Barrier(1, None)))


def test_what_is_applied_is_what_is_at_the_head() -> None:
    into = inlet()
    into.receive(rows(0, 3))
    into.receive(Event(CHANNEL, 3, Watermark(9)))
    with pytest.raises(ProtocolError, match="4 rows applied that are not there"):
        into.apply_rows(4)
    into.apply_rows(2)
    assert (into.applied, into.head_skip, into.queued_bytes) == (2, 2, 100)
    with pytest.raises(ProtocolError, match="2 rows applied that are not there"):
        into.apply_rows(2)
    into.apply_rows(1)
    assert (into.applied, into.head_skip, into.queued_bytes) == (3, 0, 0)
    with pytest.raises(ProtocolError, match="1 rows applied that are not there"):
        into.apply_rows(1)
    assert into.apply_event() == Watermark(9)
    assert into.applied == into.received == 4


def test_a_blocked_channel_has_no_head_until_every_checkpoint_lets_go() -> None:
    into = inlet()
    into.receive(rows(0, 1))
    into.blocked_by |= {1, 2}
    assert into.head() is None
    into.blocked_by.discard(1)
    assert into.blocked and into.head() is None
    into.blocked_by.discard(2)
    assert into.head() is not None


def test_a_window_holds_what_is_queued_and_what_still_comes_until_its_number() -> None:
    into = inlet()
    into.receive(rows(0, 4))
    into.apply_rows(1)
    assert not into.open_window(1, None)
    into.receive(Event(CHANNEL, 4, Idle()))
    assert into.receive(rows(5, 3)) == []
    assert not into.limit_window(1, 10)
    assert into.receive(rows(8, 4)) == [1], "closed by the number, in the middle of a frame"
    captured = into.take_window(1)
    assert summary(captured) == [(1, 3), (4, -1), (5, 3), (8, 2)]
    assert captured.rows[0].skip == 1, "the row that had been applied is skipped in the payload"
    assert not into.windows


def test_a_window_that_is_full_when_its_number_comes_is_trimmed() -> None:
    into = inlet()
    assert not into.open_window(1, None)
    into.receive(rows(0, 4))
    into.receive(Event(CHANNEL, 4, Idle()))
    into.receive(rows(5, 2))
    assert into.limit_window(1, 3)
    assert summary(into.take_window(1)) == [(0, 3)]


def test_a_window_with_its_number_known_may_be_closed_from_the_start() -> None:
    into = inlet()
    into.receive(rows(0, 4))
    assert into.open_window(1, 2)
    assert summary(into.take_window(1)) == [(0, 2)]
    into.apply_rows(3)
    assert into.open_window(2, 3)
    assert not into.take_window(2)


def test_windows_of_several_checkpoints_are_apart_and_one_can_be_dropped() -> None:
    into = inlet()
    into.receive(rows(0, 2))
    into.open_window(1, 5)
    into.apply_rows(1)
    into.open_window(2, 6)
    into.open_window(3, 7)
    into.discard_window(3)
    assert into.receive(rows(2, 3)) == [1]
    assert summary(into.take_window(1)) == [(0, 2), (2, 3)]
    assert into.receive(rows(5, 3)) == [2]
    assert summary(into.take_window(2)) == [(1, 1), (2, 3), (5, 1)]
    into.discard_window(3)


def test_a_cut_below_what_is_applied_is_an_error_by_name() -> None:
    into = inlet()
    into.receive(rows(0, 4))
    into.apply_rows(3)
    with pytest.raises(ProtocolError, match="checkpoint 1 ends at 2 before 3"):
        into.open_window(1, 2)
    into.open_window(2, None)
    with pytest.raises(ProtocolError, match="checkpoint 2 ends at 2 before 3"):
        into.limit_window(2, 2)


def test_an_aligned_barrier_is_no_element() -> None:
    into = inlet()
    into.receive(rows(0, 1))
    into.receive_barrier(AlignedBarrier(CHANNEL, 1, Barrier(1, 100)))
    into.receive(rows(1, 1))
    into.open_window(2, None)
    assert summary(into.windows[2].captured) == [(0, 1), (1, 1)]
    into.take_out_barrier(1)
    into.take_out_barrier(1)
    into.apply_rows(1)
    into.apply_rows(1)
    assert into.head() is None and into.applied == 2


def test_credit_follows_what_is_applied_and_never_falls() -> None:
    into = inlet(window_bytes=1_000)
    for i in range(4):
        into.receive(rows(i, 1, size_bytes=200))
    into.apply_rows(1)
    assert into.credit_due() is None, "not for a fifth of the window"
    into.apply_rows(1)
    assert into.credit_due() == 1_400
    assert into.credit_due() is None, "each limit is told once"
    into.window_bytes = 100
    into.apply_rows(1)
    assert into.credit_due() is None, "a window that has shrunk takes nothing back"
    into.window_bytes = 1_000
    into.apply_rows(1)
    assert into.credit_due() == 1_800


def test_a_producer_of_small_rows_is_told_seldom_and_never_stands_still() -> None:
    into, told = inlet(window_bytes=1_000), []
    limit_bytes = 1_000
    for i in range(100):
        into.receive(rows(i, 1, size_bytes=10))
        into.apply_rows(1)
        if (due := into.credit_due()) is not None:
            told.append(due)
            limit_bytes = due
        assert limit_bytes - 10 * (i + 1) > 750, "what is left once all has been applied"
    assert told == [1_250, 1_500, 1_750, 2_000]
