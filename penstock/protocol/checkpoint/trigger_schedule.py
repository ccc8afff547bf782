"""Says when the next periodic checkpoint is due, as Flink's coordinator does."""

from __future__ import annotations


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
