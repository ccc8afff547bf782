"""Keeps a source from reading too far ahead in event time, within its group."""

from __future__ import annotations

from typing import Callable

from penstock.common.clock import Clock
from penstock.common.watermark_strategy import NO_TIMESTAMP
from penstock.operators.event_time.watermark_generators import WatermarkGenerators
from penstock.protocol.values.elements import WATERMARK_MAX_MS


class SourceAlignment:
    """Reports the source's watermark, and pauses it beyond the limit that the JobMaster has sent.

    A slice is read whole, and a fast source's slice covers seconds of event time. So the slices become shorter before
    the limit: the source reads no more rows than lead there, if event time rises per row as it did for the newest rows.
    Only rows count of which the generators have not been asked yet: others are in the watermark. Without this: a source
    whose watermark stands still, because one of its splits is silent, reads row by row.

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
        self._waits_for_others = False
        self._limit_ms = WATERMARK_MAX_MS
        self._watermark_ms = NO_TIMESTAMP
        self._rows_since = 0  # since the watermark rose to this
        self._asked = generators.asked
        self._rows_since_asked = 0
        self._rows_per_ms = 0.0  # of event time; 0: not known

    def limit(self, watermark_max_ms: int) -> None:
        """Read up to this watermark."""
        # 5.7: no source of the group reads further than this.
        self._limit_ms = watermark_max_ms

    def follow_reader(self, waits_for_others: bool) -> None:
        """Follow whether the reader waits for others. It counts as idle then. Without this: those that it waits for may
        not read further than it has, and never come to their ends."""
        if waits_for_others and not self._waits_for_others:
            self._report_at_ms = self._clock.monotonic_ms()
        self._waits_for_others = waits_for_others
        if waits_for_others:
            self._report_if_due(self._clock.monotonic_ms())

    def _report_if_due(self, now_ms: float) -> None:
        if now_ms < self._report_at_ms:
            return
        self._report_at_ms = now_ms + self._update_ms
        if (watermark_ms := self._present) != self._reported:
            self._reported = watermark_ms
            self._report(watermark_ms)

    @property
    def _present(self) -> int | None:
        is_idle = self._generators.idle or self._waits_for_others
        return None if is_idle else self._generators.watermark_ms

    def at_the_latest(self, wait_ms: float | None) -> float | None:
        """Return the maximum wait of a source without rows: until it is time to report what has changed. `wait_ms`:
        what the source asks for. Without this: nobody hears that it is idle, and the others of its group wait for it.
        """
        if self._present == self._reported:
            return wait_ms
        report_ms = max(self._report_at_ms - self._clock.monotonic_ms(), 1.0)
        return report_ms if wait_ms is None else min(wait_ms, report_ms)

    def wait_ms(self) -> float | None:
        """Report the watermark if it is time to. Returns how long to wait before reading; None: read now."""
        now_ms = self._clock.monotonic_ms()
        self._report_if_due(now_ms)
        if self._generators.watermark_ms <= self._limit_ms:
            return None
        return max(self._report_at_ms - now_ms, 1.0)

    def slice_rows(self, most: int) -> int:
        """Return the number of rows to read next: `most`, or what is left up to the limit, at least 1."""
        watermark_ms = self._generators.watermark_ms
        if watermark_ms != self._watermark_ms:
            if self._watermark_ms != NO_TIMESTAMP:
                self._rows_per_ms = self._rows_since / (watermark_ms - self._watermark_ms)
            self._watermark_ms, self._rows_since = watermark_ms, 0
        if self._generators.asked != self._asked:
            self._asked, self._rows_since_asked = self._generators.asked, 0
        if self._rows_per_ms == 0 or self._limit_ms == WATERMARK_MAX_MS:
            return most
        left = self._rows_per_ms * (self._limit_ms - watermark_ms) - self._rows_since_asked
        return max(1, min(most, round(left)))

    def on_read(self, rows: int) -> None:
        """Count rows that the source has read."""
        self._rows_since += rows
        self._rows_since_asked += rows
