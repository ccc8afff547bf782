"""Defines the two protocols between a kind of window and the operators, which know no kind.

Arithmetic finds the windows of an `Assigner`, for one number and for an array of them, so that rows and columns get
the same windows. A window is named by its start. Kinds whose windows overlap override more than start and end. The
windows of a `MergingAssigner` are opened by rows, and differ from key to key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.protocol.values.metadata import WindowsShape

Milliseconds = npt.NDArray[np.int64]
TimeT = TypeVar("TimeT", int, Milliseconds)

_INT64_END = 2**63


class NoWindow(ValueError):
    """Signals a timestamp so far from the epoch that its window does not fit into int64: it cannot be meant."""

    def __init__(self, timestamp_ms: int, row: object = None) -> None:
        shown = "" if row is None else f"; the row was {row!r:.200}"
        super().__init__(
            f"a row's timestamp is {timestamp_ms} ms, of which no window fits in 64 bits: give it one in milliseconds "
            f"since the epoch, or filter such rows out before{shown}"
        )


class Assigner(ABC):
    """Assigns event times (ms) to windows, each from its start (included) to its end (excluded).

    A window that starts later ends later, and the start of a slice lies in it. The operators rely on both: they look
    at the earliest window of a batch first, and the first of two phases sends a slice's start in place of the times of
    its rows. Instances are pickled with the program, and compared.
    """

    @property
    @abstractmethod
    def longest_ms(self) -> int:
        """Return the length of the longest window. Nearer than twice that to the ends of int64 is no window."""

    @abstractmethod
    def start_of(self, time: TimeT) -> TimeT:
        """Return the start of the window that contains a time, for one time or an array of them."""

    @abstractmethod
    def end_of(self, start: TimeT) -> TimeT:
        """Return the end of the window with this start, for one start or an array of them."""

    @abstractmethod
    def shape(self) -> WindowsShape:
        """Return the description of these windows for a checkpoint's metadata. Other windows have another one."""

    # ---- rows ----------------------------------------------------------------------------------------------------

    def opened_by(self, timestamp_ms: int) -> Sequence[int]:
        """Return the starts of the windows that a row belongs to."""
        return (self.start_of(timestamp_ms),)

    def pane_of(self, timestamp_ms: int) -> tuple[int, int]:
        """Return start and end of the pane that contains `timestamp_ms`. Rows come nearly in order, so the operator
        computes windows once per pane instead of once per row.
        """
        start = self.start_of(timestamp_ms)
        return start, self.end_of(start)

    def ending_at(self, end_ms: int) -> int | None:
        """Return the start of the window with this end, or None: a timer for the end of a window finds it by this."""
        start = self.start_of(end_ms - 1)
        return start if self.end_of(start) == end_ms else None

    # ---- columns -------------------------------------------------------------------------------------------------

    @property
    def slices(self) -> Assigner:
        """Return the assigner of slices: the windows themselves, or, if they overlap, parts without overlap that lie in
        the same windows as a whole.
        """
        return self

    @property
    def windows_per_row_max(self) -> int:
        """Return the largest number of windows of a row. 1: each row belongs to exactly one, that of `starts_of`."""
        return 1

    def windows_of(self, timestamps: Milliseconds) -> tuple[npt.NDArray[np.intp], Milliseconds]:
        """Return all pairs of a row, by its number, and the start of a window that it belongs to. Raises `NoWindow`."""
        raise NotImplementedError(f"{type(self).__name__} has windows that overlap, and no windows_of()")

    def starts_of(self, timestamps: Milliseconds) -> int | Milliseconds:
        """Return the start of each row's window; one number if all rows (at least one) lie in one window. Most slices
        do, and a division for each row would be the largest cost of windows. Raises `NoWindow`.
        """
        least, most = self._bounds(timestamps)
        start = self.start_of(least)
        return start if most < self.end_of(start) else self.start_of(timestamps)

    def _bounds(self, timestamps: Milliseconds) -> tuple[int, int]:
        """Return the least and the greatest time. Raises `NoWindow`."""
        least, most = int(timestamps.min()), int(timestamps.max())
        margin_ms = 2 * self.longest_ms
        if least < margin_ms - _INT64_END or most >= _INT64_END - margin_ms:
            raise NoWindow(least if least < margin_ms - _INT64_END else most)
        return least, most

    def ended(self, starts: Iterable[int], time_ms: int) -> list[int]:
        """Return the windows among `starts` whose last millisecond is not after `time_ms`, earliest first."""
        windows = np.fromiter(starts, np.int64)
        found: list[int] = np.sort(windows[self.end_of(windows) - 1 <= max(time_ms, -_INT64_END)]).tolist()
        return found


class MergingAssigner(ABC):
    """Opens a window for each row; windows of a key that touch are merged to one. No arithmetic finds them: where they
    start and end depends on the rows of their key.
    """

    @abstractmethod
    def opened_for(self, row: Any, timestamp_ms: int) -> tuple[int, int]:
        """Return start and end of the window that a row opens."""

    @abstractmethod
    def shape(self) -> WindowsShape:
        """Return the description of these windows for a checkpoint's metadata. Other windows have another one."""
