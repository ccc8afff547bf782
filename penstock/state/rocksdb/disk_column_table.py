"""Keeps a table of columnar state in RocksDB, and the keys that were used lately in arrays, too.

What is in memory are two tables in arrays. Keys come into the recent one; when that is full, it becomes the older one,
and the keys that were not used since the last such change are forgotten. So nothing is evicted key by key. The keys of
a slice that neither table has are read in one call, and what has changed is written in batches between two slices.
"""

from __future__ import annotations

from itertools import islice
from typing import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.protocol.values.metadata import StateSchema
from penstock.state.changes import Changes, Since
from penstock.state.columnar.column_table import ColumnTable, Found, ValueColumn, largest_of
from penstock.state.columnar.slot_arrays import Array, Slots
from penstock.state.columnar.table_keys import KeyRows
from penstock.state.rocksdb.bulk_load import BulkLoad
from penstock.state.rocksdb.changed_columns import ChangedColumns, ColumnChanges
from penstock.state.rocksdb.column_codec import ColumnCodec
from penstock.state.rocksdb.database import Batch, Database, Entry
from penstock.state.rocksdb.lazy_state import LoadingDatabase
from penstock.state.rocksdb.local_state import LocalState

_CHANGED_SLOTS_MAX = 1024
"""With more changed keys than this a batch is written: so long a snapshot stops the subtask at most."""
_INT64_END = 2**63


class DiskColumnTable:
    """Implements `KeyedTable`, and `WindowTable` if it is `windowed`. `stream_schema`: the schema of the batches that
    snapshots write. `changes`: numbers the times in which entries change; None: checkpoints are not incremental.
    """

    def __init__(
        self,
        schema: StateSchema,
        stream_schema: pa.Schema,
        keys: pa.Schema,
        values: Sequence[ValueColumn],
        local: LocalState,
        windowed: bool,
        changes: Changes | None,
        block_bytes: int | None = None,
    ) -> None:
        self._block_bytes = block_bytes
        self.schema = schema
        name = (schema.operator, schema.name)
        self.prefix = local.new_prefix(name)
        self._stream_schema = stream_schema
        self._key_schema = keys
        self._value_columns = values
        self._local = local
        self._database: Database | LoadingDatabase = local.database
        self._database.begin(self.prefix)
        self._codec = ColumnCodec(self.prefix, keys, values, windowed)
        self._changes = None if changes is None else ColumnChanges(schema, stream_schema, changes)
        self._recent = self._empty_table()
        self._restored = ColumnTable(keys, values)
        """Converts restored keys; it stays empty."""
        self._older: ColumnTable | None = None
        self._changed: npt.NDArray[np.bool_] = np.zeros(1024, np.bool_)
        """By slot of the recent table: whether the database has other values."""
        self._changed_slots = 0
        """An upper bound of the number of changed slots: a slot counts each time that it is written."""
        is_known = not local.is_claimed(name)
        self._restored_largest: list[int] | None = [0] * len(values) if is_known else None
        self._restored_true = [is_known] * len(values)

    def _empty_table(self) -> ColumnTable:
        changes = self._changes
        removed = None if changes is None else changes.removed
        table = ColumnTable(self._key_schema, self._value_columns, removed, self._block_bytes)
        table.now = 0 if changes is None else changes.now
        return table

    def read_from(self, database: Database | LoadingDatabase) -> None:
        self._database = database

    # ---- rows to slots ------------------------------------------------------------------------------------------

    def rows(self, arrays: Sequence[pa.Array]) -> list[KeyRows]:
        return self._recent.rows(arrays)

    def find_or_insert(self, keys: list[KeyRows], key_groups: npt.NDArray[np.uint16]) -> Found:
        """Return the slots of rows; the keys that are not in memory are read first."""
        self._make_room()
        self._restored_largest = None
        found = self._recent.find_or_insert(keys, key_groups)
        if not len(found.new_slots):
            return found
        is_new = self._read(found.new_slots)
        return Found(found.slots, found.new_slots[is_new], found.new_rows[is_new])

    def _read(self, slots: Slots) -> npt.NDArray[np.bool_]:
        """Read the values of keys that have got slots just now; return which of them are new keys."""
        recent, older = self._recent, self._older
        is_new: npt.NDArray[np.bool_] = np.ones(len(slots), np.bool_)
        unknown = np.arange(len(slots))
        if older is not None and older.live:
            at, unknown = older.find(recent.stored_rows(slots), recent.stored_hashes(slots))
            is_new[:] = False
            is_new[unknown] = True
            known = np.flatnonzero(~is_new)
            for to, values in zip(recent.values, older.values):
                to[slots[known]] = values[at[known]]
        if len(unknown):
            wanted = slots[unknown]
            keys = self._codec.keys(recent.key_groups_of(wanted), recent.stored_rows(wanted))
            found = self._database.read(keys)
            there = np.array([data is not None for data in found])
            if there.any():
                read = [data for data in found if data is not None]
                for to, values in zip(recent.values, self._codec.values_of(read)):
                    to[wanted[there]] = values
                is_new[unknown[there]] = False
        recent.after_write(slots, range(len(recent.values)))
        recent.note_unchanged(slots[~is_new])
        return is_new

    # ---- values -------------------------------------------------------------------------------------------------

    @property
    def values(self) -> list[Array]:
        return self._recent.values

    @property
    def slots_end(self) -> int:
        return self._recent.slots_end

    def touch(self, slots: Slots) -> None:
        if self.slots_end > len(self._changed):
            grown = np.zeros(2 * self.slots_end, np.bool_)
            grown[: len(self._changed)] = self._changed
            self._changed = grown
        self._changed[slots] = True
        self._changed_slots += len(slots)
        self._recent.touch(slots)

    def after_write(self, slots: Slots, columns: Sequence[int]) -> None:
        self._recent.after_write(slots, columns)

    def keys_of(self, slots: Slots) -> list[pa.Array]:
        return self._recent.keys_of(slots)

    def key_groups_of(self, slots: Slots) -> npt.NDArray[np.uint16]:
        return self._recent.key_groups_of(slots)

    def largest(self, column: int) -> int:
        return _INT64_END if self._restored_largest is None else self._restored_largest[column]

    def all_true(self, column: int) -> bool:
        return self._restored_true[column]

    # ---- writing ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Write a batch if enough has changed."""
        self._local.check()
        if self._changed_slots > _CHANGED_SLOTS_MAX:
            changed = self._changed_now()
            self._changed_slots = len(changed)
            if len(changed) > _CHANGED_SLOTS_MAX:
                self._write(changed)

    def flush(self) -> None:
        """Write all that has changed. Raises `StateError`."""
        if self._changed_slots:
            self._write(self._changed_now())

    def _changed_now(self) -> Slots:
        return np.flatnonzero(self._changed[: self.slots_end])

    def _write(self, slots: Slots) -> None:
        recent = self._recent
        slots = slots[self._codec.order(recent.key_groups_of(slots), recent.stored_rows(slots))]
        keys = self._keys_of(slots)
        values = self._codec.values([array[slots] for array in recent.values])
        self._database.write(Batch(keys, values, []))
        self._changed[slots] = False
        self._changed_slots = 0

    def remove(self, slots: Slots) -> None:
        """Remove live slots, each once, from memory and disk."""
        if not len(slots):
            return
        self._database.write(Batch([], [], self._keys_of(slots)))
        self._changed[slots[slots < len(self._changed)]] = False
        if self._older is not None:
            at, missing = self._older.find(self._recent.stored_rows(slots))
            self._older.remove(np.delete(at, missing))
        self._recent.remove(slots)

    def _keys_of(self, slots: Slots) -> list[bytes]:
        return self._codec.keys(self._recent.key_groups_of(slots), self._recent.stored_rows(slots))

    def _make_room(self) -> None:
        """Evict the entries that were not used for long, if the recent table is full."""
        if 2 * self._recent.used_bytes > self._local.settings.cached_bytes and self._recent.live:
            self.flush()
            if self._changes is not None:
                self._changes.forget(self._recent)
            self._older, self._recent = self._recent, self._empty_table()

    # ---- windows ------------------------------------------------------------------------------------------------

    def starts(self) -> Iterator[int]:
        """Yield the starts of all windows."""
        self.flush()
        behind = b""
        while (entry := next(self._database.scan(self.prefix, behind), None)) is not None:
            start = self._codec.start_of(entry[0])
            yield start
            behind = self._codec.behind_window(start)

    def slots_of_window(self, start: int, slots_max: int) -> Iterator[Slots]:
        """Yield the slots of a window in groups. Each may be removed before the next is asked for."""
        self.flush()
        behind = b""
        while entries := list(islice(self._database.scan(self._codec.window(start), behind), slots_max)):
            behind = entries[-1][0]
            yield self._loaded(entries)

    def _loaded(self, entries: list[Entry]) -> Slots:
        self._make_room()
        columns, key_groups = self._codec.columns_of([key for key, _ in entries])
        recent = self._recent
        found = recent.find_or_insert(recent.rows(columns), key_groups)
        for to, values in zip(recent.values, self._codec.values_of([data for _, data in entries])):
            to[found.new_slots] = values[found.new_rows]
        recent.after_write(found.new_slots, range(len(recent.values)))
        recent.note_unchanged(found.new_slots)
        return found.slots

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def fill(self, load: BulkLoad, batch: pa.RecordBatch, deletes: bool) -> None:
        """Add a batch of restored entries, or delete restored keys."""
        keys = self.stored_keys(batch)
        if deletes:
            load.delete(keys)
            return
        for c, column in enumerate(self._values_of(batch)):
            if column.dtype == np.bool_:
                self._restored_true[c] &= bool(column.all())
            elif column.dtype == np.int64 and self._restored_largest is not None:
                self._restored_largest[c] = max(self._restored_largest[c], largest_of(column))
        load.put(keys, self.stored_values(batch))

    def stored_keys(self, batch: pa.RecordBatch) -> list[bytes]:
        """Return the keys of restored entries in the database's form. Any thread may call it."""
        rows = self._restored.rows([batch.column(i) for i in range(len(self._key_schema))])
        return self._codec.keys(batch.column(batch.num_columns - 1).to_numpy(), rows)

    def stored_values(self, batch: pa.RecordBatch) -> list[bytes]:
        """Return the values of restored entries as the database has them. Any thread may call it."""
        return self._codec.values(self._values_of(batch))

    def _values_of(self, batch: pa.RecordBatch) -> list[Array]:
        count = len(self._key_schema)
        return [batch.column(count + c).to_numpy(zero_copy_only=False) for c in range(len(self._value_columns))]

    def encoded(self, entries: Sequence[Entry]) -> pa.RecordBatch:
        keys, key_groups = self._codec.columns_of([key for key, _ in entries])
        values = self._codec.values_of([data for _, data in entries])
        arrays = [*keys, *(pa.array(np.ascontiguousarray(v)) for v in values), pa.array(key_groups)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._stream_schema)

    def changed_since(self, since: Since) -> ChangedColumns | None:
        """Return the current changes; None if they were dropped."""
        assert self._changes is not None
        return self._changes.since(since, self._recent)

    def begin_time(self) -> None:
        """Note changes as those after the newest snapshot from now on."""
        if self._changes is not None:
            self._changes.begin_time()
            self._recent.now = self._changes.now
