"""Implements sessions: the rows of a key between two gaps in which it has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.operators.windows.assigners.assigner import MergingAssigner
from penstock.protocol.values.metadata import WindowsShape


@dataclass(frozen=True)
class Session(MergingAssigner):
    """Opens a window of `gap_ms` for each row."""

    gap_ms: int

    def opened_for(self, row: Any, timestamp_ms: int) -> tuple[int, int]:
        return timestamp_ms, timestamp_ms + self.gap_ms

    def shape(self) -> WindowsShape:
        return WindowsShape("session", None, {"gap": self.gap_ms})


@dataclass(frozen=True)
class DynamicSession(MergingAssigner):
    """Opens a window for each row whose length `gap_of` says, a number of ms. It is pickled with the program."""

    gap_of: Callable[[Any], int]

    def opened_for(self, row: Any, timestamp_ms: int) -> tuple[int, int]:
        gap_ms = self.gap_of(row)
        if type(gap_ms) is not int or gap_ms <= 0:
            raise ValueError(
                f"the gap of a session is a whole number of milliseconds above 0, got {gap_ms!r}; the row was "
                f"{row!r:.200}"
            )
        return timestamp_ms, timestamp_ms + gap_ms

    def shape(self) -> WindowsShape:
        return WindowsShape("session", None, {})
