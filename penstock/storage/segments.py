"""A segment: the file of one slot and checkpoint. State and in-flight data are ranges in it, each with a checksum."""

from __future__ import annotations

import zlib
from typing import NamedTuple, Sequence

from penstock.protocol.snapshot import Segment
from penstock.storage.store import ObjectMissing, ObjectStore, RangeMissing, StoreError


class Range(NamedTuple):
    offset: int
    length_bytes: int
    crc: int


class DamagedRange(StoreError):
    """Stored bytes that are missing or not what was written. `belongs_to` says what they are, in the caller's words:
    the rest of the checkpoint may be sound."""

    def __init__(self, path: str, offset: int, length_bytes: int, belongs_to: str, cause: str) -> None:
        super().__init__(f"{belongs_to} is damaged: {cause} (segment {path}, {length_bytes} bytes at {offset})")
        self.path = path
        self.offset = offset
        self.length_bytes = length_bytes
        self.belongs_to = belongs_to


class SegmentBuilder:
    """Collects what goes into a segment, by reference: parts must not change until it is written."""

    def __init__(self) -> None:
        self.parts: list[memoryview] = []
        self.length_bytes = 0

    def add(self, parts: Sequence[bytes | memoryview]) -> Range:
        """One range out of these buffers (anything with the buffer protocol, Arrow buffers too), back to back."""
        offset = self.length_bytes
        crc = 0
        for part in parts:
            view = memoryview(part).cast("B")
            crc = zlib.crc32(view, crc)
            self.parts.append(view)
            self.length_bytes += view.nbytes
        return Range(offset, self.length_bytes - offset, crc)

    def write(self, store: ObjectStore, path: str) -> Segment:
        """Puts the segment; durable when it returns. Raises `StoreError`."""
        store.put(path, self.parts)
        return Segment(path, self.length_bytes)


def read_range(
    store: ObjectStore, path: str, offset: int, length_bytes: int, crc: int, belongs_to: str
) -> bytes:
    """The bytes of a range. Raises `DamagedRange` where they are not those that were written, and `StoreError` where
    the store does not answer, which says nothing about the bytes."""
    try:
        data = store.get(path, offset, length_bytes)
    except ObjectMissing:
        raise DamagedRange(path, offset, length_bytes, belongs_to, "the segment is missing") from None
    except RangeMissing as error:
        raise DamagedRange(path, offset, length_bytes, belongs_to, f"the segment is truncated, {error}") from None
    if zlib.crc32(data) != crc:
        raise DamagedRange(path, offset, length_bytes, belongs_to, "its checksum does not match its content")
    return data
