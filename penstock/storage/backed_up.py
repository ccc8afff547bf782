"""Writes segments to checkpoint storage, and copies of them to the local disk."""

from __future__ import annotations

import builtins
from typing import Sequence

from penstock.storage.local_backup import Copy, LocalBackup
from penstock.storage.store import ObjectStore, ObjectWriter


class BackedUpStore:
    """Implements `ObjectStore`: what is written to `store` is copied to `backup`, too. Raises what `store` raises."""

    def __init__(self, store: ObjectStore, backup: LocalBackup) -> None:
        self._store = store
        self._backup = backup
        self.create = store.create
        self.get = store.get
        self.size = store.size
        self.delete = store.delete
        self.delete_all = store.delete_all
        self.remove_if_empty = store.remove_if_empty
        self.sweep_temporary = store.sweep_temporary

    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        self._store.put(path, parts)
        copy = self._backup.new_copy(path)
        copy.write(parts)
        copy.finish()

    def writer(self, path: str) -> ObjectWriter:
        return _CopyingWriter(self._store.writer(path), self._backup.new_copy(path))

    def list(self, prefix: str) -> list[str]:
        return self._store.list(prefix)

    def folders(self, prefix: str, with_links: bool = True) -> builtins.list[str]:
        return self._store.folders(prefix, with_links)


class _CopyingWriter:
    def __init__(self, stored: ObjectWriter, copy: Copy) -> None:
        self._stored = stored
        self._copy = copy

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        self._stored.write(parts)
        self._copy.write(parts)

    def finish(self) -> None:
        self._stored.finish()
        self._copy.finish()

    def abort(self) -> None:
        self._copy.abort()
        self._stored.abort()
