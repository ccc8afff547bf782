"""Encodes a view of the database as runs in the format that all backends share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import pyarrow as pa

from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import EncodedState, StoredState
from penstock.state.changes import ChainedRuns, Changes, KeysSince
from penstock.state.codecs import write_stream
from penstock.state.restored import StateName, UntouchedState
from penstock.state.rocksdb.database import Database, Entry, StoredTable, View

EntryFilter = Callable[[list[Entry]], list[Entry]]
"""Returns the entries that a snapshot of everything is to have."""

ENTRIES_PER_BATCH = 2048
BYTES_PER_RANGE = 16 * 1024 * 1024
"""A range that has about this size is closed, and the next one begins, so that a restore reads in bounded pieces."""


class RocksDBSnapshot:
    """Holds a view of the database. `changes` None: checkpoints are not incremental; `since`: what may be named of each
    state, and the keys that have changed since, with whether they have an entry. `filters`: leave something out of
    states that are stored whole.
    """

    def __init__(
        self,
        tables: Sequence[StoredTable],
        untouched: UntouchedState,
        database: Database,
        changes: Changes | None,
        since: Mapping[StateName, KeysSince],
        checkpoint_id: int,
        filters: Mapping[StateName, EntryFilter],
    ) -> None:
        self.schemas = [table.schema for table in tables] + untouched.schemas
        self.expected_bytes = 0
        self._tables = tables
        self._untouched = untouched
        self._view: View | None = database.view([t.prefix for t in tables if _name(t.schema) not in since])
        self._since = since
        self._filters = filters
        self._chained = ChainedRuns(changes, {name: s.chain for name, s in since.items()}, checkpoint_id)
        self._discarded = False

    def encode(self) -> Iterator[EncodedState | StoredState]:
        try:
            yield from self._encode()
        except Exception:
            # After `discard`, the view may be gone.
            if not self._discarded:
                raise
        finally:
            self._view = None

    def on_stored(self, stored: list[StoredState]) -> None:
        self._chained.on_stored(stored)

    def discard(self) -> None:
        self._discarded = True
        self._view = None

    def _encode(self) -> Iterator[EncodedState | StoredState]:
        view = self._view
        if view is None:
            return
        yield from self._chained.untouched(self._untouched)
        for table in self._tables:
            since = self._since.get(_name(table.schema))
            if since is None:
                new = self._runs(table, view.entries[table.prefix], self._filters.get(_name(table.schema)))
            else:
                new = self._changed_runs(view, table, since)
            yield from self._chained.runs(_name(table.schema), new)

    def _changed_runs(self, view: View, table: StoredTable, since: KeysSince) -> Iterator[EncodedState]:
        changed = sorted(since.changed().items())
        if deleted := [key for key, exists in changed if not exists]:
            yield _run(table.schema, [table.encoded_keys(deleted)])
        yield from self._runs(table, view.values([key for key, exists in changed if exists]))

    def _runs(
        self, table: StoredTable, entries: Iterator[Entry], wanted: EntryFilter | None = None
    ) -> Iterator[EncodedState]:
        batches: list[pa.RecordBatch] = []
        size_bytes = 0
        while taken := list(islice(entries, ENTRIES_PER_BATCH)):
            if self._discarded:
                return
            if wanted is not None and not (taken := wanted(taken)):
                continue
            batches.append(table.encoded(taken))
            size_bytes += batches[-1].get_total_buffer_size()
            if size_bytes >= BYTES_PER_RANGE:
                yield _run(table.schema, batches)
                batches, size_bytes = [], 0
        if batches and not self._discarded:
            yield _run(table.schema, batches)


def _name(schema: StateSchema) -> StateName:
    return schema.operator, schema.name


def _run(declared: StateSchema, batches: list[pa.RecordBatch]) -> EncodedState:
    entries = sum(batch.num_rows for batch in batches)
    return EncodedState(declared.operator, declared.name, entries, [write_stream(batches[0].schema, batches)])
