"""Drives the event time of a subtask that holds rows between its inputs and its chain."""

from __future__ import annotations

from typing import Any

from penstock.operators.calls.call_queue import CallQueue
from penstock.operators.event_time.subtask_clock import SubtaskClock


class HeldClock(SubtaskClock):
    """Keeps watermarks behind the rows that came before them, and is not idle while there are any.

    Whatever ends idleness passes at once, because time only waits longer for it.
    """

    def __init__(self, queue: CallQueue, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._queue = queue

    def on_inputs(self, watermark_ms: int | None) -> None:
        # 5.6: nothing passes held rows.
        if watermark_ms is not None and not self._queue.is_empty:
            self._queue.add_watermark(watermark_ms)
            watermark_ms = None
        super().on_inputs(watermark_ms)

    def catch_up(self, watermark_ms: int | None) -> None:
        """Handle a watermark that no row precedes any more; None: the last row has left."""
        if watermark_ms is not None:
            self.time.advance(watermark_ms)
        self._emit_idleness_of_inputs()

    def _emit_idleness_of_inputs(self) -> None:
        if self._queue.is_empty or not self.valve.is_idle:
            super()._emit_idleness_of_inputs()
