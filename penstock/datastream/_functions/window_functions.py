"""Defines functions of the rows of a key and window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Iterable, TypeVar

from penstock.datastream._functions.rows import Function
from penstock.datastream._functions.runtime_context import KeyedStateStore
from penstock.datastream.window import Window

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W", bound=Window)
W2 = TypeVar("W2", bound=Window)


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Processes the rows of a key and window."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Yield the rows to emit for a window, or return an iterable of them, or None for no rows.

        Called when the watermark passes the window's end, and again for every late row that is allowed.

        Args:
            key: The key.
            window: The window, a `TimeWindow`.
            inputs: The rows of the window; after `reduce` or `aggregate`, their one result.

        Returns:
            The rows to emit.
        """


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Processes the rows of a key and window, with state per window.

    It yields rows for the main output, and `tag, row` for the side output of an `OutputTag`.
    """

    class Context(ABC, Generic[W2]):
        """Describes the window, and gives access to its state. It is valid only during the call that gets it."""

        @abstractmethod
        def window(self) -> W2:
            """Return the window, a `TimeWindow`."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the time of the slot's clock, in ms since the epoch."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark of the operator, in ms since the epoch."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """Return the state of this key and this window. A function that uses it must clear it in `clear()`."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """Return the state of this key, which all its windows share."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """Yield the rows to emit for a window, or return an iterable of them, or None for no rows.

        Called when the watermark passes the window's end, and again for every late row that is allowed.

        Args:
            key: The key.
            context: Gives the window and its state.
            elements: The rows of the window; after `reduce` or `aggregate`, their one result.

        Returns:
            The rows to emit; `tag, row` for a side output.
        """

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Clear `context.window_state()`. Called when the window is discarded.

        Args:
            context: Gives the window and its state.
        """
