"""Takes snapshots of a table without stopping the stream.

Taking a view costs nothing: it remembers the arrays and how many slots there are. Another thread then copies one block
of slots after the other, while the stream keeps writing to the same arrays. Before the stream writes to a slot, it
appends the old values to the view's log. So once a block is copied, the log has everything in it that was written to
meanwhile, wholly or in part, and the copy is corrected from there. If a slot was logged more than once, the oldest
entry counts. A block that has been copied is not logged any more. No lock is needed: the log is appended to before the
write, and read after the copy.

Most writes change values. Keys and key groups are logged apart, when a slot gets another key or loses it.
"""

from __future__ import annotations

from typing import Iterator

import numpy as np
import pyarrow as pa

from penstock.state.columnar.slot_arrays import Array, Slots
from penstock.state.columnar.slot_log import SlotLog
from penstock.state.columnar.table_keys import KeyColumn

FREE = np.uint16(0xFFFF)
"""The mark, in place of a key group, of a slot that has no key."""

_BLOCK_SLOTS_MAX = 1 << 18
BLOCK_BYTES = 8 * 1024 * 1024
"""The most bytes, or 2^18 slots, that are copied at once: enough for what each block costs to be little, and a range
that a restore reads."""
_CHANGED_TIMES = 8
"""Changed slots of this many times `BLOCK_BYTES`, and of one block more, are copied at once, without the strings of
their keys: the sooner all are copied, the fewer does the stream log, and to write them takes longer than that."""
_CHANGED_BLOCKS_MAX = 64
"""Where changed slots are copied, a table has at most twice as many blocks as this."""


class TableView:
    """Holds a table as it was at a barrier. The stream's thread calls `before_write`, the writer's `blocks`; any may
    call `release`. At most `block_bytes` (BLOCK_BYTES) are copied at once.
    """

    def __init__(
        self,
        columns: list[Array],
        slots_end: int,
        group_array: int,
        keys: list[tuple[KeyColumn, slice]],
        values: slice,
        live: int,
        since: int | None = None,
        block_bytes: int | None = None,
    ) -> None:
        self._block_bytes = block_bytes = BLOCK_BYTES if block_bytes is None else block_bytes
        self._columns = columns
        self._slots_end = slots_end
        self._group_array = group_array
        self._keys = keys
        self._values = values
        self._since = since
        """Only the slots of which the last array has a higher number are read; None: all."""
        array_bytes = sum(array.itemsize for array in columns)
        self.expected_bytes = live * array_bytes if since is None else 0
        row_bytes = array_bytes + sum(key.heap_bytes for key, _ in keys) // max(slots_end, 1)
        self._changed_max = max(_CHANGED_TIMES * block_bytes // array_bytes, 1)
        """Blocks are copied together until as many slots in them have changed."""
        block_slots = min(max(block_bytes // (row_bytes if since is None else array_bytes), 1), _BLOCK_SLOTS_MAX)
        if since is not None:
            block_slots = max(block_slots, slots_end // _CHANGED_BLOCKS_MAX)
        self._block_bits = block_slots.bit_length() - 1
        self._key_log = SlotLog(slice(group_array + 1), slots_end, self._block_bits)
        self._value_log = SlotLog(slice(group_array + 1, None), slots_end, self._block_bits)
        self._logs = (self._key_log, self._value_log)
        self._copied_end = 0
        self.released = not slots_end
        """True when the table is not read any more: what was copied of it may still be encoded."""
        self._is_over = False

    def release(self) -> None:
        """Release the view: nobody needs it any more."""
        self.released = self._is_over = True

    # ---- the stream's thread -------------------------------------------------------------------------------------

    def before_write(self, slots: Slots, arrays: list[Array], *, with_keys: bool) -> None:
        """Log slots whose values, and keys if `with_keys`, are about to be written. `arrays`: the viewed ones of the
        table, as they are now.
        """
        slots = slots[(slots >= self._copied_end) & (slots < self._slots_end)]
        if len(slots):
            self._value_log.add(slots, arrays)
            if with_keys:
                self._key_log.add(slots, arrays)

    # ---- the writer's thread -------------------------------------------------------------------------------------

    def blocks(self) -> Iterator[tuple[list[pa.Array], Array, list[Array]]]:
        """Yield (key columns, key groups, value columns) of the live slots, a part of a block at a time. Without
        `since`, each is valid until the next. Ends early when released.
        """
        block_slots = 1 << self._block_bits
        memory = []
        if self._since is None:
            memory = [np.empty(min(block_slots, self._slots_end), array.dtype) for array in self._columns]
            self._make_marks()
        end = 0
        while end < self._slots_end:
            if self._is_over:
                return
            start, end = end, min(end + block_slots, self._slots_end)
            slots = None
            if self._since is None:
                copied = self._whole(memory, start, end)
            else:
                slots, end = self._changed(start)
                copied = [array.take(slots) for array in self._columns]
            for log in self._logs:
                log.sort()
            self._copied_end = end
            for log in self._logs:
                log.correct(start, end, copied, slots)
            if end == self._slots_end:
                self.released = True
            else:
                self._make_marks()
            kept = copied[self._group_array] != FREE
            if self._since is not None:
                kept &= copied[-1] > self._since
            if not kept.all():
                copied = [array[kept] for array in copied]
            for piece in self._pieces(copied):
                if self._is_over:
                    return
                entries = [array[piece] for array in copied]
                keys = [key.to_arrow(entries[own]) for key, own in self._keys]
                yield keys, entries[self._group_array], entries[self._values]

    def _make_marks(self) -> None:
        for log in self._logs:
            log.make_marks()

    def _pieces(self, copied: list[Array]) -> Iterator[slice]:
        """Cut entries into pieces of `BLOCK_BYTES` at most, or of one entry: keys may be much longer than the others of
        the table are.
        """
        row_bytes = np.full(len(copied[0]), sum(array.itemsize for array in copied), np.int64)
        for key, own in self._keys:
            row_bytes += key.bytes_outside(copied[own])
        ends = np.cumsum(row_bytes)
        first = 0
        while first < len(ends):
            limit_bytes = ends[first] - row_bytes[first] + self._block_bytes
            last = max(int(np.searchsorted(ends, limit_bytes, side="right")), first + 1)
            yield slice(first, last)
            first = last

    def _whole(self, memory: list[Array], start: int, end: int) -> list[Array]:
        copied = [to[: end - start] for to in memory]
        for to, array in zip(copied, self._columns):
            np.copyto(to, array[start:end])
        return copied

    def _changed(self, start: int) -> tuple[Slots, int]:
        """Find slots that have changed, or change just now: a slot's number only ever becomes higher. Looks at blocks
        until they are enough to be copied together. Returns the slots, and where the last block ends.
        """
        found: list[Slots] = []
        count, end = 0, start
        while end < self._slots_end and count < self._changed_max:
            begin, end = end, min(end + (1 << self._block_bits), self._slots_end)
            found.append(begin + np.flatnonzero(self._columns[-1][begin:end] > self._since))
            count += len(found[-1])
        return np.concatenate(found), end
