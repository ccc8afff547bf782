"""Periodic checkpoints follow their interval, and another one while a source works off a backlog (Flink's rules)."""

from __future__ import annotations

import pytest

from penstock.protocol.driver.coordinator import TriggerSchedule


def started(
    backlog_interval_ms: float | None, interval_ms: float | None = 100.0, pause_ms: float = 0.0
) -> TriggerSchedule:
    schedule = TriggerSchedule(interval_ms, pause_ms, backlog_interval_ms)
    schedule.start(0.0, 1.0)
    return schedule


def test_a_backlog_has_an_interval_of_its_own_from_the_next_trigger_on() -> None:
    schedule = started(1_000.0)
    schedule.follow_backlog(True, 10.0)
    assert schedule.next_ms == 100.0, "what is planned is not postponed"
    assert schedule.take_due(100.0) and schedule.next_ms == 1_100.0
    schedule.follow_backlog(False, 150.0)
    assert schedule.next_ms == 250.0, "the usual interval is over sooner"
    assert schedule.take_due(250.0) and schedule.next_ms == 350.0


def test_an_interval_of_none_drops_the_planned_trigger_until_the_backlog_ends() -> None:
    schedule = started(0.0)
    schedule.follow_backlog(True, 10.0)
    assert schedule.next_ms is None and not schedule.take_due(10_000.0)
    schedule.postpone(20.0)
    assert schedule.next_ms is None, "a request that had to wait is not tried again either"
    schedule.follow_backlog(False, 500.0)
    assert schedule.next_ms == 600.0


def test_a_start_in_a_backlog_plans_by_its_interval() -> None:
    schedule = TriggerSchedule(100.0, 30.0, 1_000.0)
    schedule.follow_backlog(True, 0.0)
    assert schedule.next_ms is None, "nothing runs yet"
    schedule.start(0.0, 1.0)
    assert schedule.next_ms == 1_000.0
    without = TriggerSchedule(100.0, 30.0, 0.0)
    without.follow_backlog(True, 0.0)
    without.start(0.0, 1.0)
    assert without.next_ms is None
    without.stop()
    without.follow_backlog(False, 5.0)
    assert without.next_ms is None


def test_the_pause_is_the_least_interval_and_the_same_report_changes_nothing() -> None:
    schedule = started(200.0, 100.0, 300.0)
    schedule.follow_backlog(True, 0.0)
    planned = schedule.next_ms
    schedule.follow_backlog(True, 50.0)
    assert schedule.next_ms == planned == 300.0
    assert schedule.take_due(300.0) and schedule.next_ms == 600.0


@pytest.mark.parametrize("backlog_interval_ms", [None, 0.0, 500.0])
def test_without_an_interval_there_is_none_during_a_backlog(backlog_interval_ms: float | None) -> None:
    schedule = started(backlog_interval_ms, None)
    schedule.follow_backlog(True, 1.0)
    assert schedule.next_ms is None and not schedule.take_due(1_000.0)


def test_not_set_nothing_changes() -> None:
    schedule = started(None)
    schedule.follow_backlog(True, 10.0)
    assert schedule.take_due(100.0) and schedule.next_ms == 200.0
