"""Implements the hash-map backend (Flink's `hashmap`): state as Python objects, written in full by every checkpoint."""

from __future__ import annotations

from itertools import islice
from typing import Any, Iterator, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.protocol.values.keys import KeyDecoder
from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import EncodedState, StoredState
from penstock.state.codecs import (
    RestoredRun,
    StateCodec,
    decode_batch,
    decode_keys,
    described_failure,
    encode_batch,
    write_stream,
)
from penstock.state.heap.tables import StateTable, TableSnapshot
from penstock.state.restored import UntouchedState
from penstock.state.row_backend import RowStateBackend

ENTRIES_PER_BATCH = 2048
"""The writer encodes as many at a time; between two batches it holds nothing that the stream waits for."""

BYTES_PER_RANGE = 16 * 1024 * 1024
"""A range that has about this size is closed, and the next one begins, so that a restore reads in bounded pieces."""


class HashMapStateBackend(RowStateBackend[StateTable]):
    """Keeps keyed state of one subtask in memory."""

    @property
    def slices(self) -> None:
        """Return None: memory has nothing to gain from knowing a slice's keys."""
        return None

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
        tables = [
            _TableAtBarrier(*self._codecs[name], table.snapshot(), self._described(name))
            for name, table in self._tables.items()
        ]
        return HashMapSnapshot(tables, self._untouched())

    def _new_table(self, declared: StateSchema, codec: StateCodec, runs: list[RestoredRun]) -> StateTable:
        described = self._described((declared.operator, declared.name))
        table = StateTable(declared, self._max_parallelism, codec.copy_value, described)
        decoder = KeyDecoder()
        buckets = table.buckets
        for run in runs:
            for batch in run.batches:
                if run.deletes:
                    for key, key_group in decode_keys(batch, decoder):
                        buckets[key_group].pop(key, None)
                    continue
                for key, key_group, value in decode_batch(batch, codec.type, decoder):
                    buckets[key_group][key] = value
        return table


class _TableAtBarrier(NamedTuple):
    """Holds one table at a barrier. `schema`: of the batches that are written. `described`: the state's name, for
    messages.
    """

    codec: StateCodec
    schema: pa.Schema
    snapshot: TableSnapshot
    described: str


class HashMapSnapshot:
    """Holds the tables at a barrier, and releases them bucket by bucket as they are encoded."""

    def __init__(self, tables: list[_TableAtBarrier], untouched: UntouchedState) -> None:
        self.schemas = [table.snapshot.schema for table in tables] + untouched.schemas
        self._tables = tables
        self._untouched = untouched
        self._discarded = False
        self.expected_bytes = 0

    def encode(self) -> Iterator[EncodedState]:
        try:
            yield from self._untouched.encode()
            for table in self._tables:
                yield from self._encode_table(table)
        except Exception:
            # After `discard`, another thread may change the buckets meanwhile.
            if not self._discarded:
                raise
        finally:
            self._release()

    def on_stored(self, stored: list[StoredState]) -> None:
        """Forget it: every checkpoint writes everything."""

    def discard(self) -> None:
        self._discarded = True
        self._release()

    def _release(self) -> None:
        for table in self._tables:
            table.snapshot.release_all()

    def _encode_table(self, table: _TableAtBarrier) -> Iterator[EncodedState]:
        batches: list[pa.RecordBatch] = []
        size_bytes = 0
        for batch in self._batches(table):
            batches.append(batch)
            size_bytes += batch.get_total_buffer_size()  # not shared yet; `nbytes` takes far longer
            if size_bytes >= BYTES_PER_RANGE:
                yield self._range(table, batches)
                batches, size_bytes = [], 0
        if batches and not self._discarded:
            yield self._range(table, batches)

    @staticmethod
    def _range(table: _TableAtBarrier, batches: list[pa.RecordBatch]) -> EncodedState:
        declared, entries = table.snapshot.schema, sum(batch.num_rows for batch in batches)
        return EncodedState(declared.operator, declared.name, entries, [write_stream(table.schema, batches)])

    def _batches(self, table: _TableAtBarrier) -> Iterator[pa.RecordBatch]:
        """Yield batches: small buckets share one, large ones fill several. Each bucket is released once it is
        encoded.
        """
        snapshot = table.snapshot
        keys: list[Any] = []
        values: list[Any] = []
        key_groups: list[int] = []
        counts: list[int] = []
        encoded: list[int] = []

        def flush() -> pa.RecordBatch:
            try:
                batch = encode_batch(table.codec, table.schema, keys, _repeated(key_groups, counts), values)
            except Exception as error:  # catches whatever a user's object raises when it is pickled
                raise described_failure(error, table.described, keys) from error
            for key_group in encoded:
                snapshot.release(key_group)
            for taken in (keys, values, key_groups, counts, encoded):
                taken.clear()
            return batch

        for key_group in range(len(snapshot)):
            bucket = snapshot.bucket(key_group)
            if not bucket:
                continue
            if len(keys) + len(bucket) < ENTRIES_PER_BATCH:
                keys.extend(bucket)
                values.extend(bucket.values())
                key_groups.append(key_group)
                counts.append(len(bucket))
            else:
                entries = iter(bucket.items())
                while taken := list(islice(entries, ENTRIES_PER_BATCH - len(keys))):
                    if self._discarded:
                        return
                    keys += [key for key, _ in taken]
                    values += [value for _, value in taken]
                    key_groups.append(key_group)
                    counts.append(len(taken))
                    if len(keys) == ENTRIES_PER_BATCH:
                        yield flush()
            encoded.append(key_group)
        if keys and not self._discarded:
            yield flush()


def _repeated(key_groups: list[int], counts: list[int]) -> np.ndarray[Any, Any]:
    """Return each key group as often as its count says."""
    return np.repeat(np.array(key_groups, np.uint16), counts)
