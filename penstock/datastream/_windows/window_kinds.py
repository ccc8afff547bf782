"""Defines the windows that functions get, and the serializers by which state names them."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from penstock.common.serializer import TypeSerializer

MAX_LONG = 2**63 - 1
"""The end of time, in milliseconds since the epoch."""


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

    def intersects(self, other: TimeWindow) -> bool:
        """Return whether both windows overlap, or one begins where the other ends.

        Args:
            other: The other window.

        Returns:
            True if they do.
        """
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that contains both.

        Args:
            other: The other window.

        Returns:
            The window.
        """
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

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

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: Any) -> None:
        """Merge the windows that intersect. For `MergingWindowAssigner.merge_windows`.

        Args:
            windows: The windows.
            callback: A `MergingWindowAssigner.MergeCallback`. It gets each set of windows that become one.
        """
        found: list[tuple[TimeWindow, set[TimeWindow]]] = []
        for window in sorted(windows):
            if found and found[-1][0].intersects(window):
                covered, members = found[-1]
                found[-1] = covered.cover(window), members | {window}
            else:
                found.append((window, {window}))
        for covered, members in found:
            if len(members) > 1:
                callback.merge(members, covered)


@dataclass(frozen=True, slots=True)
class CountWindow(Window):
    """Represents a number of rows of a key. `id` numbers the windows of a key, from 0."""

    id: int

    def max_timestamp(self) -> int:
        """Return the end of time: a number of rows has no time."""
        return MAX_LONG


@dataclass(frozen=True, slots=True)
class GlobalWindow(Window):
    """Represents all rows of a key. All global windows are equal."""

    @staticmethod
    def get() -> GlobalWindow:
        """Return a global window."""
        return GlobalWindow()

    def max_timestamp(self) -> int:
        """Return the end of time."""
        return MAX_LONG

    def __repr__(self) -> str:
        return "GlobalWindow"


_TIMES = struct.Struct(">qq")
_NUMBER = struct.Struct(">q")


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Serializes a `TimeWindow` to 16 bytes."""

    def serialize(self, element: TimeWindow, stream: BytesIO) -> None:
        stream.write(_TIMES.pack(element.start, element.end))

    def deserialize(self, stream: BytesIO) -> TimeWindow:
        return TimeWindow(*_TIMES.unpack(stream.read(_TIMES.size)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """Serializes a `CountWindow` to 8 bytes."""

    def serialize(self, element: CountWindow, stream: BytesIO) -> None:
        stream.write(_NUMBER.pack(element.id))

    def deserialize(self, stream: BytesIO) -> CountWindow:
        return CountWindow(*_NUMBER.unpack(stream.read(_NUMBER.size)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """Serializes the `GlobalWindow` to 8 bytes."""

    def serialize(self, element: GlobalWindow, stream: BytesIO) -> None:
        stream.write(bytes(_NUMBER.size))

    def deserialize(self, stream: BytesIO) -> GlobalWindow:
        stream.read(_NUMBER.size)
        return GlobalWindow()
