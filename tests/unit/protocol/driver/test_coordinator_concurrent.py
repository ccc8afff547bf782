"""Tests the checkpoint coordinator with several checkpoints in progress, against the facts of Flink's coordinator
tests.
"""

from __future__ import annotations

import pytest

from penstock.protocol.driver.coordinator import CheckpointCoordinator, CoordinatorPhase
from penstock.protocol.driver.driver_effects import DiscardSegments, FailJob, PublishCheckpoint
from penstock.protocol.driver.savepoint import Alignment, Savepoint
from penstock.protocol.values.elements import SubtaskId
from penstock.protocol.values.reasons import FailureReason
from tests.unit.protocol.driver.test_coordinator import aborted, ack, complete, decline, started, triggered

ALIGNED = Savepoint("/s/aligned", Alignment.ALIGNED)


def with_pending(count: int, concurrent_max: int, alignment_timeout_ms: int | None = None) -> CheckpointCoordinator:
    coordinator = started(
        concurrent_max=concurrent_max, alignment_timeout_ms=alignment_timeout_ms, tolerable_failures_max=1
    )
    for number in range(1, count):
        coordinator.on_time(100.0 * number)
    assert coordinator.pending.ids == list(range(1, count + 1))
    return coordinator


def acknowledged(coordinator: CheckpointCoordinator, checkpoint_id: int, finished: bool = False) -> PublishCheckpoint:
    coordinator.on_ack(ack(checkpoint_id, 0, finished=finished), 950.0)
    (publish,) = coordinator.on_ack(ack(checkpoint_id, 1, finished=finished), 950.0)
    assert isinstance(publish, PublishCheckpoint)
    return publish


@pytest.mark.parametrize("concurrent_max", [1, 2, 5])
@pytest.mark.parametrize("alignment_timeout_ms", [None, 0], ids=["aligned", "unaligned"])
def test_as_many_are_triggered_as_the_limit_says(concurrent_max: int, alignment_timeout_ms: int | None) -> None:
    coordinator = with_pending(concurrent_max, concurrent_max, alignment_timeout_ms)
    assert coordinator.on_time(100.0 * concurrent_max) == []
    assert triggered(complete(coordinator, 1, 100.0 * concurrent_max + 1)) == [concurrent_max + 1]


def test_after_one_has_expired_they_go_one_at_a_time_until_one_completes() -> None:
    """Without this: all that are in progress expire, and those behind them, for ever. Found by a seed."""
    coordinator = started(concurrent_max=3, timeout_ms=350.0, tolerable_failures_max=10)
    for number in (1, 2):
        coordinator.on_time(100.0 * number)
    assert aborted(coordinator.on_time(350.0)) == {1: FailureReason.EXPIRED}
    assert coordinator.pending.ids == [2, 3], "there would be room for another one"
    assert triggered(coordinator.on_time(450.0)) == [] and coordinator.pending.ids == [3]
    assert triggered(coordinator.on_time(550.0)) == [4]
    assert triggered(coordinator.on_time(650.0)) == []
    assert triggered(complete(coordinator, 4, 700.0)) == [5]
    assert triggered(coordinator.on_time(800.0)) == [6], "several at once again"


def test_a_savepoint_passes_the_limit_after_an_expiry() -> None:
    coordinator = started(timeout_ms=50.0, concurrent_max=2, tolerable_failures_max=10)
    coordinator.on_time(50.0)
    coordinator.on_time(100.0)
    assert triggered(coordinator.request_savepoint(ALIGNED, 101.0)) == [3]


def test_each_completes_when_they_are_acknowledged_in_order() -> None:
    coordinator = with_pending(3, 3)
    for number in (1, 2, 3):
        assert aborted(complete(coordinator, number, 300.0 + number)) == {}
    assert coordinator.completed == 3


def test_a_newer_one_ends_all_older_ones_that_are_not_being_published() -> None:
    coordinator = with_pending(4, 4)
    coordinator.on_ack(ack(1, 0), 310.0)
    acknowledged(coordinator, 2)
    effects = complete(coordinator, 3, 320.0)
    assert aborted(effects) == {1: FailureReason.SUBSUMED}
    assert DiscardSegments(("shared/1-0",)) in effects
    assert coordinator.pending.ids == [2, 4], "the log decides what becomes of 2"
    effects = coordinator.on_not_published(2, FailureReason.SUBSUMED, "a newer one has completed", 330.0)
    assert aborted(effects) == {2: FailureReason.SUBSUMED} and not [e for e in effects if isinstance(e, FailJob)]
    assert aborted(complete(coordinator, 4, 340.0)) == {}


def test_what_waits_takes_all_the_places_that_a_completed_one_frees() -> None:
    coordinator = with_pending(3, 3)
    for _ in range(4):
        assert coordinator.request(210.0) == []
    assert triggered(complete(coordinator, 3, 220.0)) == [4, 5, 6]
    assert triggered(complete(coordinator, 4, 230.0)) == [7]


def test_savepoints_go_before_requests_of_users_and_those_before_periodic_ones() -> None:
    coordinator = with_pending(1, 3)
    coordinator.request_savepoint(ALIGNED, 10.0)
    assert coordinator.on_time(100.0) == [] and coordinator.request(101.0) == []
    assert coordinator.request_savepoint(Savepoint("/s/plain"), 102.0) == []
    coordinator.pending.on_ack(ack(2, 0), 103.0)
    coordinator.pending.on_ack(ack(2, 1), 103.0)
    effects = coordinator.on_saved(2, 104.0)
    assert triggered(effects) == [3, 4]
    assert effects[0].savepoint == Savepoint("/s/plain") and effects[1].savepoint is None  # type: ignore[union-attr]
    assert triggered(complete(coordinator, 1, 105.0)) == [5], "the periodic one"


def test_failures_in_a_row_count_once_each_and_not_behind_a_newer_one() -> None:
    coordinator = with_pending(4, 4)
    assert not [e for e in coordinator.on_decline(decline(1), 310.0) if isinstance(e, FailJob)]
    complete(coordinator, 3, 320.0)
    assert not [e for e in coordinator.on_decline(decline(4), 330.0) if isinstance(e, FailJob)], "3 has completed"
    coordinator.on_time(400.0)
    assert [e for e in coordinator.on_decline(decline(5), 410.0) if isinstance(e, FailJob)]


def test_all_that_are_triggered_end_with_their_generation() -> None:
    coordinator = with_pending(4, 4)
    acknowledged(coordinator, 2)
    effects = coordinator.on_stopped(500.0)
    assert aborted(effects) == dict.fromkeys((1, 3, 4), FailureReason.JOB_FAILOVER)
    assert coordinator.pending.ids == [2]


def test_nothing_periodic_is_triggered_while_the_job_ends() -> None:
    """[With several at once one is always pending, and the final checkpoint waits until none is.]"""
    coordinator = with_pending(2, 3)
    for slot in (0, 1):
        coordinator.on_end_of_data(SubtaskId(0, slot), 150.0)
    assert coordinator.phase is CoordinatorPhase.ENDING
    assert coordinator.on_time(1_000.0) == []
    assert triggered(complete(coordinator, 1, 1_001.0)) == []
    assert triggered(complete(coordinator, 2, 1_002.0)) == [3], "the final one"


def test_nothing_follows_the_final_one() -> None:
    coordinator = with_pending(4, 4)
    for slot in (0, 1):
        coordinator.on_end_of_data(SubtaskId(0, slot), 350.0)
    assert acknowledged(coordinator, 2, finished=True).is_final
    assert acknowledged(coordinator, 3, finished=True).is_final
    effects = coordinator.on_published(2, True, 360.0)
    assert aborted(effects) == {1: FailureReason.SUBSUMED, 4: FailureReason.SUBSUMED} and triggered(effects) == []
    assert coordinator.pending.ids == [3], "the log refuses it"
