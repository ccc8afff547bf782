"""Defines windows without time: numbers of rows, and all rows of a key."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.common.serializer import TypeSerializer
from penstock.common.types import Types
from penstock.datastream._windows.window_assigners import WindowAssigner
from penstock.datastream._windows.window_kinds import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
)
from penstock.datastream._windows.window_triggers import CountTrigger, NeverTrigger, Trigger
from penstock.datastream.state import ValueStateDescriptor


class CountWindows(WindowAssigner[Any, CountWindow]):
    """Assigns rows to windows by their number among the rows of their key."""

    _state: ClassVar[ValueStateDescriptor]
    """Describes the number of rows of a key."""

    def _number(self, context: WindowAssigner.WindowAssignerContext) -> int:
        """Return the number of the row of the current key, from 0, and count it."""
        state = context.get_runtime_context().get_state(self._state)
        number = state.value() or 0
        state.update(number + 1)
        return number

    def get_window_serializer(self) -> TypeSerializer[CountWindow]:
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        return False


@dataclass(frozen=True)
class CountTumblingWindowAssigner(CountWindows):
    """Assigns rows to windows of a number of rows. A window emits its result when it is full, and is discarded.

    Args:
        window_size: The number of rows of a window.
    """

    window_size: int

    _state: ClassVar = ValueStateDescriptor("tumble-count-assigner", Types.LONG())

    def __post_init__(self) -> None:
        check_rows(self.window_size, "size")

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Make windows of a number of rows.

        Args:
            window_size: The number of rows of a window.

        Returns:
            The assigner.

        Raises:
            ValueError: The number is no whole number above 0.
        """
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        return [CountWindow(self._number(context) // self.window_size)]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return CountTrigger(self.window_size)

    def __str__(self) -> str:
        return f"CountTumblingWindowAssigner({self.window_size})"


@dataclass(frozen=True)
class CountSlidingWindowAssigner(CountWindows):
    """Assigns rows to windows of a number of rows, of which one starts every `window_slide` rows.

    A window emits its result when it is full, and is discarded: as in PyFlink, there is none with fewer rows.

    Args:
        window_size: The number of rows of a window.
        window_slide: The number of rows from the start of a window to that of the next one.
    """

    window_size: int
    window_slide: int

    _state: ClassVar = ValueStateDescriptor("slide-count-assigner", Types.LONG())

    def __post_init__(self) -> None:
        check_rows(self.window_size, "size")
        check_rows(self.window_slide, "slide")

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Make windows of a number of rows.

        Args:
            window_size: The number of rows of a window.
            window_slide: The number of rows from the start of a window to that of the next one. With one above the
                size, rows between two windows belong to none.

        Returns:
            The assigner.

        Raises:
            ValueError: A number is no whole number above 0.
        """
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        number = self._number(context)
        last = number // self.window_slide
        # The window `id` holds the rows from id * slide to id * slide + size - 1.
        first = max(0, -(-(number - self.window_size + 1) // self.window_slide))
        return [CountWindow(id) for id in range(last, first - 1, -1)]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return CountTrigger(self.window_size)

    def __str__(self) -> str:
        return f"CountSlidingWindowAssigner({self.window_size}, {self.window_slide})"


def check_rows(rows: Any, what: str) -> None:
    """Check a number of rows. Raises ValueError."""
    if type(rows) is not int or rows <= 0:
        raise ValueError(f"the {what} of a count window is a whole number of rows above 0, got {rows!r}")


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """Assigns all rows of a key to one window. It needs a trigger, for there is no end at which it would emit.

    Example:
        stream.key_by("user").window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(10)))
    """

    @staticmethod
    def create() -> GlobalWindows:
        """Make the assigner."""
        return GlobalWindows()

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        return NeverTrigger()

    def get_window_serializer(self) -> TypeSerializer[GlobalWindow]:
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return "GlobalWindows()"
