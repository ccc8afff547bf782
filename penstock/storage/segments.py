"""Reads and writes segments: the file of one slot and checkpoint. State and in-flight data are ranges in it, each with
a checksum.
"""

from __future__ import annotations

import zlib
from typing import Callable, NamedTuple, Protocol, Sequence

from penstock.protocol.values.metadata import Segment
from penstock.storage.compression import codec_of, compressed, decompressed
from penstock.storage.store import ObjectMissing, ObjectStore, ObjectWriter, RangeMissing, StoreError

COLLECTED_BYTES_MAX = 1024 * 1024
"""The most bytes that are collected; what has more is written while it is made."""


class Range(NamedTuple):
    offset: int
    length_bytes: int
    crc: int


class DamagedRange(StoreError):
    """Signals stored bytes that are missing or not what was written. `belongs_to` says what they are, in the caller's
    words: the rest of the checkpoint may be intact.
    """

    def __init__(self, path: str, offset: int, length_bytes: int, belongs_to: str, cause: str) -> None:
        super().__init__(f"{belongs_to} is damaged: {cause} (segment {path}, {length_bytes} bytes at {offset})")
        self.path = path
        self.offset = offset
        self.length_bytes = length_bytes
        self.belongs_to = belongs_to


class SegmentWriter:
    """Writes a segment, range by range. Small ranges are collected and written together at the end. From
    `collected_bytes_max` (COLLECTED_BYTES_MAX) on data goes to the store as it comes, so that no segment is ever in
    memory whole. `new_path` is called once there is something to write. Without a store nothing is written.
    """

    def __init__(
        self,
        store: ObjectStore | None,
        new_path: Callable[[], str],
        collected_bytes_max: int | None = None,
        codec: str = "none",
    ) -> None:
        self._store = store
        self._new_path = new_path
        self._codec = codec
        self._collected_bytes_max = COLLECTED_BYTES_MAX if collected_bytes_max is None else collected_bytes_max
        self._path = ""
        self._writer: ObjectWriter | None = None
        self._collected: list[memoryview] = []
        self._collected_bytes = 0
        self.length_bytes = 0

    def add(self, parts: Sequence[bytes | memoryview], *, borrowed: bool = False) -> Range:
        """Add one range made of these buffers (anything with the buffer protocol, Arrow buffers too), back to back.
        They must not change until the segment is finished, or, if `borrowed`, until this returns. Raises `StoreError`.
        """
        views = [memoryview(part).cast("B") for part in parts]
        if self._codec != "none" and self._store is not None:
            views = compressed(views, self._codec)
        offset = self.length_bytes
        crc = 0
        first = len(self._collected)
        for view in views:
            crc = zlib.crc32(view, crc)
            self._collected.append(view)
            self.length_bytes += view.nbytes
        self._collected_bytes += self.length_bytes - offset
        if self._collected_bytes >= self._collected_bytes_max:
            self._write_collected()
        elif borrowed:
            self._collected[first:] = [memoryview(bytes(view)) for view in self._collected[first:]]
        return Range(offset, self.length_bytes - offset, crc)

    def finish(self) -> Segment | None:
        """Finish the segment durably. None: there was nothing to write, or no store. Raises `StoreError`."""
        if not self.length_bytes or self._store is None:
            return None
        if self._writer is None:
            self._path = self._new_path()
            self._store.put(self._path, self._collected)
        else:
            self._write_collected()
            self._writer.finish()
        self._collected, self._writer = [], None
        return Segment(self._path, self.length_bytes)

    def abort(self) -> None:
        """Discard the segment, which is not wanted any more or could not be written; nothing of it stays."""
        self._collected = []
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()

    def _write_collected(self) -> None:
        if self._store is not None:
            if self._writer is None:
                self._path = self._new_path()
                self._writer = self._store.writer(self._path)
            self._writer.write(self._collected)
        self._collected, self._collected_bytes = [], 0


class RangeCopies(Protocol):
    def read(self, path: str, offset: int, length_bytes: int, crc: int) -> bytes | None:
        """Return the stored bytes of a range, whose checksum is right; None: there is no such copy."""


def read_range(
    store: ObjectStore,
    path: str,
    offset: int,
    length_bytes: int,
    crc: int,
    belongs_to: str,
    copies: RangeCopies | None = None,
) -> bytes:
    """Return the bytes of a range: of a copy, if `copies` has one, else of the store. Raises `DamagedRange` if they are
    not those that were written, and `StoreError` if the store does not answer, which says nothing about the bytes.
    """
    data = None if copies is None else copies.read(path, offset, length_bytes, crc)
    if data is None:
        data = _stored(store, path, offset, length_bytes, crc, belongs_to)
    codec = codec_of(path)
    if codec is None:
        return data
    try:
        return decompressed(data, codec)
    except ValueError as error:
        raise DamagedRange(path, offset, length_bytes, belongs_to, str(error)) from None


def _stored(store: ObjectStore, path: str, offset: int, length_bytes: int, crc: int, belongs_to: str) -> bytes:
    try:
        data = store.get(path, offset, length_bytes)
    except ObjectMissing:
        raise DamagedRange(path, offset, length_bytes, belongs_to, "the segment is missing") from None
    except RangeMissing as error:
        raise DamagedRange(path, offset, length_bytes, belongs_to, f"the segment is truncated, {error}") from None
    if zlib.crc32(data) != crc:
        raise DamagedRange(path, offset, length_bytes, belongs_to, "its checksum does not match its content")
    return data
