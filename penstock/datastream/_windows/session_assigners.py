"""Defines sessions: the windows of a key that end with a gap in which it has no row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.common.serializer import TypeSerializer
from penstock.common.time import Duration, Time
from penstock.datastream._windows.lengths import length_ms
from penstock.datastream._windows.window_assigners import MergingWindowAssigner, WindowAssigner
from penstock.datastream._windows.window_kinds import TimeWindow, TimeWindowSerializer
from penstock.datastream._windows.window_triggers import EventTimeTrigger, ProcessingTimeTrigger, Trigger
from penstock.operators.windows.assigners.assigner import MergingAssigner
from penstock.operators.windows.assigners.sessions import DynamicSession, Session


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


class _Sessions(MergingWindowAssigner[Any, TimeWindow]):
    """Opens a window for each row, from its time to the end of its gap. Windows that touch are one."""

    @abstractmethod
    def _assigner(self) -> MergingAssigner:
        """Return the rule by which rows open windows."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return [TimeWindow(*self._assigner().opened_for(element, timestamp))]

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return EventTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return True


class _SessionsByTheClock(_Sessions):
    """Opens the windows at the times at which rows are processed."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return [TimeWindow(*self._assigner().opened_for(element, context.get_current_processing_time()))]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


@dataclass(frozen=True)
class _GapSessions(_Sessions):
    session_gap: int

    def __post_init__(self) -> None:
        if self.session_gap <= 0:
            raise ValueError(f"{type(self).__name__}: the gap is more than 0 ms, got {self.session_gap} ms")

    def _assigner(self) -> MergingAssigner:
        return Session(self.session_gap)

    def __str__(self) -> str:
        return f"{type(self).__name__}({Duration.of_millis(self.session_gap)})"


@dataclass(frozen=True)
class _DynamicSessions(_Sessions):
    session_window_time_gap_extractor: SessionWindowTimeGapExtractor

    def __post_init__(self) -> None:
        if not isinstance(self.session_window_time_gap_extractor, SessionWindowTimeGapExtractor):
            raise TypeError(
                f"{type(self).__name__.removeprefix('Dynamic')}.with_dynamic_gap() takes a "
                "SessionWindowTimeGapExtractor, which has a method extract(element); got "
                f"{self.session_window_time_gap_extractor!r}"
            )

    def _assigner(self) -> MergingAssigner:
        return DynamicSession(self.session_window_time_gap_extractor.extract)

    def __str__(self) -> str:
        return f"{type(self).__name__}({type(self.session_window_time_gap_extractor).__name__})"


class EventTimeSessionWindows(_GapSessions):
    """Assigns rows to sessions in event time: a session of a key ends when it has had no row for a gap.

    A row that lies between two sessions may join them. Window functions of sessions have no `window_state()`, and an
    `AggregateFunction` needs `merge`.

    Example:
        EventTimeSessionWindows.with_gap(Duration.of_minutes(30))
    """

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
        return EventTimeSessionWindows(length_ms(size, "gap", "EventTimeSessionWindows.with_gap()"))

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows:
        """Make sessions whose gap depends on their rows.

        Args:
            extractor: Returns the gap behind a row.

        Returns:
            The assigner.

        Raises:
            TypeError: The argument is no `SessionWindowTimeGapExtractor`.
        """
        return DynamicEventTimeSessionWindows(extractor)


class DynamicEventTimeSessionWindows(_DynamicSessions):
    """Assigns rows to sessions in event time, whose gap depends on their rows.

    Example:
        class GapOfUser(SessionWindowTimeGapExtractor):
            def extract(self, element):
                return 60_000 if element["is_robot"] else 1_800_000

        EventTimeSessionWindows.with_dynamic_gap(GapOfUser())
    """

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows:
        """Make sessions whose gap depends on their rows.

        Args:
            extractor: Returns the gap behind a row.

        Returns:
            The assigner.

        Raises:
            TypeError: The argument is no `SessionWindowTimeGapExtractor`.
        """
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_SessionsByTheClock, _GapSessions):
    """Assigns rows to sessions by the clock of the machine: a session ends when its key has had no row for a gap.

    Window functions of sessions have no `window_state()`, and an `AggregateFunction` needs `merge`. At the end of the
    data the sessions that are still open emit their results, too.

    Example:
        ProcessingTimeSessionWindows.with_gap(Duration.of_minutes(30))
    """

    @staticmethod
    def with_gap(size: Duration | Time) -> ProcessingTimeSessionWindows:
        """Make sessions with one gap for all rows.

        Args:
            size: The gap, a `Duration` or `Time` of whole milliseconds.

        Returns:
            The assigner. Raises TypeError for a value that is no length of time.

        Raises:
            ValueError: The gap is not positive, or no whole number of milliseconds.
        """
        return ProcessingTimeSessionWindows(length_ms(size, "gap", "ProcessingTimeSessionWindows.with_gap()"))

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows:
        """Make sessions whose gap depends on their rows.

        Args:
            extractor: Returns the gap behind a row.

        Returns:
            The assigner.

        Raises:
            TypeError: The argument is no `SessionWindowTimeGapExtractor`.
        """
        return DynamicProcessingTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(_SessionsByTheClock, _DynamicSessions):
    """Assigns rows to sessions by the clock of the machine, whose gap depends on their rows.

    Example:
        class GapOfUser(SessionWindowTimeGapExtractor):
            def extract(self, element):
                return 60_000 if element["is_robot"] else 1_800_000

        ProcessingTimeSessionWindows.with_dynamic_gap(GapOfUser())
    """

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows:
        """Make sessions whose gap depends on their rows.

        Args:
            extractor: Returns the gap behind a row.

        Returns:
            The assigner.

        Raises:
            TypeError: The argument is no `SessionWindowTimeGapExtractor`.
        """
        return DynamicProcessingTimeSessionWindows(extractor)
