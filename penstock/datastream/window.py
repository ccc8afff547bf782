"""Windows: TumblingEventTimeWindows, and the TimeWindow that window functions are given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from penstock.common.time import Duration, Time


class Window(ABC):
    @abstractmethod
    def max_timestamp(self) -> int:
        """The largest timestamp (ms) that belongs to the window."""


@dataclass(frozen=True, order=True, slots=True)
class TimeWindow(Window):
    """From `start` (with it) to `end` (without it), in milliseconds since the epoch."""

    start: int
    end: int

    def max_timestamp(self) -> int:
        return self.end - 1

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """The start of the window that holds `timestamp`; all in milliseconds."""
        return timestamp - (timestamp - offset) % window_size


class WindowAssigner(ABC):  # noqa: B024
    """Which windows a row belongs to. There is one kind: `TumblingEventTimeWindows`."""


@dataclass(frozen=True)
class TumblingEventTimeWindows(WindowAssigner):
    """Windows of one size in event time, one after the other without a gap; a row belongs to exactly one."""

    size_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            raise ValueError(f"TumblingEventTimeWindows: the size is more than 0 ms, got {self.size_ms} ms")
        if abs(self.offset_ms) >= self.size_ms:
            raise ValueError(f"TumblingEventTimeWindows: the offset is less than the size ({self.size_ms} ms), got "
                             f"{self.offset_ms} ms")

    @staticmethod
    def of(size: Duration | Time, offset: Duration | Time | None = None) -> TumblingEventTimeWindows:
        """Windows begin at the epoch plus `offset`: days of UTC+8 are `of(Time.days(1), Time.hours(-8))`."""
        return TumblingEventTimeWindows(_ms(size, "size"), 0 if offset is None else _ms(offset, "offset"))

    def __str__(self) -> str:
        offset = f", offset {self.offset_ms} ms" if self.offset_ms else ""
        return f"TumblingEventTimeWindows({Duration.of_millis(self.size_ms)}{offset})"


def _ms(length: Any, what: str) -> int:
    if isinstance(length, Time):
        return length.to_milliseconds()  # the only kind of length that may be negative
    try:
        duration = Duration.of(length)
    except ValueError as error:
        raise TypeError(f"TumblingEventTimeWindows.of(): the {what} is a Duration or a Time, e.g. "
                        f"Duration.of_seconds(10); got {length!r}") from error
    if duration.nanoseconds % 10**6:
        raise ValueError(f"TumblingEventTimeWindows.of(): the {what} is a whole number of milliseconds, got {duration}")
    return duration.to_millis()
