"""Says when the next periodic checkpoint is due, as Flink's coordinator does, and when the final one."""

from __future__ import annotations

RETRY_FINAL_AFTER_MS = 1000.0


class TriggerSchedule:
    """Plans triggers: the first between the minimum pause and the interval, the next ones an interval apart, whenever
    the checkpoints complete. `interval_ms` None: there are none. One below the minimum pause is raised to that.
    `backlog_interval_ms` is the interval while a source works off a backlog; None: the same, 0: none meanwhile.
    """

    def __init__(
        self, interval_ms: float | None, min_pause_ms: float, backlog_interval_ms: float | None = None
    ) -> None:
        self.next_ms: float | None = None
        self.is_backlog = False
        self._usual_ms = None if interval_ms is None else max(interval_ms, min_pause_ms)
        self._backlog_ms = self._usual_ms
        if self._usual_ms is not None and backlog_interval_ms is not None:
            self._backlog_ms = max(backlog_interval_ms, min_pause_ms) if backlog_interval_ms > 0 else None
        self._min_pause_ms = min_pause_ms
        self._has_started = False
        self._is_running = False

    @property
    def _interval_ms(self) -> float | None:
        return self._backlog_ms if self.is_backlog else self._usual_ms

    def follow_backlog(self, is_backlog: bool, now_ms: float) -> None:
        """Follow the interval for backlog, or the usual one, from now on. A trigger that is planned is not postponed,
        except by an interval that allows none.
        """
        if is_backlog is self.is_backlog:
            return
        self.is_backlog = is_backlog
        interval_ms = self._interval_ms
        if interval_ms is None or not self._is_running:
            self.next_ms = None
        elif self.next_ms is None or now_ms + interval_ms < self.next_ms:
            self.next_ms = now_ms + interval_ms

    def start(self, now_ms: float, spread: float) -> None:
        """Start again. `spread` in [0, 1) places the job's very first trigger; after a restart the pause is enough."""
        self.next_ms = None
        self._is_running = True
        if self._interval_ms is not None:
            delay_ms = self._min_pause_ms
            if not self._has_started:
                delay_ms += spread * (self._interval_ms - delay_ms)
            self.next_ms = now_ms + delay_ms
        self._has_started = True

    def stop(self) -> None:
        """Trigger nothing until the next start."""
        self.next_ms = None
        self._is_running = False

    def postpone(self, until_ms: float) -> None:
        """Trigger the next checkpoint at this time, instead of the planned one."""
        if self._interval_ms is not None:
            self.next_ms = until_ms

    def take_due(self, now_ms: float) -> bool:
        """Return whether a trigger is due, and plan the next one. Missed ones become one."""
        if self.next_ms is None or self._interval_ms is None or self.next_ms > now_ms:
            return False
        self.next_ms = max(self.next_ms + self._interval_ms, now_ms)
        return True


class FinalAttempts:
    """Plans the attempts of one generation at its final checkpoint: the first at once, the next after a moment. An
    attempt that is due, but must wait for another checkpoint to end, follows that at once.
    """

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
        self.due_ms, self._has_begun = None, False
        return True
