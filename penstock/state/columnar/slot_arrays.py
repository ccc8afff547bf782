"""Grows parallel arrays, one entry per slot, without a stop.

Doubling an array of 100 MB by copying it would stop the stream for a tenth of a second. Here the larger arrays are
filled a stretch at a time, in step with the slots that are added, while every write goes to both. When all is copied
they replace the old ones. A snapshot that holds the old ones keeps them as they were at that moment. Memory that no
slot has been written to costs nothing: the system allocates pages when they are touched.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Slots = npt.NDArray[np.intp]

CAPACITY_MIN = 1024
_AT_ONCE_SLOTS_MAX = 1 << 16
"""Smaller arrays are copied whole."""
_COPIED_PER_NEW_SLOT = 8
"""A quarter is free when growing begins, so it is over long before the arrays are full."""


class SlotArrays:
    """Holds the arrays. Growing replaces `columns` as a whole list: do not keep it across `reserve`."""

    def __init__(self, dtypes: Sequence[npt.DTypeLike]) -> None:
        capacity = CAPACITY_MIN
        self._dtypes = [np.dtype(d) for d in dtypes]
        self.columns: list[Array] = [np.empty(capacity, d) for d in self._dtypes]
        self.capacity = capacity
        self._larger: list[Array] | None = None
        self._copied = 0

    def reserve(self, used: int, more: int) -> None:
        """Make room for `more` slots after the `used` ones."""
        while self._larger is not None or used + more > self.capacity - self.capacity // 4:
            if self._larger is None:
                capacity = self.capacity * 2
                while used + more > capacity - capacity // 4:
                    capacity *= 2
                self._larger = [np.empty(capacity, d) for d in self._dtypes]
                self._copied = 0
            whole = used <= _AT_ONCE_SLOTS_MAX or used + more > self.capacity
            if not self._copy(used, used if whole else _COPIED_PER_NEW_SLOT * more):
                break

    def _copy(self, used: int, slots: int) -> bool:
        """Copy some more slots into the larger arrays; return True when these have replaced the old ones."""
        larger = self._larger
        assert larger is not None
        start, end = self._copied, min(self._copied + slots, used)
        for old, new in zip(self.columns, larger):
            new[start:end] = old[start:end]
        self._copied = end
        if end < used:
            return False
        self.columns, self._larger = larger, None
        self.capacity = len(larger[0])
        return True

    def written(self, slots: Slots, columns: range | Sequence[int] | None = None) -> None:
        """Note that `columns[c][slots]` was written (all columns if none are named). Call it after each write."""
        if self._larger is not None:
            for c in columns if columns is not None else range(len(self.columns)):
                self._larger[c][slots] = self.columns[c][slots]

    def replace(self, column: int, array: Array) -> None:
        """Replace the array of a column by one of the same capacity, while the arrays are not growing."""
        assert self._larger is None and len(array) == self.capacity
        self.columns = [array if c == column else old for c, old in enumerate(self.columns)]

    @property
    def growing(self) -> bool:
        return self._larger is not None


class FreeSlots:
    """Holds slots that were removed."""

    def __init__(self) -> None:
        self._parts: list[Slots] = []

    def add(self, slots: Slots) -> None:
        self._parts.append(slots)

    def allocate(self, count: int, arrays: SlotArrays, slots_end: int) -> Slots:
        """Return `count` slots: removed ones first, and then new ones from `slots_end` on."""
        taken = self._take(count)
        if left := count - len(taken):
            arrays.reserve(slots_end, left)
            taken = np.concatenate((taken, np.arange(slots_end, slots_end + left)))
        return taken

    def _take(self, count: int) -> Slots:
        """Return `count` removed slots, or all if they are fewer."""
        taken: list[Slots] = [np.empty(0, np.intp)]
        while count and self._parts:
            part = self._parts.pop()
            if len(part) > count:
                self._parts.append(part[count:])
                part = part[:count]
            taken.append(part)
            count -= len(part)
        return np.concatenate(taken)
