"""Measures a driver's wait, without the time in which it was suspended itself."""

from __future__ import annotations

LATE_MS_MAX = 100.0
"""The longest delay with which a driver looks at the clock, unless it was suspended itself."""
_LOOKS = 8
"""The number of looks at the clock during a wait: a suspension is noticed wherever it falls."""


class Patience:
    """Waits for one thing at a time, `timeout_ms` at most."""

    def __init__(self, timeout_ms: float) -> None:
        self._timeout_ms = timeout_ms
        self._look_at_ms: float | None = None
        self._until_ms = 0.0

    def begin(self, now_ms: float) -> None:
        """Begin to wait."""
        self._until_ms = now_ms + self._timeout_ms
        self._look_at_ms = self._next_look(now_ms)

    def end(self) -> None:
        """Wait no more."""
        self._look_at_ms = None

    def next_deadline_ms(self) -> float | None:
        """Return the deadline for the next call of `is_over`; None if nothing is waited for."""
        return self._look_at_ms

    def is_over(self, now_ms: float) -> bool:
        """Return whether the timeout has passed while the driver was awake."""
        if self._look_at_ms is None:
            return False
        late_ms = now_ms - self._look_at_ms
        if late_ms > LATE_MS_MAX:
            # Without this: what the driver waits for has had no time, or its answer has come and was not taken yet.
            self._until_ms += late_ms
        if late_ms >= 0:
            self._look_at_ms = self._next_look(now_ms)
        return now_ms >= self._until_ms

    def _next_look(self, now_ms: float) -> float:
        return min(self._until_ms, now_ms + self._timeout_ms / _LOOKS)
