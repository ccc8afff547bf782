"""Implements tumbling windows: all of one size, without gap or overlap."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.operators.windows.assigners.assigner import Assigner, TimeT
from penstock.protocol.values.metadata import WindowsShape


@dataclass(frozen=True)
class Tumbling(Assigner):
    """Assigns times to windows that start at the multiples of `size_ms`, shifted by `offset_ms`, which is less."""

    size_ms: int
    offset_ms: int = 0

    @property
    def longest_ms(self) -> int:
        return self.size_ms

    def start_of(self, time: TimeT) -> TimeT:
        return time - (time - self.offset_ms) % self.size_ms

    def end_of(self, start: TimeT) -> TimeT:
        return start + self.size_ms

    def shape(self) -> WindowsShape:
        offset = {"offset": self.offset_ms} if self.offset_ms else {}
        return WindowsShape("tumbling", self.size_ms, {"size": self.size_ms, **offset})
