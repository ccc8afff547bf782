"""Stores the ranges of segments compressed (`execution.checkpointing.snapshot-compression`).

A segment's name ends with the codec of its ranges, as that of a compressed file does. Each range of such a segment
begins with a byte (0: the rest is as it was, because compressing it saved nothing; 1: compressed) and the length of
what was compressed, 8 bytes. Checksums are those of the stored bytes, so damage is found before anything is decoded.
"""

from __future__ import annotations

import struct
from typing import Any, Sequence

CODECS = ("lz4", "zstd")
_HEADER = struct.Struct("<BQ")
_PLAIN, _COMPRESSED = 0, 1
_ZSTD_LEVEL = 1


def with_codec(path: str, codec: str) -> str:
    """Return the name of a segment whose ranges are compressed by `codec`; "none": the name as it is."""
    return path if codec == "none" else f"{path}.{codec}"


def codec_of(path: str) -> str | None:
    """Return the codec of a segment's ranges, from its name."""
    suffix = path.rpartition(".")[2]
    return suffix if suffix in CODECS else None


def compressed(parts: Sequence[memoryview], codec: str) -> list[memoryview]:
    """Return the stored form of a range."""
    whole = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
    small = memoryview(_codec(codec).compress(whole)).cast("B")
    kind, data = (_COMPRESSED, small) if small.nbytes < whole.nbytes else (_PLAIN, whole)
    return [memoryview(_HEADER.pack(kind, whole.nbytes)), data]


def decompressed(data: bytes, codec: str) -> bytes:
    """Return a range as it was. `data` is what was stored. Raises ValueError if that was never compressed by us."""
    if len(data) < _HEADER.size:
        raise ValueError("it is shorter than the header of a compressed range")
    kind, length_bytes = _HEADER.unpack_from(data)
    rest = memoryview(data)[_HEADER.size :]
    if kind == _PLAIN and rest.nbytes == length_bytes:
        return bytes(rest)
    if kind != _COMPRESSED:
        raise ValueError("it does not begin with the header of a compressed range")
    try:
        return bytes(_codec(codec).decompress(rest, length_bytes, asbytes=True))
    except OSError as error:
        raise ValueError(f"{codec} cannot decode it: {error}") from None


def _codec(name: str) -> Any:
    import pyarrow as pa  # imported here: commands that only look at logs do without

    return pa.Codec(name, _ZSTD_LEVEL) if name == "zstd" else pa.Codec(name)
