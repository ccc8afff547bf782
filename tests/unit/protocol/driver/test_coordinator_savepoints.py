"""Tests the checkpoint coordinator and savepoints: beside checkpoints, instead of the final one, and when they fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.protocol.driver.coordinator import QUEUE_MAX, CheckpointCoordinator, CoordinatorPhase
from penstock.protocol.driver.driver_effects import (
    CheckpointAborted,
    DiscardSegments,
    DrainSources,
    FailJob,
    PublishCheckpoint,
    SavepointRefused,
    StillDraining,
    StillPublishing,
    TriggerCheckpoint,
)
from penstock.protocol.driver.savepoint import Alignment, Savepoint
from penstock.protocol.values.elements import SnapshotKind, SubtaskId
from penstock.protocol.values.reasons import FailureReason
from tests.unit.protocol.driver.test_coordinator import G2, SLOTS, aborted, ack, complete, decline, started, triggered

PLAIN, STOP = Savepoint("/s/plain"), Savepoint("/s/stop", stops=True)
DRAIN = Savepoint("/s/drain", stops=True, drains=True)
ALIGNED = Savepoint("/s/aligned", Alignment.ALIGNED)


def acknowledged(coordinator: CheckpointCoordinator, checkpoint_id: int, finished: bool = False) -> PublishCheckpoint:
    coordinator.on_ack(ack(checkpoint_id, 0, finished=finished), 50.0)
    (publish,) = coordinator.on_ack(ack(checkpoint_id, 1, finished=finished), 50.0)
    assert isinstance(publish, PublishCheckpoint)
    return publish


def test_a_savepoint_is_taken_beside_a_pending_checkpoint_and_ends_nothing() -> None:
    coordinator = started()
    (trigger,) = coordinator.request_savepoint(PLAIN, 10.0)
    assert isinstance(trigger, TriggerCheckpoint) and trigger.savepoint == PLAIN
    assert trigger.barrier.kind is SnapshotKind.SAVEPOINT and coordinator.pending.ids == [1, 2]
    publish = acknowledged(coordinator, 2)
    assert publish.savepoint == PLAIN and not publish.is_final
    assert coordinator.on_saved(2, 51.0) == [] and coordinator.pending.ids == [1]
    assert aborted(complete(coordinator, 1, 60.0)) == {}


def test_a_newer_checkpoint_does_not_subsume_a_savepoint() -> None:
    coordinator = started(concurrent_max=3)
    coordinator.request_savepoint(PLAIN, 10.0)
    assert triggered(coordinator.on_time(100.0)) == [3]
    assert aborted(complete(coordinator, 3, 110.0)) == {1: FailureReason.SUBSUMED}
    assert coordinator.pending.ids == [2]


@pytest.mark.parametrize(
    ("savepoint", "timeout_ms"), [(PLAIN, 30), (ALIGNED, None), (Savepoint("/u", Alignment.UNALIGNED), 0)]
)
def test_the_user_says_whether_rows_may_be_in_flight(savepoint: Savepoint, timeout_ms: int | None) -> None:
    coordinator = started(alignment_timeout_ms=30)
    (trigger,) = coordinator.request_savepoint(savepoint, 10.0)
    assert isinstance(trigger, TriggerCheckpoint) and trigger.barrier.alignment_timeout_ms == timeout_ms


@pytest.mark.parametrize("exclusive", [STOP, ALIGNED])
def test_nothing_is_triggered_behind_a_stop_or_an_aligned_savepoint(exclusive: Savepoint) -> None:
    """An unaligned barrier that overtook the aligned one would leave rows in flight in its snapshots."""
    coordinator = started()
    complete(coordinator, 1, 5.0)
    assert triggered(coordinator.request_savepoint(exclusive, 10.0)) == [2]
    assert coordinator.on_time(100.0) == [] and coordinator.request(101.0) == []
    effects = coordinator.on_decline(decline(2), 120.0)
    assert aborted(effects) == {2: FailureReason.DECLINED} and triggered(effects) == [3], "what waited goes on"


def test_a_failed_savepoint_is_no_failure_of_the_job() -> None:
    coordinator = started()
    coordinator.request_savepoint(STOP, 10.0)
    coordinator.on_ack(ack(2, 0, path="s0"), 11.0)
    effects = coordinator.on_decline(decline(2), 12.0)
    assert [e for e in effects if isinstance(e, FailJob)] == []
    assert CheckpointAborted(2, FailureReason.DECLINED, effects[0].detail, STOP) == effects[0]  # type: ignore[union-attr]
    assert DiscardSegments(("s0",), "/s/stop") in effects
    assert triggered(coordinator.request_savepoint(STOP, 13.0)) == [3], "the user may try again"


def test_a_stop_is_the_last_checkpoint_of_the_job() -> None:
    coordinator = started()
    complete(coordinator, 1, 5.0)
    (trigger,) = coordinator.request_savepoint(STOP, 10.0)
    assert isinstance(trigger, TriggerCheckpoint) and trigger.barrier.kind is SnapshotKind.STOP
    assert coordinator.request_savepoint(PLAIN, 11.0) == [SavepointRefused(PLAIN, FailureReason.STOP_PENDING)]
    assert acknowledged(coordinator, 2).is_final
    coordinator.on_published(2, True, 51.0)
    assert coordinator.phase is CoordinatorPhase.FINAL and coordinator.on_time(500.0) == []
    assert coordinator.request_savepoint(PLAIN, 501.0) == [SavepointRefused(PLAIN, FailureReason.JOB_ENDED)]


def test_a_job_is_drained_and_ends_with_its_savepoint_not_with_a_checkpoint_under_way() -> None:
    coordinator = started()
    assert coordinator.request_savepoint(DRAIN, 10.0) == [DrainSources()]
    for subtask in range(2):
        assert coordinator.on_end_of_data(SubtaskId(0, subtask), 105.0) == []
    publish = acknowledged(coordinator, 1, finished=True)
    assert not publish.is_final, "one that was triggered before goes on"
    (trigger,) = coordinator.on_published(1, publish.is_final, 110.0)
    assert isinstance(trigger, TriggerCheckpoint) and trigger.savepoint == DRAIN
    assert trigger.barrier.kind is SnapshotKind.STOP
    assert acknowledged(coordinator, 2, finished=True).is_final


def test_nothing_is_triggered_between_the_end_of_the_sources_and_their_savepoint() -> None:
    coordinator = started()
    coordinator.request(5.0)
    assert coordinator.request_savepoint(DRAIN, 10.0) == [DrainSources()]
    assert complete_with(coordinator, 1, 30.0) == [], "what was queued is dropped"
    assert coordinator.on_time(100.0) == [] and coordinator.request(101.0) == []
    assert coordinator.on_end_of_data(SubtaskId(0, 0), 105.0) == [] and coordinator.on_time(200.0) == []
    assert triggered(coordinator.on_end_of_data(SubtaskId(0, 1), 205.0)) == [2]


def test_a_job_whose_sources_were_ended_for_a_savepoint_that_fails_restarts() -> None:
    coordinator = started()
    complete(coordinator, 1, 5.0)
    coordinator.request_savepoint(DRAIN, 10.0)
    coordinator.on_end_of_data(SubtaskId(0, 0), 11.0)
    assert triggered(coordinator.on_end_of_data(SubtaskId(0, 1), 12.0)) == [2]
    effects = coordinator.on_decline(decline(2), 13.0)
    (failed,) = [e for e in effects if isinstance(e, FailJob)]
    assert failed.planned and "drained for" in failed.message
    coordinator.on_stopped(14.0)
    (trigger,) = coordinator.on_running(G2, SLOTS, 2, 20.0)
    assert isinstance(trigger, TriggerCheckpoint) and trigger.savepoint is None, "the next one is a checkpoint again"


def test_a_final_attempt_that_is_due_takes_no_savepoint_that_is_pending() -> None:
    """It took it a second time, was told behind the log entry that this one came too late, and deleted both."""
    coordinator = started(tolerable_failures_max=None, spread=0.9)
    for subtask in range(2):
        effects = coordinator.on_end_of_data(SubtaskId(0, subtask), 5.0)
    assert triggered(effects) == [1]
    coordinator.on_decline(decline(1), 10.0)
    assert triggered(coordinator.request_savepoint(STOP, 20.0)) == [2]
    assert coordinator.on_time(2000.0) == []
    assert acknowledged(coordinator, 2, finished=True).is_final
    assert coordinator.on_published(2, True, 2001.0) == []


def test_a_final_attempt_that_is_due_follows_what_it_waits_for() -> None:
    coordinator = started(tolerable_failures_max=None, spread=0.9)
    for subtask in range(2):
        coordinator.on_end_of_data(SubtaskId(0, subtask), 5.0)
    coordinator.on_decline(decline(1), 10.0)
    assert triggered(coordinator.request_savepoint(PLAIN, 20.0)) == [2]
    assert coordinator.on_time(2000.0) == []
    acknowledged(coordinator, 2)
    assert triggered(coordinator.on_saved(2, 2001.0)) == [3]


def test_a_drain_behind_a_final_checkpoint_that_is_published_is_refused() -> None:
    coordinator = started(spread=0.9)
    for subtask in range(2):
        coordinator.on_end_of_data(SubtaskId(0, subtask), 5.0)
    assert acknowledged(coordinator, 1, finished=True).is_final
    assert coordinator.request_savepoint(DRAIN, 60.0) == [DrainSources()]
    assert coordinator.on_published(1, True, 61.0) == [SavepointRefused(DRAIN, FailureReason.JOB_ENDED)]


@pytest.mark.parametrize("savepoint", [PLAIN, ALIGNED, STOP])
def test_no_savepoint_is_taken_behind_the_checkpoint_of_a_rescale(savepoint: Savepoint) -> None:
    coordinator = started(spread=0.9)
    assert triggered(coordinator.request_rescale(False, 5.0)) == [1]
    assert coordinator.request_savepoint(savepoint, 6.0) == [SavepointRefused(savepoint, FailureReason.RESCALE_PENDING)]


def test_savepoints_that_overlap_do_not_keep_a_rescale_waiting() -> None:
    coordinator, another = started(spread=0.9), replace(PLAIN, directory="/savepoints/another")
    assert triggered(coordinator.request_savepoint(PLAIN, 5.0)) == [1]
    assert coordinator.request_rescale(False, 6.0) == []
    assert coordinator.request_savepoint(another, 7.0) == [SavepointRefused(another, FailureReason.RESCALE_PENDING)]
    acknowledged(coordinator, 1)
    coordinator.on_saved(1, 8.0)
    assert triggered(coordinator.request_savepoint(another, 9.0)) == [2], "nobody asks for the rescale any more"
    assert coordinator.request_rescale(False, 10.0) == []
    assert triggered(coordinator.request_savepoint(STOP, 11.0)) == [3], "which ends the job, and the rescale with it"


@pytest.mark.parametrize("savepoint", [PLAIN, STOP])
def test_a_savepoint_whose_storage_does_not_answer_expires(savepoint: Savepoint) -> None:
    coordinator = started(timeout_ms=50.0, spread=0.9)
    coordinator.request_savepoint(savepoint, 10.0)
    acknowledged(coordinator, 1)
    assert aborted(coordinator.on_time(60.0)) == {1: FailureReason.EXPIRED}
    assert coordinator.pending.ids == [] and coordinator.stopping.savepoint is None


def test_a_savepoint_has_the_whole_time_again_whenever_something_was_copied_to_it() -> None:
    coordinator = started(timeout_ms=50.0, spread=0.9)
    coordinator.request_savepoint(PLAIN, 10.0)
    acknowledged(coordinator, 1)
    coordinator.pending.on_progress({PLAIN.directory: 55.0, "/of another": 500.0})
    assert coordinator.on_time(60.0) == [] and coordinator.pending.next_deadline_ms() == 105.0
    assert aborted(coordinator.on_time(105.0)) == {1: FailureReason.EXPIRED}


@pytest.mark.parametrize("savepoint", [STOP, DRAIN])
def test_a_stop_that_is_still_written_ends_with_its_generation(savepoint: Savepoint) -> None:
    """It kept the next generation from every checkpoint, and restarted it once more when it had failed."""
    coordinator = started(spread=0.9)
    coordinator.request_savepoint(savepoint, 10.0)
    for subtask in range(2):
        coordinator.on_end_of_data(SubtaskId(0, subtask), 11.0)
    acknowledged(coordinator, 1, finished=True)
    assert aborted(coordinator.on_stopped(60.0)) == {1: FailureReason.JOB_FAILOVER}
    assert coordinator.stopping.savepoint is None
    assert triggered(coordinator.on_running(G2, SLOTS, 2, 70.0)) == [2]


def test_a_rescale_waits_for_savepoints() -> None:
    coordinator = started(spread=0.9)
    coordinator.request_savepoint(PLAIN, 5.0)
    assert coordinator.request_rescale(False, 6.0) == []
    acknowledged(coordinator, 1)
    coordinator.on_saved(1, 8.0)
    assert triggered(coordinator.request_rescale(False, 9.0)) == [2]


def test_a_stop_that_may_be_in_the_log_does_not_expire() -> None:
    coordinator = started(timeout_ms=50.0, spread=0.9)
    coordinator.request_savepoint(STOP, 10.0)
    acknowledged(coordinator, 1)
    coordinator.on_written(1)
    assert coordinator.on_time(60.0) == [StillPublishing(1, 50.0)]


@pytest.mark.parametrize("savepoint", [PLAIN, STOP])
def test_a_savepoint_ends_with_the_generation(savepoint: Savepoint) -> None:
    coordinator = started()
    coordinator.request_savepoint(savepoint, 10.0)
    effects = coordinator.on_stopped(20.0)
    assert [e.savepoint for e in effects if isinstance(e, CheckpointAborted)] == [None, savepoint]
    assert not [e for e in effects if isinstance(e, SavepointRefused)], "answered once"
    refused = SavepointRefused(savepoint, FailureReason.NOT_ALL_TASKS_RUNNING)
    assert coordinator.request_savepoint(savepoint, 21.0) == [refused]


def test_a_drain_that_takes_long_is_reported_again_and_again() -> None:
    coordinator = started(timeout_ms=50.0, spread=0.9)
    coordinator.request_savepoint(DRAIN, 10.0)
    assert coordinator.next_deadline_ms() == 60.0
    coordinator.on_end_of_data(SubtaskId(0, 0), 15.0)
    assert coordinator.on_time(60.0) == [StillDraining(50.0, 1, 2)]
    assert coordinator.on_time(109.0) == []
    assert coordinator.on_time(110.0) == [StillDraining(100.0, 1, 2)]
    assert triggered(coordinator.on_end_of_data(SubtaskId(0, 1), 111.0)) == [1]
    assert not [e for e in coordinator.on_time(160.0) if isinstance(e, StillDraining)]


def test_a_checkpoint_that_nobody_may_ask_for_has_a_reason() -> None:
    coordinator = started(spread=0.9)
    assert coordinator.why_no_checkpoint is None
    coordinator.request_savepoint(DRAIN, 10.0)
    assert coordinator.why_no_checkpoint is FailureReason.STOP_PENDING
    coordinator.on_stopped(20.0)
    assert coordinator.why_no_checkpoint is FailureReason.NOT_ALL_TASKS_RUNNING
    coordinator.on_running(G2, SLOTS, 2, 30.0)
    for _ in range(QUEUE_MAX):
        assert coordinator.why_no_checkpoint is None
        coordinator.request(31.0)
    assert coordinator.why_no_checkpoint is FailureReason.TOO_MANY_REQUESTS


def test_a_drain_that_has_not_reached_its_savepoint_ends_with_the_generation() -> None:
    coordinator = started()
    coordinator.request_savepoint(DRAIN, 10.0)
    assert SavepointRefused(DRAIN, FailureReason.JOB_FAILOVER) in coordinator.on_stopped(20.0)
    coordinator.on_running(G2, SLOTS, 2, 30.0)
    for subtask in range(2):
        effects: list[Any] = coordinator.on_end_of_data(SubtaskId(0, subtask), 40.0)
    assert coordinator.phase is CoordinatorPhase.ENDING and not any(getattr(e, "savepoint", None) for e in effects)


def complete_with(coordinator: CheckpointCoordinator, checkpoint_id: int, now_ms: float) -> list[Any]:
    return [e for e in complete(coordinator, checkpoint_id, now_ms) if not isinstance(e, TriggerCheckpoint)]
