"""Decides after each failure of a job whether it restarts, and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from penstock.protocol.driver.driver_effects import FailureCause


@dataclass(frozen=True)
class Failure:
    """Describes a failure. `jitter` is the caller's random number in [-1, 1]. `slot_lost`: a process or connection was
    lost, in contrast to an error of the job itself. `progressed`: a checkpoint has completed since the last restart.
    """

    now_ms: float
    jitter: float = 0.0
    slot_lost: bool = False
    progressed: bool = False


class RestartStrategy(Protocol):
    """Decides about each failure of one job, in order."""

    def on_failure(self, failure: Failure) -> float | None:
        """Return the milliseconds until the job is to be restarted; None: it is not restarted."""

    def describe(self) -> str:
        """Describe why the strategy gave up, and which option allows more, for the message of a failed job."""


class NoRestart:
    """Lets the first failure end the job."""

    def on_failure(self, failure: Failure) -> float | None:
        return None

    def describe(self) -> str:
        return (
            "no restarts are configured (restart-strategy.type is 'none', "
            "which is also the default without checkpointing)"
        )


@dataclass
class FixedDelay:
    """Restarts `attempts_max` times, each after the same delay."""

    attempts_max: int = 1
    delay_ms: float = 1000.0
    _attempts: int = field(default=0, init=False)

    def on_failure(self, failure: Failure) -> float | None:
        self._attempts += 1
        return self.delay_ms if self._attempts <= self.attempts_max else None

    def describe(self) -> str:
        return f"all {self.attempts_max} restarts of restart-strategy.fixed-delay.attempts are used up"


@dataclass
class FailureRate:
    """Gives up after more than `failures_max` failures within `interval_ms`."""

    failures_max: int = 1
    interval_ms: float = 60_000.0
    delay_ms: float = 1000.0
    _failures_ms: deque[float] = field(default_factory=deque, init=False)

    def on_failure(self, failure: Failure) -> float | None:
        self._failures_ms.append(failure.now_ms)
        while failure.now_ms - self._failures_ms[0] > self.interval_ms:
            self._failures_ms.popleft()
        return self.delay_ms if len(self._failures_ms) <= self.failures_max else None

    def describe(self) -> str:
        return (
            f"more than {self.failures_max} failures within {self.interval_ms / 1000:g} s "
            "(restart-strategy.failure-rate.max-failures-per-interval)"
        )


@dataclass
class ExponentialDelay:
    """Delays 0, initial, initial × multiplier, … up to `backoff_max_ms`, each changed by at most `jitter_factor` of
    itself. A run of `reset_threshold_ms` without failure starts over. `attempts_max` None: never gives up."""

    initial_backoff_ms: float = 1000.0
    backoff_max_ms: float = 60_000.0
    multiplier: float = 1.5
    jitter_factor: float = 0.1
    reset_threshold_ms: float = 3_600_000.0
    attempts_max: int | None = None
    _attempts: int = field(default=0, init=False)
    _restarted_ms: float = field(default=float("-inf"), init=False)

    def on_failure(self, failure: Failure) -> float | None:
        if failure.now_ms - self._restarted_ms >= self.reset_threshold_ms:
            self._attempts = 0
        if failure.slot_lost and failure.progressed:
            self._restarted_ms = failure.now_ms
            return 0.0
        self._attempts += 1
        if self.attempts_max is not None and self._attempts > self.attempts_max:
            return None
        delay_ms = self._delay_ms(failure.jitter)
        self._restarted_ms = failure.now_ms + delay_ms
        return delay_ms

    def _delay_ms(self, jitter: float) -> float:
        if self._attempts == 1:
            return 0.0
        backoff_ms = self.initial_backoff_ms
        for _ in range(self._attempts - 2):
            backoff_ms = min(backoff_ms * self.multiplier, self.backoff_max_ms)
            if backoff_ms >= self.backoff_max_ms:
                break
        return min(backoff_ms * (1 + self.jitter_factor * jitter), self.backoff_max_ms)

    def describe(self) -> str:
        return (
            f"all {self.attempts_max} restarts of "
            "restart-strategy.exponential-delay.attempts-before-reset-backoff are used up"
        )


class Restarts:
    """Decides the restarts of a failed job. `jitter` returns the caller's next random number in [-1, 1]."""

    def __init__(self, strategy: RestartStrategy, jitter: Callable[[], float]) -> None:
        self.failures = 0
        self.count = 0
        self.at_ms = 0.0
        """The time at which the newest restart may be deployed."""
        self._strategy = strategy
        self._jitter = jitter
        self._progressed = False

    def on_checkpoint_completed(self) -> None:
        self._progressed = True

    def on_failure(self, cause: FailureCause, now_ms: float) -> str | None:
        """Return why the job has failed for good; None: it restarts, at `at_ms`."""
        delay_ms: float | None = 0.0
        if not cause.planned:
            self.failures += 1
            if not cause.restartable:
                return self.verdict(cause)
            failure = Failure(now_ms, self._jitter(), cause.slot_lost, self._progressed)
            delay_ms = self._strategy.on_failure(failure)
            self._progressed = False
        if delay_ms is None:
            return self.verdict(cause)
        self.count += 1
        self.at_ms = max(now_ms + delay_ms, self.at_ms)
        return None

    def verdict(self, cause: FailureCause) -> str:
        """Return the message of a job that has failed for good, by the newest failure."""
        why = self._strategy.describe() if cause.restartable else "a restart cannot mend it"
        count = "the first failure" if self.failures == 1 else f"failure {self.failures}"
        return f"{cause.text()}\nThe job has failed: this was {count} of it, and {why}."
