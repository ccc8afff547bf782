"""Implements a state backend that names what earlier checkpoints have stored, as one with files of its own would do.

Each checkpoint consists of a range per state and key group. Where the predecessor has the same bytes, the range is not
written again. A backend that keeps sorted files does so with each file that it has not merged since.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.limits import USUAL, Limits
from penstock.common.typeinfo import KEY_GROUP_COLUMN
from penstock.state.backend import EncodedState, StoredState
from penstock.state.codecs import read_stream, write_stream
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.state.heap.hash_map_snapshot import HashMapSnapshot
from penstock.state.ttl import WallClock, system_wall_ms

_Content = tuple[str, str, int, int]
"""(operator, state, length in bytes, checksum)"""
_Stored = Mapping[_Content, StoredState]


class NamingBackend(HashMapStateBackend):
    """Keeps state as objects, and remembers where the ranges of its checkpoints lie."""

    def __init__(
        self,
        max_parallelism: int,
        operator_names: Mapping[str, str] | None = None,
        *,
        wall_ms: WallClock = system_wall_ms,
        limits: Limits = USUAL,
    ) -> None:
        super().__init__(max_parallelism, operator_names, wall_ms=wall_ms, limits=limits)
        self._key_groups = range(max_parallelism)
        self._stored: dict[int, _Stored] = {}

    def snapshot(self, checkpoint_id: int = 0, predecessor_id: int | None = None) -> NamingSnapshot:
        predecessor: _Stored = {}
        if predecessor_id is not None:
            predecessor = self._stored.get(predecessor_id, {})
            for older in [number for number in self._stored if number < predecessor_id]:
                del self._stored[older]
        return NamingSnapshot(super().snapshot(), self, checkpoint_id, predecessor, self._key_groups)

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        self.note_stored(checkpoint_id, stored)

    def note_stored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        self._stored[checkpoint_id] = {(s.operator, s.name, s.length_bytes, s.crc): s for s in stored}


class NamingSnapshot(HashMapSnapshot):
    """Holds a view of the state, and the runs that its predecessor has stored."""

    def __init__(
        self,
        inner: HashMapSnapshot,
        backend: NamingBackend,
        checkpoint_id: int,
        predecessor: _Stored,
        key_groups: range,
    ) -> None:
        self.schemas = inner.schemas
        self.expected_bytes = inner.expected_bytes
        self.discard = inner.discard  # type: ignore[method-assign]
        self._inner = inner
        self._backend = backend
        self._checkpoint_id = checkpoint_id
        self._predecessor = predecessor
        self._key_groups = key_groups

    def encode(self) -> Iterator[EncodedState | StoredState]:
        for run in self._inner.encode():
            assert isinstance(run, EncodedState)
            for entries, data in self._by_key_group(b"".join(run.parts)):
                stored = self._predecessor.get((run.operator, run.name, len(data), zlib.crc32(data)))
                yield EncodedState(run.operator, run.name, entries, [data]) if stored is None else stored

    def _by_key_group(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        run = read_stream(data, self._key_groups)
        table = pa.Table.from_batches(run.batches, run.schema)
        for key_group in pc.unique(table.column(KEY_GROUP_COLUMN)).to_pylist():
            rows = table.filter(pc.equal(table.column(KEY_GROUP_COLUMN), key_group)).combine_chunks()
            yield rows.num_rows, write_stream(run.schema, rows.to_batches())

    def on_stored(self, stored: list[StoredState]) -> None:
        self._backend.note_stored(self._checkpoint_id, stored)
