"""Tracks the changes of columnar state since a checkpoint, in all its tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import EncodedState
from penstock.state.changes import NumberedChanges, SlotsSince
from penstock.state.columnar.changed_entries import ChangedPart, encoded_changes
from penstock.state.columnar.column_table import ColumnTable
from penstock.state.columnar.columnar_backend import deleted_columns, removed_part
from penstock.state.columnar.removed_keys import Removed, RemovedKeys
from penstock.state.columnar.table_view import TableView
from penstock.state.rocksdb.database import View
from penstock.state.rocksdb.forgotten_changes import EntriesOfTable, ForgottenChanges, ForgottenPart


class ColumnChanges:
    """Tracks the changes of one state. `schema`: of batches of its entries."""

    def __init__(self, declared: StateSchema, schema: pa.Schema, changes: NumberedChanges) -> None:
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
        table.removed = None  # what is removed from it as well is noted by the recent table
        self._forgotten.add(table, self._changes.begin_time(), self._changes.oldest)

    def begin_time(self) -> None:
        """Begin the time after a snapshot: of what is older, some is not asked for any more."""
        self.removed.forget(self._changes.oldest)
        self._forgotten.begin_time(self._changes.oldest)

    def since(self, since: SlotsSince, recent: ColumnTable) -> ChangedColumns | None:
        """Return the current changes; None if they were dropped."""
        removed, forgotten = self.removed.since(since.number), self._forgotten.since(since.number)
        if removed is None or forgotten is None:
            return None
        view = recent.view(since.number)
        return ChangedColumns(self._declared, self._schema, since, view, forgotten, removed)


class ChangedColumns:
    """Holds the recent table of a state (`recent`: its view), the forgotten ones with what has changed since, and the
    keys that were removed. `schema`: of batches of entries.
    """

    def __init__(
        self,
        declared: StateSchema,
        schema: pa.Schema,
        since: SlotsSince,
        recent: TableView,
        forgotten: Sequence[ForgottenPart],
        removed: Sequence[Removed],
    ) -> None:
        self.chain = since.chain
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
