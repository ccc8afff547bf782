"""Limits the rate of a generator."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable

_BURST_S = 1.0
_PORTION_S = 0.01


@dataclass(frozen=True)
class RateLimiterStrategy:
    """Limits the rate of a generator: `rows_per_second` of all subtasks together; None: no limit."""

    rows_per_second: float | None = None

    def __post_init__(self) -> None:
        if self.rows_per_second is not None and not self.rows_per_second > 0:
            raise ValueError(f"rows_per_second must be greater than 0, not {self.rows_per_second}")

    @staticmethod
    def per_second(rows_per_second: float) -> RateLimiterStrategy:
        """Limit the rate.

        Args:
            rows_per_second: Rows per second of all subtasks together, more than 0.

        Returns:
            The strategy.
        """
        return RateLimiterStrategy(rows_per_second)

    @staticmethod
    def no_op() -> RateLimiterStrategy:
        """Set no limit."""
        return RateLimiterStrategy()


class RateLimiter:
    """Limits the rate of a reader, by a token bucket.

    It saves up at most one second of unused rate, as Flink's does, and releases it in portions of 10 ms of rate (one
    row at the least), so that a high rate is not paid for row by row. `rows_per_second` is this reader's share;
    `monotonic_s` is the clock, in seconds.
    """

    def __init__(self, rows_per_second: float | None, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._rate = rows_per_second
        self._clock = monotonic_s
        self._last_s: float | None = None
        self._tokens = 0.0

    def wait_ms(self) -> float:
        """Return the time to wait, in milliseconds; 0 if rows may be taken now."""
        if self._rate is None:
            return 0.0
        now_s = self._clock()
        if self._last_s is not None:
            burst = max(1.0, self._rate * _BURST_S)
            self._tokens = min(burst, self._tokens + (now_s - self._last_s) * self._rate)
        self._last_s = now_s
        missing = max(1.0, self._rate * _PORTION_S) - self._tokens
        # Less than a millionth of a row is the rounding of the sum above, not a debt.
        return 0.0 if missing <= 1e-6 else missing / self._rate * 1000

    def rows_allowed(self, rows_max: int) -> int:
        """Return the number of rows that may be taken after `wait_ms` returned 0.

        Args:
            rows_max: The largest number wanted.

        Returns:
            1 to `rows_max`.
        """
        return rows_max if self._rate is None else max(1, min(rows_max, int(self._tokens + 1e-6)))

    def take(self, rows: int) -> None:
        """Take rows from the rate.

        Args:
            rows: The number of rows.
        """
        if self._rate is not None:
            self._tokens -= rows
