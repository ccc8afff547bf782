"""Tests facts of Flink's CheckpointFailureManagerTest."""

from __future__ import annotations

from penstock.protocol.driver.coordinator import CheckpointFailureManager
from penstock.protocol.values.reasons import FailureReason


def test_a_success_resets_and_late_failures_below_it_do_not_count() -> None:
    manager = CheckpointFailureManager(2)
    assert manager.on_failed(1, FailureReason.EXPIRED) is None
    assert manager.on_failed(2, FailureReason.EXPIRED) is None
    manager.on_completed(2)
    assert manager.on_failed(1, FailureReason.EXPIRED) is None
    assert manager.on_failed(3, FailureReason.EXPIRED) is None
    assert manager.on_failed(4, FailureReason.EXPIRED) is None
    assert "3 checkpoint(s) in a row failed" in str(manager.on_failed(5, FailureReason.EXPIRED))


def test_ignored_reasons_neither_count_nor_reset() -> None:
    manager = CheckpointFailureManager(2)
    assert manager.on_failed(1, FailureReason.DECLINED) is None
    assert manager.on_failed(2, FailureReason.DECLINED) is None
    assert manager.on_failed(3, FailureReason.JOB_FAILOVER) is None
    message = manager.on_failed(4, FailureReason.DECLINED, "disk full")
    assert message is not None
    assert "checkpoint 4" in message and FailureReason.DECLINED in message and "disk full" in message
    assert "tolerable-failed-checkpoints is 2" in message


def test_the_count_starts_over_after_a_job_failure() -> None:
    manager = CheckpointFailureManager(1)
    outcomes = [manager.on_failed(i, FailureReason.EXPIRED) is not None for i in range(1, 5)]
    assert outcomes == [False, True, False, True]


def test_exactly_the_five_counted_reasons_fail_a_job_that_tolerates_none() -> None:
    manager = CheckpointFailureManager(0)
    failed = [r for i, r in enumerate(FailureReason) if manager.on_failed(i, r) is not None]
    assert len(failed) == 5
    assert failed == [reason for reason in FailureReason if reason.counts]


def test_one_checkpoint_that_fails_twice_counts_once() -> None:
    manager = CheckpointFailureManager(1)
    assert manager.on_failed(1, FailureReason.DECLINED) is None
    assert manager.on_failed(1, FailureReason.EXPIRED) is None
    assert manager.on_failed(2, FailureReason.EXPIRED) is not None


def test_unlimited() -> None:
    manager = CheckpointFailureManager(None)
    assert all(manager.on_failed(i, FailureReason.EXPIRED) is None for i in range(100))
