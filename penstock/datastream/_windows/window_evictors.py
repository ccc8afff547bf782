"""Defines evictors, which remove rows of a window before or after its function has seen them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.common.metrics import MetricGroup
from penstock.common.time import Duration, Time
from penstock.datastream._windows.count_assigners import check_rows
from penstock.datastream._windows.lengths import length_ms
from penstock.datastream._windows.window_kinds import Window

T = TypeVar("T")
W = TypeVar("W", bound=Window)


@dataclass(frozen=True, slots=True)
class TimestampedValue(Generic[T]):
    """Holds a row of a window, and its event time in ms since the epoch; None: it has none."""

    value: T
    timestamp: int | None

    def get_value(self) -> T:
        """Return the row."""
        return self.value

    def get_timestamp(self) -> int | None:
        """Return the event time of the row in ms since the epoch; None if it has none."""
        return self.timestamp

    def has_timestamp(self) -> bool:
        """Return whether the row has an event time."""
        return self.timestamp is not None


class Evictor(ABC, Generic[T, W]):
    """Removes rows of a window when it fires. Flink's Java API has evictors, PyFlink has none.

    A window with an evictor keeps all its rows, also for `reduce` and `aggregate`.

    Example:
        class WithoutZeros(Evictor):
            def evict_before(self, elements, size, window, evictor_context):
                elements[:] = [element for element in elements if element.value["amount"]]

            def evict_after(self, elements, size, window, evictor_context):
                pass
    """

    class EvictorContext(ABC):
        """Gives an evictor the clocks. It is valid only during the call."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the time of the slot's clock, in ms since the epoch."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return the metric group of the operator."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the watermark of the operator, in ms since the epoch."""

    @abstractmethod
    def evict_before(
        self,
        elements: list[TimestampedValue[T]],
        size: int,
        window: W,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Remove rows from the list before the function of the window gets them.

        Args:
            elements: The rows, in the order in which they came.
            size: Their number.
            window: The window.
            evictor_context: Gives the clocks.
        """

    @abstractmethod
    def evict_after(
        self,
        elements: list[TimestampedValue[T]],
        size: int,
        window: W,
        evictor_context: Evictor.EvictorContext,
    ) -> None:
        """Remove rows from the list after the function of the window got them.

        Args:
            elements: The rows that are left, in the order in which they came.
            size: Their number.
            window: The window.
            evictor_context: Gives the clocks.
        """


class _BeforeOrAfter(Evictor[Any, Window]):
    """Evicts at one of both times."""

    def __init__(self, do_evict_after: bool) -> None:
        self._do_evict_after = do_evict_after

    @abstractmethod
    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        """Remove rows from the list."""

    def evict_before(
        self, elements: list[TimestampedValue[Any]], size: int, window: Window, evictor_context: Evictor.EvictorContext
    ) -> None:
        if not self._do_evict_after:
            self._evict(elements)

    def evict_after(
        self, elements: list[TimestampedValue[Any]], size: int, window: Window, evictor_context: Evictor.EvictorContext
    ) -> None:
        if self._do_evict_after:
            self._evict(elements)


class CountEvictor(_BeforeOrAfter):
    """Keeps the last rows of a window, up to a number."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        check_rows(max_count, "number of rows that an evictor leaves")
        super().__init__(do_evict_after)
        self._max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Make an evictor that leaves a number of rows.

        Args:
            max_count: The number of rows.
            do_evict_after: True to remove the others after the function of the window got them, in place of before.

        Returns:
            The evictor.

        Raises:
            ValueError: The number is no whole number above 0.
        """
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        del elements[: max(0, len(elements) - self._max_count)]


class TimeEvictor(_BeforeOrAfter):
    """Keeps the rows of a window whose time is near that of the newest one. Rows without event time all stay."""

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        if window_size <= 0:
            raise ValueError(f"TimeEvictor: the length of time is more than 0 ms, got {window_size} ms")
        super().__init__(do_evict_after)
        self._window_size = window_size

    @staticmethod
    def of(window_size: Time | Duration, do_evict_after: bool = False) -> TimeEvictor:
        """Make an evictor that leaves the rows of a length of time.

        Args:
            window_size: The length, a `Time` or `Duration` of whole milliseconds.
            do_evict_after: True to remove the others after the function of the window got them, in place of before.

        Returns:
            The evictor. Raises TypeError for a value that is no length of time.

        Raises:
            ValueError: The length is not positive, or no whole number of milliseconds.
        """
        return TimeEvictor(length_ms(window_size, "length", "TimeEvictor.of()"), do_evict_after)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        times = [element.timestamp for element in elements if element.timestamp is not None]
        if len(times) == len(elements) and times:
            oldest_ms = max(times) - self._window_size
            elements[:] = [e for e in elements if e.timestamp is not None and e.timestamp > oldest_ms]
