"""Keeps the columnar state of one subtask: its tables, their snapshots and restores, as `penstock.state.backend`
declares.

A table is written as Arrow IPC streams of its key columns, its value columns and the key group, one per block of slots.
A restore takes the rows of its key groups, whatever the parallelism was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Iterator, Mapping, Sequence, TypeVar

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import KEY_GROUP_COLUMN
from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import EncodedState, StateSchemaError, StateSnapshot, StoredState
from penstock.state.codecs import RestoredRun, declared_metadata
from penstock.state.columnar.keyed_table import KeyedTable
from penstock.state.columnar.slot_arrays import Array
from penstock.state.columnar.table import ColumnTable, ValueColumn
from penstock.state.columnar.table_view import TableView
from penstock.state.restored import RestoringBackend, StateName, UntouchedState

KIND = "columns"
_END_OF_STREAM_BYTES = 8


TableT = TypeVar("TableT", bound=KeyedTable)


class ColumnarBackend(RestoringBackend, ABC, Generic[TableT]):
    """Creates and restores the tables of one subtask. `operator_names` (uid -> name) are for messages."""

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
        before = self._restored_schema((operator, name)) or declared
        if (before.kind, before.codec) != (declared.kind, declared.codec):
            raise StateSchemaError(
                f"{self._described((operator, name))} is {declared.kind} state of {declared.codec}, but in the "
                f"checkpoint that is being restored it is {before.kind} state of {before.codec}: declare keys and "
                "aggregates as before, or give the operator another uid"
            )
        table = self._new_table(declared, keys, values, self._take_restored((operator, name)), windowed)
        self._tables[operator, name] = table
        return table

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


class ColumnarStateBackend(ColumnarBackend[ColumnTable]):
    """Keeps the columnar state of one subtask in memory."""

    def __init__(self, operator_names: Mapping[str, str] | None = None) -> None:
        super().__init__(operator_names)
        self._written: dict[StateName, tuple[StateSchema, pa.Schema]] = {}

    def snapshot(self, checkpoint_id: int = 0, predecessor_id: int | None = None) -> ColumnarSnapshot:
        views = [(*self._written[name], table.view()) for name, table in self._tables.items()]
        return ColumnarSnapshot(views, self._untouched())

    def _new_table(
        self,
        declared: StateSchema,
        keys: pa.Schema,
        values: Sequence[ValueColumn],
        runs: list[RestoredRun],
        windowed: bool,
    ) -> ColumnTable:
        table = ColumnTable(keys, values)
        for run in runs:
            for batch in run.batches:
                _load(table, batch, run.deletes)
        self._written[declared.operator, declared.name] = declared, stream_schema(declared, keys, values)
        return table

    def revoke(self) -> None:
        """Ignore the end of the generation: only our own operators hold tables, and they end with it."""


class ColumnarSnapshot:
    """Holds the tables at a barrier."""

    def __init__(self, views: list[tuple[StateSchema, pa.Schema, TableView]], untouched: UntouchedState) -> None:
        self.schemas = [declared for declared, _, _ in views] + untouched.schemas
        self.expected_bytes = sum(view.expected_bytes for _, _, view in views)
        self._views = views
        self._untouched = untouched

    def encode(self) -> Iterator[EncodedState]:
        try:
            yield from self._untouched.encode()
            for declared, schema, view in self._views:
                yield from self._encode_view(declared, schema, view)
        finally:
            self.discard()

    def on_stored(self, stored: list[StoredState]) -> None:
        """Forget it: every checkpoint writes everything."""

    def discard(self) -> None:
        for _, _, view in self._views:
            view.release()

    @staticmethod
    def _encode_view(declared: StateSchema, schema: pa.Schema, view: TableView) -> Iterator[EncodedState]:
        """Yield the encoded ranges, all made in the same memory: getting new memory from the system costs more than
        filling it.
        """
        memory = np.empty(0, np.uint8)
        around_bytes = schema.serialize().size + _END_OF_STREAM_BYTES
        for keys, key_groups, values in view.blocks():
            arrays = [*keys, *(pa.array(v) for v in values), pa.array(key_groups)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            size_bytes = around_bytes + pa.ipc.get_record_batch_size(batch)
            if len(memory) < size_bytes:
                memory = np.empty(size_bytes, np.uint8)
            sink = pa.FixedSizeBufferWriter(pa.py_buffer(memory))
            with pa.ipc.new_stream(sink, schema) as writer:
                writer.write_batch(batch)
            yield EncodedState(declared.operator, declared.name, batch.num_rows, [memory.data[: sink.tell()]])


def _codec(keys: pa.Schema, values: Sequence[ValueColumn]) -> str:
    key = ", ".join(f"{f.name} {f.type}" for f in keys)
    return f"({', '.join(f'{v.name} {np.dtype(v.dtype)}' for v in values)}) by ({key})"


def stream_schema(declared: StateSchema, keys: pa.Schema, values: Sequence[ValueColumn]) -> pa.Schema:
    """Return a schema that names columns by position, because a value may have the name of a key."""
    fields = [
        *(pa.field(f"key.{f.name}", f.type) for f in keys),
        *(pa.field(f"value.{v.name}", pa.from_numpy_dtype(np.dtype(v.dtype))) for v in values),
        pa.field(KEY_GROUP_COLUMN, pa.uint16()),
    ]
    return pa.schema(fields, metadata=declared_metadata(declared))


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
