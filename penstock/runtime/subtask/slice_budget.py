"""Chooses the number of rows of the next slice: as many as should finish within the target.

A slice costs something however few rows it has: an array call, or all that a model, a request or a process does once
per call. So its cost is a line, `fixed + rows * per row`, fitted by least squares to the slices measured last. Where
the fixed part alone exceeds half of the target, slices take about twice the fixed part: smaller ones would spend most
of their time on it, and a barrier could not come much sooner, because it waits for one call anyway.
"""

from __future__ import annotations

from collections import deque

_ROWS_MAX = 65_536
_GROWTH_MAX = 4
_SLOW_GROWTH_MAX = 2
"""Beyond the target: a slice that is too large by mistake is too large by this factor at most."""
_WEIGHT_OF_NEWEST = 0.25
_RECENT = 16
_SPREAD_MIN = 0.01
"""The least variance of sizes, as a share of their mean's square, that says how a slice's cost splits."""
_PROBE_EVERY = 64
"""Slices of one size do not tell their fixed cost from the cost per row. After this number of slow ones another size is
tried."""
_DOUBTED = 4.0
"""A slice that took this multiple of the expected time was probably held up; a second one in a row is believed."""


class SliceBudget:
    """Follows the measured cost of slices.

    Starts at one row, because nothing is known yet, and grows step by step from the largest slice that is known to
    fit: a small one says little about a large one.

    Args:
        target_ms: How long a slice may take.
    """

    def __init__(self, target_ms: float) -> None:
        self._target_ms = target_ms
        self._fixed_ms = self._row_ms = 0.0
        self._output_bytes_per_row = 0.0
        self._known_rows = 0
        self._recent_ms: deque[float] = deque(maxlen=_RECENT)
        self._split_known = False
        self._since_probe = 0
        self._doubted_row_ms: float | None = None
        # Means of rows, cost, rows² and rows * cost, in which old slices fade.
        self._mean_rows = self._mean_ms = self._mean_rows2 = self._mean_rows_ms = 0.0

    def rows(self, room_bytes: int) -> int:
        """Return the size of the next slice, at least 1. `room_bytes`: how much output still has room."""
        if not self._known_rows:
            return 1
        by_room = room_bytes / self._output_bytes_per_row if self._output_bytes_per_row > 0 else _ROWS_MAX
        by_time = min(self._fitting_rows, self._known_rows * self._growth_max)
        if self._doubted_row_ms is not None:
            by_time = min(by_time, self._target_ms / self._doubted_row_ms)
        elif self._probes:
            by_time = by_time / 2 if self._fixed_ms > self._target_ms else 2.0 * self._known_rows
        return max(1, int(min(by_time, by_room, _ROWS_MAX)))

    def measured(self, rows: int, elapsed_ms: float, output_bytes: int) -> None:
        """Learn from a slice. `elapsed_ms` leaves out the time in which the thread waited for a processor."""
        weight = _WEIGHT_OF_NEWEST if self._known_rows else 1.0
        self._output_bytes_per_row += weight * (output_bytes / rows - self._output_bytes_per_row)
        expected_ms = self._fixed_ms + self._row_ms * rows
        if self._split_known and 0 < expected_ms * _DOUBTED < elapsed_ms:
            if self._doubted_row_ms is None:
                self._doubted_row_ms = elapsed_ms / rows
                return
            weight = 1.0
        self._doubted_row_ms = None
        self._since_probe = 0 if self._probes else self._since_probe + 1
        self._mean_rows += weight * (rows - self._mean_rows)
        self._mean_ms += weight * (elapsed_ms - self._mean_ms)
        self._mean_rows2 += weight * (rows * rows - self._mean_rows2)
        self._mean_rows_ms += weight * (rows * elapsed_ms - self._mean_rows_ms)
        self._recent_ms.append(elapsed_ms)
        self._fit()
        self._known_rows = max(rows, int(min(self._known_rows, self._fitting_rows)))

    def _fit(self) -> None:
        spread = self._mean_rows2 - self._mean_rows**2
        if spread > _SPREAD_MIN * self._mean_rows**2:
            self._split_known = True
            together = self._mean_rows_ms - self._mean_rows * self._mean_ms
            row_ms = min(max(together / spread, 0.0), self._mean_ms / self._mean_rows)
            # No slice costs less than the fixed part, so one slice that was held up does not raise it.
            self._fixed_ms = min(self._mean_ms - row_ms * self._mean_rows, *self._recent_ms, self._mean_ms)
            self._row_ms = (self._mean_ms - self._fixed_ms) / self._mean_rows
            return
        # All slices had one size: the parts keep their proportion.
        expected_ms = self._fixed_ms + self._row_ms * self._mean_rows
        if expected_ms > 0:
            self._fixed_ms *= self._mean_ms / expected_ms
            self._row_ms *= self._mean_ms / expected_ms
        else:
            self._row_ms = self._mean_ms / self._mean_rows

    @property
    def _fitting_rows(self) -> float:
        left_ms = max(self._target_ms - self._fixed_ms, self._fixed_ms)
        return left_ms / self._row_ms if self._row_ms > 0 else _ROWS_MAX

    @property
    def _growth_max(self) -> int:
        return _SLOW_GROWTH_MAX if self._mean_ms > self._target_ms else _GROWTH_MAX

    @property
    def _probes(self) -> bool:
        """Return whether the next slice gets another size than it should have, to see how the cost of slices splits."""
        return self._mean_ms > self._target_ms / 2 and (self._since_probe >= _PROBE_EVERY or not self._split_known)
