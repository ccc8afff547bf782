"""Measures the time in which a subtask could consume, so that rows per time are its rate."""

from __future__ import annotations

from penstock.common.clock import Clock


class ActiveClock:
    """Stands still while its owner waits for a processor, or for rows that a producer holds or has sent.

    Rates by the wall clock would be too low: next to busy processes both ends of a channel wait for a processor between
    two windows, so the rate is a window per wait; a bound that follows such a rate shrinks the windows, which lowers
    the rate, down to the least size. (Flink's throughput calculator leaves out idle time for the same reason.)

    Rates without all idle time would be too high. A subtask whose producers have nothing for it, because another of
    their consumers is slow, needs no larger window. Without this: its bounds grow to many times of those of its slow
    neighbour, and so does what unaligned checkpoints write.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._idle_ms = 0.0
        self._paused_at_ms: float | None = None

    def pause(self) -> None:
        """Stop the clock. Does nothing while it stands still."""
        if self._paused_at_ms is None:
            self._paused_at_ms = self._clock.undisturbed_ms()

    def resume(self) -> None:
        """Let the clock run again. Does nothing while it runs."""
        if self._paused_at_ms is not None:
            self._idle_ms += self._clock.undisturbed_ms() - self._paused_at_ms
            self._paused_at_ms = None

    def now_ms(self) -> float:
        """Return the active time so far."""
        now_ms = self._clock.undisturbed_ms() if self._paused_at_ms is None else self._paused_at_ms
        return now_ms - self._idle_ms
