"""Encodes the hash-map backend's entries as of a barrier, while the stream continues."""

from __future__ import annotations

from itertools import compress, islice, repeat
from operator import is_, not_
from typing import Any, Iterable, Iterator, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.common.limits import USUAL, Limits
from penstock.protocol.values.metadata import StateSchema
from penstock.state import state_sizes
from penstock.state.backend import EncodedState
from penstock.state.chains import ChainedSnapshot, Named
from penstock.state.codecs import (
    StateCodec,
    StreamMemory,
    deleted_schema,
    described_failure,
    encode_batch,
    encode_keys,
    write_stream,
)
from penstock.state.heap.tables import ABSENT, Bucket, ChangedValues, KeptEntries, TableSnapshot
from penstock.state.restored import StateName
from penstock.state.ttl import unexpired

_Buckets = Iterable[tuple[int, Bucket | None]]
"""(key group, entries)"""

_Columns = tuple[list[Any], list[int], list[Any]]
"""(keys, key groups, values), `ABSENT` for an entry that is gone"""


class TableAtBarrier(NamedTuple):
    """Holds one table at a barrier: all of it, or what has changed. `schema`: the schema of the written batches.
    `described`: the state's name, for messages. Of all is left out what was last used at `expired_ms` or before; None:
    nothing.
    """

    codec: StateCodec
    schema: pa.Schema
    declared: StateSchema
    entries: TableSnapshot | ChangedValues | KeptEntries
    described: str
    expired_ms: int | None

    @property
    def name(self) -> StateName:
        return self.declared.operator, self.declared.name


class HashMapSnapshot(ChainedSnapshot):
    """Holds the tables at a barrier, and releases them as they are encoded: whole ones bucket by bucket."""

    def __init__(self, tables: list[TableAtBarrier], named: Named, limits: Limits = USUAL) -> None:
        super().__init__([table.declared for table in tables], named)
        entries, range_bytes = limits.state_entries_per_batch, limits.state_range_bytes
        self._entries_per_batch = state_sizes.ENTRIES_PER_BATCH if entries is None else entries
        self._bytes_per_range = state_sizes.BYTES_PER_RANGE if range_bytes is None else range_bytes
        self._tables = tables

    def _new_runs(self) -> Iterator[tuple[StateName, Iterable[EncodedState]]]:
        for table in self._tables:
            entries = table.entries
            if isinstance(entries, TableSnapshot):
                yield table.name, self._encode_whole(table, entries)
            else:
                yield table.name, self._encode_changed(table, entries)

    def _release(self) -> None:
        for table in self._tables:
            table.entries.release_all()

    def _encode_whole(self, table: TableAtBarrier, snapshot: TableSnapshot) -> Iterator[EncodedState]:
        buckets: _Buckets = ((group, snapshot.bucket(group)) for group in range(len(snapshot)))
        if table.expired_ms is not None:
            kind, expired_ms = table.codec.kind, table.expired_ms
            buckets = ((group, _unexpired(kind, bucket, expired_ms)) for group, bucket in buckets)
        yield from self._runs(table, self._batches(table, _of_buckets(buckets, snapshot, self._entries_per_batch)))

    def _encode_changed(self, table: TableAtBarrier, changed: ChangedValues | KeptEntries) -> Iterator[EncodedState]:
        """Yield the entries that may have changed, and the keys that are gone."""
        gone = _Gone([], [])
        yield from self._runs(table, self._changed_batches(table, changed, gone))
        if gone.keys and not self._discarded:
            yield _deleted(table, gone)

    def _changed_batches(
        self, table: TableAtBarrier, changed: ChangedValues | KeptEntries, gone: _Gone
    ) -> Iterator[pa.RecordBatch]:
        """Yield the entries that may have changed and exist, and then let the stream change them."""
        if isinstance(changed, ChangedValues):
            portions = changed.take(self._entries_per_batch)
        else:
            changed_keys = changed.since.changed()
            keys, key_groups = list(changed_keys), list(changed_keys.values())
            values = changed.read(keys, key_groups)
            if table.codec.copy_value is None:
                changed.release_all()
            portions = _portions(keys, key_groups, values, self._entries_per_batch)
        yield from self._batches(table, _existing(portions, gone))
        changed.release_all()

    def _batches(self, table: TableAtBarrier, parts: Iterable[_Part]) -> Iterator[pa.RecordBatch]:
        """Yield encoded entries. A part must stay as it is until the next one is asked for."""
        for part in parts:
            if self._discarded:
                return
            yield _encoded(table, part)

    def _runs(self, table: TableAtBarrier, encoded: Iterable[pa.RecordBatch]) -> Iterator[EncodedState]:
        """Yield ranges."""
        memory = StreamMemory()
        batches: list[pa.RecordBatch] = []
        size_bytes = 0
        for batch in encoded:
            batches.append(batch)
            size_bytes += batch.get_total_buffer_size()  # not shared yet; `nbytes` takes far longer
            if size_bytes >= self._bytes_per_range:
                yield _range(table, batches, memory)
                batches, size_bytes = [], 0
        if batches and not self._discarded:
            yield _range(table, batches, memory)


class _Part(NamedTuple):
    """Holds entries that are encoded together, until the next part is asked for."""

    keys: list[Any]
    key_groups: np.ndarray[Any, Any]
    values: list[Any]


def _of_buckets(buckets: _Buckets, snapshot: TableSnapshot, entries_max: int) -> Iterator[_Part]:
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
        if len(keys) + len(bucket) < entries_max:
            keys.extend(bucket)
            values.extend(bucket.values())
            key_groups.append(key_group)
            counts.append(len(bucket))
        else:
            entries = iter(bucket.items())
            while taken := list(islice(entries, entries_max - len(keys))):
                keys += [key for key, _ in taken]
                values += [value for _, value in taken]
                key_groups.append(key_group)
                counts.append(len(taken))
                if len(keys) == entries_max:
                    yield from flush()
        done.append(key_group)
    if keys:
        yield from flush()


class _Gone(NamedTuple):
    """Collects the keys of entries that are gone."""

    keys: list[Any]
    key_groups: list[int]


def _portions(keys: list[Any], key_groups: list[int], values: list[Any], entries_max: int) -> Iterator[_Columns]:
    for start in range(0, len(keys), entries_max):
        portion = slice(start, start + entries_max)
        yield keys[portion], key_groups[portion], values[portion]


def _existing(portions: Iterable[_Columns], gone: _Gone) -> Iterator[_Part]:
    """Yield existing entries and collect the others, by portions: one long call would hold up the stream."""
    for keys, key_groups, values in portions:
        are_gone = list(map(is_, values, repeat(ABSENT)))
        if any(are_gone):
            gone.keys.extend(compress(keys, are_gone))
            gone.key_groups.extend(compress(key_groups, are_gone))
            there = list(map(not_, are_gone))
            keys, key_groups, values = (list(compress(column, there)) for column in (keys, key_groups, values))
        if keys:
            yield _Part(keys, np.array(key_groups, np.uint16), values)


def _encoded(table: TableAtBarrier, part: _Part) -> pa.RecordBatch:
    try:
        return encode_batch(table.codec, table.schema, *part)
    except Exception as error:  # catches whatever a user's object raises when it is pickled
        raise described_failure(error, table.described, part.keys) from error


def _deleted(table: TableAtBarrier, gone: _Gone) -> EncodedState:
    schema = deleted_schema(table.declared)
    batch = pa.RecordBatch.from_arrays([encode_keys(gone.keys), pa.array(gone.key_groups, pa.uint16())], schema=schema)
    return EncodedState(*table.name, len(gone.keys), [write_stream(schema, [batch])])


def _range(table: TableAtBarrier, batches: list[pa.RecordBatch], memory: StreamMemory) -> EncodedState:
    entries = sum(batch.num_rows for batch in batches)
    return EncodedState(*table.name, entries, [memory.write(batches[0].schema, batches)])


def _unexpired(kind: str, bucket: Bucket | None, expired_ms: int) -> Bucket:
    """Return a bucket without what was last used at `expired_ms` or before."""
    left = ((key, unexpired(kind, kept, expired_ms)) for key, kept in (bucket or {}).items())
    return {key: kept for key, kept in left if kept is not None}
