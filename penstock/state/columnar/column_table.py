"""Keeps a table of keyed state: a slot for each key, its key and its values in arrays.

`find_or_insert` turns rows into slots; operators then read and write `values[c][slots]` directly, with `touch` before
and `after_write` after the write. `touch` is all that a snapshot costs the stream: while one is being encoded, the rows
that are about to change are copied for it, each once (`penstock.state.columnar.table_view`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.columnar.changed_entries import RemovedKeys
from penstock.state.columnar.slot_arrays import Array, FreeSlots, SlotArrays, Slots
from penstock.state.columnar.slot_index import Hashes, Matches, Rows, SlotIndex
from penstock.state.columnar.table_keys import BytesKeys, KeyColumn, KeyRows, key_column
from penstock.state.columnar.table_view import FREE, TableView

_INDEX_BYTES_PER_KEY = 48
_EMPTY: npt.NDArray[np.intp] = np.empty(0, np.intp)


@dataclass
class ValueColumn:
    """Describes a value column. `initial`: the value of a new key; `initial_of_restored`: the value of a restored key
    whose checkpoint does not have the column.
    """

    name: str
    dtype: npt.DTypeLike
    initial: Any
    initial_of_restored: Any = None

    def __post_init__(self) -> None:
        if self.initial_of_restored is None:
            self.initial_of_restored = self.initial


@dataclass(frozen=True)
class Found:
    """Holds a lookup's result. `slots` of all rows; `new_slots` are those of new keys, with the first row of each."""

    slots: Slots
    new_slots: Slots
    new_rows: Rows


class ColumnTable:
    def __init__(
        self,
        key_schema: pa.Schema,
        values: Sequence[ValueColumn],
        removed: RemovedKeys | None = None,
        block_bytes: int | None = None,
    ) -> None:
        """Create an empty table. `key_schema`: the key's columns. `removed`: remembers removed keys, if checkpoints are
        incremental. `block_bytes`: see `TableView`. Raises TypeError for a type that cannot be a key.
        """
        self._block_bytes = block_bytes
        self.key_schema = key_schema
        self.value_columns = list(values)
        self._keys: list[KeyColumn] = [key_column(f.type) for f in key_schema]
        self._key_arrays: list[slice] = []
        dtypes: list[npt.DTypeLike] = []
        for key in self._keys:
            self._key_arrays.append(slice(len(dtypes), len(dtypes) + len(key.dtypes)))
            dtypes += key.dtypes
        self._group_array = len(dtypes)
        dtypes.append(np.uint16)
        self._first_value = len(dtypes)
        dtypes += [v.dtype for v in values]
        self._values_end = len(dtypes)
        self.removed = removed
        if removed is not None:
            dtypes.append(np.int32)
        self._viewed_end = len(dtypes)  # a restore finds the hashes by itself
        is_hashed = len(self._keys) > 1 or isinstance(self._keys[0], BytesKeys)
        self._hash_array = len(dtypes) if is_hashed else None
        dtypes += [np.uint64] if is_hashed else []
        self.now = 0
        """The number that slots get when they change."""
        self._dtypes = dtypes
        self._views: list[TableView] = []
        self._clear()

    def _clear(self) -> None:
        self._arrays = SlotArrays(self._dtypes)
        self._index = SlotIndex()
        self._slots_end = 0
        self._free = FreeSlots()
        self.live = 0

    # ---- rows to slots -------------------------------------------------------------------------------------------

    def rows(self, arrays: Sequence[pa.Array]) -> list[KeyRows]:
        """Return the key columns of a batch, as `find_or_insert` takes them. They must have no nulls."""
        return [key.rows(array) for key, array in zip(self._keys, arrays, strict=True)]

    def find_or_insert(self, keys: list[KeyRows], key_groups: npt.NDArray[np.uint16]) -> Found:
        hashes = _hashes(keys)
        slots, missing = self._find(keys, hashes)
        if not len(missing):
            return Found(slots, _EMPTY, _EMPTY)

        def same(rows: Rows, others: Rows) -> npt.NDArray[np.bool_]:
            rows, others = missing[rows], missing[others]
            equal = keys[0].same(rows, others)
            for given in keys[1:]:
                equal &= given.same(rows, others)
            return equal

        missing.sort()
        missing_hashes = hashes[missing]
        first, position = self._index.distinct(missing_hashes, same)
        new_rows = missing[first]
        new_slots = self._free.allocate(len(new_rows), self._arrays, self._slots_end)
        self._index.insert(
            missing_hashes[first], new_slots, self.live, self._slots_end, self.stored_hashes, self._is_live
        )
        self._store(keys, key_groups, hashes, new_slots, new_rows)
        self._slots_end = max(self._slots_end, int(new_slots.max()) + 1)
        self.live += len(new_slots)
        slots[missing] = new_slots[position]
        return Found(slots, new_slots, new_rows)

    def find(self, keys: list[KeyRows], hashes: Hashes | None = None) -> tuple[Slots, Rows]:
        """Return the slots of all rows, and, in no order, the rows whose key has none: their slot is undefined.
        `hashes`: the keys', if they are known.
        """
        return self._find(keys, _hashes(keys) if hashes is None else hashes)

    def _find(self, keys: list[KeyRows], hashes: Hashes) -> tuple[Slots, Rows]:
        columns = self._arrays.columns

        def equal(slots: Slots, rows: Rows | None) -> npt.NDArray[np.bool_]:
            found = self._keys[0].matches(columns[self._key_arrays[0]], slots, keys[0], rows)
            for key, own, given in zip(self._keys[1:], self._key_arrays[1:], keys[1:]):
                found &= key.matches(columns[own], slots, given, rows)
            return found

        stored = None if self._hash_array is None else columns[self._hash_array]
        return _found(self._index, hashes, stored, equal)

    def _store(
        self, keys: list[KeyRows], key_groups: npt.NDArray[np.uint16], hashes: Hashes, slots: Slots, rows: Rows
    ) -> None:
        self.touch(slots, with_keys=True)
        columns = self._arrays.columns
        for key, own, given in zip(self._keys, self._key_arrays, keys):
            key.store(columns[own], slots, given, rows)
        columns[self._group_array][slots] = key_groups[rows]
        if self._hash_array is not None:
            columns[self._hash_array][slots] = hashes[rows]
        for value, array in zip(self.value_columns, self.values):
            array[slots] = value.initial
        self._arrays.written(slots)

    def stored_hashes(self, slots: Slots) -> Hashes:
        """Return the hashes of slots' keys."""
        columns = self._arrays.columns
        if self._hash_array is not None:
            stored: Hashes = columns[self._hash_array][slots]
            return stored
        return _hashes(self.stored_rows(slots))

    def stored_rows(self, slots: Slots) -> list[KeyRows]:
        """Return the keys of slots, as `find` takes them."""
        columns = self._arrays.columns
        return [key.stored(columns[own], slots) for key, own in zip(self._keys, self._key_arrays)]

    def _is_live(self, slots: Slots) -> npt.NDArray[np.bool_]:
        live: npt.NDArray[np.bool_] = self._arrays.columns[self._group_array][slots] != FREE
        return live

    # ---- values --------------------------------------------------------------------------------------------------

    @property
    def values(self) -> list[Array]:
        """Return the arrays of the value columns, to be indexed by slots. Do not keep them across `find_or_insert`."""
        return self._arrays.columns[self._first_value : self._values_end]

    @property
    def slots_end(self) -> int:
        """Return the number that all slots are below."""
        return self._slots_end

    def touch(self, slots: Slots, *, with_keys: bool = False) -> None:
        """Note that values of these slots are about to be written, or their keys, too. Slots may repeat."""
        if self._views:
            self._views = [view for view in self._views if not view.released]
            for view in self._views:
                view.before_write(slots, self._arrays.columns[: self._viewed_end], with_keys=with_keys)
        if self.removed is not None:
            self._arrays.columns[self._values_end][slots] = self.now
            self._arrays.written(slots, [self._values_end])

    def note_unchanged(self, slots: Slots) -> None:
        """Note that slots which were new a moment ago hold what is known elsewhere. While a view is being read they
        count as changed all the same, because their numbers may only grow.
        """
        if self.removed is not None and all(view.released for view in self._views):
            self._arrays.columns[self._values_end][slots] = 0
            self._arrays.written(slots, [self._values_end])

    def changed_count(self, since: int) -> int:
        """Return the number of slots that have changed after this time."""
        return int(np.count_nonzero(self._arrays.columns[self._values_end][: self._slots_end] > since))

    def after_write(self, slots: Slots, columns: Sequence[int]) -> None:
        """Note that values of these columns and slots have been written."""
        if self._arrays.growing:
            self._arrays.written(slots, [self._first_value + c for c in columns])

    def settle(self) -> None:
        """Do nothing: all is in memory."""

    def largest(self, column: int) -> int:
        """Return the largest absolute value of a column of whole numbers."""
        return largest_of(self.values[column][: self.slots_end])

    def all_true(self, column: int) -> bool:
        """Return whether a column of booleans has no False."""
        return bool(self.values[column][: self.slots_end].all())

    @property
    def used_bytes(self) -> int:
        """Return the estimated memory of keys and values, in bytes."""
        row_bytes = sum(array.itemsize for array in self._arrays.columns) + _INDEX_BYTES_PER_KEY
        return self.live * row_bytes + sum(key.heap_bytes for key in self._keys)

    def live_slots(self) -> Slots:
        """Return all live slots: an array as long as the table is large."""
        return np.flatnonzero(self._arrays.columns[self._group_array][: self._slots_end] != FREE)

    def keys_of(self, slots: Slots) -> list[pa.Array]:
        """Return key columns, in Arrow's types."""
        columns = self._arrays.columns
        return [
            key.to_arrow([array[slots] for array in columns[own]]) for key, own in zip(self._keys, self._key_arrays)
        ]

    def key_groups_of(self, slots: Slots) -> npt.NDArray[np.uint16]:
        groups: npt.NDArray[np.uint16] = self._arrays.columns[self._group_array][slots]
        return groups

    # ---- removal -------------------------------------------------------------------------------------------------

    def remove(self, slots: Slots) -> None:
        """Remove live slots, each once."""
        if not len(slots):
            return
        self.touch(slots, with_keys=True)
        if self.removed is not None:
            self.removed.add(self.now, self.keys_of(slots), self.key_groups_of(slots))
        columns = self._arrays.columns
        self._index.remove(self.stored_hashes(slots), slots)
        for key, own in zip(self._keys, self._key_arrays):
            key.removed(columns[own], slots)
        columns[self._group_array][slots] = FREE
        self._arrays.written(slots, [self._group_array])
        self.live -= len(slots)
        if self.live:
            self._free.add(slots)
            self._compact_keys()
        else:
            self._forget_all()

    def _forget_all(self) -> None:
        """Reset an empty table. Snapshots keep the arrays as they were."""
        self._views = []
        self._keys = [key_column(f.type) for f in self.key_schema]
        self._clear()

    def _compact_keys(self) -> None:
        """Compact the keys, unless a snapshot reads the heaps, or the arrays grow."""
        if self._arrays.growing or any(not view.released for view in self._views):
            return
        for key, own in zip(self._keys, self._key_arrays):
            if isinstance(key, BytesKeys) and key.needs_compaction:
                starts, lengths = self._arrays.columns[own]
                self._arrays.replace(own.start, key.compacted(starts, lengths, self.live_slots()))

    # ---- snapshots -----------------------------------------------------------------------------------------------

    def view(self, since: int | None = None, with_numbers: bool = False) -> TableView:
        """Return the table as it is now; this costs nothing but what `touch` copies until it has been read. `since`: of
        the slots that have changed after this time; None: of all. `with_numbers`: behind the values, the times in which
        they have changed.
        """
        view = TableView(
            self._arrays.columns[: self._viewed_end],
            self._slots_end,
            self._group_array,
            [(key.frozen(), own) for key, own in zip(self._keys, self._key_arrays)],
            slice(self._first_value, self._values_end + with_numbers),
            self.live,
            since,
            self._block_bytes,
        )
        self._views = [older for older in self._views if not older.released]
        if self._slots_end:
            self._views.append(view)
        return view


def largest_of(values: Array) -> int:
    """Return the largest absolute value."""
    return max(abs(int(np.maximum.reduce(values))), abs(int(np.minimum.reduce(values)))) if len(values) else 0


def _hashes(keys: list[KeyRows]) -> Hashes:
    hashes: Hashes | None = None
    for given in keys:
        hashes = given.hashed(hashes)
    assert hashes is not None
    return hashes


def _found(index: SlotIndex, hashes: Hashes, stored: Array | None, equal: Matches) -> tuple[Slots, Rows]:
    """Find rows as `SlotIndex.find` does. `stored`: the hashes of slots, if they are kept because comparing keys costs
    more. Then keys are compared once, when their hashes are equal; and for each probe if two keys have one hash.
    """
    if stored is None:
        return index.find(hashes, equal)
    kept = stored

    def equally_hashed(slots: Slots, rows: Rows | None) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = kept.take(slots) == (hashes if rows is None else hashes[rows])
        return found

    slots, missing = index.find(hashes, equally_hashed)
    if not len(missing):
        same = equal(slots, None)
    else:
        there = np.ones(len(slots), np.bool_)
        there[missing] = False
        rows = np.flatnonzero(there)
        same = equal(slots[rows], rows)
    if np.count_nonzero(same) == len(same):
        return slots, missing
    return index.find(hashes, lambda slots, rows: _where(equally_hashed(slots, rows), slots, rows, equal))


def _where(possible: npt.NDArray[np.bool_], slots: Slots, rows: Rows | None, equal: Matches) -> npt.NDArray[np.bool_]:
    """Return which of the possible ones are equal. The others may be slots that do not exist."""
    at = np.flatnonzero(possible & (slots >= 0))
    found = np.zeros(len(slots), np.bool_)
    found[at] = equal(slots[at], at if rows is None else rows[at])
    return found
