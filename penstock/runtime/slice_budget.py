"""How many rows the next slice may have: as many as are expected to finish within the target."""

from __future__ import annotations

_ROWS_MAX = 65_536
_GROWTH_MAX = 4
_WEIGHT_OF_NEWEST = 0.5


class SliceBudget:
    """Follows the measured cost per row. Starts at one row, because nothing is known yet, and grows step by step from
    the largest slice that is known to fit: a small one says little about a large one, and shows only that rows were
    few."""

    def __init__(self, target_ms: float) -> None:
        self._target_ms = target_ms
        self._cost_ms = 0.0
        self._output_bytes_per_row = 0.0
        self._known_rows = 0

    def rows(self, room_bytes: int) -> int:
        """At least one. `room_bytes`: what the outputs still take."""
        if not self._known_rows:
            return 1
        by_time = self._target_ms / self._cost_ms if self._cost_ms > 0 else _ROWS_MAX
        by_room = room_bytes / self._output_bytes_per_row if self._output_bytes_per_row > 0 else _ROWS_MAX
        return max(1, int(min(by_time, by_room, self._known_rows * _GROWTH_MAX, _ROWS_MAX)))

    def measured(self, rows: int, elapsed_ms: float, output_bytes: int) -> None:
        cost_ms, size = elapsed_ms / rows, output_bytes / rows
        if not self._known_rows:
            self._cost_ms, self._output_bytes_per_row = cost_ms, size
        else:
            self._cost_ms += _WEIGHT_OF_NEWEST * (cost_ms - self._cost_ms)
            self._output_bytes_per_row += _WEIGHT_OF_NEWEST * (size - self._output_bytes_per_row)
        fit = int(self._target_ms / self._cost_ms) if self._cost_ms > 0 else _ROWS_MAX
        self._known_rows = max(rows, min(self._known_rows, fit))
