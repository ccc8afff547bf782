"""Holds the rows of a bounded input until it has ended, and gives them back key by key.

Within a key rows come in the order of their event time; rows of one time, and rows without a time, come in the order of
their inputs, and of their arrival within an input. Rows that memory does not hold are sorted in runs on the local disk,
which are merged as they are read.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import KEY_COLUMN, TIMESTAMP_COLUMN
from penstock.graph.job_graph import Edge
from penstock.operators.batches import as_batch, declared_key, joined
from penstock.operators.disk_batches import BatchFile, DiskBatch
from penstock.protocol.values.keys import KeyDecoder, encode
from penstock.runtime.input.input_gate import OpenBatch

MEMORY_BYTES_MAX = 64 * 1024 * 1024
"""The most bytes of held rows in a subtask's memory; the rest goes to a file."""
_RUN_ROWS = 4096
"""The number of rows of a sorted run that are read at once."""
_GROUP_ROWS_MAX = 1024
"""The number of rows of a key that are given back at once."""
_NO_TIME = -(2**63)
_ORDER_COLUMN = "__order__"
_ARRIVAL_COLUMN = "__arrival__"


class KeyRows(NamedTuple):
    """Holds rows of one key and one input, in their order. `timestamps` None: the input has no event time."""

    input_index: int
    key: Any
    key_group: int
    rows: list[Any]
    timestamps: list[int | None] | None


class _Place(NamedTuple):
    """Orders the rows of all runs; no two are equal."""

    key: bytes
    time_ms: int
    edge: int
    arrival: int
    row: int
    batch: OpenBatch


class HeldRows:
    """Holds keyed rows of all inputs. `memory_bytes_max`: what may stay in memory before it goes to the disk."""

    def __init__(self, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._memory_bytes_max = memory_bytes_max
        self._edges: dict[int, _HeldEdge] = {}
        self._bytes = 0
        self._file: BatchFile | None = None

    def add(self, edge: Edge, batch: pa.RecordBatch) -> None:
        """Hold rows as they came through an edge by key."""
        held = self._edges.get(edge.index)
        if held is None:
            held = self._edges[edge.index] = _HeldEdge(edge)
        held.add(batch)
        self._bytes += batch.nbytes
        if self._bytes > self._memory_bytes_max:
            if self._file is None:
                self._file = BatchFile()
            for each in self._edges.values():
                each.to_disk(self._file)
            self._bytes = 0

    def groups(self) -> Iterator[KeyRows]:
        """Yield all rows, those of a key one after the other, and hold none of them any more."""
        edges = sorted(self._edges.values(), key=lambda held: (held.edge.input_index, held.edge.index))
        runs = [run for number, held in enumerate(edges) for run in held.runs(number)]
        places = runs[0] if len(runs) == 1 else heapq.merge(*runs)
        self._edges = {}
        return _grouped(places)


class _HeldEdge:
    """Holds the rows of one edge: batches that came last, and sorted runs."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self._batches: list[pa.RecordBatch] = []
        self._on_disk: list[list[DiskBatch]] = []
        self._schema: pa.Schema | None = None
        self._arrived = 0

    def add(self, batch: pa.RecordBatch) -> None:
        # The arrival breaks ties between runs, too.
        arrival = pa.array(np.arange(self._arrived, self._arrived + batch.num_rows, dtype=np.int64))
        self._arrived += batch.num_rows
        order = _order_column(self.edge, batch)
        self._batches.append(batch.append_column(_ORDER_COLUMN, order).append_column(_ARRIVAL_COLUMN, arrival))

    def to_disk(self, file: BatchFile) -> None:
        """Write the rows in memory as one sorted run."""
        for whole in self._sorted():
            parts = [whole.slice(first, _RUN_ROWS) for first in range(0, whole.num_rows, _RUN_ROWS)]
            self._schema = whole.schema
            self._on_disk.append([file.append(part.serialize()) for part in parts])

    def _sorted(self) -> Iterator[pa.RecordBatch]:
        if not self._batches:
            return
        whole = joined(self._batches)
        self._batches = []
        columns = [whole.column(_ORDER_COLUMN), whole.column(_ARRIVAL_COLUMN)]
        if self.edge.timestamped:
            columns.insert(1, whole.column(TIMESTAMP_COLUMN).fill_null(_NO_TIME))
        places = pa.RecordBatch.from_arrays(columns, names=[str(number) for number in range(len(columns))])
        yield whole.take(pc.sort_indices(places, sort_keys=[(name, "ascending") for name in places.schema.names]))

    def runs(self, number: int) -> list[Iterator[_Place]]:
        """Return the rows' places, sorted, a run each. `number`: the place of this edge among all."""
        found = [self._places(number, self._read(run)) for run in self._on_disk]
        return found + [self._places(number, iter([whole])) for whole in self._sorted()]

    def _read(self, run: Sequence[DiskBatch]) -> Iterator[pa.RecordBatch]:
        assert self._schema is not None
        return (as_batch(message, self._schema) for message in run)

    def _places(self, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[_Place]:
        decoder = KeyDecoder()
        for batch in batches:
            opened = OpenBatch(batch, self.edge, _NOBODY, 0, decoder)
            times = [None] * batch.num_rows
            if self.edge.timestamped:
                times = opened.timestamps = batch.column(TIMESTAMP_COLUMN).to_pylist()
            columns = (batch.column(_ORDER_COLUMN).to_pylist(), times, batch.column(_ARRIVAL_COLUMN).to_pylist())
            for row, (key, time_ms, arrival) in enumerate(zip(*columns)):
                yield _Place(key, _NO_TIME if time_ms is None else time_ms, number, arrival, row, opened)


class _Nobody:
    """Takes the place of the channel that an open batch came from."""

    applied = 0

    def apply_rows(self, rows: int) -> None:
        """Do nothing: the rows counted as applied when they were held."""


_NOBODY = _Nobody()


def _order_column(edge: Edge, batch: pa.RecordBatch) -> pa.Array:
    """Return the canonical bytes of the rows' keys. They are equal for equal keys of all inputs."""
    if edge.partitioner.key_columns is None and declared_key(edge.partitioner) == "canonical":
        return batch.column(KEY_COLUMN)
    opened = OpenBatch(batch, edge, _NOBODY, 0, KeyDecoder())
    return pa.array([encode(key) for key in opened.keys], pa.binary())


def _grouped(places: Iterator[_Place]) -> Iterator[KeyRows]:
    """Join neighbours of one key and one input."""
    group: list[_Place] = []
    for place in places:
        if group and (place.key != group[0].key or place.edge != group[0].edge or len(group) >= _GROUP_ROWS_MAX):
            yield _key_rows(group)
            group = []
        group.append(place)
    if group:
        yield _key_rows(group)


def _key_rows(group: list[_Place]) -> KeyRows:
    first = group[0].batch
    place = group[0].row
    times: list[int | None] | None = None
    if first.timestamps is not None:
        times = [found.batch.timestamps[found.row] for found in group if found.batch.timestamps is not None]
    rows = [found.batch.rows[found.row] for found in group]
    return KeyRows(first.edge.input_index, first.keys[place], first.key_groups[place], rows, times)


class ArrivedRows:
    """Holds rows without keys in the order of their arrival: those of a stream whose broadcast side comes first."""

    def __init__(self, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._memory_bytes_max = memory_bytes_max
        self._held: list[tuple[Edge, Any, pa.Schema]] = []
        self._bytes = 0
        self._file: BatchFile | None = None

    def add(self, edge: Edge, batch: pa.RecordBatch) -> None:
        """Hold rows as they came through an edge."""
        self._bytes += batch.nbytes
        if self._bytes <= self._memory_bytes_max:
            self._held.append((edge, batch, batch.schema))
            return
        if self._file is None:
            self._file = BatchFile()
        self._held.append((edge, self._file.append(batch.serialize()), batch.schema))

    def groups(self) -> Iterator[KeyRows]:
        """Yield all rows, a batch at a time, without keys, and hold none of them any more."""
        held, self._held = self._held, []
        for edge, payload, schema in held:
            opened = OpenBatch(as_batch(payload, schema), edge, _NOBODY, 0, KeyDecoder())
            times = opened.batch.column(TIMESTAMP_COLUMN).to_pylist() if edge.timestamped else None
            yield KeyRows(edge.input_index, None, -1, opened.rows, times)
