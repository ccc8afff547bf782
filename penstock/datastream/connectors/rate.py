"""How fast a generator may go."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable

_BURST_S = 1.0
_PORTION_S = 0.01


@dataclass(frozen=True)
class RateLimiterStrategy:
    """Flink's `RateLimiterStrategy`: `rows_per_second` over all subtasks together, None for no limit."""

    rows_per_second: float | None = None

    def __post_init__(self) -> None:
        if self.rows_per_second is not None and not self.rows_per_second > 0:
            raise ValueError(f"rows_per_second must be greater than 0, not {self.rows_per_second}")

    @staticmethod
    def per_second(rows_per_second: float) -> RateLimiterStrategy:
        return RateLimiterStrategy(rows_per_second)

    @staticmethod
    def no_op() -> RateLimiterStrategy:
        return RateLimiterStrategy()


class RateLimiter:
    """A token bucket for one reader. It saves up at most one second of unused rate, as Flink's does, and gives it
    out in portions of 10 ms of rate (one row at the least), so that a high rate is not paid for row by row.

    :param rows_per_second: this reader's share; None for no limit.
    :param monotonic_s: the clock, in seconds.
    """

    def __init__(self, rows_per_second: float | None, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._rate = rows_per_second
        self._clock = monotonic_s
        self._last_s: float | None = None
        self._tokens = 0.0

    def wait_ms(self) -> float:
        """0 when rows may be taken now."""
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
        """How many rows may be taken after `wait_ms` was 0: 1 to `rows_max`."""
        return rows_max if self._rate is None else max(1, min(rows_max, int(self._tokens + 1e-6)))

    def take(self, rows: int) -> None:
        if self._rate is not None:
            self._tokens -= rows
