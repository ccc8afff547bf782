"""The real clock."""

from __future__ import annotations

import time


class SystemClock:
    """Implements `penstock.runtime.ports.Clock`."""

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1e6

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
