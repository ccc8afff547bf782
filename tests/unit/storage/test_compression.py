"""Tests compressed segments: what is stored of a range, what is read of it, and what damage is called."""

from __future__ import annotations

import os
import zlib

import pytest

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions, OptionError
from penstock.protocol.values.elements import Generation
from penstock.storage.compression import CODECS, codec_of
from penstock.storage.layout import SegmentName, is_savepoint_segment, parse, savepoint_segment_path, segment_path
from penstock.storage.memory import MemoryStore
from penstock.storage.segments import DamagedRange, Range, SegmentWriter, read_range

PATH = "shared/g0-0_inc_s0_c4_rnd"
COMPRESSIBLE, RANDOM = b"the same again, " * 5000, os.urandom(4000)


def read(store: MemoryStore, path: str, found: Range) -> bytes:
    return read_range(store, path, found.offset, found.length_bytes, found.crc, "state of 'counts'")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("collected_bytes_max", [1, 10**9])
def test_ranges_are_read_as_they_were(codec: str, collected_bytes_max: int) -> None:
    store, path = MemoryStore(), f"{PATH}.{codec}"
    writer = SegmentWriter(store, lambda: path, collected_bytes_max, codec)
    borrowed = bytearray(RANDOM)
    ranges = [
        writer.add([COMPRESSIBLE[:7], memoryview(COMPRESSIBLE)[7:]]),
        writer.add([memoryview(borrowed)], borrowed=True),
        writer.add([]),
        writer.add([b"x"]),
    ]
    borrowed[:] = bytes(len(borrowed))
    segment = writer.finish()
    assert segment is not None and segment.path == path and segment.length_bytes == store.size(path)
    assert [read(store, path, found) for found in ranges] == [COMPRESSIBLE, RANDOM, b"", b"x"]
    assert ranges[0].length_bytes < len(COMPRESSIBLE) / 50
    assert ranges[1].length_bytes <= len(RANDOM) + 16, "what does not get smaller is stored as it is"


def test_what_is_not_compressed_is_stored_as_before() -> None:
    store = MemoryStore()
    writer = SegmentWriter(store, lambda: PATH)
    found = writer.add([COMPRESSIBLE])
    writer.finish()
    assert store.get(PATH) == COMPRESSIBLE and read(store, PATH, found) == COMPRESSIBLE


@pytest.mark.parametrize("codec", CODECS)
def test_a_range_that_was_written_otherwise_is_named(codec: str) -> None:
    """Names a range whose checksum is right, but which is nothing that we have compressed."""
    for data in (b"short", b"\7" + bytes(30), b"\0" + bytes(30), b"\1" + (99).to_bytes(8, "little") + b"no frame"):
        store, path = MemoryStore(), f"{PATH}.{codec}"
        store.create(path, data)
        with pytest.raises(DamagedRange, match="state of 'counts' is damaged: .*segment shared/g0"):
            read(store, path, Range(0, len(data), zlib.crc32(data)))


def test_a_flipped_bit_is_found_before_anything_is_decoded() -> None:
    store, path = MemoryStore(), f"{PATH}.zstd"
    writer = SegmentWriter(store, lambda: path, codec="zstd")
    found = writer.add([COMPRESSIBLE])
    writer.finish()
    data = bytearray(store.get(path))
    data[20] ^= 1
    store.delete(path)
    store.create(path, bytes(data))
    with pytest.raises(DamagedRange, match="its checksum does not match"):
        read(store, path, found)


def test_names_say_how_ranges_are_compressed() -> None:
    generation = Generation(3, 1)
    for codec in ("none", *CODECS):
        path = segment_path(generation, "inc", 0, 4, "rnd", codec)
        assert parse(path) == SegmentName(generation, "inc", 0, 4, "rnd", codec)
        assert codec_of(path) == (None if codec == "none" else codec)
        assert is_savepoint_segment(savepoint_segment_path(0, 4, "rnd", codec))
    assert parse(f"{PATH}.gz") is None and not is_savepoint_segment("s0_c4_rnd.gz")


def test_the_option_takes_codecs_and_flinks_booleans() -> None:
    option = CheckpointingOptions.SNAPSHOT_COMPRESSION
    for text, codec in (("true", "lz4"), ("false", "none"), ("ZSTD", "zstd"), ("lz4", "lz4")):
        assert Configuration({option.key: text}).get(option) == codec
    assert Configuration().get(option) == "none"
    with pytest.raises(OptionError, match="none, lz4, zstd"):
        Configuration({option.key: "snappy"}).get(option)
