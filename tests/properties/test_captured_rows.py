"""Tests the way from captured rows to stored messages and back, whatever the rows came as: batches by reference,
messages as they were received, parts of either; with events in between. And what a restore makes of the pieces."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.types import Types
from penstock.graph.job_graph import Edge
from penstock.graph.logical import Partitioner, PartitionerKind
from penstock.operators.batches import as_batch, as_messages, compact
from penstock.protocol.channel.captured import Captured
from penstock.protocol.values.elements import ChannelId, Watermark
from penstock.protocol.values.frames import Data, Event
from penstock.protocol.values.metadata import InflightRange, NumberedEvent
from penstock.runtime.input.layers import Layer, RecoveredEvent
from penstock.runtime.input.recovered import read_elements
from penstock.storage.memory import MemoryStore
from penstock.storage.segments import SegmentWriter, read_range

CHANNEL = ChannelId(0, 0, 0)
TYPE = Types.TUPLE([Types.LONG(), Types.STRING()])


def row(number: int) -> tuple[int, str]:
    return number, "x" * (number % 5)


def batch_of(numbers: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(TYPE.encode([row(n) for n in numbers]), schema=TYPE.schema)


def payload_of(numbers: range, kind: str) -> Any:
    if kind == "slice of a larger batch":
        return batch_of(range(numbers.start, numbers.stop + 3)).slice(0, len(numbers))
    batch = batch_of(numbers)
    if kind == "batch":
        return batch
    message = batch.serialize()
    return bytearray(message) if kind == "received in parts" else bytes(message)


KINDS = st.sampled_from(["batch", "slice of a larger batch", "received", "received in parts"])
CHUNKS = st.lists(st.one_of(st.none(), st.tuples(st.integers(1, 12), KINDS)), max_size=12)
"""None is an event."""


def capture(chunks: list[tuple[int, str] | None], start: int, until: int) -> tuple[Captured, dict[int, Any], int]:
    """Return what a window [start, until) holds of them, what it should hold by number, and how many elements there
    are."""
    captured, at = Captured(), 0
    truth: dict[int, Any] = {}
    for chunk in chunks:
        if chunk is None:
            element: Data | Event = Event(CHANNEL, at, Watermark(at))
            truth[at] = Watermark(at)
            rows = 1
        else:
            rows, kind = chunk
            numbers = range(at, at + rows)
            element = Data(CHANNEL, at, rows, 100, payload_of(numbers, kind))
            truth.update({n: row(n) for n in numbers})
        captured.add(element, start, until)
        at += rows
    return captured, {n: v for n, v in truth.items() if start <= n < until}, at


@given(CHUNKS, st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=120, deadline=None)
def test_stored_messages_hold_exactly_what_was_captured(chunks: Any, start: int, length: int) -> None:
    captured, truth, _ = capture(chunks, start, start + length)
    found: dict[int, Any] = dict(captured.events)
    for first, rows, message in as_messages(captured.rows, TYPE.schema):
        decoded = TYPE.decode(as_batch(memoryview(message), TYPE.schema))
        assert len(decoded) == rows
        for n, value in enumerate(decoded, first):
            assert n not in found, "stored twice"
            found[n] = value
    assert found == truth


@given(st.lists(st.tuples(st.integers(1, 12), KINDS), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_messages_that_were_received_whole_are_stored_as_they_are_and_the_rest_is_joined(chunks: Any) -> None:
    captured, _, _ = capture(chunks, 0, 1_000)
    messages = [message for _, _, message in as_messages(captured.rows, TYPE.schema)]
    received = [r.payload for r in captured.rows if not isinstance(r.payload, pa.RecordBatch)]
    assert [m for m in messages if any(m is r for r in received)] == received
    by_reference = [isinstance(r.payload, pa.RecordBatch) for r in captured.rows]
    runs = sum(here and not before for here, before in zip(by_reference, [False, *by_reference]))
    assert len(messages) == len(received) + runs


def stored(
    chunks: Any, start: int, until: int
) -> tuple[MemoryStore, list[InflightRange], list[NumberedEvent], dict[int, Any]]:
    captured, truth, _ = capture(chunks, start, until)
    store, pieces = MemoryStore(), []
    segment = SegmentWriter(store, lambda: "shared/segment")
    for first, rows, message in as_messages(captured.rows, TYPE.schema):
        offset, length_bytes, crc = segment.add([message])
        pieces.append(InflightRange(first, rows, 0, offset, length_bytes, crc))
    segment.finish()
    return store, pieces, [NumberedEvent(n, e) for n, e in captured.events], truth


@given(st.data(), CHUNKS)
@settings(max_examples=80, deadline=None)
def test_a_restore_reads_back_the_interval_and_trims_the_rest(data: st.DataObject, chunks: Any) -> None:
    store, pieces, events, truth = stored(chunks, 0, 1_000)
    first = data.draw(st.integers(0, len(truth)))
    end = data.draw(st.integers(first, len(truth)))
    edge = Edge(0, "a-b-0-0", 0, 1, 0, Partitioner(PartitionerKind.FORWARD), TYPE, 1, 1)
    order = data.draw(st.permutations(pieces))

    def read(piece: InflightRange) -> bytes:
        return read_range(store, "shared/segment", piece.offset, piece.length_bytes, piece.crc, "rows in flight")

    elements = list(read_elements(read, edge, order, events, first, end))
    layer = Layer("a-b-0-0", 0, 0, 0, first, end, elements)
    found: list[Any] = []
    while not layer.read:
        assert layer.applied == first + len(found)
        head = layer.head()
        if isinstance(head, RecoveredEvent):
            found.append(layer.apply_event())
            continue
        rows = data.draw(st.integers(1, head.rows - layer.head_skip))
        found += TYPE.decode(head.payload)[layer.head_skip : layer.head_skip + rows]
        layer.apply_rows(rows)
        unread = layer.unread()
        assert sum(r.rows for r in unread.rows) + len(unread.events) == end - layer.applied
    assert found == [truth[n] for n in range(first, end)]


@given(st.integers(1, 2_000), st.integers(0, 2_000), st.integers(1, 2_000))
@settings(max_examples=40, deadline=None)
def test_a_small_slice_that_waits_holds_little_more_than_its_own(rows: int, start: int, length: int) -> None:
    parent = batch_of(range(rows))
    piece = parent.slice(min(start, rows - 1), length)
    kept, _ = compact(piece, parent.nbytes)
    assert kept.equals(piece)
    assert kept.get_total_buffer_size() <= 16 * piece.nbytes + 2_048
