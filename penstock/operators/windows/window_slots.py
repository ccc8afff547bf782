"""Knows which slots belong to which window: in memory for tables in memory, and in the database for those on disk."""

from __future__ import annotations

from typing import Iterable, Iterator, Protocol

import numpy as np

from penstock.operators.windows.assigners.assigner import Milliseconds
from penstock.state.columnar.keyed_table import WindowTable
from penstock.state.columnar.slot_arrays import Slots


class WindowSlots(Protocol):
    """Finds the slots of windows, which are named by their starts. Groups have at most `group_max` slots."""

    @property
    def starts(self) -> Iterable[int]:
        """Return the windows that have slots."""

    def add(self, slots: Slots, starts: Milliseconds) -> list[int]:
        """Add new slots; return their windows."""

    def of(self, start: int) -> Iterator[Slots]:
        """Yield the slots of a window, in groups."""

    def taken(self, starts: Iterable[int]) -> Iterator[Slots]:
        """Forget these windows, and yield their slots in groups. Each group is removed before the next is asked for."""


class SlotsInMemory:
    """Keeps the slots of each window."""

    def __init__(self, group_max: int) -> None:
        self._group_max = group_max
        self._slots_of: dict[int, list[Slots]] = {}

    @property
    def starts(self) -> Iterable[int]:
        return self._slots_of

    def add(self, slots: Slots, starts: Milliseconds) -> list[int]:
        if not len(slots):
            return []
        order = np.argsort(starts, kind="stable")
        slots, starts = slots[order], starts[order]
        cuts = [0, *(np.flatnonzero(starts[1:] != starts[:-1]) + 1).tolist(), len(starts)]
        windows = [int(start) for start in starts[cuts[:-1]]]
        for start, begin, end in zip(windows, cuts, cuts[1:]):
            self._slots_of.setdefault(start, []).append(slots[begin:end])
        return windows

    def of(self, start: int) -> Iterator[Slots]:
        slots = np.concatenate(self._slots_of[start])
        for at in range(0, len(slots), self._group_max):
            yield slots[at : at + self._group_max]

    def taken(self, starts: Iterable[int]) -> Iterator[Slots]:
        """Forget these windows, and yield their slots in groups; several small windows make one."""
        waiting: list[Slots] = []
        count = 0
        for start in starts:
            parts = self._slots_of[start]
            while parts:
                part = parts.pop()
                if len(part) > (room := self._group_max - count):
                    parts.append(part[room:])
                    part = part[:room]
                if not parts:
                    del self._slots_of[start]
                waiting.append(part)
                count += len(part)
                if count == self._group_max:
                    yield np.concatenate(waiting)
                    waiting, count = [], 0
        if waiting:
            yield np.concatenate(waiting)


class SlotsOnDisk:
    """Keeps the starts of windows only: their keys are sorted by them on disk."""

    def __init__(self, table: WindowTable, group_max: int) -> None:
        self._group_max = group_max
        self._table = table
        self._starts = set(table.starts())

    @property
    def starts(self) -> Iterable[int]:
        return self._starts

    def add(self, slots: Slots, starts: Milliseconds) -> list[int]:
        windows: list[int] = np.unique(starts).tolist()
        self._starts.update(windows)
        return windows

    def of(self, start: int) -> Iterator[Slots]:
        yield from self._table.slots_of_window(start, self._group_max)

    def taken(self, starts: Iterable[int]) -> Iterator[Slots]:
        for start in starts:
            yield from self.of(start)
            self._starts.discard(start)
