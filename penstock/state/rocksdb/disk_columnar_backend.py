"""Keeps the columnar state of one subtask in RocksDB. Its checkpoints are those of columnar state in memory."""

from __future__ import annotations

from functools import partial
from typing import Mapping, Sequence

import pyarrow as pa

from penstock.common.limits import USUAL, Limits
from penstock.protocol.values.metadata import StateSchema
from penstock.state import state_sizes
from penstock.state.backend import StateSnapshot
from penstock.state.changes import Changes
from penstock.state.codecs import RestoredRun
from penstock.state.columnar.column_table import ValueColumn
from penstock.state.columnar.columnar_backend import ColumnarBackend, stream_schema
from penstock.state.rocksdb.bulk_load import BulkLoad
from penstock.state.rocksdb.disk_column_table import DiskColumnTable
from penstock.state.rocksdb.lazy_state import Entries
from penstock.state.rocksdb.local_state import LocalRestore, LocalState
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings


class RocksDBColumnarBackend(LocalRestore, ColumnarBackend[DiskColumnTable]):
    """Keeps the columnar state of one subtask in a RocksDB of its own. If `incremental`, its checkpoints name the runs
    of their predecessor, and store only the changes since.
    """

    is_on_disk = True

    def __init__(
        self,
        operator_names: Mapping[str, str] | None = None,
        *,
        settings: RocksDBSettings,
        incremental: bool = False,
        limits: Limits = USUAL,
    ) -> None:
        super().__init__(operator_names)
        self._block_bytes = limits.columnar_range_bytes
        self._changes = Changes(limits.consolidated_bytes) if incremental else None
        self._local = LocalState(settings, self._operator_names, self._changes)

    def snapshot(self, checkpoint_id: int = 0, predecessor_id: int | None = None) -> StateSnapshot:
        """Return a view of the state on disk, after writing the newest changes to it. Raises `StateError`."""
        tables = list(self._tables.values())
        for table in tables:
            table.flush()
        taken = self._local.snapshot(tables, self._untouched, self._restore_first, checkpoint_id, predecessor_id)
        for table in tables:
            table.begin_time()
        return taken

    def _new_table(
        self,
        declared: StateSchema,
        keys: pa.Schema,
        values: Sequence[ValueColumn],
        runs: list[RestoredRun],
        windowed: bool,
    ) -> DiskColumnTable:
        schema = stream_schema(declared, keys, values)
        table = DiskColumnTable(declared, schema, keys, values, self._local, windowed, self._changes, self._block_bytes)
        load = BulkLoad(self._local.database, f"state-{int.from_bytes(table.prefix, 'big')}")
        for run in runs:
            for batch in run.batches:
                for at in range(0, batch.num_rows, state_sizes.RESTORED_ENTRIES_PER_BATCH):
                    table.fill(load, batch.slice(at, state_sizes.RESTORED_ENTRIES_PER_BATCH), run.deletes)
        load.finish()
        self._local.begin_lazily((declared.operator, declared.name), table, partial(self._decoded, table))
        return table

    def _decoded(self, table: DiskColumnTable, data: bytes) -> Entries:
        """Return the entries of a run of a state. Raises `StateError` if they are not as the table declares them."""
        run = self._local.read_run(table.schema, data)
        keys: list[bytes] = []
        values: list[bytes] = []
        for batch in run.batches:
            keys += table.stored_keys(batch)
            if not run.deletes:
                values += table.stored_values(batch)
        return keys, None if run.deletes else values

    def revoke(self) -> None:
        """End the generation, and delete the files."""
        self._runs.clear()
        self._local.close()
