"""Keeps the changes of keys that a table on disk has evicted from memory, for incremental checkpoints.

The database has these entries, too, but to read one again costs more than all else that a checkpoint does for it. So
the arrays of a table that is forgotten are kept as they are until no checkpoint asks for them. While one takes long,
there may be many, with the same keys again and again. Then they are merged into one by a thread of its own: the stream
would wait for it in the subtask's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.state import changes
from penstock.state.columnar.changed_entries import combined
from penstock.state.columnar.column_table import ColumnTable
from penstock.state.columnar.columnar_backend import entries_batch
from penstock.state.columnar.removed_keys import Removed, RemovedKeys
from penstock.state.columnar.table_view import TableView
from penstock.state.overriding import NewerKeys

_PARTS_MAX = 128
"""With more of them a checkpoint takes long, as each part is looked up in all newer ones."""
_SPARSE = 8
"""If fewer than one key in so many has changed, only the changed keys of a table are kept."""
_LIMIT_TIMES = 2
"""So many times as many keys as may be noted are kept while they are being merged."""
_CHANGED_AT = pa.field("changed_at", pa.int32())
"""The column of merged entries with the times in which they have changed. It is behind the values."""


class ChangedEntries(Protocol):
    """Reads the entries that have changed, each key once, in the writer's thread."""

    def batches(self) -> Iterator[pa.RecordBatch]: ...

    def release(self) -> None:
        """Release the resources of the reader: nobody needs it any more. Any thread may call it."""


class EntriesOfTable:
    """Reads entries of a view of a table. `schema`: of the batches."""

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


class ForgottenChanges:
    """Holds the parts of one state, the oldest first. `schema`: of batches of its entries, `deleted_schema` of keys
    that were removed; `removed`: these.
    """

    def __init__(self, schema: pa.Schema, deleted_schema: pa.Schema, removed: RemovedKeys) -> None:
        self._deleted_schema = deleted_schema
        self._schema = schema
        self._removed = removed
        self._parts: list[ForgottenPart] = []
        self._known_after = 0
        """Only what has changed in later times is known."""
        self._is_given_up = False
        """True until the next snapshot if too much has changed to be kept: later changes are of no use, either."""
        self._merging: _Merging | None = None

    def begin_time(self, oldest: int) -> None:
        """Begin the time after a snapshot."""
        self._is_given_up = False
        self.forget(oldest)

    def add(self, table: ColumnTable, number: int, oldest: int) -> None:
        """Keep a table as it is; only removed keys may be removed from it. `number`: of the time that ends with it;
        `oldest`: of the time, and those before, of which nobody will ask what has changed.
        """
        if self._is_given_up:
            self._known_after = number
            return
        self.forget(oldest)
        if keys := table.changed_count(oldest):
            content: ColumnTable | list[pa.RecordBatch] = table
            if _SPARSE * keys < table.live:
                content = list(_numbered_entries(table, oldest, self._schema))
            self._parts.append(ForgottenPart(number, keys, content, self._schema))
            self._limit(oldest)

    def since(self, number: int) -> list[ForgottenPart] | None:
        """Return the parts with what has changed after a time; None if that is not known any more."""
        if number < self._known_after:
            return None
        return [part for part in self._parts if part.number > number]

    def forget(self, number: int) -> None:
        """Forget the changes up to this time: nobody will ask for it."""
        self._take_merged()
        self._known_after = max(self._known_after, number)
        self._parts = [part for part in self._parts if part.number > number]

    def _limit(self, oldest: int) -> None:
        """Merge parts if they have become many, and give up if they have too many keys even so. The newest one is not
        merged: keys may be removed from it.
        """
        keys_max = changes.CHANGED_KEYS_MAX
        merged = [part for part in self._parts if isinstance(part.content, list)]
        merged_keys = sum(part.keys for part in merged)
        keys = sum(part.keys for part in self._parts) - merged_keys
        if merged_keys > keys_max or keys > _LIMIT_TIMES * keys_max:
            self._known_after, self._is_given_up = self._parts[-1].number, True
            self._parts, self._merging = [], None
        elif self._merging is None and len(self._parts) > 2:
            if keys > keys_max or len(self._parts) > _PARTS_MAX:
                self._begin_to_merge(self._parts[:-1], oldest)

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
        if any(part.number <= number for part in self._parts):
            newer = [part for part in self._parts if part.number > number]
            if merging.merged is None:
                self._parts, self._known_after = newer, max(self._known_after, number)
            else:
                keys = sum(batch.num_rows for batch in merging.merged)
                self._parts = [ForgottenPart(number, keys, merging.merged, self._schema), *newer]


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
