"""Keeps batches on the local disk until they are needed: a restore may hand over more rows than memory holds."""

from __future__ import annotations

import os
import tempfile
import threading

MEMORY_BYTES_MAX = 16 * 1024 * 1024
"""The most bytes of recovered rows in a subtask's memory; the rest goes to a file."""


class DiskBatch:
    """Represents an Arrow IPC message in a file of batches, which exists as long as one of its batches."""

    __slots__ = ("_file", "_offset", "_length_bytes")

    def __init__(self, file: BatchFile, offset: int, length_bytes: int) -> None:
        self._file = file
        self._offset = offset
        self._length_bytes = length_bytes

    def read(self) -> bytes:
        """Return the message. Any thread may ask."""
        return self._file.read(self._offset, self._length_bytes)


class BatchFile:
    """Appends messages to a temporary file without a name, which ends with the process, and reads them again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end = 0
        try:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  its last batch closes it
        except OSError as error:
            raise _no_room(error) from error

    def append(self, message: bytes | memoryview) -> DiskBatch:
        """Write a message. Raises OSError, with the folder and the way out, where the disk is full."""
        view = memoryview(message).cast("B")
        with self._lock:
            offset = self._end
            try:
                written = 0
                while written < view.nbytes:
                    written += self._file.write(view[written:])
            except OSError as error:
                raise _no_room(error) from error
            self._end += view.nbytes
        return DiskBatch(self, offset, view.nbytes)

    def read(self, offset: int, length_bytes: int) -> bytes:
        data = os.pread(self._file.fileno(), length_bytes, offset)
        if len(data) != length_bytes:
            raise OSError(f"a file of batches in {tempfile.gettempdir()} was cut: {len(data)} of {length_bytes} bytes")
        return data


def _no_room(error: OSError) -> OSError:
    folder = tempfile.gettempdir()
    return OSError(
        f"rows that were in flight cannot be kept in {folder}: {error}; make room there, or name another folder in the "
        "environment variable TMPDIR of the executors"
    )
