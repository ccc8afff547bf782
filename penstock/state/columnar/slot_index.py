"""Maps the hash of a key to its slot: open addressing over whole arrays of rows at once.

The table holds slot numbers only. Whether a slot has the key of a row is decided by comparing the keys themselves
(`Matches`), so two keys with one hash are two keys. Probing is triangular (1, 2, 3, ... further), which visits every
place of a table whose size is a power of two. Rows that find their key at their first place, most of them, cost a few
array operations for all together; the others continue in rounds that become smaller fast.

A removed slot leaves a mark, so that probes continue past it. When live slots and marks fill the table, a new one is
filled a stretch of slots at a time, in step with what is added, while keys are looked up in the old one.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import numpy.typing as npt

from penstock.state.columnar.slot_arrays import Slots

Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.intp]
Matches = Callable[[Slots, "Rows | None"], npt.NDArray[np.bool_]]
"""(slots, rows) -> whether each slot has the key of its row; rows None: all of them, in their order. Slots that are
not there at all (negative ones) may be asked for, and their answer is ignored."""
HashesOf = Callable[[Slots], Hashes]

_REMOVED = -1
_SIZE_MIN = 1024
_LARGE_SIZE = 1 << 21
"""The size from which on memory counts more than the last nanosecond."""
_MOVED_PER_NEW_SLOT = 8
_MOVED_AT_ONCE_MAX = 1 << 15
_CLEARED_PER_NEW_SLOT = 48
_CLEARED_AT_ONCE = 1 << 18
_NO_ROWS: Rows = np.empty(0, np.intp)


class SlotIndex:
    def __init__(self) -> None:
        self._table: npt.NDArray[np.int32] = np.zeros(_SIZE_MIN, np.int32)
        self._used = 0
        self._cleared = 0
        self._next: npt.NDArray[np.int32] | None = None
        self._next_used = 0
        self._moved = 0
        self._move_end = 0

    @property
    def growing(self) -> bool:
        return self._next is not None

    def find(self, hashes: Hashes, matches: Matches) -> tuple[Slots, Rows]:
        """Return the slots of all rows, and, in no order, the rows whose key is in none: their slot is undefined."""
        table, mask = self._table, len(self._table) - 1
        places = (hashes & np.uint64(mask)).view(np.intp)
        entries = table.take(places)
        slots: Slots = np.subtract(entries, 1, dtype=np.intp)
        found = matches(slots, None)
        found &= entries > 0
        if np.count_nonzero(found) == len(found):
            return slots, _NO_ROWS
        rows = np.flatnonzero(~found)
        places, entries = places[rows], entries[rows]
        missing = []
        step = 0
        while len(rows):
            empty = entries == 0
            if np.count_nonzero(empty):
                missing.append(rows[empty])
                going = ~empty
                rows, places = rows[going], places[going]
                if not len(rows):
                    break
            step += 1
            places = (places + step) & mask
            entries = table.take(places)
            at = np.subtract(entries, 1, dtype=np.intp)
            found = matches(at, rows)
            found &= entries > 0
            slots[rows[found]] = at[found]
            going = ~found
            rows, places, entries = rows[going], places[going], entries[going]
        return slots, np.concatenate(missing) if missing else _NO_ROWS

    def distinct(self, hashes: Hashes, same: Callable[[Rows, Rows], npt.NDArray[np.bool_]]) -> tuple[Rows, Rows]:
        """Group rows with new keys: return the first row of each key, and for each row the position of its key among
        those. `same(rows, rows)`: whether the keys are equal. `hashes`: the hashes of these rows.
        """
        count = len(hashes)
        size = 1 << max(4, int(2 * count - 1).bit_length())
        scratch = np.zeros(size, np.int32)
        places = (hashes & np.uint64(size - 1)).view(np.intp)
        rows = np.arange(count)
        key_of = np.empty(count, np.intp)
        step = 0
        # Reversed, because the last write to a place stays: so the first row of a key wins.
        while len(rows):
            free = scratch.take(places) == 0
            claims = rows[free]
            scratch[places[free][::-1]] = claims[::-1] + 1
            winners = scratch.take(places).astype(np.intp) - 1
            equal = winners == rows
            others = np.flatnonzero(~equal)
            # Whole keys are compared only where their hashes are equal: long strings cost more than all else here.
            others = others[hashes.take(rows[others]) == hashes.take(winners[others])]
            if len(others):
                equal[others] = same(rows[others], winners[others])
            key_of[rows[equal]] = winners[equal]
            going = ~equal
            step += 1
            rows, places = rows[going], (places[going] + step) & (size - 1)
        is_first = key_of == np.arange(count)
        first = np.flatnonzero(is_first)
        return first, (np.cumsum(is_first) - 1)[key_of]

    def insert(
        self,
        hashes: Hashes,
        slots: Slots,
        live: int,
        slots_end: int,
        hashes_of: HashesOf,
        is_live: Callable[[Slots], npt.NDArray[np.bool_]],
    ) -> None:
        """Add keys that are not in the index, each once. `live`: how many there were; slots below `slots_end` were in
        use. The new ones become live afterwards.
        """
        count = len(slots)
        while self._next is not None or self._used + count > self._limit(len(self._table)):
            if self._next is None:
                size = _SIZE_MIN
                while live + count > self._limit(size) * 9 // 16:
                    size *= 2
                self._next = np.empty(size, np.int32)
                self._cleared = self._next_used = self._moved = 0
            if not self._move(count, slots_end, hashes_of, is_live):
                break
        _place(self._table, hashes, slots)
        self._used += count
        if self._next is not None and self._cleared == len(self._next):
            there = self._in_next(slots)
            _place(self._next, hashes[there], slots[there])
            self._next_used += int(there.sum())

    def _move(
        self, added: int, slots_end: int, hashes_of: HashesOf, is_live: Callable[[Slots], npt.NDArray[np.bool_]]
    ) -> bool:
        """Move some more slots into the next table; return True when it has replaced the old one."""
        assert self._next is not None
        full = self._used + added > len(self._table) * 7 // 8
        if self._cleared < len(self._next):
            # The system allocates memory when it is touched, which for a large table at once takes too long, too.
            end = len(self._next) if full else self._cleared + max(_CLEARED_AT_ONCE, _CLEARED_PER_NEW_SLOT * added)
            self._next[self._cleared : end] = 0
            self._cleared = min(end, len(self._next))
            self._move_end = slots_end
            if self._cleared < len(self._next):
                return False
        budget = max(_MOVED_PER_NEW_SLOT * added, _MOVED_AT_ONCE_MAX)
        while self._moved < self._move_end and (full or budget > 0):
            end = min(self._moved + _MOVED_AT_ONCE_MAX, self._move_end)
            slots = np.arange(self._moved, end)
            slots = slots[is_live(slots)]
            _place(self._next, hashes_of(slots), slots)
            self._next_used += len(slots)
            budget -= end - self._moved
            self._moved = end
        if self._moved < self._move_end:
            return False
        self._table, self._used, self._next = self._next, self._next_used, None
        return True

    def remove(self, hashes: Hashes, slots: Slots) -> None:
        """Remove slots that are in the index, each once."""
        _mark_removed(self._table, hashes, slots)
        if self._next is not None and self._cleared == len(self._next):
            there = self._in_next(slots)
            _mark_removed(self._next, hashes[there], slots[there])

    def _in_next(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Return whether the next table has these slots already; it gets the others later."""
        return (slots < self._moved) | (slots >= self._move_end)

    @staticmethod
    def _limit(size: int) -> int:
        return size // 8 if size < _LARGE_SIZE else size * 11 // 16


def _place(table: npt.NDArray[np.int32], hashes: Hashes, slots: Slots) -> None:
    """Write each slot into the first free place of its probe. The last of two writes stays, the other continues."""
    mask = len(table) - 1
    places: npt.NDArray[Any] = (hashes & np.uint64(mask)).view(np.intp)
    entries = (slots + 1).astype(np.int32)
    step = 0
    while len(entries):
        free = table.take(places) == 0
        table[places[free]] = entries[free]
        going = table.take(places) != entries
        step += 1
        entries, places = entries[going], (places[going] + step) & mask


def _mark_removed(table: npt.NDArray[np.int32], hashes: Hashes, slots: Slots) -> None:
    mask = len(table) - 1
    places: npt.NDArray[Any] = (hashes & np.uint64(mask)).view(np.intp)
    entries = (slots + 1).astype(np.int32)
    step = 0
    while len(entries):
        found = table.take(places) == entries
        table[places[found]] = _REMOVED
        going = ~found
        step += 1
        entries, places = entries[going], (places[going] + step) & mask
