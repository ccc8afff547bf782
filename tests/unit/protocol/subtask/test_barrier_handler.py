"""Plays Flink's tables of alignment (reference 7.1, 7.2, 7.3, 7.9): one line in, what the subtask did out
(`barrier_plays.py` has their language).

Where ours differs from Flink on purpose:
- A cancel of one checkpoint says nothing about older ones; Flink aborts those, too.
- Every checkpoint of which a subtask hears ends there in an acknowledgement or a decline, so a late barrier is
  declined; Flink ignores it.
- A newer aligned barrier does not subsume an older alignment: barriers keep their order on every channel, so the older
  one completes first, or somebody cancels it.
- An older timeoutable alignment is turned when a newer unaligned barrier comes, and both complete; Flink drops it.
- End of data removes no channel: finished subtasks go on answering barriers.
- Announcements do not exist on the wire: a barrier is heard of when it is received in a queue.
- A second barrier of one checkpoint on one channel is an error.
"""

from __future__ import annotations

import pytest

from penstock.protocol.channel.ends import ProtocolError
from penstock.protocol.subtask.barrier_handler import BarrierHandler, Declined, Drop, Snapshot
from penstock.protocol.values.elements import Barrier
from penstock.protocol.values.frames import Data
from penstock.protocol.values.reasons import FailureReason
from tests.unit.protocol.subtask.barrier_plays import Play, play

# ---- unaligned (7.1) ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channels", "script", "checkpoint_id", "in_flight"),
    [
        (3, "b0 b2 b0 U(1,1) U(1,2) b2 b1 b0 U(1,0)", 1, {"r5"}),
        (3, "b0 b0 b1 b1 b2 U(2,0) U(2,1) U(2,2)", 2, set()),
        (3, "b2 b2 U(3,2) b2 b2 U(3,0) U(3,1)", 3, set()),
        (3, "U(4,1) U(4,2) U(4,0)", 4, set()),
        (3, "b0 b2 b0 U(5,1) b2 b0 b2 b1 U(5,2) b1 b0 b2 b1 U(5,0)", 5, {"r3", "r4", "r5", "r8"}),
        (1, "b0 b0 late2:0 U(1,0) b0", 1, {"r2", "r3"}),
        (2, "hold b0 b1 late1:1 U(1,1) b0 U(1,0) go b0", 1, {"r0", "r1", "r2", "r3"}),
    ],
    ids=["one before its barrier", "all in a row", "after their barrier", "barriers only", "four", "overtaken", "held"],
)
def test_rows_in_flight_are_those_before_their_channels_barrier(
    channels: int, script: str, checkpoint_id: int, in_flight: set[str]
) -> None:
    played = Play(channels)
    # What the barrier overtakes was handed over before it: the window ends behind it, not at the barrier's arrival.
    played.run(script)
    assert played.acknowledged == [checkpoint_id]
    assert played.in_flight(checkpoint_id) == in_flight


def test_rows_are_applied_in_order_and_ids_trigger_in_order() -> None:
    played = play(1, "b0 b0 b0 U(1,0) b0 b0 b0 b0 U(2,0) U(3,0) b0 b0 U(4,0) U(5,0) U(6,0) b0")
    assert played.applied == [f"r{i}" for i in range(10)]
    assert played.log == ", ".join(f"unaligned {i}" for i in range(1, 7))
    assert played.acknowledged == [1, 2, 3, 4, 5, 6]


def test_unaligned_checkpoints_overlap_and_each_has_its_own_window() -> None:
    """Flink allows one at a time; we do not care how many there are."""
    played = play(2, "U(1,0) b1 U(2,0) b1 U(1,1) b1 U(2,1)")
    assert played.acknowledged == [1, 2]
    assert played.in_flight(1) == {"r0", "r1"}
    assert played.in_flight(2) == {"r1", "r2"}


# ---- cancels (7.2, and those of 7.1 and 7.9) ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channels", "script", "log", "differs"),
    [
        (1, "C(10,0) C(20,0)", "decline 10, decline 20", ""),
        (1, "C(20,0) C(10,0)", "decline 20, decline 10", ""),
        (1, "C(10,0) U(10,0)", "decline 10", ""),
        (1, "C(10,0) U(20,0)", "decline 10, unaligned 20", ""),
        (1, "C(20,0) U(10,0)", "decline 20, unaligned 10", "the cancel overtook 10, which is as good as ever"),
        (1, "U(10,0) U(20,0)", "unaligned 10, unaligned 20", ""),
        (2, "U(10,0) U(20,0)", "unaligned 10, unaligned 20", "10 is not subsumed: both may complete"),
        (1, "U(20,0) U(10,0)", "unaligned 20, decline 10", "a late barrier is declined, not ignored"),
        (1, "U(10,0) C(10,0)", "unaligned 10", ""),
        (2, "U(10,0) C(10,0)", "unaligned 10, decline 10", ""),
        (1, "U(10,0) C(20,0)", "unaligned 10, decline 20", ""),
        (1, "U(20,0) C(10,0)", "unaligned 20, decline 10", "the older one ends here, too"),
        (2, "U(1,0) C(2,0) C(3,0) C(3,1) b0", "unaligned 1, decline 2, decline 3", ""),
        (1, "b0 B(1,0) B(2,0) C(4,0) B(5,0) C(6,0)", "aligned 1, aligned 2, decline 4, aligned 5, decline 6", ""),
        (3, "B(2,0) B(2,2) b0 b2 C(2,1) C(4,1) B(4,2) b0 B(4,0)", "decline 2, decline 4", ""),
        (3, "C(6,1) C(6,2) B(6,0)", "decline 6", ""),
        (3, "B(1,1) B(2,1) B(2,2) C(1,0) C(2,0) C(1,2)", "decline 1, decline 2", ""),
    ],
)  # fmt: skip
def test_cancels(channels: int, script: str, log: str, differs: str) -> None:
    played = play(channels, script)
    assert played.log == log, differs
    assert played.subtask.blocked == set()
    pending = set(played.subtask.pending)
    assert pending.isdisjoint(played.reasons)


def test_a_cancelled_alignment_releases_its_channels_and_a_stale_barrier_does_not_block_again() -> None:
    played = play(3, "b1 B(1,1) b2 b0")
    assert played.subtask.blocked == {1}
    played.run("C(1,0)")
    assert played.subtask.blocked == set()
    assert played.reasons == {1: FailureReason.DECLINED_ON_CANCELLATION_BARRIER}
    played.run("B(2,1) B(1,2) b2")
    assert played.subtask.blocked == {1}
    assert played.applied[-1] == "r3", "the channel of the stale barrier goes on"
    played.run("B(2,0) B(2,2)")
    assert played.log == "decline 1, aligned 2"


def test_a_cancel_of_a_checkpoint_that_has_been_acknowledged_changes_nothing() -> None:
    played = play(2, "B(3,1) B(3,0) B(5,0) C(3,0)")
    assert played.log == "aligned 3"
    assert played.subtask.blocked == {0}
    assert played.run("B(5,1)").acknowledged == [3, 5]


def test_a_cancel_of_a_checkpoint_of_long_ago_changes_nothing() -> None:
    """A producer that is a hundred checkpoints behind declines one that was acknowledged here. Found by a seed."""
    many = " ".join(f"B({number},0) B({number},1)" for number in range(1, 101))
    played = play(2, f"{many} B(101,1) C(1,0)")
    assert "decline" not in played.log and played.subtask.blocked == {1}
    assert played.run("B(101,0)").acknowledged == list(range(1, 102))


def test_what_the_coordinator_ends_is_released_and_declined_by_nobody() -> None:
    played = play(2, "B(1,0) b0 X1 b0")
    assert (played.log, played.subtask.blocked, played.applied) == ("", set(), ["r0", "r1"])
    played.run("B(1,1) b1")
    assert (played.log, played.subtask.blocked, played.applied[-1]) == ("", set(), "r2")
    unaligned = play(2, "U(1,0) b1 X1 b1 U(1,1)")
    assert unaligned.acknowledged == [] and unaligned.reasons == {}
    assert not unaligned.subtask.inputs[1].windows


@pytest.mark.parametrize("script", ["hold b0 B(1,0) b0 X1", "hold X1 b0 B(1,0) b0", "hold b0 C(1,1) B(1,0) b0"])
def test_the_barrier_of_an_ended_checkpoint_does_not_stand_in_a_queue(script: str) -> None:
    played = play(2, script)
    assert [type(e) for e in played.subtask.inputs[0].queue] == [Data, Data]


# ---- aligned (7.9) --------------------------------------------------------------------------------------------------


def test_a_channel_is_blocked_from_its_barrier_to_the_last_one() -> None:
    played = play(3, "b0 b2 b0 B(1,1)")
    assert played.subtask.blocked == {1}
    played.run("b1 b1 B(1,2)")
    assert played.subtask.blocked == {1, 2}
    assert played.applied == ["r0", "r1", "r2"], "what is behind a barrier waits"
    played.run("b2 b0 B(1,0)")
    assert played.subtask.blocked == set()
    assert played.log == "aligned 1"
    assert played.applied == ["r0", "r1", "r2", "r6", "r3", "r4", "r5"]
    assert played.in_flight(1) == set()


def test_one_channel_is_never_blocked() -> None:
    assert play(1, "b0 B(1,0) b0 B(2,0) B(3,0) b0").applied == ["r0", "r1", "r2"]


def test_a_newer_barrier_waits_behind_an_older_alignment() -> None:
    """Flink's testMultiChannelJumpingOverCheckpoint aborts 2 when 3 comes. Here nothing jumps: channel 2 has the
    barrier of 2 before that of 3, or a cancel of it."""
    played = play(3, "B(2,0) B(2,1) B(3,0)")
    assert played.subtask.blocked == {0, 1}
    played.run("B(2,2) B(3,2)")
    assert (played.log, played.subtask.blocked) == ("aligned 2", {0, 2})
    played.run("C(3,1)")
    assert (played.log, played.subtask.blocked) == ("aligned 2, decline 3", set())


def test_start_delay_and_alignment_are_measured_from_trigger_and_first_barrier() -> None:
    played = play(3, "b0 b1 b2 +10")
    played.triggered_ms[1] = 4.0
    played.run("B(1,1) b0 +20 B(1,0) b2 +30 B(1,2)")
    assert played.subtask.acknowledged[1].alignment_ms == 50.0
    snapshot = BarrierHandler(1).on_trigger(Barrier(1, None, age_ms=6.0), 10.0)[0]
    assert isinstance(snapshot, Snapshot) and snapshot.start_delay_ms == 6.0


def test_alignment_of_overlapping_checkpoints_is_measured_for_each() -> None:
    """testNextFirstCheckpointBarrierOvertakesCancellationBarrier: the late cancel of 1 does not reset 2. In ours 2 is
    heard of on channel 0 as soon as it stands in the queue, but its alignment begins where it is reached."""
    played = play(2, "B(1,0) +1000 B(2,0) +1000 C(1,1) +1000 B(2,1)")
    assert played.log == "decline 1, aligned 2"
    assert played.subtask.acknowledged[2].alignment_ms == 1_000.0


# ---- the alignment timeout (7.3) ------------------------------------------------------------------------------------


def test_an_alignment_in_time_stays_aligned_and_its_deadline_is_gone() -> None:
    played = play(2, "B(1,0) +50 B(1,1) +1000", timeout_ms=100)
    assert played.log == "aligned 1"
    assert played.subtask.next_deadline_ms is None


def test_the_deadline_turns_what_waits_for_the_last_barrier() -> None:
    played = play(2, "B(1,0) b0 b1 +99 +1", timeout_ms=100)
    assert played.log == "unaligned 1"
    assert played.subtask.blocked == set()
    assert played.applied == ["r1", "r0"]
    played.run("b1 B(1,1) b1")
    assert played.acknowledged == [1]
    assert played.in_flight(1) == {"r2"}, "the aligned barrier's place ends the window"


def test_the_deadline_counts_from_the_trigger_not_from_the_first_barrier() -> None:
    played = Play(2, 100)
    played.triggered_ms[1] = -80.0
    played.run("B(1,0) +19")
    assert played.log == ""
    assert played.run("+1").log == "unaligned 1"


def test_a_barrier_that_arrives_after_its_deadline_turns_at_once() -> None:
    """testTimeoutAlignmentBeforeFirstBarrier and the passive timeouts: no timer has to fire."""
    played = Play(2, 10)
    played.triggered_ms[1] = -11.0
    played.run("hold b0 b1 B(1,0)")
    assert played.log == "unaligned 1", "the rows before the barrier are still waiting"
    played.run("B(1,1)")
    assert played.in_flight(1) == {"r0", "r1"}
    assert played.run("go").applied == ["r0", "r1"]


def test_a_queued_barrier_overtakes_the_rows_before_it_when_time_is_up() -> None:
    """testTimeoutAlignment, testActiveTimeoutAlignmentOnAnnouncement."""
    played = play(2, "hold b0 b0 B(1,0) b1 B(1,1) +9", timeout_ms=10)
    assert played.log == ""
    played.run("+1")
    assert (played.log, played.acknowledged, played.applied) == ("unaligned 1", [1], [])
    assert played.in_flight(1) == {"r0", "r1", "r2"}
    assert played.run("go").applied == ["r0", "r1", "r2"]
    assert played.subtask.blocked == set()


def test_all_channels_are_released_after_a_timeout() -> None:
    played = play(2, "B(1,0) +100 B(1,1) b0 b1", timeout_ms=100)
    assert (played.log, played.subtask.blocked, played.applied) == ("unaligned 1", set(), ["r0", "r1"])


def test_the_next_checkpoint_is_aligned_again_after_one_that_timed_out() -> None:
    played = play(1, "hold b0 B(1,0) +101 go B(2,0)", timeout_ms=100)
    assert played.log == "unaligned 1, aligned 2"


def test_an_alignment_without_timeout_waits_for_ever() -> None:
    assert play(2, "B(1,0) +1000000 b1").log == ""


def test_no_timeout_after_a_decline_or_an_end() -> None:
    assert play(2, "B(1,0) C(1,1) +1000", timeout_ms=100).log == "decline 1"
    ended = play(2, "B(1,0) X1 +1000", timeout_ms=100)
    assert (ended.log, ended.subtask.next_deadline_ms) == ("", None)


def test_an_urgent_barrier_turns_an_alignment_whatever_the_clock_says() -> None:
    """testSwitchToUnalignedByUpstream, testTimeoutAlignmentOnUnalignedCheckpoint."""
    played = play(3, "B(1,0) b1 late2:1 U(1,1) b2", timeout_ms=10**9)
    assert played.log == "unaligned 1"
    played.run("B(1,2)")
    assert played.in_flight(1) == {"r1", "r2", "r3"}


def test_an_unaligned_barrier_turns_older_alignments_first() -> None:
    """Flink's testChannelResetOnNewBarrier aborts the older one. Ours: both are snapshots at the same place, in order,
    and the older one captures the rows that wait behind its own barrier on no channel."""
    played = play(2, "B(1,0) b0 U(2,1) b0", timeout_ms=10**9)
    assert played.log == "unaligned 1, unaligned 2"
    played.run("U(2,0)")
    assert played.acknowledged == [2]
    assert played.in_flight(2) == {"r0", "r1"}


def test_a_purely_aligned_checkpoint_cannot_be_turned_and_is_declined() -> None:
    """An aligned savepoint below a newer unaligned checkpoint: it may capture nothing."""
    played = Play(2).run("B(1,0) b0")
    played.timeout_ms = 0
    played.run("U(2,1) U(2,0)")
    assert played.log == "decline 1, unaligned 2"
    assert played.reasons == {1: FailureReason.DECLINED_SUBSUMED}
    assert played.subtask.blocked == set()


def test_a_barrier_of_an_older_checkpoint_than_the_newest_snapshot_is_declined() -> None:
    played = play(2, "U(10,0) B(5,1) b1")
    assert played.log == "unaligned 10, decline 5"
    assert played.reasons == {5: FailureReason.DECLINED_LATE_BARRIER}
    assert played.subtask.blocked == set(), "testOutOfOrderBarrier: its channel goes on"


# ---- many, alternating ----------------------------------------------------------------------------------------------


def test_alternating_aligned_and_unaligned_on_many_channels() -> None:
    """testAlternation, with 23 channels."""
    played = Play(23)
    for checkpoint_id in range(1, 40):
        played.timeout_ms = None if checkpoint_id % 2 else 0
        kind = "B" if checkpoint_id % 2 else "U"
        played.run(" ".join(f"b{(c + checkpoint_id) % 23} {kind}({checkpoint_id},{c})" for c in range(23)))
    assert played.acknowledged == list(range(1, 40))
    assert played.subtask.blocked == set()


# ---- sources and errors ---------------------------------------------------------------------------------------------


def test_a_source_snapshots_at_its_trigger_and_declines_a_late_one() -> None:
    handler = BarrierHandler(0)
    first = handler.on_trigger(Barrier(2, 0), 0.0)
    assert isinstance(first[0], Snapshot) and first[0].unaligned
    aligned = handler.on_trigger(Barrier(3, 100), 0.0)
    assert isinstance(aligned[0], Snapshot) and not aligned[0].unaligned
    assert handler.on_trigger(Barrier(1, 0), 0.0) == [Declined(1, FailureReason.DECLINED_LATE_BARRIER)]
    assert handler.on_trigger(Barrier(3, 100), 0.0) == [], "a repeated trigger"
    assert handler.on_ended(4) == [Drop(4)]
    assert handler.on_trigger(Barrier(4, 0), 0.0) == [], "over before it began"


@pytest.mark.parametrize("script", ["U(1,0) U(1,0)", "B(1,0) B(1,0)", "B(1,0) U(1,0)", "U(1,0) B(1,0)"])
def test_a_second_barrier_of_one_checkpoint_on_one_channel_is_an_error(script: str) -> None:
    with pytest.raises(ProtocolError, match="checkpoint 1: a second barrier on input channel 0"):
        play(2, script)
