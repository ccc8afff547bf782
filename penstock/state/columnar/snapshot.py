"""Snapshots of a table that nobody waits for.

A view is taken in no time: it remembers the arrays and how many slots there are. Another thread then copies them a
block of slots after the other, while the stream goes on writing to the same arrays. Before the stream writes to a slot
for the first time since, it puts what was there into the view's log. So once a block is copied, whatever of it had
been written to, wholly or in part, is in the log by then, and is put right from there. A block that has been copied is
not logged any more. No lock is needed: the log is appended to before the write, and read after the copy.
"""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.columnar.key_columns import KeyColumn
from penstock.state.columnar.slot_arrays import Array, Slots

FREE = np.uint16(0xFFFF)
"""In place of its key group: the slot has no key."""

_BLOCK_BITS = 16
BLOCK_SLOTS = 1 << _BLOCK_BITS

_Logged = tuple[Slots, list[Array]]


class TableView:
    """`before_write` belongs to the stream's thread, `blocks` to the writer's; `release` to any."""

    def __init__(
        self, columns: list[Array], slots_end: int, group_array: int, keys: list[tuple[KeyColumn, slice]],
        first_value: int,
    ) -> None:  # fmt: skip
        self._columns = columns
        self._slots_end = slots_end
        self._group_array = group_array
        self._keys = keys
        self._first_value = first_value
        self._log: list[_Logged | None] = []
        self._read = 0
        self._touched: npt.NDArray[np.bool_] | None = None
        self._copied_end = 0
        self._of_block: dict[int, list[_Logged]] = {}
        self.released = not slots_end

    def release(self) -> None:
        """Nobody needs it any more."""
        self.released = True

    # ---- the stream's thread -------------------------------------------------------------------------------------

    def before_write(self, slots: Slots, columns: list[Array]) -> None:
        if self._touched is None:
            self._touched = np.zeros(self._slots_end, np.bool_)
        slots = slots[(slots >= self._copied_end) & (slots < self._slots_end)]
        slots = slots[~self._touched[slots]]
        if len(slots):
            self._log.append((slots, [array[slots] for array in columns]))
            self._touched[slots] = True

    # ---- the writer's thread -------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[tuple[list[pa.Array], Array, list[Array]]]:
        """(key columns, key groups, value columns) of the live slots, block by block. Ends early when released."""
        for block in range(-(-self._slots_end // BLOCK_SLOTS)):
            if self.released:
                return
            start, end = block * BLOCK_SLOTS, min((block + 1) * BLOCK_SLOTS, self._slots_end)
            copied = [array[start:end].copy() for array in self._columns]
            self._sort_log()
            self._copied_end = end
            for slots, before in self._of_block.pop(block, ()):
                for array, values in zip(copied, before):
                    array[slots - start] = values
            live = copied[self._group_array] != FREE
            if not live.all():
                copied = [array[live] for array in copied]
            if len(copied[0]):
                keys = [key.to_arrow(copied[own]) for key, own in self._keys]
                yield keys, copied[self._group_array], copied[self._first_value :]

    def _sort_log(self) -> None:
        """Deals out what has been logged since the last block to the blocks that it belongs to."""
        while self._read < len(self._log):
            logged = self._log[self._read]
            assert logged is not None
            self._log[self._read] = None
            self._read += 1
            slots, before = logged
            numbers = (slots >> _BLOCK_BITS).astype(np.uint16)
            order: npt.NDArray[Any] = np.argsort(numbers, kind="stable")
            slots, before, numbers = slots[order], [values[order] for values in before], numbers[order]
            cuts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
            for start, end in zip(cuts, cuts[1:]):
                part = (slots[start:end], [values[start:end] for values in before])
                self._of_block.setdefault(int(numbers[start]), []).append(part)
