"""Tracks the changes of columnar state on disk since a checkpoint, in all its tables in memory.

The database has these entries, too, but to read one again costs more than all else that a checkpoint does for it. So
the arrays of a table that is forgotten are kept as they are until no checkpoint asks for them. While one takes long,
there may be many, with the same keys again and again. Then they are merged into one by a thread of its own: the stream
would wait for it in the subtask's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.protocol.values.metadata import StateSchema
from penstock.state import state_sizes
from penstock.state.backend import EncodedState
from penstock.state.changes import ChangeLog, Changes, Since
from penstock.state.columnar.changed_entries import ChangedPart, Removed, RemovedKeys, combined, encoded_changes
from penstock.state.columnar.column_table import ColumnTable
from penstock.state.columnar.columnar_backend import deleted_columns, entries_batch, removed_part
from penstock.state.columnar.table_view import TableView
from penstock.state.overriding import NewerKeys
from penstock.state.rocksdb.database import View

_PARTS_MAX = 128
"""With more of them a checkpoint takes long, as each part is looked up in all newer ones."""
_SPARSE = 8
"""If fewer than one key in this number has changed, only the changed keys of a table are kept."""
_LIMIT_TIMES = 2
"""While keys are being merged, this multiple of the largest number of noted keys is kept."""
_CHANGED_AT = pa.field("changed_at", pa.int32())
"""The column of merged entries with the times in which they have changed. It is behind the values."""


class ColumnChanges:
    """Tracks the changes of one state. `schema`: the schema of batches of its entries."""

    def __init__(self, declared: StateSchema, schema: pa.Schema, changes: Changes) -> None:
        self.removed = RemovedKeys()
        self._declared = declared
        self._schema = schema
        self._changes = changes
        self._forgotten = ForgottenChanges(schema, deleted_columns(declared, schema), self.removed)

    @property
    def now(self) -> int:
        """Return the number that slots get when they change."""
        return self._changes.now

    def forget(self, table: ColumnTable) -> None:
        """Keep the changes of a table that becomes the older one. Another table is the recent one from now on."""
        table.removed = None  # the recent table notes keys that are removed from this one, too
        self._forgotten.add(table, self._changes.begin_time(), self._changes.oldest)

    def begin_time(self) -> None:
        """Begin the time after a snapshot, and drop the older changes that nobody will ask for any more."""
        self.removed.forget(self._changes.oldest)
        self._forgotten.begin_time(self._changes.oldest)

    def since(self, since: Since, recent: ColumnTable) -> ChangedColumns | None:
        """Return the current changes; None if they were dropped."""
        removed, forgotten = self.removed.since(since.number), self._forgotten.since(since.number)
        if removed is None or forgotten is None:
            return None
        view = recent.view(since.number)
        return ChangedColumns(self._declared, self._schema, since, view, forgotten, removed)


class ChangedColumns:
    """Holds the recent table of a state (`recent`: its view), the forgotten ones with what has changed since, and the
    keys that were removed. `schema`: the schema of batches of entries.
    """

    def __init__(
        self,
        declared: StateSchema,
        schema: pa.Schema,
        since: Since,
        recent: TableView,
        forgotten: Sequence[ForgottenPart],
        removed: Sequence[Removed],
    ) -> None:
        self._declared = declared
        self._schema = schema
        self._recent = EntriesOfTable(recent, schema)
        self._forgotten = [(part.number, part.since(since.number)) for part in forgotten]
        self._removed = list(removed)

    def runs(self, view: View, is_over: Callable[[], bool]) -> Iterator[EncodedState]:
        for run in encoded_changes(self._declared, list(self._newest_first())):
            if is_over():
                return
            yield run

    def _newest_first(self) -> Iterator[ChangedPart]:
        """Yield all parts. A forgotten table has what is left of its time, so keys that were removed in that time, and
        are there, have come again.
        """
        yield ChangedPart(self._recent.batches(), deletes=False)
        removed = list(self._removed)
        for number, entries in reversed(self._forgotten):
            later: list[Removed] = []
            while removed and removed[-1].number > number:
                later.append(removed.pop())
            if later:
                yield removed_part(self._declared, self._schema, later)
            yield ChangedPart(entries.batches(), deletes=False)
        if removed:
            yield removed_part(self._declared, self._schema, removed)

    def release(self) -> None:
        self._recent.release()
        for _, entries in self._forgotten:
            entries.release()


class ChangedEntries(Protocol):
    """Reads the entries that have changed, each key once, in the writer's thread."""

    def batches(self) -> Iterator[pa.RecordBatch]: ...

    def release(self) -> None:
        """Release the resources of the reader: nobody needs it any more. Any thread may call it."""


class EntriesOfTable:
    """Reads entries of a view of a table. `schema`: the schema of the batches."""

    def __init__(self, view: TableView, schema: pa.Schema) -> None:
        self._view = view
        self._schema = schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        for columns in self._view.blocks():
            yield entries_batch(self._schema, *columns)

    def release(self) -> None:
        self._view.release()


class _EntriesOfMerged:
    """Reads the merged entries that have changed after the time `since`."""

    def __init__(self, merged: list[pa.RecordBatch], schema: pa.Schema, since: int) -> None:
        self._merged = merged
        self._schema = schema
        self._since = since

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._merged:
            changed = _changed(batch, self._since)
            if changed.num_rows:
                columns = [changed.column(name) for name in self._schema.names]
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def release(self) -> None:
        """Do nothing: nobody writes to them."""


@dataclass(frozen=True)
class ForgottenPart:
    """Holds the entries of a table, or of several, merged. None has changed after the time `number`; `keys`: how many
    have changed and were not stored when they were forgotten.
    """

    number: int
    keys: int
    content: ColumnTable | list[pa.RecordBatch]
    schema: pa.Schema

    def since(self, number: int) -> ChangedEntries:
        """Return the entries that have changed after this time, as they are now."""
        if isinstance(self.content, list):
            return _EntriesOfMerged(self.content, self.schema, number)
        return EntriesOfTable(self.content.view(number), self.schema)


class ForgottenChanges(ChangeLog[ForgottenPart]):
    """Holds the parts of one state, the oldest first. `schema`: the schema of batches of its entries; `deleted_schema`:
    the schema of batches of removed keys; `removed`: these.
    """

    def __init__(self, schema: pa.Schema, deleted_schema: pa.Schema, removed: RemovedKeys) -> None:
        super().__init__()
        self._deleted_schema = deleted_schema
        self._schema = schema
        self._removed = removed
        self._is_given_up = False
        """True until the next snapshot if too much has changed to be kept: later changes are of no use, either."""
        self._merging: _Merging | None = None

    def begin_time(self, oldest: int) -> None:
        """Begin the time after a snapshot."""
        self._is_given_up = False
        self.forget(oldest)

    def add(self, table: ColumnTable, number: int, oldest: int) -> None:
        """Keep a table as it is; only removed keys may be removed from it. `number`: the number of the time that ends
        with it; `oldest`: of the time, and those before, of which nobody will ask what has changed.
        """
        if self._is_given_up:
            self.known_after = number
            return
        self.forget(oldest)
        if keys := table.changed_count(oldest):
            content: ColumnTable | list[pa.RecordBatch] = table
            if _SPARSE * keys < table.live:
                content = list(_numbered_entries(table, oldest, self._schema))
            self.parts.append(ForgottenPart(number, keys, content, self._schema))
            self._limit(oldest)

    def forget(self, number: int) -> None:
        self._take_merged()
        super().forget(number)

    def _limit(self, oldest: int) -> None:
        """Merge parts if they have become many, and give up if they have too many keys even so. The newest one is not
        merged: keys may be removed from it.
        """
        keys_max = state_sizes.CHANGED_KEYS_MAX
        merged = [part for part in self.parts if isinstance(part.content, list)]
        merged_keys = sum(part.keys for part in merged)
        keys = sum(part.keys for part in self.parts) - merged_keys
        if merged_keys > keys_max or keys > _LIMIT_TIMES * keys_max:
            self.known_after, self._is_given_up = self.parts[-1].number, True
            self.parts, self._merging = [], None
        elif self._merging is None and len(self.parts) > 2:
            if keys > keys_max or len(self.parts) > _PARTS_MAX:
                self._begin_to_merge(self.parts[:-1], oldest)

    def _begin_to_merge(self, parts: list[ForgottenPart], oldest: int) -> None:
        removed = self._removed.since(parts[0].number)
        if removed is None:
            return  # the next checkpoint stores everything
        self._merging = _Merging(parts, removed, self._schema, self._deleted_schema, oldest)

    def _take_merged(self) -> None:
        """Replace the parts that are still there by their merged result."""
        merging = self._merging
        if merging is None or not merging.is_over:
            return
        self._merging = None
        number = merging.number
        if any(part.number <= number for part in self.parts):
            newer = [part for part in self.parts if part.number > number]
            if merging.merged is None:
                self.parts, self.known_after = newer, max(self.known_after, number)
            else:
                keys = sum(batch.num_rows for batch in merging.merged)
                self.parts = [ForgottenPart(number, keys, merging.merged, self._schema), *newer]


class _Merging:
    """Merges parts in a thread of its own. `removed`: the keys that were removed since the first of them; `since`: only
    entries that have changed later are kept. `merged` is None if it has failed.
    """

    def __init__(
        self,
        parts: Sequence[ForgottenPart],
        removed: Sequence[Removed],
        schema: pa.Schema,
        deleted_schema: pa.Schema,
        since: int,
    ) -> None:
        self.number = parts[-1].number
        self.merged: list[pa.RecordBatch] | None = None
        self.is_over = False
        self._parts = parts
        self._removed = removed
        self._schema = schema
        self._deleted_schema = deleted_schema
        self._since = since
        threading.Thread(target=self._run, name="merge-changes", daemon=True).start()

    def _run(self) -> None:
        try:
            self.merged = list(self._merge())
        finally:
            self._parts = self._removed = ()
            self.is_over = True

    def _merge(self) -> Iterator[pa.RecordBatch]:
        """Yield the newest entry of each key that was not removed after it."""
        seen = NewerKeys()
        removed = [part for part in self._removed if part.number <= self.number]
        for part in reversed(self._parts):
            while removed and removed[-1].number > part.number:
                gone = removed.pop()
                seen.add(entries_batch(self._deleted_schema, gone.keys, gone.key_groups, []))
            kept = [seen.without(batch) for batch in combined(self._entries(part))]
            for batch in kept:
                if batch.num_rows:
                    seen.add(batch)
                    yield batch

    def _entries(self, part: ForgottenPart) -> Iterator[pa.RecordBatch]:
        if isinstance(part.content, list):
            for batch in part.content:
                yield _changed(batch, self._since)
        else:
            yield from _numbered_entries(part.content, self._since, self._schema)


def _numbered_entries(table: ColumnTable, since: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the entries that have changed after a time, with the times. `schema`: without these."""
    view = table.view(since, with_numbers=True)
    yield from EntriesOfTable(view, schema.insert(len(schema) - 1, _CHANGED_AT)).batches()
    view.release()


def _changed(merged: pa.RecordBatch, since: int) -> pa.RecordBatch:
    return merged.filter(pc.greater(merged.column(_CHANGED_AT.name), since))
