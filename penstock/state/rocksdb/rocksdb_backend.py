"""Implements the RocksDB backend (Flink's `rocksdb`): keyed state on the slot's disk.

What a checkpoint stores does not depend on RocksDB: the entries of a view of the database, as runs in the format of
all backends. So a snapshot costs the subtask only the entries that were touched since the last batch, whatever the size
of the state, and every backend can restore what this one has written.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Iterator, Mapping, Sequence

from penstock.common.configuration import Configuration
from penstock.common.limits import USUAL, Limits
from penstock.protocol.values.keys import KeyDecoder
from penstock.protocol.values.metadata import StateSchema
from penstock.state import state_sizes
from penstock.state.changes import KeyChanges
from penstock.state.cleanup import Pace
from penstock.state.codecs import RestoredRun, StateCodec
from penstock.state.restored import StateName
from penstock.state.rocksdb.bulk_load import BulkLoad
from penstock.state.rocksdb.database import PREFIX_BYTES, Batch
from penstock.state.rocksdb.disk_columnar_backend import RocksDBColumnarBackend
from penstock.state.rocksdb.disk_table import KEY_AT, DiskTable, pickles_of, stored_keys
from penstock.state.rocksdb.disk_walk import DiskWalk, without_expired
from penstock.state.rocksdb.lazy_state import Entries
from penstock.state.rocksdb.local_state import LocalRestore, LocalState
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings
from penstock.state.rocksdb.snapshot import RocksDBSnapshot
from penstock.state.row_backend import RowStateBackend
from penstock.state.ttl import TimeToLive, WallClock, system_wall_ms
from penstock.state.unpickling import unpickled

_TOUCHED_MAX = 1024
"""With more entries than this a batch is written: so long a snapshot stops the subtask at most."""
_READS_AHEAD_AGAIN_EVERY = 64
"""After this number of slices, the backend measures again whether reading ahead pays."""
_LOADS_WORTH_READING_AHEAD = 16
_CLEANUP_PACE = Pace(per_access=2, at_once=64, share_of_ttl=0.25)
"""With it a scan is worth what it costs to begin, and the state is scanned four times in a time to live at most."""


class RocksDBStateBackend(LocalRestore, RowStateBackend[DiskTable]):
    """Keeps keyed state of one subtask in a RocksDB of its own. If `incremental`, its checkpoints name the runs of
    their predecessor, and store only the changes since.
    """

    def __init__(
        self,
        max_parallelism: int,
        operator_names: Mapping[str, str] | None = None,
        *,
        settings: RocksDBSettings,
        incremental: bool = False,
        wall_ms: WallClock = system_wall_ms,
        limits: Limits = USUAL,
    ) -> None:
        super().__init__(max_parallelism, operator_names, wall_ms)
        self._changes: KeyChanges[dict[Any, Any]] | None = None
        if incremental:
            self._changes = KeyChanges(dict, limits.consolidated_bytes)
        self._local = LocalState(settings, self._operator_names, self._changes)
        self._database = self._local.database
        self._failure = self._database.first_failure
        self._settings = settings
        self._ahead: set[StateName] = set()
        """The states that are read before a slice."""
        self._slices = 0

    # ---- slices -------------------------------------------------------------------------------------------------

    @property
    def slices(self) -> RocksDBStateBackend:
        return self

    def prepare(self, keys: Sequence[Any], key_groups: Sequence[int], start: int, end: int) -> None:
        """Read the entries of a slice's keys at once, of the states of which most keys were asked for lately."""
        self._slices += 1
        if not self._slices % _READS_AHEAD_AGAIN_EVERY:
            self._ahead.clear()
        for name, table in self._tables.items():
            table.loads = 0
            if name in self._ahead:
                table.read_ahead(keys[start:end], key_groups[start:end])

    def settle(self) -> None:
        """Remove expired entries, write a batch if enough has been touched, and evict from the cache."""
        self._local.check()
        if self._cleanups:
            self._clean_up(0)
        touched_bytes, touched = 0.0, 0
        cached_bytes = 0.0
        for name, table in self._tables.items():
            touched += len(table.touched)
            touched_bytes += len(table.touched) * table.value_bytes
            cached_bytes += table.recent_bytes
            if table.loads >= _LOADS_WORTH_READING_AHEAD:
                self._ahead.add(name)
        is_full = 2 * cached_bytes > self._settings.cached_bytes
        if touched > _TOUCHED_MAX or touched_bytes > self._settings.batch_bytes or (is_full and touched):
            self._flush()
        if is_full:
            for table in self._tables.values():
                table.forget_older()

    def _flush(self) -> None:
        batch = Batch([], [], [])
        for table in self._tables.values():
            if table.touched:
                table.flush(batch)
        if batch.keys or batch.deleted:
            self._local.write(batch)
        if self._changes is not None:
            self._changes.limit()

    def _cleanup_pace(self, ttl: TimeToLive) -> Pace | None:
        return _CLEANUP_PACE if ttl.cleans_disk else None

    def _walk(self, table: DiskTable) -> DiskWalk:
        return DiskWalk(table, self._flush)

    # ---- reading all --------------------------------------------------------------------------------------------

    def keys_of(self, operator: str, name: str) -> Iterator[tuple[Any, int]]:
        """Yield (key, key group) of all entries of a state that has been asked for, as they are now."""
        for key, key_group, _ in self._scan(operator, name):
            yield key, key_group

    def entries(self, operator: str, name: str) -> Iterator[tuple[Any, int, Any]]:
        """Yield (key, key group, value) of a state that has been asked for, as they are now."""
        for key, key_group, data in self._scan(operator, name):
            yield key, key_group, unpickled(data, self._tables[operator, name].described, key)

    def _scan(self, operator: str, name: str) -> Iterator[tuple[Any, int, bytes]]:
        self._flush()
        decoder = KeyDecoder()
        for key, data in self._tables[operator, name].scan():
            key_group = int.from_bytes(key[PREFIX_BYTES:KEY_AT], "big")
            yield decoder.decode([key[KEY_AT:]])[0], key_group, data

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int = 0, predecessor_id: int | None = None) -> RocksDBSnapshot:
        self._flush()
        filters = {
            name: partial(without_expired, table, expired_ms)
            for name, table in self._tables.items()
            if (expired_ms := self._expired_ms(name)) is not None
        }
        tables = list(self._tables.values())
        return self._local.snapshot(
            tables, self._untouched, self._restore_first, checkpoint_id, predecessor_id, filters
        )

    # ---- restoring ----------------------------------------------------------------------------------------------

    def _new_table(self, declared: StateSchema, codec: StateCodec, runs: list[RestoredRun]) -> DiskTable:
        prefix = self._local.new_prefix((declared.operator, declared.name))
        described = self._described_with_uid((declared.operator, declared.name))
        table = DiskTable(declared, prefix, self._max_parallelism, codec, self._database, described, self._changes)
        load = BulkLoad(self._database, f"state-{int.from_bytes(prefix, 'big')}")
        for run in runs:
            for batch in run.batches:
                for at in range(0, batch.num_rows, state_sizes.RESTORED_ENTRIES_PER_BATCH):
                    entries = batch.slice(at, state_sizes.RESTORED_ENTRIES_PER_BATCH)
                    if run.deletes:
                        load.delete(stored_keys(prefix, entries))
                    else:
                        load.put(stored_keys(prefix, entries), pickles_of(table, entries))
        load.finish()
        self._local.begin_lazily((declared.operator, declared.name), table, partial(self._decoded, table))
        return table

    def _decoded(self, table: DiskTable, data: bytes) -> Entries:
        """Return the entries of a run of a state. Raises `StateError` if they are not as the table declares them."""
        schema = table.schema
        run = self._local.read_run(schema, data)
        self._check_keys((schema.operator, schema.name), run)
        keys = [key for batch in run.batches for key in stored_keys(table.prefix, batch)]
        if run.deletes:
            return keys, None
        return keys, [value for batch in run.batches for value in pickles_of(table, batch)]

    def revoke(self) -> None:
        """End the generation, and delete the files."""
        super().revoke()
        self._runs.clear()
        self._local.close()


def row_state(
    configuration: Configuration,
    max_parallelism: int,
    operator_names: Mapping[str, str],
    incremental: bool,
    wall_ms: WallClock,
    limits: Limits,
) -> RocksDBStateBackend:
    settings = RocksDBSettings.of(configuration)
    return RocksDBStateBackend(
        max_parallelism, operator_names, settings=settings, incremental=incremental, wall_ms=wall_ms, limits=limits
    )


def columnar_state(
    configuration: Configuration, operator_names: Mapping[str, str], incremental: bool, limits: Limits
) -> RocksDBColumnarBackend:
    settings = RocksDBSettings.of(configuration)
    return RocksDBColumnarBackend(operator_names, settings=settings, incremental=incremental, limits=limits)
