"""TimerService, where PyFlink has it."""

from __future__ import annotations

from abc import ABC, abstractmethod


class TimerService(ABC):
    """Times are milliseconds since the epoch. Timers belong to the current key, so only keyed functions have any;
    one key has at most one timer of each kind for one time."""

    @abstractmethod
    def current_processing_time(self) -> int: ...

    @abstractmethod
    def current_watermark(self) -> int:
        """The smallest 64-bit number before the first watermark, and where the stream has no event time."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """`on_timer` is called when the watermark has come to `timestamp`; where it already has, with the next one."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None: ...

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """No error where there is none."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """No error where there is none."""
