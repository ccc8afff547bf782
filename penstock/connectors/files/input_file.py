"""Opens files that are read: of a file system, or objects of a store, which are read in ranges, ahead of the reader."""

from __future__ import annotations

import contextlib
import functools
import io
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.base import MalformedRecord, SourceError
from penstock.storage.location import is_local, remote_location
from penstock.storage.opening import open_store
from penstock.storage.store import BrowsableStore, Found, StoreError
from penstock.storage.store_settings import DEFAULT_SETTINGS, StoreSettings

_RANGE_BYTES = 8 << 20
_FIRST_RANGE_BYTES = 256 << 10


@dataclass(frozen=True)
class InputFile:
    """Names a file: `path` is a path, or the URI of an object. `settings` say how stores are reached."""

    path: str
    settings: StoreSettings = DEFAULT_SETTINGS

    @property
    def is_local(self) -> bool:
        """Return True if the file is one of a file system."""
        return is_local(self.path)

    def size(self) -> int:
        """Return the size in bytes. Raises `OSError`, or `SourceError` where the file is in a store."""
        return os.path.getsize(self.path) if self.is_local else self.stat().size_bytes

    def stat(self) -> Found:
        """Describe an object. Raises `SourceError`."""
        store, name = self._stored()
        with reading(self.path):
            return store.stat(name)

    def open(self) -> pa.NativeFile:
        """Open the file for reading. Raises `OSError`, or `SourceError` where the file is in a store."""
        if self.is_local:
            # Not mapped into memory: if the disk cannot read a page of a mapped file, the process is killed.
            return pa.OSFile(self.path)
        store, name = self._stored()
        return pa.PythonFile(_ObjectReader(store, name, self.path, self.stat().size_bytes), "r")

    def _stored(self) -> tuple[BrowsableStore, str]:
        location = remote_location(self.path)
        assert location is not None
        with reading(self.path):
            return _store_at(location.root, self.settings), location.path


@functools.lru_cache(maxsize=8)
def _store_at(root: str, settings: StoreSettings) -> BrowsableStore:
    """Return the store of a bucket or a name node: its connections serve all its files."""
    return open_store(root, settings)


@contextlib.contextmanager
def reading(place: str) -> Iterator[None]:
    """Turn an error of a store into a `SourceError`.

    Args:
        place: What is read.

    Yields:
        Nothing: a context manager.

    Raises:
        SourceError: The body raised such an error, or the name is none of an object.
    """
    try:
        yield
    except StoreError as error:
        raise SourceError(str(error)) from error
    except ValueError as error:
        raise SourceError(f"{place} cannot be read: {error}") from error


def fault_of(error: BaseException) -> type[SourceError]:
    """Return the error to raise for one of reading: damaged data stays damaged, a disk or a network may recover.

    Args:
        error: The error of Arrow, or of the system, whose errors have a number.

    Returns:
        `MalformedRecord`, or `SourceError`, after which the job restarts.
    """
    is_of_system = isinstance(error, OSError) and error.errno is not None
    is_of_system = is_of_system or isinstance(error, ConnectionError | TimeoutError | MemoryError)
    return SourceError if is_of_system else MalformedRecord


class _ObjectReader(io.RawIOBase):
    """Reads an object in ranges. What is read from front to back is asked for one range ahead."""

    def __init__(self, store: BrowsableStore, name: str, path: str, size: int) -> None:
        super().__init__()
        self._store = store
        self._name = name
        self._path = path
        self._size = size
        self._at = 0
        self._range = (0, b"")
        """The range that is held: its offset, and its bytes."""
        self._ahead: tuple[int, Future[bytes]] | None = None
        self._pool = ThreadPoolExecutor(1, "file source")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        parts = []
        while self._at < end:
            start, data = self._range
            if not start <= self._at < start + len(data):
                self._range = start, data = self._next_range(end)
            part = data[self._at - start : end - start]
            parts.append(part)
            self._at += len(part)
        return b"".join(parts)

    def _next_range(self, end: int) -> tuple[int, bytes]:
        """Return the range at the position. What follows on the last one is asked for in larger ranges."""
        at, (last, data) = self._at, self._range
        ahead, self._ahead = self._ahead, None
        follows = bool(data) and at == last + len(data)
        if ahead is not None and ahead[0] == at:
            found = ahead[1].result()
        else:
            wanted = _RANGE_BYTES if follows else max(_FIRST_RANGE_BYTES, end - at)
            found = self._get(at, min(wanted, self._size - at))
        behind = at + len(found)
        if follows and behind < self._size:
            self._ahead = behind, self._pool.submit(self._get, behind, min(_RANGE_BYTES, self._size - behind))
        return at, found

    def _get(self, offset: int, length_bytes: int) -> bytes:
        with reading(self._path):
            return self._store.get(self._name, offset, length_bytes)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()
