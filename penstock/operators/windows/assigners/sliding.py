"""Implements sliding windows: all of one size, and one starts every `slide_ms`, so that a row belongs to several."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from penstock.operators.windows.assigners.assigner import Assigner, Milliseconds, TimeT
from penstock.operators.windows.assigners.tumbling import Tumbling
from penstock.protocol.values.metadata import WindowsShape


@dataclass(frozen=True)
class Sliding(Assigner):
    """Assigns times to windows of `size_ms` that start at the multiples of `slide_ms`, shifted by `offset_ms`, which is
    less. With a slide above the size, times between two windows belong to none.
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    @property
    def longest_ms(self) -> int:
        return max(self.size_ms, self.slide_ms)

    def start_of(self, time: TimeT) -> TimeT:
        """Return the latest start that is not after a time."""
        return time - (time - self.offset_ms) % self.slide_ms

    def end_of(self, start: TimeT) -> TimeT:
        return start + self.size_ms

    def shape(self) -> WindowsShape:
        offset = {"offset": self.offset_ms} if self.offset_ms else {}
        return WindowsShape("sliding", self.size_ms, {"size": self.size_ms, "slide": self.slide_ms, **offset})

    def opened_by(self, timestamp_ms: int) -> list[int]:
        return list(range(self.start_of(timestamp_ms), timestamp_ms - self.size_ms, -self.slide_ms))

    def pane_of(self, timestamp_ms: int) -> tuple[int, int]:
        start = self.start_of(timestamp_ms)
        end = self.start_of(timestamp_ms - self.size_ms) + self.size_ms  # the latest that is not after the time
        return max(start, end), min(start, end) + self.slide_ms

    def ending_at(self, end_ms: int) -> int | None:
        start = end_ms - self.size_ms
        return start if self.start_of(start) == start else None

    # ---- columns -------------------------------------------------------------------------------------------------

    @property
    def slices(self) -> Assigner:
        slice_ms = gcd(self.size_ms, self.slide_ms)
        return Tumbling(slice_ms, self.offset_ms % slice_ms)

    @property
    def windows_per_row_max(self) -> int:
        # A row between two windows belongs to none, so one window per row is not exactly one.
        return max(2, -(-self.size_ms // self.slide_ms))

    def windows_of(self, timestamps: Milliseconds) -> tuple[npt.NDArray[np.intp], Milliseconds]:
        self._bounds(timestamps)
        earlier_ms = np.arange(-(-self.size_ms // self.slide_ms), dtype=np.int64) * self.slide_ms
        starts = self.start_of(timestamps)[:, None] - earlier_ms
        rows, windows = np.nonzero(starts > (timestamps - self.size_ms)[:, None])
        return rows, starts[rows, windows]
