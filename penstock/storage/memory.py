"""Implements a store in the memory of one process: it ends with that process."""

from __future__ import annotations

import builtins
import threading
from typing import Sequence

from penstock.storage.store import (
    TEMPORARY_GRACE_S,
    CollectingWriter,
    ObjectExists,
    ObjectMissing,
    ObjectWriter,
    RangeMissing,
    StoreError,
    checked,
    delete_each,
)


class MemoryStore:
    """Holds at most `bytes_max` bytes in all its objects together (None: no limit). Thread-safe."""

    def __init__(self, bytes_max: int | None = None) -> None:
        self._bytes_max = bytes_max
        self._objects: dict[str, bytes] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def used_bytes(self) -> int:
        return self._bytes

    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        self.create(path, b"".join(parts))

    def writer(self, path: str) -> ObjectWriter:
        return CollectingWriter(path, self.put)

    def create(self, path: str, data: bytes) -> None:
        checked(path)
        data = bytes(data)
        with self._lock:
            if path in self._objects:
                raise ObjectExists(f"{path} exists already")
            if self._bytes_max is not None and self._bytes + len(data) > self._bytes_max:
                raise StoreError(
                    f"cannot write {path} ({len(data)} bytes): checkpoint storage in memory holds {self._bytes} of at "
                    f"most {self._bytes_max} bytes; store checkpoints in files instead "
                    "(execution.checkpointing.dir), or retain fewer of them"
                )
            self._objects[path] = data
            self._bytes += len(data)

    def get(self, path: str, offset: int = 0, length_bytes: int | None = None) -> bytes:
        data = self._object(path)
        if length_bytes is None:
            length_bytes = max(0, len(data) - offset)
        if offset + length_bytes > len(data):
            raise RangeMissing(f"{path} has {len(data)} bytes, and not those at {offset}..{offset + length_bytes}")
        return data[offset : offset + length_bytes]

    def size(self, path: str) -> int:
        return len(self._object(path))

    def list(self, prefix: str) -> builtins.list[str]:
        with self._lock:
            return sorted(path for path in self._objects if not prefix or path.startswith(f"{prefix}/"))

    def folders(self, prefix: str, with_links: bool = True) -> builtins.list[str]:
        start = f"{prefix}/" if prefix else ""
        below = (path.removeprefix(start).partition("/") for path in self.list(prefix))
        return sorted({name for name, slash, _ in below if slash})

    def delete(self, path: str) -> None:
        with self._lock:
            self._bytes -= len(self._objects.pop(path, b""))

    def delete_all(self, paths: Sequence[str]) -> None:
        delete_each(self.delete, paths)

    def remove_if_empty(self) -> None:
        """Do nothing: memory has no directory."""

    def sweep_temporary(self, grace_s: float = TEMPORARY_GRACE_S) -> None:
        """Do nothing: an object in memory is there whole or not at all."""

    def _object(self, path: str) -> bytes:
        data = self._objects.get(path)
        if data is None:
            raise ObjectMissing(f"{path} does not exist in memory")
        return data
