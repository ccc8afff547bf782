"""Keeps the columnar state of one subtask: its tables, their snapshots and restores, as `penstock.state.backend`
declares.

A table is written as Arrow IPC streams of its key columns, its value columns and the key group, one per block of slots.
A restore takes the rows of its key groups, whatever the parallelism was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Generic, Iterable, Iterator, Mapping, NamedTuple, Sequence, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.limits import USUAL, Limits
from penstock.common.typeinfo import KEY_GROUP_COLUMN
from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import EncodedState, StateSchemaError, StateSnapshot
from penstock.state.chains import ChainedRestore, ChainedSnapshot, Named, unchained
from penstock.state.changes import Changes, Since
from penstock.state.codecs import RestoredRun, StreamMemory, declared_metadata, deleted_metadata
from penstock.state.columnar.changed_entries import ChangedPart, Removed, RemovedKeys, encoded_changes
from penstock.state.columnar.column_table import ColumnTable, ValueColumn
from penstock.state.columnar.columns_evolution import KEY_PREFIX, VALUE_PREFIX, ColumnsEvolution, columns_evolution
from penstock.state.columnar.keyed_table import KeyedTable
from penstock.state.columnar.slot_arrays import Array
from penstock.state.columnar.table_view import TableView
from penstock.state.evolution import changed_text
from penstock.state.restored import RestoringBackend, StateName

KIND = "columns"

TableT = TypeVar("TableT", bound=KeyedTable)


class ColumnarBackend(RestoringBackend, ABC, Generic[TableT]):
    """Creates and restores the tables of one subtask. `operator_names` (uid -> name) are for messages."""

    is_on_disk = False
    """True if each slice of rows costs a read and a write, however small it is."""

    def __init__(self, operator_names: Mapping[str, str] | None = None) -> None:
        super().__init__(operator_names)
        self._tables: dict[StateName, TableT] = {}

    def table(
        self, operator: str, name: str, keys: pa.Schema, values: Sequence[ValueColumn], windowed: bool = False
    ) -> TableT:
        """Return the table of an operator (its uid), with what was restored for it. If `windowed`, the last key column
        is a window's start. Raises `StateSchemaError` if the checkpoint declares it differently.
        """
        declared = StateSchema(operator, name, KIND, _codec(keys, values))
        self._before_fitting(declared)
        runs = self._fitted((operator, name), partial(self._evolution, declared, keys, values))
        table = self._new_table(declared, keys, values, runs, windowed)
        self._tables[operator, name] = table
        return table

    def _evolution(
        self, new: StateSchema, keys: pa.Schema, values: Sequence[ValueColumn], kind: str, codec: str
    ) -> ColumnsEvolution | None:
        if (kind, codec) == (new.kind, new.codec):
            return None
        described = self._described_with_uid((new.operator, new.name))
        told = changed_text(described, f"{new.kind} state of {new.codec}", f"{kind} state of {codec}")
        if kind != new.kind:
            raise StateSchemaError(f"{told}: declare the operator as before, or give it another uid")
        return columns_evolution(told, codec, keys, values)

    @abstractmethod
    def snapshot(self, checkpoint_id: int = 0, predecessor_id: int | None = None) -> StateSnapshot: ...

    @abstractmethod
    def _new_table(
        self,
        declared: StateSchema,
        keys: pa.Schema,
        values: Sequence[ValueColumn],
        runs: list[RestoredRun],
        windowed: bool,
    ) -> TableT:
        """Return a table with what was restored of it."""

    @abstractmethod
    def revoke(self) -> None: ...


class ColumnarStateBackend(ChainedRestore, ColumnarBackend[ColumnTable]):
    """Keeps the columnar state of one subtask in memory. If `incremental`, its checkpoints name the runs of their
    predecessor, and store only the changes since.
    """

    def __init__(
        self, operator_names: Mapping[str, str] | None = None, *, incremental: bool = False, limits: Limits = USUAL
    ) -> None:
        super().__init__(operator_names)
        self._limits = limits
        self._written: dict[StateName, tuple[StateSchema, pa.Schema]] = {}
        self._changes: Changes | None = None
        if incremental:
            self._changes = Changes(limits.consolidated_bytes)

    def snapshot(self, checkpoint_id: int = 0, predecessor_id: int | None = None) -> ColumnarSnapshot:
        since: dict[StateName, Since] = {}
        removed: dict[StateName, list[Removed]] = {}
        if self._changes is not None:
            since = self._changes.cut(checkpoint_id, predecessor_id)
            for name, table in self._tables.items():
                assert table.removed is not None
                if name in since and (gone := table.removed.since(since[name].number)) is not None:
                    removed[name] = gone
                else:
                    since.pop(name, None)
                table.removed.forget(self._changes.oldest)
                table.now = self._changes.now
        views = []
        for name, table in self._tables.items():
            view = table.view(since[name].number if name in since else None)
            views.append(_TableAtBarrier(*self._written[name], view, removed.get(name)))
        chains = {name: s.chain for name, s in since.items()}
        snapshot = ColumnarSnapshot(views, Named(self._untouched(), self._changes, chains, checkpoint_id))
        if self._changes is not None:
            snapshot.consolidations = self._changes.consolidations(
                {name: chain for name, chain in chains.items() if name in self._tables},
                checkpoint_id,
                lambda name: ColumnarSnapshot([self._whole(name)], unchained()),
            )
        return snapshot

    def _whole(self, name: StateName) -> _TableAtBarrier:
        return _TableAtBarrier(*self._written[name], self._tables[name].view(None), None)

    def _new_table(
        self,
        declared: StateSchema,
        keys: pa.Schema,
        values: Sequence[ValueColumn],
        runs: list[RestoredRun],
        windowed: bool,
    ) -> ColumnTable:
        removed = None if self._changes is None else RemovedKeys()
        table = ColumnTable(keys, values, removed, self._limits.columnar_range_bytes)
        for run in runs:
            for batch in run.batches:
                _load(table, batch, run.deletes)
        if self._changes is not None:
            table.now = self._changes.now
        self._written[declared.operator, declared.name] = declared, stream_schema(declared, keys, values)
        return table

    def revoke(self) -> None:
        """Ignore the end of the generation: only our own operators hold tables, and they end with it."""


class _TableAtBarrier(NamedTuple):
    """Holds one table at a barrier. `schema`: the schema of the written batches. `removed`: the keys that were removed
    since the runs that may be named; None: all entries are written.
    """

    declared: StateSchema
    schema: pa.Schema
    view: TableView
    removed: list[Removed] | None


class ColumnarSnapshot(ChainedSnapshot):
    """Holds the tables at a barrier."""

    def __init__(self, tables: list[_TableAtBarrier], named: Named) -> None:
        super().__init__([table.declared for table in tables], named)
        self.expected_bytes = sum(table.view.expected_bytes for table in tables)
        self._tables = tables

    def _new_runs(self) -> Iterator[tuple[StateName, Iterable[EncodedState]]]:
        for table in self._tables:
            new = self._encode_whole(table) if table.removed is None else _encode_changed(table, table.removed)
            yield (table.declared.operator, table.declared.name), new

    def _release(self) -> None:
        for table in self._tables:
            table.view.release()

    @staticmethod
    def _encode_whole(table: _TableAtBarrier) -> Iterator[EncodedState]:
        """Yield the encoded ranges. Each is valid until the next."""
        declared, schema, view, _ = table
        memory = StreamMemory()
        for columns in view.blocks():
            batch = entries_batch(schema, *columns)
            yield EncodedState(declared.operator, declared.name, batch.num_rows, [memory.write(schema, [batch])])


def _encode_changed(table: _TableAtBarrier, removed: list[Removed]) -> Iterator[EncodedState]:
    declared, schema, view, _ = table
    changed = ChangedPart((entries_batch(schema, *columns) for columns in view.blocks()), deletes=False)
    return encoded_changes(declared, [changed, *([removed_part(declared, schema, removed)] if removed else ())])


def removed_part(declared: StateSchema, schema: pa.Schema, removed: Iterable[Removed]) -> ChangedPart:
    """Return the part of the keys that were removed. `schema`: the schema of batches of entries."""
    deleted = deleted_columns(declared, schema)
    return ChangedPart((entries_batch(deleted, r.keys, r.key_groups, []) for r in removed), deletes=True)


def entries_batch(
    schema: pa.Schema, keys: list[pa.Array], key_groups: npt.NDArray[np.uint16], values: list[Array]
) -> pa.RecordBatch:
    """Return a batch of entries as snapshots write them, or, without values, of keys."""
    return pa.RecordBatch.from_arrays([*keys, *map(pa.array, values), pa.array(key_groups)], schema=schema)


def _codec(keys: pa.Schema, values: Sequence[ValueColumn]) -> str:
    key = ", ".join(f"{f.name} {f.type}" for f in keys)
    return f"({', '.join(f'{v.name} {np.dtype(v.dtype)}' for v in values)}) by ({key})"


def stream_schema(declared: StateSchema, keys: pa.Schema, values: Sequence[ValueColumn]) -> pa.Schema:
    """Return a schema that names columns by position, because a value may have the name of a key."""
    fields = [
        *(pa.field(f"{KEY_PREFIX}{f.name}", f.type) for f in keys),
        *(pa.field(VALUE_PREFIX + v.name, pa.from_numpy_dtype(np.dtype(v.dtype))) for v in values),
        pa.field(KEY_GROUP_COLUMN, pa.uint16()),
    ]
    return pa.schema(fields, metadata=declared_metadata(declared))


def deleted_columns(declared: StateSchema, stream: pa.Schema) -> pa.Schema:
    """Return the schema of a run of keys that have no entry any more. `stream`: the schema of a run of entries."""
    keys = [field for field in stream if field.name.startswith(KEY_PREFIX)]
    return pa.schema([*keys, pa.field(KEY_GROUP_COLUMN, pa.uint16())], metadata=deleted_metadata(declared))


def _load(table: ColumnTable, batch: pa.RecordBatch, deletes: bool) -> None:
    count = len(table.key_schema)
    keys = table.rows([batch.column(i) for i in range(count)])
    if deletes:
        slots, missing = table.find(keys)
        table.remove(np.delete(slots, missing))
        return
    found = table.find_or_insert(keys, batch.column(batch.num_columns - 1).to_numpy())
    columns: list[Array] = table.values
    for c, array in enumerate(columns):
        array[found.slots] = batch.column(count + c).to_numpy(zero_copy_only=False)
    table.after_write(found.slots, range(len(columns)))
