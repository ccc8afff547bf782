"""Defines the clock that everything which needs the time is given."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Provides the time to everything that needs it, so that tests and the simulation can control it."""

    def monotonic_ms(self) -> float:
        """Return a time in milliseconds that never goes back. Only differences have a meaning."""

    def undisturbed_ms(self) -> float:
        """Return monotonic time (ms) without what the calling thread has waited for a processor.

        A difference of two calls by one thread measures what work costs, on a busy machine too. Never use it for a
        deadline.
        """

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch, for processing time, names and reports. It may go back."""
