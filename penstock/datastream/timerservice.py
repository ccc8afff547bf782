"""Defines TimerService."""

from __future__ import annotations

from abc import ABC, abstractmethod


class TimerService(ABC):
    """Reads the time and registers timers.

    Times are milliseconds since the epoch. Timers belong to the current key, so only keyed functions have timers. A key
    has at most one timer of each kind for the same time.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Return the time of the slot's clock."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Return the watermark of the operator, in ms since the epoch.

        It is the smallest 64-bit number before the first watermark, and without event time.
        """

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the watermark reaches a time; if it has passed already, with the next watermark.

        Args:
            timestamp: Milliseconds since the epoch.
        """

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the slot's clock reaches a time.

        Args:
            timestamp: Milliseconds since the epoch.
        """

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete a timer of the current key, if there is one for this time.

        Args:
            timestamp: The time that it was registered for.
        """

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete a timer of the current key, if there is one for this time.

        Args:
            timestamp: The time that it was registered for.
        """
