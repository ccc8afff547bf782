"""Orders the rows of a slice by the slot of their key, for what depends on the order of a key's rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.state.columnar.slot_arrays import Array, Slots

_SCRATCH_SLOTS_MAX = 1 << 20
_LONG_RUN_ROWS = 32
"""Runs are gone through all at once, a row of each in a step; longer ones each on its own."""


class SlotRuns:
    """Groups `slots` of all rows into runs. If no key occurs twice, `order` is None; else `slots[order]` has the rows
    of a slot next to each other, in their order, as runs that begin at `starts`.
    """

    def __init__(self, slots: Slots, slots_end: int, scratch: Scratch) -> None:
        self.slots = slots
        self.order: npt.NDArray[np.intp] | None = None
        if scratch.distinct(slots, slots_end):
            return
        self.order = order = _stable_order(slots, slots_end)
        ordered = slots[order]
        is_start = np.empty(len(slots), np.bool_)
        is_start[0] = True
        np.not_equal(ordered[1:], ordered[:-1], out=is_start[1:])
        starts = np.flatnonzero(is_start)
        if len(starts) == len(slots):
            self.order = None
            return
        self.starts = starts
        self.lengths: npt.NDArray[np.intp] = np.diff(starts, append=len(slots))
        self.run_slots: Slots = ordered[starts]

    def sums(self, state: Array, values: Array) -> Array:
        """Return the running sum of whole numbers (modulo 2^64) of each row's key, and write the last of each to
        `state`.
        """
        if self.order is None:
            return self._fold_one(np.add, state, values)
        added = np.cumsum(values[self.order])
        before = state.take(self.run_slots)
        before[1:] -= added[self.starts[1:] - 1]
        added += np.repeat(before, self.lengths)
        state[self.run_slots] = added[self.starts + self.lengths - 1]
        return self._in_row_order(added)

    def folded(self, ufunc: np.ufunc, state: Array, values: Array) -> Array:
        """Compute as `sums`, row after row, for any function of two numbers: sums of floats equal those of adding in
        order.
        """
        with np.errstate(invalid="ignore", over="ignore"):  # ∞ - ∞ is NaN, which is no error here
            return self._folded(ufunc, state, values)

    def _folded(self, ufunc: np.ufunc, state: Array, values: Array) -> Array:
        if self.order is None:
            return self._fold_one(ufunc, state, values)
        given = values[self.order]
        made = np.empty(len(given), state.dtype)
        longest_first: npt.NDArray[np.intp] = np.argsort(-self.lengths, kind="stable")
        starts, lengths = self.starts[longest_first], self.lengths[longest_first]
        carried = state.take(self.run_slots[longest_first])
        long_runs = int(np.count_nonzero(lengths > _LONG_RUN_ROWS))
        for run in range(long_runs):
            start, end = int(starts[run]), int(starts[run] + lengths[run])
            made[start:end] = ufunc.accumulate(np.concatenate((carried[run : run + 1], given[start:end])))[1:]
            carried[run] = made[end - 1]
        for step in range(int(lengths[long_runs]) if long_runs < len(lengths) else 0):
            going = slice(long_runs, int(np.searchsorted(-lengths, -step, side="left")))
            rows = starts[going] + step
            carried[going] = made[rows] = ufunc(carried[going], given[rows])
        state[self.run_slots[longest_first]] = carried
        return self._in_row_order(made)

    def _fold_one(self, ufunc: np.ufunc, state: Array, values: Array) -> Array:
        made: Array = ufunc(state.take(self.slots), values)
        state[self.slots] = made
        return made

    def _in_row_order(self, ordered: Array) -> Array:
        made = np.empty_like(ordered)
        made[self.order] = ordered
        return made

    def leaves_int64(self, state: Array, values: Array, only_at_the_end: bool) -> int | None:
        """Return the slot of a key whose exact running sum leaves int64, or None. `only_at_the_end`: check final sums
        only.
        """
        order = self.order if self.order is not None else np.arange(len(self.slots))
        slots = self.slots[order]
        starts = self.starts if self.order is not None else order
        lengths = self.lengths if self.order is not None else np.ones(len(slots), np.intp)
        before = state.take(slots[starts])
        low, high = _running(values[order] & _LOW, starts, lengths), _running(values[order] >> 32, starts, lengths)
        low += np.repeat(before & _LOW, lengths)
        high += np.repeat(before >> 32, lengths) + (low >> 32)
        outside = (high < -(2**31)) | (high >= 2**31)
        if only_at_the_end:
            outside = outside[starts + lengths - 1]
            slots = slots[starts]
        return int(slots[outside.argmax()]) if outside.any() else None


_LOW = 0xFFFF_FFFF


def _running(values: Array, starts: Array, lengths: Array) -> Array:
    added = np.cumsum(values)
    before = np.zeros(len(starts), added.dtype)
    before[1:] = added[starts[1:] - 1]
    made: Array = added - np.repeat(before, lengths)
    return made


def _stable_order(slots: Slots, slots_end: int) -> npt.NDArray[np.intp]:
    """Sort stably. A stable sort of 16-bit numbers is a radix sort, so it is done twice if slots need more bits."""
    order: npt.NDArray[np.intp] = np.argsort(slots.astype(np.uint16), kind="stable")
    if slots_end > 1 << 16:
        order = order[np.argsort((slots >> 16).astype(np.uint16)[order], kind="stable")]
    return order


class Scratch:
    """Reserves a place per slot, to find in two writes and reads whether slots repeat."""

    def __init__(self) -> None:
        self._row_of: npt.NDArray[Any] = np.zeros(1024, np.int32)

    def distinct(self, slots: Slots, slots_end: int) -> bool:
        """Return whether no slot repeats; also False if finding out would cost too much memory."""
        if slots_end > _SCRATCH_SLOTS_MAX:
            return False
        if slots_end > len(self._row_of):
            self._row_of = np.zeros(2 * slots_end, np.int32)
        rows = np.arange(len(slots), dtype=np.int32)
        self._row_of[slots] = rows
        return int(np.count_nonzero(self._row_of.take(slots) == rows)) == len(slots)
