"""Reads recovered in-flight data, and leaves out what belongs to other subtasks.

All rows are read, and so checked, before the job runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN
from penstock.graph.job_graph import Edge
from penstock.operators.batches import as_batch, wire_schema
from penstock.protocol.values.keys import KeyDecoder
from penstock.protocol.values.metadata import InflightRange, NumberedEvent
from penstock.runtime.input.layers import RecoveredEvent, RecoveredRows
from penstock.runtime.output.routing import custom_targets

Elements = list[RecoveredRows | RecoveredEvent]

Mask = Callable[[pa.RecordBatch], np.ndarray]
"""Which rows of a batch belong here."""

ReadRange = Callable[[InflightRange], bytes]


def read_elements(
    read: ReadRange, edge: Edge, pieces: Iterable[InflightRange], events: Iterable[NumberedEvent], first: int, end: int
) -> Elements:
    """Return elements [first, end) in order; what was stored beyond is trimmed."""
    schema = wire_schema(edge)
    found: list[tuple[int, RecoveredRows | RecoveredEvent]] = []
    for piece in pieces:
        start, stop = max(piece.first, first), min(piece.first + piece.rows, end)
        if start < stop:
            batch = as_batch(read(piece), schema).slice(start - piece.first, stop - start)
            found.append((start, RecoveredRows(start, stop - start, batch)))
    for event in events:
        if first <= event.number < end:
            found.append((event.number, RecoveredEvent(event.number, event.event)))
    return [element for _, element in sorted(found, key=lambda x: x[0])]


def filtered(elements: Elements, mask: Mask) -> tuple[Elements, int]:
    """Return the events and the rows of the mask, numbered from 0, and the number after the last."""
    kept: Elements = []
    number = 0
    for element in elements:
        if isinstance(element, RecoveredEvent):
            kept.append(RecoveredEvent(number, element.event))
            number += 1
            continue
        batch = element.payload.filter(pa.array(mask(element.payload)))
        if batch.num_rows:
            kept.append(RecoveredRows(number, batch.num_rows, batch))
            number += batch.num_rows
    return kept, number


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
