"""Recovered rows beyond some megabytes wait on the disk: restoring them needs no memory, and nothing else changes."""

from __future__ import annotations

import errno
import gc
import tempfile
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from penstock.common.types import Types
from penstock.graph.job_graph import Edge
from penstock.graph.logical import Partitioner, PartitionerKind
from penstock.operators import disk_batches
from penstock.operators.batches import as_batch, as_messages, wire_schema
from penstock.operators.disk_batches import BatchFile, DiskBatch
from penstock.protocol.channel.captured import CapturedRows
from penstock.protocol.values.elements import Watermark
from penstock.protocol.values.metadata import InflightRange, NumberedEvent
from penstock.runtime.input.layers import Layer, RecoveredRows
from penstock.runtime.input.recovered import RecoveredKeeper, filtered, number_after, read_elements

EDGE = Edge(0, "a-b-0-0", 0, 1, 0, Partitioner(PartitionerKind.REBALANCE), Types.LONG(), 1, 1)
SCHEMA = wire_schema(EDGE)
ROWS = 1_000


def message_of(piece: InflightRange) -> bytes:
    numbers = pa.array(range(piece.first, piece.first + piece.rows), pa.int64())
    return bytes(pa.RecordBatch.from_arrays([numbers], schema=SCHEMA).serialize())


def pieces_of(count: int) -> list[InflightRange]:
    return [InflightRange(at * ROWS, ROWS, 0, 0, 0, 0) for at in range(count)]


def rows_of(elements: list[Any]) -> list[Any]:
    found: list[Any] = []
    for element in elements:
        if isinstance(element, RecoveredRows):
            found += as_batch(element.payload, SCHEMA).column(0).to_pylist()
        else:
            found.append(element.event)
    return found


def test_rows_beyond_the_limit_are_written_and_come_back_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [NumberedEvent(2_500, Watermark(7))]
    pieces = [*pieces_of(2), InflightRange(2_000, 500, 0, 0, 0, 0), InflightRange(2_501, 500, 0, 0, 0, 0)]
    kept = RecoveredKeeper().keep(read_elements(message_of, EDGE, reversed(pieces), events, 10, 3_001))
    monkeypatch.setattr(disk_batches, "MEMORY_BYTES_MAX", 9_000)
    written = RecoveredKeeper().keep(read_elements(message_of, EDGE, reversed(pieces), events, 10, 3_001))
    assert [isinstance(e.payload, DiskBatch) for e in written if isinstance(e, RecoveredRows)] == [
        False, True, True, True,
    ]  # fmt: skip
    expected = [*range(10, 2_500), Watermark(7), *range(2_501, 3_001)]
    assert rows_of(kept) == rows_of(written) == expected
    assert number_after(kept) == 3_001


def test_what_belongs_to_others_is_left_out_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_batches, "MEMORY_BYTES_MAX", 0)
    found = read_elements(message_of, EDGE, pieces_of(3), [], 0, 3_000)
    kept = RecoveredKeeper().keep(filtered(found, lambda batch: batch.column(0).to_numpy() % 2 == 0))
    assert rows_of(kept) == list(range(0, 3_000, 2)) and number_after(kept) == 1_500


def peak_of(count: int) -> int:
    """Restore pieces, store them by a checkpoint while unread, then read them. Returns the bytes held at most."""
    pool = pa.default_memory_pool()
    gc.collect()
    tracemalloc.start()
    try:
        allocated, peak = pool.bytes_allocated(), 0
        elements = RecoveredKeeper().keep(read_elements(message_of, EDGE, pieces_of(count), [], 0, count * ROWS))
        layer = Layer("e", 0, 0, 0, 0, count * ROWS, elements)
        del elements
        stored = 0
        for _, rows, message in as_messages(layer.unread().rows, SCHEMA):
            stored += rows
            peak = max(peak, pool.bytes_allocated() - allocated)
            del message
        assert stored == count * ROWS
        while not layer.read:
            batch = as_batch(layer.head().payload, SCHEMA)  # type: ignore[union-attr]
            assert batch.column(0)[0].as_py() == layer.applied
            layer.apply_rows(batch.num_rows)
            peak = max(peak, pool.bytes_allocated() - allocated)
        return peak + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_depend_on_how_much_was_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold never more than a few ranges of 32 MB of rows at once."""
    monkeypatch.setattr(disk_batches, "MEMORY_BYTES_MAX", 1 << 20)
    peak_of(10)  # imports
    peak = peak_of(4_000)
    assert peak < 16 << 20, f"{peak / 1e6:.0f} MB for 32 MB of rows"


def test_captured_batches_are_joined_up_to_a_size_that_a_restore_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = as_batch(message_of(pieces_of(1)[0]), SCHEMA)
    captured = [CapturedRows(at * ROWS, ROWS, 0, batch) for at in range(2_000)]
    sizes = [len(memoryview(message).cast("B")) for _, _, message in as_messages(captured, SCHEMA)]
    assert len(sizes) == 4 and max(sizes) < 5 << 20


def test_a_full_disk_is_told_with_the_folder_and_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(OSError, match=f"cannot be kept in {tempfile.gettempdir()}.*No space left.*TMPDIR"):
        BatchFile()
