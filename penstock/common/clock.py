"""The clock that everything with a sense of time is given."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def monotonic_ms(self) -> float: ...

    def undisturbed_ms(self) -> float:
        """Return monotonic time without what the calling thread has waited for a processor, so that a difference
        says what work costs, on a busy machine too. The difference of two calls by one thread; never a deadline."""

    def wall_ms(self) -> int:
        """For names and reports only, never for a decision."""
