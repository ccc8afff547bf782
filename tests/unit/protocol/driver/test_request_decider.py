"""Tests facts of Flink's CheckpointRequestDeciderTest (7.7 of the behaviour tables)."""

from __future__ import annotations

import pytest

from penstock.protocol.driver.coordinator import CheckpointRequest, CheckpointRequestDecider, Drop, Situation, Start
from penstock.protocol.driver.savepoint import Savepoint
from penstock.protocol.values.reasons import FailureReason

BUSY = Situation(now_ms=0, pending=1)
FREE = Situation(now_ms=0)
TRIGGERING = Situation(now_ms=0, is_triggering=True)


def periodic(number: int = 0) -> CheckpointRequest:
    return CheckpointRequest(number, is_periodic=True)


def manual(number: int = 0) -> CheckpointRequest:
    return CheckpointRequest(number)


def savepoint(number: int = 0, *, forced: bool = False, is_periodic: bool = False) -> CheckpointRequest:
    return CheckpointRequest(number, is_periodic, is_forced=forced, savepoint=Savepoint(f"/savepoints/{number}"))


def test_forced_request_passes_pending_limit_and_min_pause() -> None:
    decider = CheckpointRequestDecider(1, min_pause_ms=1e9)
    request = savepoint(forced=True, is_periodic=True)
    assert decider.on_request(request, Situation(now_ms=1, pending=1, last_completion_ms=0)) == [Start(request)]


@pytest.mark.parametrize("request_", [periodic(), savepoint()])
def test_too_many_pending_waits_in_the_queue(request_: CheckpointRequest) -> None:
    decider = CheckpointRequestDecider(1)
    assert decider.on_request(request_, BUSY) == []
    assert decider.on_change(FREE) == [Start(request_)]
    assert decider.on_change(FREE) == []


@pytest.mark.parametrize("forced", [True, False])
def test_a_users_savepoint_goes_before_a_periodic_one(forced: bool) -> None:
    decider = CheckpointRequestDecider(1)
    by_clock, by_user = savepoint(1, forced=forced, is_periodic=True), savepoint(2, forced=forced)
    decider.on_request(by_clock, TRIGGERING)
    decider.on_request(by_user, TRIGGERING)
    assert decider.on_change(FREE) == [Start(by_user)]
    assert decider.on_change(FREE) == [Start(by_clock)]


@pytest.mark.parametrize("forced", [True, False])
def test_savepoint_goes_before_checkpoint(forced: bool) -> None:
    decider = CheckpointRequestDecider(1)
    decider.on_request(manual(1), TRIGGERING)
    decider.on_request(savepoint(2, forced=forced), TRIGGERING)
    assert decider.on_change(FREE) == [Start(savepoint(2, forced=forced))]


def test_older_before_younger() -> None:
    decider = CheckpointRequestDecider(1)
    for number in (1, 2, 3):
        decider.on_request(manual(number), TRIGGERING)
    assert [decider.on_change(FREE) for _ in range(3)] == [[Start(manual(n))] for n in (1, 2, 3)]


def test_queue_size_limit_drops_the_least_important() -> None:
    decider = CheckpointRequestDecider(1, queue_max=10)
    outcomes = [decider.on_request(periodic(n), TRIGGERING) for n in range(11)]
    assert outcomes[:10] == [[]] * 10
    (dropped,) = outcomes[10]
    assert isinstance(dropped, Drop) and dropped.reason == FailureReason.TOO_MANY_REQUESTS
    assert decider.queued == 10


def test_queue_size_limit_keeps_the_savepoint() -> None:
    decider = CheckpointRequestDecider(1, queue_max=1)
    decider.on_request(periodic(1), TRIGGERING)
    assert decider.on_request(savepoint(2), TRIGGERING) == [Drop(periodic(1), FailureReason.TOO_MANY_REQUESTS)]
    assert decider.on_request(manual(3), TRIGGERING) == [Drop(manual(3), FailureReason.TOO_MANY_REQUESTS)]
    assert decider.on_change(FREE) == [Start(savepoint(2))]


@pytest.mark.parametrize(
    "request_", [savepoint(forced=True), savepoint(forced=True, is_periodic=True), savepoint(), manual()]
)
def test_min_pause_binds_only_periodic_checkpoints(request_: CheckpointRequest) -> None:
    decider = CheckpointRequestDecider(1, min_pause_ms=10)
    assert decider.on_request(request_, Situation(now_ms=1, last_completion_ms=0)) == [Start(request_)]


def test_periodic_checkpoint_within_the_pause_is_dropped_and_the_trigger_moved() -> None:
    decider = CheckpointRequestDecider(1, min_pause_ms=10)
    dropped = decider.on_request(periodic(), Situation(now_ms=4, last_completion_ms=0))
    assert dropped == [Drop(periodic(), FailureReason.MINIMUM_TIME_BETWEEN, retry_after_ms=6)]
    assert decider.on_request(periodic(), Situation(now_ms=10, last_completion_ms=0)) == [Start(periodic())]


def test_abandon_drops_all() -> None:
    decider = CheckpointRequestDecider(1)
    decider.on_request(manual(), TRIGGERING)
    assert decider.abandon(FailureReason.JOB_FAILOVER) == [Drop(manual(), FailureReason.JOB_FAILOVER)]
    assert decider.on_change(FREE) == []
