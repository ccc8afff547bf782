"""Defines the windows that rows are assigned to, and the TimeWindow that window functions get."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

from penstock.common.missing_names import advising_getattr
from penstock.common.time import Duration, Time
from penstock.operators.windows.assigners.assigner import Assigner
from penstock.operators.windows.assigners.sessions import DynamicSession, Session
from penstock.operators.windows.assigners.sliding import Sliding
from penstock.operators.windows.assigners.tumbling import Tumbling


class Window(ABC):
    """Represents a group of rows with the same key."""

    @abstractmethod
    def max_timestamp(self) -> int:
        """Return the largest timestamp (ms) that belongs to the window."""


@dataclass(frozen=True, order=True, slots=True)
class TimeWindow(Window):
    """Represents the time from `start` (included) to `end` (excluded), in milliseconds since the epoch."""

    start: int
    end: int

    def max_timestamp(self) -> int:
        """Return `end` - 1."""
        return self.end - 1

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Compute the start of the window that contains a time.

        Args:
            timestamp: The time, in milliseconds since the epoch.
            offset: Where windows begin, in milliseconds after the epoch.
            window_size: The size of windows in milliseconds.

        Returns:
            The start, in milliseconds since the epoch.
        """
        return timestamp - (timestamp - offset) % window_size


class WindowAssigner(ABC):
    """Assigns rows to windows.

    There are `TumblingEventTimeWindows`, `SlidingEventTimeWindows` and `EventTimeSessionWindows`.
    """

    @abstractmethod
    def _assigner(self) -> Assigner:
        """Return the assigner of these windows for operators."""

    _window_class: Callable[[int, int], Window] = TimeWindow
    """Makes the window that functions get, of its start and end."""


@dataclass(frozen=True)
class TumblingEventTimeWindows(WindowAssigner):
    """Assigns rows to windows of one size in event time, without gap or overlap: each row belongs to one.

    Example:
        TumblingEventTimeWindows.of(Duration.of_minutes(5))
    """

    size_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            raise ValueError(f"TumblingEventTimeWindows: the size is more than 0 ms, got {self.size_ms} ms")
        if abs(self.offset_ms) >= self.size_ms:
            raise ValueError(
                f"TumblingEventTimeWindows: the offset is less than the size ({self.size_ms} ms), got "
                f"{self.offset_ms} ms"
            )

    @staticmethod
    def of(size: Duration | Time, offset: Duration | Time | None = None) -> TumblingEventTimeWindows:
        """Make windows of a size.

        Args:
            size: The size, a `Duration` or `Time` of whole milliseconds.
            offset: Windows begin at the epoch plus this; None: at the epoch. Days of UTC+8: `of(Time.days(1),
                Time.hours(-8))`.

        Returns:
            The assigner. Raises TypeError for a value that is no length of time.

        Raises:
            ValueError: The size is not positive, the offset is not less than it, or one is no whole number of
                milliseconds.
        """
        named = "TumblingEventTimeWindows.of()"
        return TumblingEventTimeWindows(_ms(size, "size", named), 0 if offset is None else _ms(offset, "offset", named))

    def _assigner(self) -> Assigner:
        return Tumbling(self.size_ms, self.offset_ms)

    def __str__(self) -> str:
        offset = f", offset {self.offset_ms} ms" if self.offset_ms else ""
        return f"TumblingEventTimeWindows({Duration.of_millis(self.size_ms)}{offset})"


_WINDOWS_PER_ROW_MAX = 100_000
"""With more sliding windows, a batch of one row would fill the memory."""


@dataclass(frozen=True)
class SlidingEventTimeWindows(WindowAssigner):
    """Assigns rows to windows of one size in event time, of which one starts every slide.

    A row belongs to size / slide windows.

    Example:
        SlidingEventTimeWindows.of(Duration.of_minutes(10), Duration.of_minutes(1))
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if self.size_ms <= 0 or self.slide_ms <= 0:
            raise ValueError(
                f"SlidingEventTimeWindows: size and slide are more than 0 ms, got {self.size_ms} ms and "
                f"{self.slide_ms} ms"
            )
        if self.size_ms > _WINDOWS_PER_ROW_MAX * self.slide_ms:
            raise ValueError(
                f"SlidingEventTimeWindows: each row would be in {self.size_ms // self.slide_ms:,} windows, which is "
                f"the size ({self.size_ms} ms) divided by the slide ({self.slide_ms} ms); at most "
                f"{_WINDOWS_PER_ROW_MAX:,} are possible"
            )
        if abs(self.offset_ms) >= self.slide_ms:
            raise ValueError(
                f"SlidingEventTimeWindows: the offset is less than the slide ({self.slide_ms} ms), got "
                f"{self.offset_ms} ms"
            )

    @staticmethod
    def of(
        size: Duration | Time, slide: Duration | Time, offset: Duration | Time | None = None
    ) -> SlidingEventTimeWindows:
        """Make windows of a size, one every `slide`.

        Args:
            size: The size, a `Duration` or `Time` of whole milliseconds.
            slide: The time from the start of a window to that of the next one. With one above the size, rows between
                two windows belong to none.
            offset: Windows begin at the epoch plus this; None: at the epoch.

        Returns:
            The assigner. Raises TypeError for a value that is no length of time.

        Raises:
            ValueError: Size or slide is not positive, size / slide is above 100,000, the offset is not less than the
                slide, or one is no whole number of milliseconds.
        """
        named = "SlidingEventTimeWindows.of()"
        offset_ms = 0 if offset is None else _ms(offset, "offset", named)
        return SlidingEventTimeWindows(_ms(size, "size", named), _ms(slide, "slide", named), offset_ms)

    def _assigner(self) -> Assigner:
        return Sliding(self.size_ms, self.slide_ms, self.offset_ms)

    def __str__(self) -> str:
        offset = f", offset {self.offset_ms} ms" if self.offset_ms else ""
        return (
            f"SlidingEventTimeWindows({Duration.of_millis(self.size_ms)}, {Duration.of_millis(self.slide_ms)}{offset})"
        )


@dataclass(frozen=True)
class EventTimeSessionWindows(WindowAssigner):
    """Assigns rows to sessions in event time: a session of a key ends when it has had no row for a gap.

    A row that lies between two sessions may join them. Window functions of sessions have no `window_state()`, and an
    `AggregateFunction` needs `merge`.

    Example:
        EventTimeSessionWindows.with_gap(Duration.of_minutes(30))
    """

    gap_ms: int

    def __post_init__(self) -> None:
        if self.gap_ms <= 0:
            raise ValueError(f"EventTimeSessionWindows: the gap is more than 0 ms, got {self.gap_ms} ms")

    @staticmethod
    def with_gap(size: Duration | Time) -> EventTimeSessionWindows:
        """Make sessions with one gap for all rows.

        Args:
            size: The gap, a `Duration` or `Time` of whole milliseconds.

        Returns:
            The assigner. Raises TypeError for a value that is no length of time.

        Raises:
            ValueError: The gap is not positive, or no whole number of milliseconds.
        """
        return EventTimeSessionWindows(_ms(size, "gap", "EventTimeSessionWindows.with_gap()"))

    @staticmethod
    def with_dynamic_gap(
        session_window_time_gap_extractor: SessionWindowTimeGapExtractor,
    ) -> DynamicEventTimeSessionWindows:
        """Make sessions whose gap depends on their rows.

        Args:
            session_window_time_gap_extractor: Returns the gap behind a row.

        Returns:
            The assigner.

        Raises:
            TypeError: The argument is no `SessionWindowTimeGapExtractor`.
        """
        return DynamicEventTimeSessionWindows(session_window_time_gap_extractor)

    def _assigner(self) -> Assigner:
        return Session(self.gap_ms)

    def __str__(self) -> str:
        return f"EventTimeSessionWindows({Duration.of_millis(self.gap_ms)})"


class SessionWindowTimeGapExtractor(ABC):
    """Returns the gap that ends a session, for each row."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Return the gap behind a row.

        Args:
            element: The row.

        Returns:
            The gap in milliseconds, more than 0.
        """


@dataclass(frozen=True)
class DynamicEventTimeSessionWindows(WindowAssigner):
    """Assigns rows to sessions in event time, whose gap depends on their rows.

    Example:
        class GapOfUser(SessionWindowTimeGapExtractor):
            def extract(self, element):
                return 60_000 if element["is_robot"] else 1_800_000

        EventTimeSessionWindows.with_dynamic_gap(GapOfUser())
    """

    extractor: SessionWindowTimeGapExtractor

    def __post_init__(self) -> None:
        if not isinstance(self.extractor, SessionWindowTimeGapExtractor):
            raise TypeError(
                "EventTimeSessionWindows.with_dynamic_gap() takes a SessionWindowTimeGapExtractor, which has a method "
                f"extract(element); got {self.extractor!r}"
            )

    def _assigner(self) -> Assigner:
        return DynamicSession(self.extractor.extract)

    def __str__(self) -> str:
        return f"DynamicEventTimeSessionWindows({type(self.extractor).__name__})"


def _ms(length: Any, what: str, named: str) -> int:
    if isinstance(length, Time):
        return length.to_milliseconds()  # the only kind of length that may be negative
    try:
        duration = Duration.of(length)
    except ValueError as error:
        raise TypeError(
            f"{named}: the {what} is a Duration or a Time, e.g. Duration.of_seconds(10); got {length!r}"
        ) from error
    if duration.nanoseconds % 10**6:
        raise ValueError(f"{named}: the {what} is a whole number of milliseconds, got {duration}")
    return duration.to_millis()


if not TYPE_CHECKING:  # a type checker knows the names without it
    __getattr__ = advising_getattr(__name__)
