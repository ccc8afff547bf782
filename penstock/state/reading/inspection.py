"""Sums up a checkpoint: keys and bytes per key group, the largest keys, skew, and the in-flight data per channel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.row_types.scalar_types import PICKLED
from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN
from penstock.protocol.values.key_encoding import decode
from penstock.protocol.values.metadata import ChannelCapture, Metadata, SubtaskSnapshot
from penstock.state.reading.checkpoint import Checkpoint, OperatorOfCheckpoint, StateOfCheckpoint
from penstock.state.reading.pickles import MissingClass, class_of, load
from penstock.state.reading.runs import StoredRuns
from penstock.state.reading.sizes import value_bytes
from penstock.storage.store import ObjectStore

_CLASSES_SAMPLED = 200

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LargeKey:
    """Names one of the largest entries of a state."""

    key: str
    key_group: int
    size_bytes: int


@dataclass(frozen=True)
class KeyedStateSummary:
    """Sums up a keyed state. `keys_of_group` and `bytes_of_group`: by key group, without compression. `classes`: the
    classes of a sample of pickled values.
    """

    state: StateOfCheckpoint
    keys_of_group: Counts
    bytes_of_group: Counts
    largest: list[LargeKey]
    classes: list[str]

    @property
    def keys(self) -> int:
        return int(self.keys_of_group.sum())

    @property
    def size_bytes(self) -> int:
        return int(self.bytes_of_group.sum())

    @property
    def skew(self) -> float:
        """Return the size of the largest key group as a multiple of the mean."""
        mean = self.bytes_of_group.mean() if len(self.bytes_of_group) else 0.0
        return float(self.bytes_of_group.max() / mean) if mean else 1.0


@dataclass(frozen=True)
class InFlight:
    """Counts the rows of one channel that were in flight. `recovered`: they had been in flight at an earlier restore,
    too, and were not read yet.
    """

    source: str
    target: str
    producer: int
    consumer: int
    rows: int
    stored_bytes: int
    recovered: bool = False


def summarized(checkpoint: Checkpoint, largest: int = 5) -> Iterator[KeyedStateSummary]:
    """Yield the summary of each keyed state; reads all of it. Raises `DamagedRange`."""
    for state in checkpoint.states():
        schema = checkpoint.keyed_schemas(state.operator).get(state.name)
        if schema is not None and schema.kind == state.kind:
            runs = checkpoint.runs(state.operator, schema)
            yield _summary(checkpoint.files.store, state, runs, state.operator, largest)


def _summary(
    store: ObjectStore, state: StateOfCheckpoint, runs: StoredRuns, operator: OperatorOfCheckpoint, largest: int
) -> KeyedStateSummary:
    groups_max = operator.vertex.max_parallelism
    keys, sizes = np.zeros(groups_max, np.int64), np.zeros(groups_max, np.int64)
    found: list[LargeKey] = []
    classes: dict[str, None] = {}
    sampled = 0
    for batch in runs.batches(store):
        groups = batch.column(KEY_GROUP_COLUMN).to_numpy()
        of_entry = sum(
            (value_bytes(c) for n, c in zip(batch.schema.names, batch.columns) if n != KEY_GROUP_COLUMN),
            np.zeros(batch.num_rows, np.int64),
        )
        keys += np.bincount(groups, minlength=groups_max)[:groups_max]
        sizes += np.bincount(groups, of_entry, groups_max)[:groups_max].astype(np.int64)
        found = sorted([*found, *_largest(batch, of_entry, largest)], key=lambda k: -k.size_bytes)[:largest]
        if state.type == PICKLED.text and sampled < _CLASSES_SAMPLED:
            sampled += batch.num_rows
            values = batch.column(0).slice(0, _CLASSES_SAMPLED).to_pylist()
            classes.update(dict.fromkeys(_class(value) for value in values))
    return KeyedStateSummary(state, keys, sizes, found, sorted(classes))


def _class(pickled: bytes) -> str:
    value = load(pickled)
    return class_of(value) + (" (cannot be imported)" if isinstance(value, MissingClass) else "")


def _largest(batch: pa.RecordBatch, sizes: Counts, count: int) -> list[LargeKey]:
    if not count or not batch.num_rows:
        return []
    rows = np.argpartition(-sizes, min(count, len(sizes)) - 1)[:count]
    groups = batch.column(KEY_GROUP_COLUMN)
    return [LargeKey(_key(batch, int(row)), groups[int(row)].as_py(), int(sizes[row])) for row in rows]


def _key(batch: pa.RecordBatch, row: int) -> str:
    if KEY_COLUMN in batch.schema.names:
        return repr(decode(batch.column(KEY_COLUMN)[row].as_py()))
    keys: list[Any] = [batch.column(n)[row].as_py() for n in batch.schema.names if n.startswith("key.")]
    return repr(keys[0] if len(keys) == 1 else tuple(keys))


def in_flight(metadata: Metadata) -> list[InFlight]:
    """Return the channels that had rows in flight."""
    ends = {}
    names = {vertex.index: vertex for vertex in metadata.vertices}
    for edge in metadata.edges:
        ends[edge.name] = names[edge.source].operator_names[-1], names[edge.target].operator_names[0]
    return [channel for snapshot in metadata.subtasks for channel in _of_subtask(snapshot, ends)]


def _of_subtask(snapshot: SubtaskSnapshot, ends: dict[str, tuple[str, str]]) -> Iterator[InFlight]:
    def channel(edge: str, producer: int, consumer: int, capture: Any, recovered: bool = False) -> Iterator[InFlight]:
        rows = sum(piece.rows for piece in capture.pieces)
        if rows:
            source, target = ends.get(edge, (edge, edge))
            size = sum(piece.length_bytes for piece in capture.pieces)
            yield InFlight(source, target, producer, consumer, rows, size, recovered)

    captures: list[tuple[str, int, int, ChannelCapture]] = [
        *((cut.edge, c.peer, snapshot.subtask, c) for cut in snapshot.inputs for c in cut.captures),
        *((cut.edge, snapshot.subtask, c.peer, c) for cut in snapshot.outputs for c in cut.captures),
    ]
    for edge, producer, consumer, capture in captures:
        yield from channel(edge, producer, consumer, capture)
    for layer in snapshot.layers:
        yield from channel(layer.edge, layer.producer, layer.consumer, layer, recovered=True)
