"""Defines assigners, which say to which windows a row belongs, and those whose windows have one size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from penstock.common.serializer import TypeSerializer
from penstock.common.time import Duration, Time
from penstock.datastream._windows.lengths import length_ms
from penstock.datastream._windows.window_kinds import TimeWindow, TimeWindowSerializer, Window
from penstock.datastream._windows.window_triggers import EventTimeTrigger, ProcessingTimeTrigger, Trigger
from penstock.datastream.functions import RuntimeContext
from penstock.operators.windows.assigners.assigner import Assigner, MergingAssigner
from penstock.operators.windows.assigners.sliding import Sliding
from penstock.operators.windows.assigners.tumbling import Tumbling

T = TypeVar("T")
W = TypeVar("W", bound=Window)
W2 = TypeVar("W2", bound=Window)

NO_TIMESTAMP_MS = -(2**63)
"""The timestamp that assigners and triggers get with a row that has none, as in Flink."""


class WindowAssigner(ABC, Generic[T, W]):
    """Says to which windows a row belongs.

    A program may have an assigner of its own. It is pickled, and one object serves all keys of a subtask.

    Example:
        class EvenAndOdd(WindowAssigner):
            def assign_windows(self, element, timestamp, context):
                return [CountWindow(element["amount"] % 2)]

            def get_default_trigger(self, env):
                return CountTrigger.of(10)

            def get_window_serializer(self):
                return CountWindowSerializer()

            def is_event_time(self):
                return False
    """

    class WindowAssignerContext(ABC):
        """Gives an assigner the clock, and the state of the key. It is valid only during the call."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the time of the slot's clock, in ms since the epoch."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Return the runtime context of the operator, with the state of the key."""

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[W]:
        """Return the windows of a row.

        Args:
            element: The row.
            timestamp: Its event time, in ms since the epoch; -2**63 if it has none.
            context: Gives the clock.

        Returns:
            The windows, any number of them.
        """

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]:
        """Return the trigger of these windows where the program gives none.

        Args:
            env: The `StreamExecutionEnvironment`.

        Returns:
            The trigger.
        """

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[W]:
        """Return the serializer by which state names the windows, e.g. a `TimeWindowSerializer`."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Return whether windows end by event time. Then rows may be late for them."""

    def _assigner(self) -> Assigner | MergingAssigner | None:
        """Return the rule of these windows for operators that are faster than by `assign_windows`, if there is one."""
        return None

    _window_class: Callable[[int, int], Window] = TimeWindow
    """Makes the window that functions get, of its start and end."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """Says to which windows a row belongs, and which windows of a key become one."""

    class MergeCallback(ABC, Generic[W2]):
        """Receives the windows that are merged."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """Merge windows to one.

            Args:
                to_be_merged: The windows.
                merge_result: The window that they become.
            """

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]) -> None:
        """Say which windows become one.

        Args:
            windows: The windows of a key, with that of the newest row.
            callback: Is called for each window that several become.
        """


class RegularWindows(WindowAssigner[Any, TimeWindow]):
    """Assigns rows to the windows that contain a time, which arithmetic finds: that of the row."""

    @abstractmethod
    def _assigner(self) -> Assigner:
        """Return the rule by which windows are found."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        """Return the windows that contain the timestamp of a row.

        Args:
            element: The row.
            timestamp: Its event time, in ms since the epoch.
            context: Gives the clock.

        Returns:
            The windows.

        Raises:
            ValueError: The row has no event time.
        """
        if timestamp == NO_TIMESTAMP_MS:
            raise ValueError(
                "a row without event time cannot be in a window: give every row a timestamp "
                "(assign_timestamps_and_watermarks with a timestamp assigner)"
            )
        return self._containing(timestamp)

    def _containing(self, time_ms: int) -> list[TimeWindow]:
        rule = self._assigner()
        return [TimeWindow(start, rule.end_of(start)) for start in rule.opened_by(time_ms)]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return EventTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return True


@dataclass(frozen=True)
class _TumblingWindows(RegularWindows):
    size: int
    offset: int = 0

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if self.size <= 0:
            raise ValueError(f"{kind}: the size is more than 0 ms, got {self.size} ms")
        if abs(self.offset) >= self.size:
            raise ValueError(f"{kind}: the offset is less than the size ({self.size} ms), got {self.offset} ms")

    @classmethod
    def _of(cls, size: Any, offset: Any) -> Self:
        named = f"{cls.__name__}.of()"
        return cls(length_ms(size, "size", named), 0 if offset is None else length_ms(offset, "offset", named))

    def _assigner(self) -> Assigner:
        return Tumbling(self.size, self.offset)

    def __str__(self) -> str:
        offset = f", offset {self.offset} ms" if self.offset else ""
        return f"{type(self).__name__}({Duration.of_millis(self.size)}{offset})"


class TumblingEventTimeWindows(_TumblingWindows):
    """Assigns rows to windows of one size in event time, without gap or overlap: each row belongs to one.

    Example:
        TumblingEventTimeWindows.of(Duration.of_minutes(5))
    """

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
        return TumblingEventTimeWindows._of(size, offset)


_WINDOWS_PER_ROW_MAX = 100_000
"""With more sliding windows, a batch of one row would fill the memory."""


@dataclass(frozen=True)
class _SlidingWindows(RegularWindows):
    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if self.size <= 0 or self.slide <= 0:
            raise ValueError(f"{kind}: size and slide are more than 0 ms, got {self.size} ms and {self.slide} ms")
        if self.size > _WINDOWS_PER_ROW_MAX * self.slide:
            raise ValueError(
                f"{kind}: each row would be in {self.size // self.slide:,} windows, which is the size ({self.size} ms) "
                f"divided by the slide ({self.slide} ms); at most {_WINDOWS_PER_ROW_MAX:,} are possible"
            )
        if abs(self.offset) >= self.slide:
            raise ValueError(f"{kind}: the offset is less than the slide ({self.slide} ms), got {self.offset} ms")

    @classmethod
    def _of(cls, size: Any, slide: Any, offset: Any) -> Self:
        named = f"{cls.__name__}.of()"
        offset_ms = 0 if offset is None else length_ms(offset, "offset", named)
        return cls(length_ms(size, "size", named), length_ms(slide, "slide", named), offset_ms)

    def _assigner(self) -> Assigner:
        return Sliding(self.size, self.slide, self.offset)

    def __str__(self) -> str:
        offset = f", offset {self.offset} ms" if self.offset else ""
        return f"{type(self).__name__}({Duration.of_millis(self.size)}, {Duration.of_millis(self.slide)}{offset})"


class SlidingEventTimeWindows(_SlidingWindows):
    """Assigns rows to windows of one size in event time, of which one starts every slide.

    A row belongs to size / slide windows.

    Example:
        SlidingEventTimeWindows.of(Duration.of_minutes(10), Duration.of_minutes(1))
    """

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
        return SlidingEventTimeWindows._of(size, slide, offset)


class _ByTheClock(RegularWindows):
    """Assigns rows to the windows that contain the time at which they are processed."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._containing(context.get_current_processing_time())

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


class TumblingProcessingTimeWindows(_ByTheClock, _TumblingWindows):
    """Assigns rows to windows of one size by the clock of the machine: each row belongs to one.

    At the end of the data the windows that are still open emit their results, too.

    Example:
        TumblingProcessingTimeWindows.of(Duration.of_seconds(10))
    """

    @staticmethod
    def of(size: Duration | Time, offset: Duration | Time | None = None) -> TumblingProcessingTimeWindows:
        """Make windows of a size.

        Args:
            size: The size, a `Duration` or `Time` of whole milliseconds.
            offset: Windows begin at the epoch plus this; None: at the epoch.

        Returns:
            The assigner. Raises TypeError for a value that is no length of time.

        Raises:
            ValueError: The size is not positive, the offset is not less than it, or one is no whole number of
                milliseconds.
        """
        return TumblingProcessingTimeWindows._of(size, offset)


class SlidingProcessingTimeWindows(_ByTheClock, _SlidingWindows):
    """Assigns rows to windows of one size by the clock of the machine, of which one starts every slide.

    At the end of the data the windows that are still open emit their results, too.

    Example:
        SlidingProcessingTimeWindows.of(Duration.of_minutes(1), Duration.of_seconds(10))
    """

    @staticmethod
    def of(
        size: Duration | Time, slide: Duration | Time, offset: Duration | Time | None = None
    ) -> SlidingProcessingTimeWindows:
        """Make windows of a size, one every `slide`.

        Args:
            size: The size, a `Duration` or `Time` of whole milliseconds.
            slide: The time from the start of a window to that of the next one.
            offset: Windows begin at the epoch plus this; None: at the epoch.

        Returns:
            The assigner. Raises TypeError for a value that is no length of time.

        Raises:
            ValueError: Size or slide is not positive, size / slide is above 100,000, the offset is not less than the
                slide, or one is no whole number of milliseconds.
        """
        return SlidingProcessingTimeWindows._of(size, slide, offset)
