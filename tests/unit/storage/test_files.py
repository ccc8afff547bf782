"""Tests segments, metadata, log and paths: what is written is read back, and nothing else passes for it."""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.values.elements import EndOfData, Generation, Watermark
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.values.metadata import (
    ChannelCapture,
    Committable,
    EdgeShape,
    EnumeratorState,
    InflightRange,
    InputCut,
    Metadata,
    NumberedEvent,
    OperatorPart,
    OutputCut,
    RunBounds,
    Segment,
    StateRange,
    StateSchema,
    SubtaskSnapshot,
    VertexShape,
)
from penstock.storage.layout import (
    LogName,
    MetadataName,
    SegmentName,
    log_path,
    metadata_path,
    parse,
    segment_path,
)
from penstock.storage.local import LocalStore
from penstock.storage.log import Entry, append, log_length, newest_checkpoint, read_entry, read_log
from penstock.storage.memory import MemoryStore
from penstock.storage.metadata_file import decode_metadata, encode_metadata, metadata_crc, read_metadata
from penstock.storage.sealed import DamagedObject, NewerFormat, seal, unseal
from penstock.storage.segments import DamagedRange, SegmentWriter, read_range
from penstock.storage.store import ObjectMissing, StoreError

PIECE = InflightRange(first=3, rows=2, segment=0, offset=0, length_bytes=10, crc=7)
METADATA = Metadata(
    format_version=1,
    job_id="j",
    job_name="flights ✈",
    checkpoint_id=12,
    fence=0,
    counter=2,
    incarnation="ab12",
    trigger_wall_ms=1,
    draining=False,
    vertices=[VertexShape(0, "source", ["u"], ["Source"], 2, 128)],
    edges=[EdgeShape("u-v-0-0", 0, 1, "hash", False)],
    segments=[Segment("shared/x", 100)],
    subtasks=[
        SubtaskSnapshot(
            vertex=0,
            subtask=1,
            inputs=[InputCut("e", [1, 2], [ChannelCapture(0, [PIECE], [NumberedEvent(5, Watermark(9))])])],
            outputs=[OutputCut("e", [1], [ChannelCapture(0, [], [NumberedEvent(5, EndOfData())])])],
            layers=[],
            keyed=[
                StateRange("u", "count", 0, 10, 20, 7, 3),
                StateRange("u", "sorted", 0, 30, 20, 7, 3, RunBounds(1, 5, b"\x00\x01\xff", b"\x00\x05")),
            ],
            schemas=[StateSchema("u", "count", "value", "LONG")],
            parts=[OperatorPart("u", "splits", [b"\x00\xff"])],
            committables=[Committable("u", b"\x80")],
        )
    ],
    enumerators=[EnumeratorState("u", b"{}")],
    unconfirmed_commits=[],
)


def checkpoint(sequence: int, checkpoint_id: int = 1) -> CheckpointEntry:
    path = metadata_path(checkpoint_id)
    return CheckpointEntry(sequence, "ab12", 0, 1, checkpoint_id, path, 7, [path])


def test_metadata_comes_back_and_is_readable() -> None:
    data = encode_metadata(METADATA)
    assert decode_metadata(data, "chk-12/_metadata") == METADATA
    first, _, body = data.partition(b"\n")
    assert first.startswith(b"penstock checkpoint version=1 ")
    assert msgspec.json.decode(body)["job_name"] == "flights ✈"


@given(st.data())
def test_no_flipped_bit_in_metadata_goes_unseen(data: st.DataObject) -> None:
    encoded = bytearray(encode_metadata(METADATA))
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedObject, match="chk-12/_metadata is damaged"):
        decode_metadata(bytes(encoded), "chk-12/_metadata")


@given(st.data())
def test_truncated_metadata_is_refused_by_name(data: st.DataObject) -> None:
    encoded = encode_metadata(METADATA)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(DamagedObject, match="chk-12/_metadata is damaged"):
        decode_metadata(encoded[:cut], "chk-12/_metadata")
    with pytest.raises(DamagedObject, match="truncated, 5 of"):
        decode_metadata(encoded[: encoded.index(b"\n") + 6], "chk-12/_metadata")


def test_a_newer_format_is_refused_by_version() -> None:
    newer = seal("checkpoint", 7, b'{"shape": "of the future"}')
    with pytest.raises(NewerFormat, match="chk-12/_metadata has format version 7, this Penstock knows up to 1"):
        decode_metadata(newer, "chk-12/_metadata")


def test_sealed_nonsense_and_other_kinds_are_refused() -> None:
    with pytest.raises(DamagedObject, match="not the metadata of a checkpoint.*format_version"):
        decode_metadata(seal("checkpoint", 1, b"{}"), "x")
    with pytest.raises(DamagedObject, match="first line of a checkpoint file"):
        decode_metadata(seal("log-entry", 1, b"{}"), "x")
    assert unseal("log-entry", 1, seal("log-entry", 1, b""), "x") == b""


def test_metadata_other_than_the_log_names_is_refused() -> None:
    store = MemoryStore()
    data = encode_metadata(METADATA)
    store.create("chk-12/_metadata", data)
    assert read_metadata(store, "chk-12/_metadata", metadata_crc(data)) == METADATA
    with pytest.raises(DamagedObject, match="not the metadata that the job's log names"):
        read_metadata(store, "chk-12/_metadata", metadata_crc(data) ^ 1)


@pytest.mark.parametrize("collected_bytes_max", [1, 100, 1_000_000])
def test_ranges_of_a_segment_come_back(collected_bytes_max: int) -> None:
    store = MemoryStore()
    batch = pa.record_batch({"x": [1, 2, 3]}).serialize()
    writer = SegmentWriter(store, lambda: "shared/s", collected_bytes_max)
    first = writer.add([b"state", memoryview(batch)])
    empty = writer.add([])
    second = writer.add([b"in-", memoryview(b"flight")])
    segment = writer.finish()
    assert segment == Segment("shared/s", store.size("shared/s"))
    assert writer.length_bytes == segment.length_bytes
    assert read_range(store, "shared/s", *first, "state") == b"state" + batch.to_pybytes()
    assert read_range(store, "shared/s", *empty, "nothing") == b""
    assert read_range(store, "shared/s", *second, "rows") == b"in-flight"
    assert second.crc == zlib.crc32(b"in-flight")


@pytest.mark.parametrize("collected_bytes_max", [1, 10, 1_000_000])
def test_a_borrowed_buffer_may_change_once_it_was_added(collected_bytes_max: int) -> None:
    store = MemoryStore()
    writer = SegmentWriter(store, lambda: "shared/s", collected_bytes_max)
    memory = bytearray(4)
    ranges = []
    for n in range(5):
        memory[:] = bytes([n]) * 4
        ranges.append(writer.add([memoryview(memory)], borrowed=True))
    writer.finish()
    for n, found in enumerate(ranges):
        assert read_range(store, "shared/s", *found, "state") == bytes([n]) * 4


def test_a_large_segment_is_never_held_whole(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    writer = SegmentWriter(store, lambda: "shared/s", 1000)
    for n in range(10):
        writer.add([bytes([n]) * 700])
        assert store.size("shared/s") > 700 * (n - 1) if n else store.list("") == []
    writer.abort()
    assert store.list("") == []


def test_nothing_is_written_without_a_store_or_content() -> None:
    store = MemoryStore()
    assert SegmentWriter(store, lambda: "shared/s").finish() is None
    nowhere = SegmentWriter(None, lambda: "shared/s", 1)
    assert nowhere.add([b"state"]).length_bytes == 5
    assert nowhere.finish() is None and store.list("") == []


@pytest.mark.parametrize(
    ("stored", "cause"),
    [
        (b"0123456789", None),
        (b"0123456689", "checksum"),
        (b"012345678", "truncated"),
        (None, "missing"),
    ],
)
def test_a_damaged_range_is_named_with_what_it_belongs_to(stored: bytes | None, cause: str | None) -> None:
    store = MemoryStore()
    if stored is not None:
        store.put("shared/s", [stored])
    expected = zlib.crc32(b"56789")
    if cause is None:
        assert read_range(store, "shared/s", 5, 5, expected, "state 'count'") == b"56789"
        return
    with pytest.raises(DamagedRange, match=f"state 'count' is damaged: .*{cause}.*shared/s, 5 bytes at 5") as caught:
        read_range(store, "shared/s", 5, 5, expected, "state 'count'")
    assert (caught.value.path, caught.value.offset, caught.value.belongs_to) == ("shared/s", 5, "state 'count'")


class DeafStore(MemoryStore):
    def get(self, path: str, offset: int = 0, length_bytes: int | None = None) -> bytes:
        raise StoreError("no answer within 30 s")


def test_a_store_that_does_not_answer_says_nothing_about_the_range() -> None:
    with pytest.raises(StoreError, match="no answer") as caught:
        read_range(DeafStore(), "shared/s", 0, 1, 0, "state")
    assert not isinstance(caught.value, DamagedRange)


def test_the_log_is_read_in_order_from_any_position() -> None:
    store = MemoryStore()
    entries: list[Entry] = [Fence(0, "ab12", 5, "host", 77), checkpoint(1, 1), checkpoint(2, 3)]
    entries.append(Ended(3, "ab12", "FINISHED", []))
    assert read_log(store) == [] and log_length(store) == 0 and newest_checkpoint(store, 0) is None
    for entry in entries:
        assert append(store, entry) == entry
    assert read_log(store) == entries
    assert read_log(store, 2) == entries[2:]
    assert log_length(store) == 4
    assert newest_checkpoint(store, 4) == entries[2]
    assert newest_checkpoint(store, 2) == entries[1]
    assert newest_checkpoint(store, 1) is None
    assert store.list("log")[3] == "log/00000000000000000003"
    with pytest.raises(ObjectMissing):
        read_entry(store, 4)


def test_whoever_loses_a_position_gets_the_entry_that_holds_it() -> None:
    store = MemoryStore()
    ours, theirs = Fence(0, "ours", 1, "h", 1), Fence(0, "theirs", 1, "h", 2)
    assert append(store, theirs) == theirs
    assert append(store, ours) == theirs
    assert append(store, theirs) == theirs, "a repeated try finds its own entry"


def test_a_hole_in_the_log_and_a_renamed_entry_are_named() -> None:
    store = MemoryStore()
    for sequence in range(3):
        append(store, checkpoint(sequence))
    store.delete(log_path(1))
    with pytest.raises(DamagedObject, match="00000000000000000001 is missing"):
        log_length(store)
    store.create(log_path(1), store.get(log_path(2)))
    with pytest.raises(DamagedObject, match=r"00000000000000000001 holds the entry of position 2"):
        read_log(store)


class StaleListing(MemoryStore):
    def list(self, prefix: str) -> list[str]:
        return super().list(prefix)[:1]


def test_a_listing_that_lags_does_not_shorten_the_log() -> None:
    store = StaleListing()
    for sequence in range(4):
        append(store, checkpoint(sequence))
    assert log_length(store) == 4


words = st.text("0123456789abcdefXYZ", min_size=1, max_size=8)
numbers = st.integers(0, 10**9)


@given(numbers, numbers, words, numbers, numbers, words)
def test_paths_say_who_wrote_them(
    fence: int, counter: int, incarnation: str, slot: int, checkpoint_id: int, random: str
) -> None:
    path = segment_path(Generation(fence, counter), incarnation, slot, checkpoint_id, random)
    assert path.startswith("shared/")
    assert parse(path) == SegmentName(Generation(fence, counter), incarnation, slot, checkpoint_id, random)
    assert parse(metadata_path(checkpoint_id)) == MetadataName(checkpoint_id)
    assert parse(log_path(slot)) == LogName(slot)


@pytest.mark.parametrize("path", ["shared/x", "chk-1/other", "chk-x/_metadata", "log/1", "x", "chk-1/_metadata.tmp"])
def test_what_is_not_ours_is_nothing(path: str) -> None:
    assert parse(path) is None


def test_words_that_would_break_a_name_are_refused() -> None:
    with pytest.raises(ValueError, match="'a_b'"):
        segment_path(Generation(0, 1), "a_b", 0, 1, "r")
