"""Stores checkpoints of one subtask in memory, and restores them into either backend."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from penstock.protocol.values.elements import Generation
from penstock.protocol.values.metadata import Segment
from penstock.state.backend import Consolidation, EncodedState, StateSnapshot, StoredState
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.state.rocksdb.rocksdb_backend import RocksDBStateBackend
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings
from penstock.state.row_backend import RowStateBackend
from penstock.storage.layout import segment_path
from tests.unit.state.test_snapshots import KEY_GROUPS, Model, Stream


@dataclass
class Checkpoint:
    """A checkpoint of one subtask, as the runtime stores it: a segment of its own, and ranges in it and in others."""

    number: int
    snapshot: StateSnapshot
    expected: Model
    predecessor: Checkpoint | None
    ranges: list[StoredState] = field(default_factory=list)
    segment: Segment = field(default_factory=lambda: Segment("", 0))
    encoding: Iterator[EncodedState | StoredState] | None = None
    added: list[tuple[int, EncodedState, bytes]] = field(default_factory=list)
    """Encoded runs, each with its place in `ranges`."""


class Store:
    """Stores checkpoints, and restores them into either backend."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.consolidated: set[StoredState] = set()
        """Runs that a checkpoint may name although its predecessor does not."""

    def write(self, checkpoint: Checkpoint, runs_max: int | None = None) -> None:
        """Write the runs of a checkpoint that are not written yet; `runs_max`: at most so many, and the rest later."""
        if checkpoint.encoding is None:
            checkpoint.encoding = checkpoint.snapshot.encode()
        for run in islice(checkpoint.encoding, runs_max):
            if isinstance(run, StoredState):
                assert checkpoint.predecessor is not None
                assert run in checkpoint.predecessor.ranges or run in self.consolidated
                checkpoint.ranges.append(run)
                continue
            checkpoint.added.append((len(checkpoint.ranges), run, b"".join(run.parts)))
            checkpoint.ranges.append(StoredState(run.operator, run.name, 0, Segment("", 0), 0, 0, 0))
        if runs_max is None:
            self._finish(checkpoint)

    def _finish(self, checkpoint: Checkpoint) -> None:
        path = segment_path(Generation(0, 0), "driver", 0, checkpoint.number, "own")
        data = self.data[path] = b"".join(part for _, _, part in checkpoint.added)
        checkpoint.segment = Segment(path, len(data))
        offset = 0
        for place, run, part in checkpoint.added:
            crc = zlib.crc32(part)
            checkpoint.ranges[place] = StoredState(
                run.operator, run.name, run.entries, checkpoint.segment, offset, len(part), crc, run.bounds
            )
            offset += len(part)

    def consolidate(self, consolidation: Consolidation) -> list[StoredState]:
        """Store a state whole, next to checkpoints. Returns its runs."""
        path = segment_path(Generation(0, 0), "driver", 0, consolidation.checkpoint_id, f"whole{len(self.data)}")
        runs = [
            (run.operator, run.name, run.entries, b"".join(run.parts), run.bounds) for run in consolidation.encode()
        ]
        data = self.data[path] = b"".join(part for *_, part, _ in runs)
        segment, offset, stored = Segment(path, len(data)), 0, []
        for operator, name, entries, part, bounds in runs:
            stored.append(StoredState(operator, name, entries, segment, offset, len(part), zlib.crc32(part), bounds))
            offset += len(part)
        self.consolidated.update(stored)
        return stored

    def restore(self, checkpoint: Checkpoint, backend: RowStateBackend[Any]) -> None:
        for schema in checkpoint.snapshot.schemas:
            backend.restore_schema(schema)
        for run in checkpoint.ranges:
            data = self.data[run.segment.path][run.offset : run.offset + run.length_bytes]
            backend.restore(run.operator, run.name, data, range(KEY_GROUPS))

    def content(self, checkpoint: Checkpoint) -> Model:
        backend = HashMapStateBackend(KEY_GROUPS)
        self.restore(checkpoint, backend)
        return Stream(backend, {}).content()


BACKENDS = ("hashmap", "rocksdb")


def new_backend(kind: str, directory: Path, cached_bytes: int = 2**26) -> RowStateBackend[Any]:
    if kind == "hashmap":
        return HashMapStateBackend(KEY_GROUPS, incremental=True)
    limits = RocksDBSettings((str(directory),), memory_bytes=2**23, cached_bytes=cached_bytes)
    return RocksDBStateBackend(KEY_GROUPS, settings=limits, incremental=True)
