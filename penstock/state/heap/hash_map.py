"""Implements the hash-map backend (Flink's `hashmap`): state as Python objects."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

from penstock.common.configuration import Configuration
from penstock.common.limits import USUAL, Limits
from penstock.protocol.values.keys import KeyDecoder
from penstock.protocol.values.metadata import StateSchema
from penstock.state import state_sizes
from penstock.state.chains import ChainedRestore, Named, unchained
from penstock.state.changes import KeyChanges, Since
from penstock.state.cleanup import Found, Pace
from penstock.state.codecs import RestoredRun, StateCodec, decode_batch, decode_keys
from penstock.state.columnar.columnar_backend import ColumnarStateBackend
from penstock.state.heap.hash_map_snapshot import HashMapSnapshot, TableAtBarrier
from penstock.state.heap.tables import ChangedEntries, ChangedValues, KeptEntries, StateTable, TableSnapshot
from penstock.state.restored import StateName
from penstock.state.row_backend import RowStateBackend
from penstock.state.ttl import TimeToLive, WallClock, oldest_ms, system_wall_ms, unexpired


class HashMapStateBackend(ChainedRestore, RowStateBackend[StateTable]):
    """Keeps keyed state of one subtask in memory. If `incremental`, its checkpoints name the runs of their predecessor,
    and store only the changes since.
    """

    def __init__(
        self,
        max_parallelism: int,
        operator_names: Mapping[str, str] | None = None,
        *,
        incremental: bool = False,
        wall_ms: WallClock = system_wall_ms,
        limits: Limits = USUAL,
    ) -> None:
        super().__init__(max_parallelism, operator_names, wall_ms)
        self._changes: KeyChanges[ChangedEntries] | None = None
        if incremental:
            self._changes = KeyChanges(ChangedEntries, limits.consolidated_bytes)
        self._limits = limits
        self._rows = 0
        """The number of rows of the present slice."""

    # ---- slices -------------------------------------------------------------------------------------------------

    @property
    def slices(self) -> HashMapStateBackend:
        return self

    def prepare(self, keys: Sequence[Any], key_groups: Sequence[int], start: int, end: int) -> None:
        self._rows = end - start

    def settle(self) -> None:
        """Remove entries that have expired."""
        if self._cleanups:
            self._clean_up(self._rows)
            self._rows = 0

    def forget(self, key_group: int) -> None:
        """Remove the entries of a key group. Only for jobs that take no checkpoints."""
        for table in self._tables.values():
            table.buckets[key_group].clear()

    def _cleanup_pace(self, ttl: TimeToLive) -> Pace | None:
        return Pace(ttl.cleanup_size, ttl.cleanup_size * ttl.cleanup_per_row) if ttl.cleanup_size else None

    def _walk(self, table: StateTable) -> TableWalk:
        return TableWalk(table)

    # ---- reading all --------------------------------------------------------------------------------------------

    def keys_of(self, operator: str, name: str) -> list[tuple[Any, int]]:
        """Return (key, key group) of all entries of a state that has been asked for."""
        buckets = enumerate(self._tables[operator, name].buckets)
        return [(key, key_group) for key_group, bucket in buckets for key in bucket]

    def entries(self, operator: str, name: str) -> Iterator[tuple[Any, int, Any]]:
        """Yield (key, key group, value) of a state that has been asked for; read only, and before anything changes."""
        for key_group, bucket in enumerate(self._tables[operator, name].buckets):
            for key, kept in bucket.items():
                yield key, key_group, kept

    def snapshot(self, checkpoint_id: int = 0, predecessor_id: int | None = None) -> HashMapSnapshot:
        self._failure.check()
        since: dict[StateName, Since] = {}
        tables: list[TableAtBarrier] = []
        if self._changes is not None:
            since = self._changes.cut(checkpoint_id, predecessor_id)
        for name, table in self._tables.items():
            noted = None if self._changes is None else table.begin_epoch(self._changes.keys_now(name))
            keys = self._changes.keys_since(name, since[name]) if self._changes is not None and name in since else None
            if keys is None:
                since.pop(name, None)
                tables.append(self._whole(name))
            else:
                tables.append(self._at_barrier(name, table.snapshot_of(keys, noted)))
        chains = {name: s.chain for name, s in since.items()}
        snapshot = HashMapSnapshot(tables, Named(self._untouched(), self._changes, chains, checkpoint_id), self._limits)
        if self._changes is not None:
            snapshot.consolidations = self._changes.consolidations(
                {name: chain for name, chain in chains.items() if name in self._tables},
                checkpoint_id,
                lambda name: HashMapSnapshot([self._whole(name)], unchained(), self._limits),
            )
        return snapshot

    def _whole(self, name: StateName) -> TableAtBarrier:
        return self._at_barrier(name, self._tables[name].snapshot())

    def _at_barrier(self, name: StateName, entries: TableSnapshot | ChangedValues | KeptEntries) -> TableAtBarrier:
        table = self._tables[name]
        return TableAtBarrier(*self._codecs[name], table.schema, entries, self._described(name), self._expired_ms(name))

    def _new_table(self, declared: StateSchema, codec: StateCodec, runs: list[RestoredRun]) -> StateTable:
        described = self._described_with_uid((declared.operator, declared.name))
        if self._changes is None:
            table = StateTable(declared, self._max_parallelism, codec.copy_value, described)
        else:
            changed = self._changes.keys_now((declared.operator, declared.name))
            limits = (state_sizes.CHANGED_KEYS_MAX, self._changes.limit)
            table = StateTable(declared, self._max_parallelism, codec.copy_value, described, changed, *limits)
        decoder = KeyDecoder()
        buckets = table.buckets
        for run in runs:
            for batch in run.batches:
                if run.deletes:
                    for key, key_group in decode_keys(batch, decoder):
                        buckets[key_group].pop(key, None)
                    continue
                for key, key_group, value in decode_batch(batch, codec.stored_type, decoder, described):
                    buckets[key_group][key] = value
        return table


class TableWalk:
    """Looks at a table's entries while they change: the keys of one bucket at a time are copied."""

    def __init__(self, table: StateTable) -> None:
        self._table = table
        self._next_group = 0
        self._key_group = 0
        self._keys: list[Any] = []

    def look(self, entries_max: int, expired_ms: int, least_ms: int) -> Found:
        buckets, kind = self._table.buckets, self._table.schema.kind
        entries, expired = 0, list[tuple[Any, int, bool]]()
        while entries < entries_max:
            if not self._keys:
                if self._next_group == len(buckets):
                    self._next_group = 0
                    break
                self._key_group = self._next_group
                self._keys = list(buckets[self._key_group])
                self._next_group += 1
                continue
            at = max(0, len(self._keys) - (entries_max - entries))
            bucket = buckets[self._key_group]
            for key in self._keys[at:]:
                kept = bucket.get(key)
                left = unexpired(kind, kept, expired_ms)
                if left is not kept:
                    expired.append((key, self._key_group, left is None))
                if left is not None:
                    least_ms = min(least_ms, oldest_ms(kind, left))
            entries += len(self._keys) - at
            del self._keys[at:]
        return Found(entries, least_ms, expired)


def row_state(
    configuration: Configuration,
    max_parallelism: int,
    operator_names: Mapping[str, str],
    incremental: bool,
    wall_ms: WallClock,
    limits: Limits,
) -> HashMapStateBackend:
    return HashMapStateBackend(max_parallelism, operator_names, incremental=incremental, wall_ms=wall_ms, limits=limits)


def columnar_state(
    configuration: Configuration, operator_names: Mapping[str, str], incremental: bool, limits: Limits
) -> ColumnarStateBackend:
    return ColumnarStateBackend(operator_names, incremental=incremental, limits=limits)
