"""Encodes a view of the database as runs in the format that all backends share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice

import pyarrow as pa

from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import EncodedState, StoredState
from penstock.state.codecs import write_stream
from penstock.state.restored import StateName, UntouchedState
from penstock.state.rocksdb.changes import Chain, Changes, StateSince
from penstock.state.rocksdb.database import PREFIX_BYTES, Database, Entry, StoredTable, View

ENTRIES_PER_BATCH = 2048
BYTES_PER_RANGE = 16 * 1024 * 1024
"""A range that has about this size is closed, and the next one begins, so that a restore reads in bounded pieces."""


class RocksDBSnapshot:
    """Holds a view of the database. `since`: what may be named of each state; None: checkpoints are not incremental."""

    def __init__(
        self,
        tables: Sequence[StoredTable],
        untouched: UntouchedState,
        database: Database,
        changes: Changes | None,
        since: Mapping[StateName, StateSince] | None,
        checkpoint_id: int,
    ) -> None:
        self.schemas = [table.schema for table in tables] + untouched.schemas
        self.expected_bytes = 0
        self._tables = tables
        self._untouched = untouched
        whole = [table.prefix for table in tables if _name(table.schema) not in (since or {})]
        self._view: View | None = database.view(whole)
        self._changes = changes
        self._since = since or {}
        self._checkpoint_id = checkpoint_id
        self._discarded = False
        self._added: dict[StateName, int] = {}
        """Count the runs that were encoded."""

    def encode(self) -> Iterator[EncodedState | StoredState]:
        try:
            yield from self._encode()
        except Exception:
            # After `discard`, the view may be gone.
            if not self._discarded:
                raise
        finally:
            self._view = None

    def discard(self) -> None:
        self._discarded = True
        self._view = None

    def _encode(self) -> Iterator[EncodedState | StoredState]:
        view = self._view
        if view is None:
            return
        yield from self._encode_untouched()
        changed = self._changed_by_prefix()
        for table in self._tables:
            name = _name(table.schema)
            since = self._since.get(name)
            self._added[name] = 0
            if since is None:
                runs = self._runs(table, view.entries[table.prefix])
            else:
                yield from since.chain.runs
                runs = self._changed_runs(view, table, changed.get(id(since.changed), {}).get(table.prefix, []))
            for run in runs:
                self._added[name] += 1
                yield run

    def _encode_untouched(self) -> Iterator[EncodedState | StoredState]:
        """Yield what nobody has asked for since it was restored: named where it lies, or as it was."""
        named: set[StateName] = set()
        for schema in self._untouched.schemas:
            name = _name(schema)
            self._added[name] = 0
            if (since := self._since.get(name)) is not None:
                named.add(name)
                yield from since.chain.runs
        rest = {name: runs for name, runs in self._untouched.runs.items() if name not in named}
        for run in UntouchedState([], rest).encode():
            self._added[run.operator, run.name] += 1
            yield run

    def _changed_by_prefix(self) -> dict[int, dict[bytes, list[tuple[bytes, bool]]]]:
        """Return, for each mapping of changed keys, the keys by state, sorted."""
        mappings = {id(since.changed): since.changed for since in self._since.values()}
        return {
            number: {p: list(k) for p, k in groupby(sorted(changed.items()), lambda item: item[0][:PREFIX_BYTES])}
            for number, changed in mappings.items()
        }

    # ---- runs ---------------------------------------------------------------------------------------------------

    def _changed_runs(
        self, view: View, table: StoredTable, changed: list[tuple[bytes, bool]]
    ) -> Iterator[EncodedState]:
        if deleted := [key for key, exists in changed if not exists]:
            yield _run(table.schema, [table.encoded_keys(deleted)])
        yield from self._runs(table, view.values([key for key, exists in changed if exists]))

    def _runs(self, table: StoredTable, entries: Iterator[Entry]) -> Iterator[EncodedState]:
        batches: list[pa.RecordBatch] = []
        size_bytes = 0
        while taken := list(islice(entries, ENTRIES_PER_BATCH)):
            if self._discarded:
                return
            batches.append(table.encoded(taken))
            size_bytes += batches[-1].get_total_buffer_size()
            if size_bytes >= BYTES_PER_RANGE:
                yield _run(table.schema, batches)
                batches, size_bytes = [], 0
        if batches and not self._discarded:
            yield _run(table.schema, batches)

    # ---- what a later checkpoint may name -----------------------------------------------------------------------

    def on_stored(self, stored: list[StoredState]) -> None:
        """Note the chains of the states of which all runs may be named. Where only the new run may not, the chain is
        as long as before, and what has changed since is stored once more.
        """
        if self._changes is None:
            return
        by_state: dict[StateName, list[StoredState]] = {name: [] for name in self._added}
        for run in stored:
            by_state[run.operator, run.name].append(run)
        chains: dict[StateName, Chain] = {}
        for name, runs in by_state.items():
            since = self._since.get(name)
            before = () if since is None else since.chain.runs
            if tuple(runs[: len(before)]) != before:
                continue
            if len(runs) == len(before) + self._added[name]:
                base_bytes = sum(r.length_bytes for r in runs) if since is None else since.chain.base_bytes
                chains[name] = Chain(self._checkpoint_id, tuple(runs), base_bytes)
            elif since is not None:
                chains[name] = since.chain
        self._changes.note_stored(self._checkpoint_id, chains)


def _name(schema: StateSchema) -> StateName:
    return schema.operator, schema.name


def _run(declared: StateSchema, batches: list[pa.RecordBatch]) -> EncodedState:
    entries = sum(batch.num_rows for batch in batches)
    return EncodedState(declared.operator, declared.name, entries, [write_stream(batches[0].schema, batches)])
