"""Says when the next periodic checkpoint is due, as Flink's coordinator does, and when the final one."""

from __future__ import annotations

RETRY_FINAL_AFTER_MS = 1000.0


class TriggerSchedule:
    """Plans triggers: the first between the minimum pause and the interval, the next ones an interval apart, whenever
    the checkpoints complete. `interval_ms` None: there are none. One below the minimum pause is raised to that.
    """

    def __init__(self, interval_ms: float | None, min_pause_ms: float) -> None:
        self.next_ms: float | None = None
        self._interval_ms = None if interval_ms is None else max(interval_ms, min_pause_ms)
        self._min_pause_ms = min_pause_ms
        self._has_started = False

    def start(self, now_ms: float, spread: float) -> None:
        """Start again. `spread` in [0, 1) places the job's very first trigger; after a restart the pause is enough."""
        self.next_ms = None
        if self._interval_ms is not None:
            delay_ms = self._min_pause_ms
            if not self._has_started:
                delay_ms += spread * (self._interval_ms - delay_ms)
            self.next_ms = now_ms + delay_ms
        self._has_started = True

    def stop(self) -> None:
        """Trigger nothing until the next start."""
        self.next_ms = None

    def postpone(self, until_ms: float) -> None:
        """Trigger at this time instead."""
        self.next_ms = until_ms

    def take_due(self, now_ms: float) -> bool:
        """Return whether a trigger is due, and plan the next one. Missed ones become one."""
        if self.next_ms is None or self._interval_ms is None or self.next_ms > now_ms:
            return False
        self.next_ms = max(self.next_ms + self._interval_ms, now_ms)
        return True


class FinalAttempts:
    """Plans the attempts of one generation at its final checkpoint: the first at once, the next after a moment."""

    def __init__(self) -> None:
        self.due_ms: float | None = None
        self._has_begun = False

    def begin(self, now_ms: float) -> bool:
        """Return whether to trigger it now; else an attempt is due later."""
        if not self._has_begun:
            self._has_begun = True
            return True
        self.due_ms = now_ms + RETRY_FINAL_AFTER_MS
        return False

    def take_due(self, now_ms: float) -> bool:
        """Return whether a later attempt is due."""
        if self.due_ms is None or self.due_ms > now_ms:
            return False
        self.due_ms = None
        return True
