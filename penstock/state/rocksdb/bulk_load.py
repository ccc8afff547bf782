"""Fills a state's stretch of the database with what is restored: sorted entries as files, others as batches.

Runs of RocksDB are sorted. Their entries are written to a file of RocksDB's own, which the database takes over as it
is. That costs a fourth of the time of batches, which RocksDB sorts in memory, writes to files and merges.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from operator import lt
from typing import Any

from penstock.state.rocksdb.database import Batch, Database

_FILE_BYTES = 32 * 1024 * 1024
_FILE_ENTRIES_MIN = 4096
"""The least number of entries that are worth a file."""
_ENTRIES_AT_ONCE = 1024
"""The number of entries that are written before another thread may get the interpreter's lock."""


class BulkLoad:
    """Restores the entries of one state. `name`: the beginning of its file names, unique in the database's directory.
    Call `finish` at the end. Raises `StateError` if the disk is full, or fails.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self._files = 0
        self._file: SortedFile | None = None
        self._end = b""
        """The last key, in their order, of those that were restored or deleted."""
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        """With `_keys`: sorted entries behind all others, too few for a file yet."""

    def put(self, keys: list[bytes], values: list[bytes]) -> None:
        """Restore entries that override those that were restored before."""
        if not keys:
            return
        if keys[0] > self._end and is_sorted(keys):
            self._end = keys[-1]
            self._append(keys, values)
        else:
            self.finish()
            self._end = max(self._end, max(keys))
            self._database.write(Batch(keys, values, []))

    def delete(self, keys: list[bytes]) -> None:
        """Delete entries that were restored before."""
        self.finish()
        self._end = max(self._end, max(keys))
        self._database.write(Batch([], [], keys))

    def finish(self) -> None:
        """Hand the entries restored so far over to the database."""
        if self._file is not None:
            self._file.add(self._keys, self._values)
            self._file.finish()
            self._file.ingest()
            self._file = None
        elif self._keys:
            self._database.write(Batch(self._keys, self._values, []))
        self._keys, self._values = [], []

    def _append(self, keys: list[bytes], values: list[bytes]) -> None:
        self._keys += keys
        self._values += values
        if len(self._keys) < _FILE_ENTRIES_MIN:
            return
        if self._file is None:
            self._files += 1
            self._file = SortedFile(self._database, f"{self._name}-{self._files}")
        self._file.add(self._keys, self._values)
        self._keys, self._values = [], []
        if self._file.size_bytes >= _FILE_BYTES:
            self.finish()


class SortedFile:
    """Writes one file of sorted entries, which the database takes over. `name`: unique in its directory."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._path = str(database.directory.path / name)
        try:
            self._file: Any = database.sorted_file(self._path)
        except Exception as error:
            raise self._failure(error) from error

    @property
    def size_bytes(self) -> int:
        size_bytes: int = self._file.file_size()
        return size_bytes

    def add(self, keys: list[bytes], values: list[bytes]) -> None:
        """Add entries behind those that it has."""
        put = self._file.__setitem__
        try:
            for at in range(0, len(keys), _ENTRIES_AT_ONCE):
                end = at + _ENTRIES_AT_ONCE
                deque(map(put, islice(keys, at, end), islice(values, at, end)), maxlen=0)
        except Exception as error:
            raise self._failure(error) from error

    def finish(self) -> None:
        """End the file."""
        try:
            self._file.finish()
        except Exception as error:
            raise self._failure(error) from error

    def ingest(self) -> None:
        """Hand the entries of the finished file over to the database, all at once. They override older ones."""
        try:
            self._database.ingest(self._path)
        except Exception as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        return self._database.failed("cannot take what is being restored", error)


def is_sorted(keys: list[bytes]) -> bool:
    """Return whether each key is behind the one before."""
    return all(map(lt, keys, islice(keys, 1, None)))
