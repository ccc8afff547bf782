"""Tests the coordinator against the facts of Flink's coordinator tests (7.15), for one checkpoint at a time.

Differs on purpose: periodic triggers that find one waiting already do not queue another (Flink would run them back to
back later), a late acknowledgement is answered with the files to delete, and the final checkpoint ignores the pause.
"""

from __future__ import annotations

from typing import Any

from penstock.protocol.driver.coordinator import CheckpointCoordinator, CoordinatorSettings
from penstock.protocol.driver.driver_effects import (
    CheckpointAborted,
    DiscardSegments,
    FailJob,
    PublishCheckpoint,
    StillPublishing,
    TriggerCheckpoint,
)
from penstock.protocol.values.elements import Generation, SnapshotKind, SubtaskId
from penstock.protocol.values.messages import Decline, SlotAck
from penstock.protocol.values.metadata import Segment, SubtaskSnapshot
from penstock.protocol.values.reasons import FailureReason

G1 = Generation(0, 1)
G2 = Generation(0, 2)
SLOTS = frozenset({0, 1})


def snapshot(slot: int, finished: bool = False) -> SubtaskSnapshot:
    return SubtaskSnapshot(0, slot, [], [], [], [], [], [], [], finished=finished)


def ack(
    checkpoint_id: int, slot: int, generation: Generation = G1, *, finished: bool = False, path: str = ""
) -> SlotAck:
    segment = Segment(path or f"shared/{checkpoint_id}-{slot}", 10)
    return SlotAck(generation, slot, checkpoint_id, segment, [snapshot(slot, finished)])


def decline(checkpoint_id: int, reason: FailureReason = FailureReason.DECLINED, generation: Generation = G1) -> Decline:
    return Decline(generation, 0, checkpoint_id, SubtaskId(2, 1), reason, "no space")


def started(spread: float = 0.0, **settings: Any) -> CheckpointCoordinator:
    coordinator = CheckpointCoordinator(CoordinatorSettings(**{"interval_ms": 100.0, **settings}))
    coordinator.on_running(G1, SLOTS, 2, 0.0, spread)
    return coordinator


def triggered(effects: list[Any]) -> list[int]:
    return [e.barrier.checkpoint_id for e in effects if isinstance(e, TriggerCheckpoint)]


def aborted(effects: list[Any]) -> dict[int, str]:
    return {e.checkpoint_id: e.reason for e in effects if isinstance(e, CheckpointAborted)}


def discarded(effects: list[Any]) -> list[str]:
    return [p for e in effects if isinstance(e, DiscardSegments) for p in e.paths]


def complete(coordinator: CheckpointCoordinator, checkpoint_id: int, now_ms: float) -> list[Any]:
    coordinator.on_ack(ack(checkpoint_id, 0), now_ms)
    (publish,) = coordinator.on_ack(ack(checkpoint_id, 1), now_ms)
    assert isinstance(publish, PublishCheckpoint)
    return coordinator.on_published(checkpoint_id, publish.is_final, now_ms)


# ---- triggering -------------------------------------------------------------------------------------------------


def test_the_first_trigger_lies_between_pause_and_interval_and_a_restart_waits_for_the_pause() -> None:
    coordinator = started(0.5, min_pause_ms=40.0)
    assert coordinator.next_deadline_ms() == 40 + 0.5 * 60
    assert coordinator.on_time(69.9) == []
    assert triggered(coordinator.on_time(70.0)) == [1]
    coordinator.on_stopped(80.0)
    coordinator.on_running(G2, SLOTS, 2, 1000.0, 0.5)
    assert coordinator.next_deadline_ms() == 1040.0


def test_triggers_follow_the_schedule_not_the_completion() -> None:
    coordinator = started()
    complete(coordinator, 1, 30.0)
    assert triggered(coordinator.on_time(99.0)) == []
    assert triggered(coordinator.on_time(103.0)) == [2]
    complete(coordinator, 2, 110.0)
    assert triggered(coordinator.on_time(200.0)) == [3]


def test_the_interval_is_raised_to_the_pause() -> None:
    coordinator = started(interval_ms=10.0, min_pause_ms=50.0)
    assert triggered(coordinator.on_time(50.0)) == [1]
    complete(coordinator, 1, 51.0)
    assert triggered(coordinator.on_time(100.0)) == []
    assert triggered(coordinator.on_time(101.0)) == [2]


def test_only_one_is_pending_and_missed_triggers_become_one() -> None:
    coordinator = started()
    assert coordinator.pending.ids == [1]
    for now_ms in (100.0, 200.0, 300.0, 400.0):
        assert coordinator.on_time(now_ms) == []
    assert triggered(complete(coordinator, 1, 450.0)) == [2]
    assert triggered(complete(coordinator, 2, 460.0)) == []


def test_nothing_is_triggered_before_run_or_after_stop() -> None:
    coordinator = CheckpointCoordinator(CoordinatorSettings(10.0))
    assert coordinator.on_time(1000.0) == [] and coordinator.request(1000.0) == []
    assert coordinator.next_deadline_ms() is None
    coordinator.on_running(G1, SLOTS, 2, 1000.0)
    coordinator.on_stopped(1000.0)
    assert coordinator.on_time(9999.0) == []


def test_a_manual_checkpoint_ignores_the_pause() -> None:
    coordinator = started(min_pause_ms=90.0)
    coordinator.on_time(90.0)
    complete(coordinator, 1, 91.0)
    assert triggered(coordinator.request(92.0)) == [2]


def test_max_concurrent_with_subsumption() -> None:
    coordinator = started(concurrent_max=2)
    assert triggered(coordinator.on_time(100.0)) == [2]
    assert triggered(coordinator.on_time(200.0)) == []
    coordinator.on_ack(ack(1, 0), 210.0)
    effects = complete(coordinator, 2, 220.0)
    assert aborted(effects) == {1: FailureReason.SUBSUMED}
    assert discarded(effects) == ["shared/1-0"]
    assert triggered(effects) == [3]


# ---- acknowledging ----------------------------------------------------------------------------------------------


def test_duration_is_trigger_to_last_acknowledgement() -> None:
    coordinator = started(alignment_timeout_ms=0)
    assert coordinator.on_ack(ack(1, 1), 3.0) == []
    (publish,) = coordinator.on_ack(ack(1, 0), 17.5)
    assert isinstance(publish, PublishCheckpoint)
    assert publish.duration_ms == 17.5
    assert [a.slot for a in publish.acks] == [0, 1]
    assert publish.barrier.starts_unaligned and not publish.is_final


def test_repeated_acknowledgements_are_safe() -> None:
    coordinator = started()
    coordinator.on_ack(ack(1, 0), 1.0)
    assert coordinator.on_ack(ack(1, 0), 2.0) == []
    assert discarded(coordinator.on_ack(ack(1, 0, path="shared/other"), 2.0)) == ["shared/other"]
    coordinator.on_ack(ack(1, 1), 3.0)
    assert coordinator.on_ack(ack(1, 1), 4.0) == [], "while it is being published"
    coordinator.on_published(1, False, 5.0)
    assert coordinator.on_ack(ack(1, 1), 6.0) == [], "its file is part of a completed checkpoint"


def test_late_acknowledgements_answer_what_to_delete() -> None:
    coordinator = started(timeout_ms=50.0, tolerable_failures_max=5)
    coordinator.on_ack(ack(1, 0), 1.0)
    assert discarded(coordinator.on_time(50.0)) == ["shared/1-0"]
    assert discarded(coordinator.on_ack(ack(1, 1), 51.0)) == ["shared/1-1"]


def test_acknowledgements_of_an_older_generation_never_count() -> None:
    coordinator = started()
    coordinator.on_stopped(6.0)
    coordinator.on_running(G2, SLOTS, 2, 10.0)
    assert coordinator.pending.ids == [2]
    assert discarded(coordinator.on_ack(ack(1, 0, G1), 11.0)) == ["shared/1-0"]
    assert discarded(coordinator.on_ack(ack(2, 0, G1), 11.0)) == ["shared/2-0"]
    coordinator.on_ack(ack(2, 0, G2), 12.0)
    assert coordinator.pending.ids == [2], "slot 1 is missing"


def test_files_of_checkpoints_that_nothing_is_known_of_are_left_to_the_sweep() -> None:
    coordinator = started()
    assert coordinator.on_ack(ack(77, 0), 1.0) == []
    assert coordinator.on_decline(decline(77), 1.0) == []


def test_ids_are_never_used_again() -> None:
    coordinator = started()
    coordinator.on_stopped(6.0)
    coordinator.skip_ids_to(40)
    coordinator.on_running(G2, SLOTS, 2, 10.0)
    assert coordinator.pending.ids == [40]
    coordinator.skip_ids_to(3)
    assert coordinator.next_checkpoint_id == 41


# ---- failing ----------------------------------------------------------------------------------------------------


def test_decline_aborts_and_the_next_one_may_go() -> None:
    coordinator = started(tolerable_failures_max=1)
    coordinator.on_ack(ack(1, 1), 1.0)
    coordinator.on_time(100.0)
    effects = coordinator.on_decline(decline(1), 101.0)
    assert aborted(effects) == {1: FailureReason.DECLINED}
    assert discarded(effects) == ["shared/1-1"]
    assert triggered(effects) == [2]
    (abort,) = [e for e in effects if isinstance(e, CheckpointAborted)]
    assert "subtask 2 of vertex 2" in abort.detail and "no space" in abort.detail
    assert coordinator.on_decline(decline(1), 102.0) == [], "a second decline of one checkpoint"


def test_nothing_is_triggered_after_an_expiry_that_fails_the_job() -> None:
    coordinator = started(timeout_ms=200.0, concurrent_max=2)
    coordinator.on_time(100.0)
    effects = coordinator.on_time(300.0)
    assert isinstance(effects[-1], FailJob) and triggered(effects) == []


def test_expiry_names_the_slots_that_are_missing_and_fails_the_job_beyond_what_is_tolerable() -> None:
    coordinator = started(timeout_ms=50.0)
    coordinator.on_ack(ack(1, 0), 1.0)
    effects = coordinator.on_time(50.0)
    assert aborted(effects) == {1: FailureReason.EXPIRED}
    (failure,) = [e for e in effects if isinstance(e, FailJob)]
    assert "slot(s) 1" in failure.message and "tolerable-failed-checkpoints is 0" in failure.message


def test_uncounted_declines_never_fail_the_job() -> None:
    coordinator = started()
    for checkpoint_id in range(1, 6):
        declined = decline(checkpoint_id, FailureReason.DECLINED_TASK_NOT_READY)
        effects = coordinator.on_decline(declined, 100.0 * checkpoint_id)
        assert not [e for e in effects if isinstance(e, FailJob)]
        coordinator.on_time(100.0 * checkpoint_id)


def test_timeouts_of_one_checkpoint_do_not_touch_the_next() -> None:
    coordinator = started(timeout_ms=120.0, tolerable_failures_max=9)
    coordinator.on_time(100.0)
    assert triggered(coordinator.on_time(120.0)) == [2]
    assert coordinator.next_deadline_ms() == 200.0
    assert coordinator.on_time(200.0) == []
    assert aborted(coordinator.on_time(240.0)) == {2: FailureReason.EXPIRED}


def test_what_is_being_published_cannot_be_given_up() -> None:
    coordinator = started(timeout_ms=50.0)
    coordinator.on_ack(ack(1, 0), 1.0)
    coordinator.on_ack(ack(1, 1), 2.0)
    assert coordinator.on_time(60.0) == [StillPublishing(1, 60.0)], "the user is told, and nothing is given up"
    assert coordinator.on_time(61.0) == []
    assert coordinator.on_decline(decline(1), 61.0) == []
    assert coordinator.on_stopped(62.0) == []
    assert coordinator.pending.ids == [1]
    assert coordinator.on_published(1, False, 80.0) == []
    assert coordinator.completed == 1


def test_failed_publication_counts_and_its_files_go() -> None:
    coordinator = started()
    coordinator.on_ack(ack(1, 0), 1.0)
    coordinator.on_ack(ack(1, 1), 2.0)
    effects = coordinator.on_not_published(1, FailureReason.FINALIZE_FAILURE, "disk full", 3.0)
    assert aborted(effects) == {1: FailureReason.FINALIZE_FAILURE}
    assert discarded(effects) == ["shared/1-0", "shared/1-1"]
    assert [e for e in effects if isinstance(e, FailJob)]


def test_stopping_gives_up_what_is_pending_with_the_reason() -> None:
    coordinator = started()
    coordinator.on_ack(ack(1, 0), 1.0)
    effects = coordinator.on_stopped(6.0)
    assert aborted(effects) == {1: FailureReason.JOB_FAILOVER}
    assert discarded(effects) == ["shared/1-0"]
    assert not [e for e in effects if isinstance(e, FailJob)]


# ---- finishing --------------------------------------------------------------------------------------------------


def test_the_final_checkpoint_comes_at_once_when_all_have_reached_their_end() -> None:
    coordinator = started(interval_ms=1e6, min_pause_ms=1e6, spread=0.9)
    assert coordinator.on_end_of_data(SubtaskId(0, 0), 5.0) == []
    assert triggered(coordinator.on_end_of_data(SubtaskId(0, 1), 6.0)) == [1]
    coordinator.on_ack(ack(1, 0, finished=True), 7.0)
    (publish,) = coordinator.on_ack(ack(1, 1, finished=True), 7.0)
    assert isinstance(publish, PublishCheckpoint) and publish.is_final
    assert coordinator.on_published(1, True, 8.0) == []
    assert coordinator.next_deadline_ms() is None and coordinator.request(9.0) == []


def test_a_pending_checkpoint_is_waited_for_before_the_final_one() -> None:
    coordinator = started()
    coordinator.on_end_of_data(SubtaskId(0, 0), 5.0)
    assert coordinator.on_end_of_data(SubtaskId(0, 1), 6.0) == []
    assert triggered(complete(coordinator, 1, 7.0)) == [2]


def test_a_pending_checkpoint_in_which_all_were_finished_is_the_final_one() -> None:
    coordinator = started()
    coordinator.on_end_of_data(SubtaskId(0, 0), 5.0)
    coordinator.on_end_of_data(SubtaskId(0, 1), 6.0)
    coordinator.on_ack(ack(1, 0, finished=True), 7.0)
    (publish,) = coordinator.on_ack(ack(1, 1, finished=True), 7.0)
    assert isinstance(publish, PublishCheckpoint) and publish.is_final


def test_one_finished_subtask_does_not_make_a_checkpoint_final() -> None:
    coordinator = started()
    coordinator.on_ack(ack(1, 0, finished=True), 7.0)
    (publish,) = coordinator.on_ack(ack(1, 1), 7.0)
    assert isinstance(publish, PublishCheckpoint) and not publish.is_final


def test_a_failed_final_checkpoint_is_tried_again_after_a_moment() -> None:
    coordinator = started(interval_ms=1e6, spread=0.9, tolerable_failures_max=9)
    coordinator.on_end_of_data(SubtaskId(0, 0), 5.0)
    coordinator.on_end_of_data(SubtaskId(0, 1), 6.0)
    assert triggered(coordinator.on_decline(decline(1), 10.0)) == []
    assert coordinator.next_deadline_ms() == 1010.0
    assert triggered(coordinator.on_time(1010.0)) == [2]


def test_without_an_interval_the_end_collects_only_committables() -> None:
    coordinator = started(interval_ms=None, alignment_timeout_ms=0)
    assert coordinator.next_deadline_ms() is None
    coordinator.on_end_of_data(SubtaskId(0, 0), 5.0)
    (trigger,) = coordinator.on_end_of_data(SubtaskId(0, 1), 6.0)
    assert isinstance(trigger, TriggerCheckpoint)
    assert trigger.barrier.kind is SnapshotKind.COMMITS_ONLY and trigger.barrier.alignment_timeout_ms is None


def test_ends_of_data_of_an_earlier_generation_are_forgotten() -> None:
    coordinator = started(interval_ms=None)
    coordinator.on_end_of_data(SubtaskId(0, 0), 5.0)
    coordinator.on_stopped(6.0)
    coordinator.on_running(G2, SLOTS, 2, 10.0)
    assert coordinator.on_end_of_data(SubtaskId(0, 1), 11.0) == []
    assert triggered(coordinator.on_end_of_data(SubtaskId(0, 0), 12.0)) == [1]
