"""Keeps the columnar state of one subtask in RocksDB. Its checkpoints are those of columnar state in memory."""

from __future__ import annotations

from typing import Mapping, Sequence

import pyarrow as pa

from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import RestoringSubtask, StateSnapshot, StoredState
from penstock.state.codecs import RestoredRun
from penstock.state.columnar.backend import ColumnarBackend, stream_schema
from penstock.state.columnar.table import ValueColumn
from penstock.state.restored import StateName
from penstock.state.rocksdb.column_table import DiskColumnTable
from penstock.state.rocksdb.local_state import LocalState
from penstock.state.rocksdb.settings import RocksDBSettings

_ENTRIES_PER_BATCH = 4096


class RocksDBColumnarBackend(ColumnarBackend[DiskColumnTable]):
    """Keeps the columnar state of one subtask in a RocksDB of its own. If `incremental`, its checkpoints name what has
    not changed since their predecessor.
    """

    def __init__(
        self,
        operator_names: Mapping[str, str] | None = None,
        *,
        settings: RocksDBSettings,
        incremental: bool = False,
    ) -> None:
        super().__init__(operator_names)
        self._local = LocalState(settings, self._operator_names, incremental)

    def snapshot(self, checkpoint_id: int = 0, predecessor_id: int | None = None) -> StateSnapshot:
        """Return a view of what is on disk, where what has changed lately is written first. Raises `StateError`."""
        tables = list(self._tables.values())
        for table in tables:
            table.flush()
        return self._local.snapshot(tables, self._untouched, self._restore_first, checkpoint_id, predecessor_id)

    def check_room(self, stored_bytes: int) -> None:
        self._local.check_room(stored_bytes)

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        self._local.on_restored(checkpoint_id, stored)

    def restore(self, operator: str, name: str, data: bytes, key_groups: range) -> None:
        super().restore(operator, name, data, key_groups)
        self._local.on_run_restored((operator, name))

    def restore_copy(self, subtask: RestoringSubtask) -> frozenset[StoredState]:
        return self._local.restore_copy(subtask)

    def _before_fitting(self, declared: StateSchema) -> None:
        self._local.claim(declared, self._restore_first)

    def _store_whole(self, name: StateName) -> None:
        self._local.begin_again(name)

    def _kept(self, run: RestoredRun) -> RestoredRun:
        return self._local.spooled(run)

    def _new_table(
        self,
        declared: StateSchema,
        keys: pa.Schema,
        values: Sequence[ValueColumn],
        runs: list[RestoredRun],
        windowed: bool,
    ) -> DiskColumnTable:
        schema = stream_schema(declared, keys, values)
        table = DiskColumnTable(declared, schema, keys, values, self._local, windowed)
        for run in runs:
            for batch in run.batches:
                for at in range(0, batch.num_rows, _ENTRIES_PER_BATCH):
                    table.fill(batch.slice(at, _ENTRIES_PER_BATCH), run.deletes)
        return table

    def metrics(self) -> dict[str, int]:
        """Return RocksDB's own figures, as far as the options ask for them."""
        return self._local.database.metrics()

    def revoke(self) -> None:
        """End the generation, and delete the files."""
        self._runs.clear()
        self._local.close()
