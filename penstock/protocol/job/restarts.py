"""Decides after each failure of a job whether it restarts, and when."""

from __future__ import annotations

from collections.abc import Callable

from penstock.protocol.job.lifecycle_effects import FailureCause
from penstock.protocol.job.restart_strategy import Failure, RestartStrategy


class Restarts:
    """Decides when a failed job is restarted. `jitter` returns the caller's next random number in [-1, 1]."""

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
