"""Builds and reads the batches that travel on edges: Arrow batches with reserved columns, and their IPC messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa

from penstock.common.row_types.columns import integers
from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN, TIMESTAMP_COLUMN, TypeInformation
from penstock.common.types import PICKLED, Types
from penstock.graph.job_graph import Edge
from penstock.graph.logical import Partitioner, PartitionerKind
from penstock.operators.disk_batches import DiskBatch
from penstock.protocol.channel.captured import CapturedRows

TIMESTAMP_FIELD = pa.field(TIMESTAMP_COLUMN, pa.int64())
KEY_GROUP_FIELD = pa.field(KEY_GROUP_COLUMN, pa.uint16())

DeclaredKey = Literal["long", "string", "canonical"]

JOINED_BYTES_MAX = 4 * 1024 * 1024
_RETAINED_MAX = 8
"""The most bytes that a waiting slice may keep alive, as a multiple of its own size."""

_KEY_ARROW_TYPES: dict[DeclaredKey, pa.DataType] = {"long": pa.int64(), "string": pa.string(), "canonical": pa.binary()}


def row_type(declared: TypeInformation | None) -> TypeInformation:
    """Return the type of the rows of a stream: without a declared type, one binary column of pickles."""
    return PICKLED if declared is None else declared


def declared_key(partitioner: Partitioner) -> DeclaredKey:
    """Return the encoding of a keyed edge's key column. Equal keys have equal hashes in all of the encodings."""
    if partitioner.kind is PartitionerKind.HASH and partitioner.key_type == Types.LONG():
        return "long"
    if partitioner.kind is PartitionerKind.HASH and partitioner.key_type == Types.STRING():
        return "string"
    return "canonical"


def key_field(declared: DeclaredKey) -> pa.Field:
    return pa.field(KEY_COLUMN, _KEY_ARROW_TYPES[declared])


def wire_schema(edge: Edge) -> pa.Schema:
    """Return the columns of a batch on this edge: the columns of the row, its event time, and the columns of its key
    that the consumer needs."""
    schema = row_type(edge.type).schema
    partitioner = edge.partitioner
    if edge.timestamped:
        schema = schema.append(TIMESTAMP_FIELD)
    if partitioner.kind in (PartitionerKind.HASH, PartitionerKind.CUSTOM) and partitioner.key_columns is None:
        schema = schema.append(key_field(declared_key(partitioner)))
    if partitioner.kind is PartitionerKind.HASH:
        schema = schema.append(KEY_GROUP_FIELD)
    return schema


def timestamp_column(timestamps: Sequence[int | None]) -> pa.Array:
    """Return a column of event times in ms, null where a row has none."""
    try:
        return integers(timestamps, TIMESTAMP_FIELD.type)
    except TypeError:  # some rows have none
        return pa.array(timestamps, TIMESTAMP_FIELD.type)


def with_timestamps(batch: pa.RecordBatch, timestamps: pa.Array | None) -> pa.RecordBatch:
    """Return `batch` with the columns of its type and a column of event times (nulls if there are none)."""
    if timestamps is None:
        timestamps = pa.nulls(batch.num_rows, pa.int64())
    return batch.append_column(TIMESTAMP_FIELD, timestamps)


def without_timestamps(batch: pa.RecordBatch) -> pa.RecordBatch:
    names = batch.schema.names
    return batch.drop_columns([TIMESTAMP_COLUMN]) if TIMESTAMP_COLUMN in names else batch


def as_batch(payload: Any, schema: pa.Schema) -> pa.RecordBatch:
    """Return `payload` as a batch; it is a batch by reference, or an Arrow IPC message, which may be on the disk."""
    if isinstance(payload, pa.RecordBatch):
        return payload
    if isinstance(payload, DiskBatch):
        payload = payload.read()
    return pa.ipc.read_record_batch(pa.py_buffer(payload), schema)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def message_of(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Return the Arrow IPC message of all rows."""
    return joined(batches).serialize()


def compact(batch: pa.RecordBatch, parent_bytes: int) -> tuple[pa.RecordBatch, int]:
    """Return `batch` and its size, copied if it is a small slice of a large parent, which it would keep in memory as
    long as it waits.
    """
    batch_bytes = batch.nbytes
    if batch_bytes * _RETAINED_MAX >= parent_bytes:
        return batch, batch_bytes
    batch = pa.ipc.read_record_batch(batch.serialize(), batch.schema)
    return batch, batch.nbytes


def as_messages(captured: Sequence[CapturedRows], schema: pa.Schema) -> Iterator[tuple[int, int, Any]]:
    """Yield (first, rows, Arrow IPC message) of captured rows: received messages as they are, the rest encoded, with
    neighbours joined up to `JOINED_BYTES_MAX`, because a restore has each message in memory whole. A slice counts as
    large as its parent, because Arrow computes its own size slowly. Those on the disk are read when it is their turn.
    """
    run: list[pa.RecordBatch] = []
    run_first = run_rows = run_bytes = 0
    for first, rows, skip, payload in captured:
        if isinstance(payload, DiskBatch):
            payload = payload.read()
        whole_message = not isinstance(payload, pa.RecordBatch)
        batch = as_batch(payload, schema)
        is_whole = whole_message and rows == batch.num_rows
        if run and (is_whole or run_first + run_rows != first or run_bytes >= JOINED_BYTES_MAX):
            yield run_first, run_rows, message_of(run)
            run.clear()
        if is_whole:
            yield first, rows, payload
            continue
        if not run:
            run_first, run_rows, run_bytes = first, 0, 0
        run.append(batch if rows == batch.num_rows else batch.slice(skip, rows))
        run_rows += rows
        run_bytes += batch.get_total_buffer_size()
    if run:
        yield run_first, run_rows, message_of(run)
