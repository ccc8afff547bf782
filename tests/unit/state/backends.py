"""Makes the backends of row functions that the conformance tests run against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.datastream.state import StateDescriptor
from penstock.state.backend import EncodedState, StoredState
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.state.rocksdb.rocksdb_backend import RocksDBStateBackend
from penstock.state.rocksdb.rocksdb_settings import RocksDBSettings
from penstock.state.row_backend import RowStateBackend

KEY_GROUPS = 8
NAMES = {"op": "Counter"}
KINDS = ("hashmap", "hashmap-incremental", "rocksdb", "rocksdb-incremental", "rocksdb-without-cache")


class Backends:
    """Makes backends of one kind, and ends them all at once."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.directory = directory
        self.now_ms = 1_000_000
        """The wall clock of all of them."""
        self._made: list[Any] = []

    def new(self, key_groups: int = KEY_GROUPS) -> RowStateBackend[Any]:
        backend = self._new(key_groups)
        self._made.append(backend)
        return backend

    def _new(self, key_groups: int) -> RowStateBackend[Any]:
        if self.kind.startswith("hashmap"):
            incremental = self.kind == "hashmap-incremental"
            return HashMapStateBackend(key_groups, NAMES, incremental=incremental, wall_ms=self._wall_ms)
        cached_bytes = 1 if self.kind == "rocksdb-without-cache" else 2**20
        settings = RocksDBSettings((str(self.directory),), memory_bytes=2**23, cached_bytes=cached_bytes)
        incremental = self.kind == "rocksdb-incremental"
        return RocksDBStateBackend(key_groups, NAMES, settings=settings, incremental=incremental, wall_ms=self._wall_ms)

    def _wall_ms(self) -> int:
        return self.now_ms

    def filled(self, descriptor: StateDescriptor, values: dict[Any, Any]) -> RowStateBackend[Any]:
        """Return a backend with a value per key; key i is in key group i % KEY_GROUPS."""
        backend = self.new()
        handle = backend.state("op", descriptor)
        for index, (key, value) in enumerate(values.items()):
            backend.set_current_key(key, index % KEY_GROUPS)
            handle.update(value)
            between_rows(backend)
        return backend

    def restored(self, states: list[EncodedState], key_groups: range = range(KEY_GROUPS)) -> RowStateBackend[Any]:
        return restored_into(self.new, states, key_groups)

    def close(self) -> None:
        for backend in self._made:
            backend.revoke()
        self._made.clear()


def between_rows(backend: RowStateBackend[Any]) -> None:
    backend.slices.settle()


def lasting(runs: Iterable[EncodedState | StoredState]) -> Iterator[EncodedState]:
    """Yield the encoded runs with bytes of their own: those of a backend are valid until the next one."""
    for run in runs:
        if isinstance(run, EncodedState):
            yield replace(run, parts=[b"".join(run.parts)])


def encoded(backend: RowStateBackend[Any]) -> list[EncodedState]:
    return list(lasting(backend.snapshot().encode()))


def restored_into(
    new: Callable[[], RowStateBackend[Any]], states: list[EncodedState], key_groups: range = range(KEY_GROUPS)
) -> RowStateBackend[Any]:
    backend = new()
    for state in states:
        backend.restore(state.operator, state.name, b"".join(state.parts), key_groups)
    return backend
