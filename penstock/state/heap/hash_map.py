"""Implements the hash-map backend (Flink's `hashmap`): state as Python objects."""

from __future__ import annotations

from itertools import compress, islice, repeat
from operator import is_, is_not
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import pyarrow as pa

from penstock.protocol.values.keys import KeyDecoder
from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import Consolidation, EncodedState, StoredState
from penstock.state.chained_restore import ChainedRestore
from penstock.state.changes import ChainedRuns, Changes, KeysSince, unchained
from penstock.state.cleanup import Pace
from penstock.state.codecs import (
    RestoredRun,
    StateCodec,
    StreamMemory,
    decode_batch,
    decode_keys,
    deleted_schema,
    described_failure,
    encode_batch,
    encode_keys,
    write_stream,
)
from penstock.state.heap.kept_entries import ABSENT, Bucket, KeptEntries
from penstock.state.heap.table_walk import TableWalk
from penstock.state.heap.tables import StateTable, TableSnapshot
from penstock.state.restored import StateName, UntouchedState
from penstock.state.row_backend import RowStateBackend
from penstock.state.ttl import TimeToLive, WallClock, system_wall_ms, unexpired

ENTRIES_PER_BATCH = 2048
"""The number of entries that the writer encodes at a time; between two batches it holds nothing that the stream waits
for."""

BYTES_PER_RANGE = 16 * 1024 * 1024
"""A range that has about this size is closed, and the next one begins, so that a restore reads in bounded pieces."""


_Buckets = Iterable[tuple[int, Bucket | None]]
"""(key group, entries)"""


class HashMapStateBackend(ChainedRestore, RowStateBackend[StateTable]):
    """Keeps keyed state of one subtask in memory. If `incremental`, its checkpoints name what has not changed since
    their predecessor.
    """

    def __init__(
        self,
        max_parallelism: int,
        operator_names: Mapping[str, str] | None = None,
        *,
        incremental: bool = False,
        wall_ms: WallClock = system_wall_ms,
    ) -> None:
        super().__init__(max_parallelism, operator_names, wall_ms)
        self._changes: Changes | None = Changes() if incremental else None
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
        since: dict[StateName, KeysSince] = {}
        if self._changes is not None:
            since = self._changes.cut(checkpoint_id, predecessor_id)
            for name, table in self._tables.items():
                table.changed = self._changes.now(name)
        tables = [self._at_barrier(name, since.get(name)) for name in self._tables]
        chains = {name: s.chain for name, s in since.items()}
        snapshot = HashMapSnapshot(tables, self._untouched(), ChainedRuns(self._changes, chains, checkpoint_id))
        if self._changes is not None:
            snapshot.consolidations = self._changes.consolidations(
                {name: chain for name, chain in chains.items() if name in self._tables},
                checkpoint_id,
                lambda name: HashMapSnapshot([self._at_barrier(name, None)], *unchained()),
            )
        return snapshot

    def _at_barrier(self, name: StateName, since: KeysSince | None) -> _TableAtBarrier:
        table = self._tables[name]
        entries = table.snapshot() if since is None else table.snapshot_of(since)
        return _TableAtBarrier(
            *self._codecs[name], table.schema, entries, self._described(name), self._expired_ms(name)
        )

    def _new_table(self, declared: StateSchema, codec: StateCodec, runs: list[RestoredRun]) -> StateTable:
        described = self._described_with_uid((declared.operator, declared.name))
        if self._changes is None:
            table = StateTable(declared, self._max_parallelism, codec.copy_value, described)
        else:
            changed = self._changes.now((declared.operator, declared.name))
            limits = (self._changes.keys_max, self._changes.limit)
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


class _TableAtBarrier(NamedTuple):
    """Holds one table at a barrier: all of it, or what has changed. `schema`: of the batches that are written.
    `described`: the state's name, for messages. Of all is left out what was last used at `expired_ms` or before; None:
    nothing.
    """

    codec: StateCodec
    schema: pa.Schema
    declared: StateSchema
    entries: TableSnapshot | KeptEntries
    described: str
    expired_ms: int | None

    @property
    def name(self) -> StateName:
        return self.declared.operator, self.declared.name


class HashMapSnapshot:
    """Holds the tables at a barrier, and releases them as they are encoded: whole ones bucket by bucket."""

    consolidations: Sequence[Consolidation] = ()

    def __init__(self, tables: list[_TableAtBarrier], untouched: UntouchedState, chained: ChainedRuns) -> None:
        self.schemas = [table.declared for table in tables] + untouched.schemas
        self._tables = tables
        self._untouched = untouched
        self._chained = chained
        self._discarded = False
        self.expected_bytes = 0

    def encode(self) -> Iterator[EncodedState | StoredState]:
        try:
            yield from self._chained.untouched(self._untouched)
            for table in self._tables:
                entries = table.entries
                if isinstance(entries, TableSnapshot):
                    new = self._encode_whole(table, entries)
                else:
                    new = self._encode_changed(table, entries)
                yield from self._chained.runs(table.name, new)
        except Exception:
            # After `discard`, another thread may change the buckets meanwhile.
            if not self._discarded:
                raise
        finally:
            self._release()

    def on_stored(self, stored: list[StoredState]) -> None:
        self._chained.on_stored(stored)

    def discard(self) -> None:
        self._discarded = True
        self._chained.on_discarded()
        self._release()

    def _release(self) -> None:
        for table in self._tables:
            table.entries.release_all()

    def _encode_whole(self, table: _TableAtBarrier, snapshot: TableSnapshot) -> Iterator[EncodedState]:
        buckets: _Buckets = ((group, snapshot.bucket(group)) for group in range(len(snapshot)))
        if table.expired_ms is not None:
            kind, expired_ms = table.codec.kind, table.expired_ms
            buckets = ((group, _unexpired(kind, bucket, expired_ms)) for group, bucket in buckets)
        yield from self._runs(table, _of_buckets(buckets, snapshot))

    def _encode_changed(self, table: _TableAtBarrier, changed: KeptEntries) -> Iterator[EncodedState]:
        """Yield the keys that are gone, and the entries that may have changed."""
        changed_keys = changed.since.changed()
        keys, key_groups = list(changed_keys), list(changed_keys.values())
        values = changed.read(keys, key_groups)
        if self._discarded:
            return
        if table.codec.copy_value is None:
            changed.release_all()
        if any(map(is_, values, repeat(ABSENT))):
            gone = [index for index, value in enumerate(values) if value is ABSENT]
            yield _deleted(table, [keys[index] for index in gone], [key_groups[index] for index in gone])
        yield from self._runs(table, _parts(keys, key_groups, values))
        changed.release_all()

    def _runs(self, table: _TableAtBarrier, parts: Iterable[_Part]) -> Iterator[EncodedState]:
        """Yield ranges. A part must stay as it is until the next one is asked for."""
        memory = StreamMemory()
        batches: list[pa.RecordBatch] = []
        size_bytes = 0
        for part in parts:
            if self._discarded:
                return
            batches.append(_encoded(table, part))
            size_bytes += batches[-1].get_total_buffer_size()  # not shared yet; `nbytes` takes far longer
            if size_bytes >= BYTES_PER_RANGE:
                yield _range(table, batches, memory)
                batches, size_bytes = [], 0
        if batches and not self._discarded:
            yield _range(table, batches, memory)


class _Part(NamedTuple):
    """Holds entries that are encoded together, until the next part is asked for."""

    keys: list[Any]
    key_groups: np.ndarray[Any, Any]
    values: list[Any]


def _of_buckets(buckets: _Buckets, snapshot: TableSnapshot) -> Iterator[_Part]:
    """Yield parts: small buckets share one, large ones fill several. Each bucket is released once it is encoded."""
    keys: list[Any] = []
    values: list[Any] = []
    key_groups: list[int] = []
    counts: list[int] = []
    done: list[int] = []

    def flush() -> Iterator[_Part]:
        yield _Part(keys, np.repeat(np.array(key_groups, np.uint16), counts), values)
        for key_group in done:
            snapshot.release(key_group)
        for taken in (keys, values, key_groups, counts, done):
            taken.clear()

    for key_group, bucket in buckets:
        if not bucket:
            snapshot.release(key_group)
            continue
        if len(keys) + len(bucket) < ENTRIES_PER_BATCH:
            keys.extend(bucket)
            values.extend(bucket.values())
            key_groups.append(key_group)
            counts.append(len(bucket))
        else:
            entries = iter(bucket.items())
            while taken := list(islice(entries, ENTRIES_PER_BATCH - len(keys))):
                keys += [key for key, _ in taken]
                values += [value for _, value in taken]
                key_groups.append(key_group)
                counts.append(len(taken))
                if len(keys) == ENTRIES_PER_BATCH:
                    yield from flush()
        done.append(key_group)
    if keys:
        yield from flush()


def _parts(keys: list[Any], key_groups: list[int], values: list[Any]) -> Iterator[_Part]:
    """Yield the entries that exist. One long call for all would keep the interpreter from the stream."""
    for start in range(0, len(keys), ENTRIES_PER_BATCH):
        part = slice(start, start + ENTRIES_PER_BATCH)
        columns = keys[part], key_groups[part], values[part]
        there = list(map(is_not, columns[2], repeat(ABSENT)))
        left = columns if all(there) else [list(compress(column, there)) for column in columns]
        if left[0]:
            yield _Part(left[0], np.array(left[1], np.uint16), left[2])


def _encoded(table: _TableAtBarrier, part: _Part) -> pa.RecordBatch:
    try:
        return encode_batch(table.codec, table.schema, *part)
    except Exception as error:  # catches whatever a user's object raises when it is pickled
        raise described_failure(error, table.described, part.keys) from error


def _deleted(table: _TableAtBarrier, keys: list[Any], key_groups: list[int]) -> EncodedState:
    schema = deleted_schema(table.declared)
    batch = pa.RecordBatch.from_arrays([encode_keys(keys), pa.array(key_groups, pa.uint16())], schema=schema)
    return EncodedState(*table.name, len(keys), [write_stream(schema, [batch])])


def _range(table: _TableAtBarrier, batches: list[pa.RecordBatch], memory: StreamMemory) -> EncodedState:
    entries = sum(batch.num_rows for batch in batches)
    return EncodedState(*table.name, entries, [memory.write(batches[0].schema, batches)])


def _unexpired(kind: str, bucket: Bucket | None, expired_ms: int) -> Bucket:
    """Return a bucket without what was last used at `expired_ms` or before."""
    left = ((key, unexpired(kind, kept, expired_ms)) for key, kept in (bucket or {}).items())
    return {key: kept for key, kept in left if kept is not None}
