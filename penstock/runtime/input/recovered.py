"""Reads recovered in-flight data, and leaves out what belongs to other subtasks.

All rows are read, and so checked, before the job runs, one stored range after the other. What is more than some
megabytes is kept in a file of the local disk until its turn comes, so memory does not depend on how much was in flight,
and old segments need not be kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN
from penstock.graph.job_graph import Edge
from penstock.operators import disk_batches
from penstock.operators.batches import as_batch, wire_schema
from penstock.protocol.values.keys import KeyDecoder
from penstock.protocol.values.metadata import InflightRange, NumberedEvent
from penstock.runtime.input.layers import RecoveredEvent, RecoveredRows
from penstock.runtime.output.routing import custom_targets

Element = RecoveredRows | RecoveredEvent
Elements = list[Element]

Mask = Callable[[pa.RecordBatch], np.ndarray]
"""A function that returns which rows of a batch belong here."""

ReadRange = Callable[[InflightRange], bytes]


def read_elements(
    read: ReadRange, edge: Edge, pieces: Iterable[InflightRange], events: Iterable[NumberedEvent], first: int, end: int
) -> Iterator[Element]:
    """Yield elements [first, end) in order, each range read when it is asked for; what was stored beyond is trimmed."""
    schema = wire_schema(edge)

    def rows() -> Iterator[Element]:
        for piece in sorted(pieces, key=lambda piece: piece.first):
            start, stop = max(piece.first, first), min(piece.first + piece.rows, end)
            if start < stop:
                batch = as_batch(read(piece), schema).slice(start - piece.first, stop - start)
                yield RecoveredRows(start, stop - start, batch)

    inside = sorted((event for event in events if first <= event.number < end), key=lambda event: event.number)
    marks: Iterator[Element] = (RecoveredEvent(event.number, event.event) for event in inside)
    return heapq.merge(rows(), marks, key=_number_of)


def _number_of(element: Element) -> int:
    return element.number if isinstance(element, RecoveredEvent) else element.first


def filtered(elements: Iterable[Element], mask: Mask) -> Iterator[Element]:
    """Yield the events and the rows of the mask, numbered from 0."""
    number = 0
    for element in elements:
        if isinstance(element, RecoveredEvent):
            yield RecoveredEvent(number, element.event)
            number += 1
            continue
        batch = element.payload.filter(pa.array(mask(element.payload)))
        if batch.num_rows:
            yield RecoveredRows(number, batch.num_rows, batch)
            number += batch.num_rows


def number_after(elements: Elements) -> int:
    """Return the number after the last element; 0 without any."""
    if not elements:
        return 0
    last = elements[-1]
    return last.number + 1 if isinstance(last, RecoveredEvent) else last.first + last.rows


class RecoveredKeeper:
    """Keeps the recovered rows of one subtask: the first `memory_bytes_max` (MEMORY_BYTES_MAX) in memory, the rest in a
    file.
    """

    def __init__(self, memory_bytes_max: int | None = None) -> None:
        self._memory_bytes_max = disk_batches.MEMORY_BYTES_MAX if memory_bytes_max is None else memory_bytes_max
        self._kept_bytes = 0
        self._file: disk_batches.BatchFile | None = None

    def keep(self, elements: Iterable[Element]) -> Elements:
        """Return the elements, with rows in memory or on the disk. Raises OSError where the disk is full."""
        return [element if isinstance(element, RecoveredEvent) else self._rows(element) for element in elements]

    def _rows(self, element: RecoveredRows) -> RecoveredRows:
        size_bytes = element.payload.nbytes
        if self._kept_bytes + size_bytes <= self._memory_bytes_max:
            self._kept_bytes += size_bytes
            return element
        if self._file is None:
            self._file = disk_batches.BatchFile()
        return RecoveredRows(element.first, element.rows, self._file.append(element.payload.serialize()))


def of_key_groups(key_groups: range) -> Mask:
    def mask(batch: pa.RecordBatch) -> np.ndarray:
        groups = batch.column(KEY_GROUP_COLUMN).to_numpy()
        found: np.ndarray = np.logical_and(groups >= key_groups.start, groups < key_groups.stop)
        return found

    return mask


def of_partition(edge: Edge, partition: int, operator: str) -> Mask:
    """Return the mask of the rows that the custom partitioner now sends to `partition`. The mask raises
    `OperatorFailure`; `operator` is the producer's name.
    """
    partition_of, decoder = edge.partitioner.custom, KeyDecoder()
    assert partition_of is not None

    def mask(batch: pa.RecordBatch) -> np.ndarray:
        keys = decoder.decode(batch.column(KEY_COLUMN).to_pylist())
        found: np.ndarray = custom_targets(partition_of, keys, edge.target_parallelism, operator) == partition
        return found

    return mask
