"""Reads the runs of one keyed state as a checkpoint holds them, range by range, each entry once.

A subtask's runs in one segment do not overlap. A run in a segment that the checkpoint names later overrides entries of
those in earlier segments (incremental checkpoints). Then the newest are read first, and their keys are remembered: for
as many key groups at a time as fit the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.protocol.values.keys import key_group_range
from penstock.protocol.values.metadata import Metadata, StateRange, StateSchema, SubtaskSnapshot, VertexShape
from penstock.state.backend import StateError
from penstock.state.codecs import RestoredRun, read_stream
from penstock.state.overriding import NewerKeys
from penstock.storage.segments import read_range
from penstock.storage.store import ObjectStore

REMEMBERED_BYTES_MAX = 256 * 1024 * 1024
"""The most bytes of keys to remember that override entries of earlier runs. If there are more, fewer key groups are
read at a time."""


@dataclass(frozen=True)
class SubtaskRuns:
    """Holds the runs of one state that one subtask has stored, oldest first. `key_groups`: which are wanted of them."""

    subtask: int
    key_groups: range
    runs: tuple[StateRange, ...]

    @property
    def is_chain(self) -> bool:
        """Return whether later runs override entries of earlier ones."""
        return len({run.segment for run in self.runs}) > 1

    @property
    def length_bytes(self) -> int:
        return sum(run.length_bytes for run in self.runs)


@dataclass(frozen=True)
class StoredRuns:
    """Holds all runs of one keyed state. `paths`: the paths of the segments, by their numbers."""

    operator_name: str
    schema: StateSchema
    subtasks: tuple[SubtaskRuns, ...]
    paths: tuple[str, ...]

    @property
    def described(self) -> str:
        return f"state '{self.schema.name}' of operator '{self.operator_name}'"

    @property
    def length_bytes(self) -> int:
        return sum(of_subtask.length_bytes for of_subtask in self.subtasks)

    def split(self, count: int) -> list[StoredRuns]:
        """Return about `count` shares of the entries, disjoint and of similar size. A share has whole ranges if each
        entry is stored once, else whole key groups.
        """
        target = max(1, self.length_bytes // max(1, count))
        shares: list[SubtaskRuns] = []
        for of_subtask in self.subtasks:
            if of_subtask.is_chain:
                parts = min(len(of_subtask.key_groups), max(1, round(of_subtask.length_bytes / target)))
                shares += [replace(of_subtask, key_groups=groups) for groups in _cut(of_subtask.key_groups, parts)]
            else:
                shares += [replace(of_subtask, runs=tuple(runs)) for runs in _packed(of_subtask.runs, target)]
        return [replace(self, subtasks=(share,)) for share in shares]

    # ---- reading ------------------------------------------------------------------------------------------------

    def batches(self, store: ObjectStore, wanted: range | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the entries as they are stored, one batch for each range at most. `wanted`: only these key groups.
        Raises `DamagedRange`, `StoreError`.
        """
        for of_subtask in self.subtasks:
            groups = of_subtask.key_groups if wanted is None else _intersection(of_subtask.key_groups, wanted)
            if not groups:
                continue
            if of_subtask.is_chain:
                yield from self._batches_of_chain(store, of_subtask, groups)
                continue
            for run in (run for run in of_subtask.runs if run.has_some_of(groups)):
                found = self.read(store, of_subtask.subtask, run, groups)
                if found.deletes:
                    raise StateError(
                        f"{self.described}: the entries that its run at {run.offset} of {self.paths[run.segment]} "
                        "deletes lie in the same segment, which no checkpoint of this version has; start the job from "
                        "the checkpoint, and take a savepoint"
                    )
                yield from _joined(found)

    def read(self, store: ObjectStore, subtask: int, run: StateRange, key_groups: range) -> RestoredRun:
        """Read one run. Raises `DamagedRange`, `StoreError`."""
        belongs_to = f"{self.described}, subtask {subtask}, key groups {key_groups.start} to {key_groups.stop - 1}"
        path = self.paths[run.segment]
        data = read_range(store, path, run.offset, run.length_bytes, run.crc, belongs_to)
        return read_stream(data, key_groups)

    def _batches_of_chain(self, store: ObjectStore, of_subtask: SubtaskRuns, groups: range) -> Iterator[pa.RecordBatch]:
        oldest = of_subtask.runs[0].segment
        newer_bytes = sum(run.length_bytes for run in of_subtask.runs if run.segment != oldest)
        parts = min(len(groups), -(-newer_bytes // REMEMBERED_BYTES_MAX))
        for part in _cut(groups, max(1, parts)):
            newer = NewerKeys()
            for run in (run for run in reversed(of_subtask.runs) if run.has_some_of(part)):
                found = self.read(store, of_subtask.subtask, run, part)
                if not found.deletes:
                    for batch in _joined(found):
                        if (kept := newer.without(batch)).num_rows:
                            yield kept
                if run.segment != oldest:
                    for batch in found.batches:
                        newer.add(batch)


def runs_of(metadata: Metadata, vertex: VertexShape, schema: StateSchema) -> StoredRuns:
    """Return the runs of a state of an operator of this vertex."""
    name = vertex.operator_names[vertex.operators.index(schema.operator)]
    found = []
    for snapshot in snapshots_of(metadata, vertex):
        runs = tuple(r for r in snapshot.keyed if (r.operator, r.name) == (schema.operator, schema.name))
        if runs:
            groups = key_group_range(vertex.max_parallelism, vertex.parallelism, snapshot.subtask)
            found.append(SubtaskRuns(snapshot.subtask, groups, runs))
    return StoredRuns(name, schema, tuple(found), tuple(segment.path for segment in metadata.segments))


def snapshots_of(metadata: Metadata, vertex: VertexShape) -> list[SubtaskSnapshot]:
    """Return the snapshots of the vertex's subtasks, in order."""
    return sorted((s for s in metadata.subtasks if s.vertex == vertex.index), key=lambda snapshot: snapshot.subtask)


def _joined(run: RestoredRun) -> list[pa.RecordBatch]:
    """Return a run's entries as one batch, because each batch costs its readers a fixed time."""
    if len(run.batches) < 2:
        return list(run.batches)
    joined: list[pa.RecordBatch] = pa.Table.from_batches(run.batches).combine_chunks().to_batches()
    return joined


def _packed(runs: tuple[StateRange, ...], target_bytes: int) -> Iterator[list[StateRange]]:
    share: list[StateRange] = []
    size = 0
    for run in runs:
        if share and size + run.length_bytes // 2 > target_bytes:
            yield share
            share, size = [], 0
        share.append(run)
        size += run.length_bytes
    if share:
        yield share


def _cut(groups: range, parts: int) -> list[range]:
    bounds = [groups.start + len(groups) * part // parts for part in range(parts + 1)]
    return [range(start, end) for start, end in zip(bounds, bounds[1:]) if end > start]


def _intersection(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))
