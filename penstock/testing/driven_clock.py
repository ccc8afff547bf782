"""Drives the time of a pipeline under test: its clock, and what is to happen later."""

from __future__ import annotations

import heapq
from typing import Callable


class DrivenClock:
    """Implements `penstock.common.clock.Clock`. Time stands still until somebody sets it. Times are milliseconds."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = float(now_ms)
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def undisturbed_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Call a function once the time has come, in `run_due`."""
        self._order += 1
        heapq.heappush(self._later, (self.now_ms + delay_ms, self._order, action))

    @property
    def next_ms(self) -> float | None:
        """Return the time of the next call; None without one."""
        return self._later[0][0] if self._later else None

    def run_due(self) -> bool:
        """Make the calls that are due. Returns whether there were any."""
        ran = False
        while self._later and self._later[0][0] <= self.now_ms:
            heapq.heappop(self._later)[2]()
            ran = True
        return ran

    def forget(self) -> None:
        """Drop all calls: whoever asked for them is gone."""
        self._later.clear()
