"""Keeps a source from reading too far ahead in event time, within its group."""

from __future__ import annotations

from typing import Callable

from penstock.common.clock import Clock
from penstock.operators.event_time.watermark_generators import WatermarkGenerators
from penstock.protocol.values.elements import WATERMARK_MAX_MS


class SourceAlignment:
    """Reports the source's watermark, and pauses it beyond the limit that the JobMaster has sent.

    Args:
        report: Sends the watermark; None: the source is idle.
        update_ms: How often the watermark is reported.
    """

    def __init__(
        self, generators: WatermarkGenerators, clock: Clock, report: Callable[[int | None], None], update_ms: float
    ) -> None:
        self._generators = generators
        self._clock = clock
        self._report = report
        self._update_ms = update_ms
        self._report_at_ms = clock.monotonic_ms()
        self._reported: int | None = None
        self._limit_ms = WATERMARK_MAX_MS

    def limit(self, watermark_max_ms: int) -> None:
        """Read up to this watermark."""
        self._limit_ms = watermark_max_ms

    def wait_ms(self) -> float | None:
        """Report the watermark if it is time to. Returns how long to wait before reading; None: read now."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._report_at_ms:
            self._report_at_ms = now_ms + self._update_ms
            watermark_ms = None if self._generators.idle else self._generators.watermark_ms
            if watermark_ms != self._reported:
                self._reported = watermark_ms
                self._report(watermark_ms)
        if self._generators.watermark_ms <= self._limit_ms:
            return None
        return max(self._report_at_ms - now_ms, 1.0)
