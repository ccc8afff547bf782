"""Logs the old contents of slots before the stream overwrites them, so that a copy can be corrected."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.state.columnar.slot_arrays import Array, Slots

_MARKED_AT_ONCE_SLOTS_MAX = 1 << 16

_Logged = tuple[Slots, list[Array]]


class SlotLog:
    """Holds the old contents of some arrays of a view, by slot. The stream's thread calls `add`, the writer's the rest.
    `columns`: which of the view's arrays; `block_bits`: slots are corrected in blocks of 2^block_bits.

    With marks each slot is logged at most once. Where the log is needed for a moment only, they would cost more than
    what they save: touching memory for the first time takes time. So the stream logs without them until the writer has
    made them, or until the log has as many entries as there are slots. Small tables have them from the first write on.
    """

    def __init__(self, columns: slice, slots_end: int, block_bits: int) -> None:
        self._columns = columns
        self._slots_end = slots_end
        self._block_bits = block_bits
        self._log: list[_Logged | None] = []
        self._logged = 0
        self._read = 0
        self._marks: npt.NDArray[np.bool_] | None = None
        self._of_block: dict[int, list[_Logged]] = {}

    def add(self, slots: Slots, arrays: list[Array]) -> None:
        """Log slots that are about to be written. `arrays`: all of the view."""
        if self._marks is None and self._slots_end <= max(_MARKED_AT_ONCE_SLOTS_MAX, self._logged):
            self.make_marks()
        marks = self._marks
        if marks is not None:
            slots = slots[~marks.take(slots)]
        if len(slots):
            self._log.append((slots, [array.take(slots) for array in arrays[self._columns]]))
            self._logged += len(slots)
            if marks is not None:
                marks[slots] = True

    def make_marks(self) -> None:
        """Allocate the marks by writing them: memory that is only promised would cost more, page by page."""
        if self._marks is None:
            marks = np.empty(self._slots_end, np.bool_)
            marks.fill(False)
            self._marks = marks

    def sort(self) -> None:
        """Distribute the newest part of the log to the blocks, newest first: the oldest is applied last."""
        logged: list[_Logged] = []
        while self._read < len(self._log):
            newest = self._log[self._read]
            assert newest is not None
            logged.append(newest)
            self._log[self._read] = None
            self._read += 1
        if not logged:
            return
        logged.reverse()
        slots = np.concatenate([slots for slots, _ in logged])
        before = [np.concatenate(columns) for columns in zip(*(values for _, values in logged))]
        numbers = slots >> self._block_bits
        if self._slots_end >> self._block_bits < 1 << 16:
            numbers = numbers.astype(np.uint16)  # sorted by radix
        order: npt.NDArray[Any] = np.argsort(numbers, kind="stable")
        slots, before, numbers = slots[order], [values[order] for values in before], numbers[order]
        cuts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
        for start, end in zip(cuts, cuts[1:]):
            part = (slots[start:end], [values[start:end] for values in before])
            self._of_block.setdefault(int(numbers[start]), []).append(part)

    def correct(self, start: int, end: int, copied: list[Array], slots: Slots | None) -> None:
        """Write the logged contents of the slots from `start` to `end` into copies of all arrays. They begin with a
        block. `slots`: those that were copied, in order; None: all.
        """
        for block in range(start >> self._block_bits, ((end - 1) >> self._block_bits) + 1):
            for logged, before in reversed(self._of_block.pop(block, [])):
                at = logged - start
                if slots is not None:
                    at = np.searchsorted(slots, logged)
                    there = np.flatnonzero(np.append(slots, -1)[at] == logged)
                    at, before = at[there], [values[there] for values in before]
                for array, values in zip(copied[self._columns], before):
                    array[at] = values
