"""Holds the restart strategies to Flink's: when they give up, how long they wait, and when they begin again."""

from __future__ import annotations

import pytest

from penstock.protocol.driver.restarts import ExponentialDelay, Failure, FailureRate, FixedDelay, NoRestart


def test_none_never_restarts() -> None:
    assert NoRestart().on_failure(Failure(0)) is None


def test_fixed_delay_gives_up_after_its_attempts() -> None:
    strategy = FixedDelay(attempts_max=2, delay_ms=500)
    assert [strategy.on_failure(Failure(t)) for t in (0, 1, 2)] == [500, 500, None]
    assert "fixed-delay.attempts" in strategy.describe()


def test_failure_rate_counts_only_failures_of_the_interval() -> None:
    strategy = FailureRate(failures_max=2, interval_ms=100, delay_ms=7)
    assert [strategy.on_failure(Failure(t)) for t in (0, 50, 150, 201)] == [7, 7, 7, 7]
    assert strategy.on_failure(Failure(202)) is None


def test_exponential_delay_first_restart_at_once_then_flinks_backoff() -> None:
    strategy = ExponentialDelay()
    assert [strategy.on_failure(Failure(t)) for t in range(4)] == [0.0, 1000.0, 1500.0, 2250.0]


def test_exponential_delay_is_bounded_and_never_gives_up_by_default() -> None:
    strategy = ExponentialDelay()
    delays = [strategy.on_failure(Failure(t, jitter=1.0)) for t in range(200)]
    assert delays[-1] == 60_000.0
    assert max(d for d in delays if d is not None) == 60_000.0


@pytest.mark.parametrize(("jitter", "expected"), [(-1.0, 900.0), (0.0, 1000.0), (1.0, 1100.0)])
def test_exponential_delay_jitter_is_the_callers_number(jitter: float, expected: float) -> None:
    strategy = ExponentialDelay()
    strategy.on_failure(Failure(0))
    assert strategy.on_failure(Failure(1, jitter=jitter)) == pytest.approx(expected)


def test_exponential_delay_starts_over_after_a_long_quiet_run() -> None:
    strategy = ExponentialDelay(reset_threshold_ms=10_000)
    strategy.on_failure(Failure(0))
    assert strategy.on_failure(Failure(1)) == 1000.0
    assert strategy.on_failure(Failure(11_000)) == 1500.0, "9,999 ms after the restart at 1,001 ms"
    assert strategy.on_failure(Failure(22_500)) == 0.0


def test_exponential_delay_attempts_are_counted_when_limited() -> None:
    strategy = ExponentialDelay(attempts_max=2)
    assert [strategy.on_failure(Failure(t)) for t in range(3)] == [0.0, 1000.0, None]


def test_lost_slots_of_a_job_that_gets_on_cost_no_backoff() -> None:
    strategy = ExponentialDelay()
    for t in range(20):
        assert strategy.on_failure(Failure(t * 1000.0, slot_lost=True, progressed=True)) == 0.0
    assert strategy.on_failure(Failure(20_000.0)) == 0.0, "the first failure of its own still restarts at once"
    assert strategy.on_failure(Failure(20_001.0, progressed=True)) == 1000.0, "user code that fails again waits"
    assert strategy.on_failure(Failure(20_002.0, slot_lost=True)) == 1500.0, "no checkpoint in between"
