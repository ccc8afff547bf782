"""Seals small files, whose content is checked as a whole: a first line that identifies it, then the body.

    penstock <kind> version=<n> length=<bytes of the body> crc=<8 hex digits>

The CRC-32 covers the whole file but its own digits, so that no flipped bit goes unseen, in the first line neither;
the length tells a truncated file from a damaged one. The body is for people, too: JSON.
"""

from __future__ import annotations

import re
import zlib

from penstock.storage.store import StoreError

_FIRST_LINE = re.compile(rb"penstock ([a-z-]+) version=(\d+) length=(\d+) crc=([0-9a-f]{8})\n")


class DamagedObject(StoreError):
    """Signals that an object is not what was written: truncated, with flipped bits, or something else altogether."""


class NewerFormat(StoreError):
    """Signals that an object was written by a version of Penstock whose format this one does not know."""


def seal(kind: str, version: int, body: bytes) -> bytes:
    start = f"penstock {kind} version={version} length={len(body)} crc=".encode("ascii")
    return b"%b%08x\n%b" % (start, zlib.crc32(body, zlib.crc32(start)), body)


def unseal(kind: str, version_max: int, data: bytes, name: str) -> bytes:
    """Return the body. `name` is what messages call the object. Raises `DamagedObject` and `NewerFormat`."""
    match = _FIRST_LINE.match(data)
    if not match or match[1] != kind.encode("ascii"):
        raise DamagedObject(
            f"{name} is damaged: it does not start with the first line of a {kind} file ({data[:40]!r} …)"
        )
    body = data[match.end() :]
    length = int(match[3])
    if len(body) < length:
        raise DamagedObject(f"{name} is damaged: it is truncated, {len(body)} of {length} bytes are there")
    if zlib.crc32(body, zlib.crc32(data[: match.start(4)])) != int(match[4], 16):
        raise DamagedObject(f"{name} is damaged: its checksum does not match its content")
    if int(match[2]) > version_max:
        raise NewerFormat(
            f"{name} has format version {int(match[2])}, this Penstock knows up to {version_max}: "
            "use the version that wrote it, or a newer one"
        )
    return body
