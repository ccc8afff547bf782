"""Encodes a view of the database as runs in the format that all backends share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import KEY_GROUP_COLUMN
from penstock.protocol.values.metadata import RunBounds, StateSchema
from penstock.state import state_sizes
from penstock.state.backend import EncodedState
from penstock.state.chains import ChainedSnapshot, Named
from penstock.state.changes import Since
from penstock.state.codecs import write_stream
from penstock.state.restored import StateName
from penstock.state.rocksdb.database import PREFIX_BYTES, Database, Entry, View
from penstock.state.rocksdb.lazy_state import LoadingDatabase

EntryFilter = Callable[[list[Entry]], list[Entry]]
"""Returns the entries that a snapshot of everything is to have."""

_ENTRY_BYTES_MIN = 32
"""About: no range has many more entries than its size allows."""
BOUND_BYTES_MAX = 256
"""A run with a longer key has no bounds: they are in the metadata."""


class ChangedState(Protocol):
    """Holds the changes of a state since the checkpoint that its chain covers."""

    def runs(self, view: View, is_over: Callable[[], bool]) -> Iterator[EncodedState]:
        """Yield the changes, unless nobody needs them any more. Runs once, in the writer's thread."""

    def release(self) -> None:
        """Release the resources of the reader: nobody needs it any more. Any thread may call it."""


class StoredTable(Protocol):
    """Holds the entries of one state. `prefix`: the prefix of its keys in the database."""

    schema: StateSchema
    prefix: bytes

    def read_from(self, database: Database | LoadingDatabase) -> None:
        """Read from `database` from now on. Any thread may call it."""

    def encoded(self, entries: Sequence[Entry]) -> pa.RecordBatch:
        """Encode entries as all backends write them. Raises `StateError` for a value that cannot be encoded."""

    def changed_since(self, since: Since) -> ChangedState | None:
        """Return the current changes; None if they were dropped."""


class RocksDBSnapshot(ChainedSnapshot):
    """Holds a view of the database. `changed`: what has changed since, of the states of `tables` that may be named. The
    view has the entries of the others. `filters`: leave something out of these; they are in ranges of `range_bytes`.
    """

    def __init__(
        self,
        tables: Sequence[StoredTable],
        named: Named,
        view: View,
        changed: Mapping[StateName, ChangedState],
        filters: Mapping[StateName, EntryFilter],
        range_bytes: int | None = None,
    ) -> None:
        super().__init__([table.schema for table in tables], named)
        self._tables = tables
        self._view: View | None = view
        self._changed = changed
        self._filters = filters
        self._range_bytes = min(range_bytes or state_sizes.BYTES_PER_RANGE, state_sizes.BYTES_PER_RANGE)

    def _release(self) -> None:
        self._view = None
        for changed in self._changed.values():
            changed.release()

    def _is_over(self) -> bool:
        return self._discarded

    def _new_runs(self) -> Iterator[tuple[StateName, Iterable[EncodedState]]]:
        view = self._view
        if view is None:
            return
        for table in self._tables:
            name = (table.schema.operator, table.schema.name)
            if name in self._changed:
                new: Iterable[EncodedState] = self._changed[name].runs(view, self._is_over)
            else:
                entries, wanted = view.entries[table.prefix], self._filters.get(name)
                new = encoded_runs(table, entries, self._range_bytes, self._is_over, wanted)
            yield name, new


def encoded_runs(
    table: StoredTable,
    entries: Iterator[Entry],
    range_bytes: int,
    is_over: Callable[[], bool],
    wanted: EntryFilter | None = None,
) -> Iterator[EncodedState]:
    """Yield sorted entries in runs of about `range_bytes`, until `is_over`."""
    entries_max = max(1, min(state_sizes.ENTRIES_PER_BATCH, range_bytes // _ENTRY_BYTES_MIN))
    batches: list[pa.RecordBatch] = []
    size_bytes = 0
    first = b""
    while taken := _next_of(entries, entries_max, range_bytes):
        if is_over():
            return
        if wanted is not None and not (taken := wanted(taken)):
            continue
        if not batches:
            first = taken[0][0]
        last = taken[-1][0]
        batches.append(table.encoded(taken))
        size_bytes += batches[-1].get_total_buffer_size()
        if size_bytes >= range_bytes:
            yield encoded_run(table.schema, batches, first, last)
            batches, size_bytes = [], 0
    if batches and not is_over():
        yield encoded_run(table.schema, batches, first, last)


def _next_of(entries: Iterator[Entry], entries_max: int, bytes_max: int) -> list[Entry]:
    """Return the next entries: at most `entries_max`, and none after their values have reached `bytes_max`."""
    taken: list[Entry] = []
    size_bytes = 0
    for entry in entries:
        taken.append(entry)
        size_bytes += len(entry[1])
        if size_bytes >= bytes_max or len(taken) == entries_max:
            break
    return taken


def encoded_run(declared: StateSchema, batches: list[pa.RecordBatch], first: bytes, last: bytes) -> EncodedState:
    """Return a run of sorted entries. `first`, `last`: their keys in the database."""
    entries = sum(batch.num_rows for batch in batches)
    parts: list[bytes | memoryview] = [write_stream(batches[0].schema, batches)]
    bounds = None
    if max(len(first), len(last)) <= BOUND_BYTES_MAX:
        groups = pa.chunked_array([batch.column(KEY_GROUP_COLUMN) for batch in batches])
        found = pc.min_max(groups)
        ends = (found["min"].as_py(), found["max"].as_py())
        bounds = RunBounds(*ends, first[PREFIX_BYTES:], last[PREFIX_BYTES:])
    return EncodedState(declared.operator, declared.name, entries, parts, bounds)
