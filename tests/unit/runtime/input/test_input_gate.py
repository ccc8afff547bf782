"""Tests the gate: whose turn it is, layers first, barriers in their place, and what is kept alive."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pyarrow as pa
import pytest

from penstock.common.types import Types
from penstock.graph.job_graph import Edge
from penstock.graph.logical import Partitioner, PartitionerKind
from penstock.protocol.channel.ends import ProtocolError
from penstock.protocol.channel.flow_control import BoundSizer
from penstock.protocol.subtask.effects import BarrierReached
from penstock.protocol.values.elements import Barrier, EndOfData, Watermark
from penstock.protocol.values.frames import AlignedBarrier, Data, Event
from penstock.runtime.input.input_gate import GateEvent, GateLayerRead, InputGate, OpenBatch
from penstock.runtime.input.layers import Layer, RecoveredEvent, RecoveredRows

WINDOW = 1 << 20


def edge(producers: int, kind: PartitionerKind = PartitionerKind.REBALANCE) -> Edge:
    return Edge(0, "a-b-0-0", 0, 1, 0, Partitioner(kind), Types.LONG(), producers, 1)


def gate_of(producers: int, window_bytes: int = WINDOW) -> InputGate:
    return InputGate([edge(producers)], 0, BoundSizer(window_bytes, window_bytes, 0), lambda slot, frame: None)


def batch_of(rows: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(Types.LONG().encode(rows), schema=Types.LONG().schema)


def put(gate: InputGate, channel: int, rows: list[int], size_bytes: int = 0) -> None:
    into = gate.channels[channel]
    into.receive(Data(into.id, into.received, len(rows), size_bytes or len(rows) * 8, batch_of(rows)))


def barrier(gate: InputGate, channel: int, checkpoint_id: int) -> None:
    into = gate.channels[channel]
    into.receive_barrier(AlignedBarrier(into.id, into.received, Barrier(checkpoint_id, None)))


def take(gate: InputGate, rows_max: int = 1 << 30) -> list[int] | GateEvent | GateLayerRead | BarrierReached | None:
    found = gate.poll()
    if isinstance(found, OpenBatch):
        rows = min(rows_max, found.remaining)
        taken = found.rows[found.start : found.start + rows]
        gate.applied(found, rows)
        return taken
    return found


def take_all(gate: InputGate, rows_max: int = 1 << 30) -> list[Any]:
    return list(iter(lambda: take(gate, rows_max), None))


def test_a_batch_stays_the_next_one_until_it_is_applied() -> None:
    gate = gate_of(1)
    put(gate, 0, [1, 2, 3, 4, 5])
    assert take(gate, 2) == [1, 2]
    opened = gate.poll()
    assert isinstance(opened, OpenBatch) and (opened.start, opened.remaining) == (2, 3)
    assert gate.poll() is opened, "decoded once, however often it is looked at"
    assert take(gate, 3) == [3, 4, 5]
    assert gate.poll() is None
    assert gate.channels[0].applied == 5


def test_elements_and_barriers_of_a_channel_come_in_their_order() -> None:
    gate = gate_of(1)
    put(gate, 0, [1])
    barrier(gate, 0, 7)
    into = gate.channels[0]
    into.receive(Event(into.id, 1, Watermark(5)))
    put(gate, 0, [2])
    found = take_all(gate)
    assert found[0] == [1] and found[1].barrier.checkpoint_id == 7
    assert found[2] == GateEvent(0, Watermark(5), recovered=False)
    assert found[3] == [2]


def test_a_blocked_channel_is_passed_over() -> None:
    gate = gate_of(3)
    for channel in range(3):
        put(gate, channel, [channel])
    gate.channels[0].blocked_by.add(1)
    assert sorted(take_all(gate)) == [[1], [2]]
    gate.channels[0].blocked_by.clear()
    assert take_all(gate) == [[0]]


def served(gate: InputGate, slices: int, rows_max: int) -> list[int]:
    """Rows taken from each channel; a channel's rows all have its index as value."""
    counts = [0] * len(gate.channels)
    for _ in range(slices):
        taken = take(gate, rows_max)
        assert isinstance(taken, list)
        counts[taken[0]] += len(taken)
    return counts


def test_channels_take_turns_by_bytes_not_by_batches() -> None:
    """Channel 0 has batches of 100 large rows, channel 1 of 1 small one."""
    gate = gate_of(2)
    for _ in range(60):
        put(gate, 0, [0] * 100, size_bytes=100_000)
    for _ in range(4_000):
        put(gate, 1, [1], size_bytes=1_000)
    bytes_of = [1_000 * n for n in served(gate, 2_000, 10)]
    assert abs(bytes_of[0] - bytes_of[1]) <= 2 * 32 * 1024 + 10_000, bytes_of


def test_who_was_alone_for_long_owes_nothing_to_who_comes_later() -> None:
    """Channel 0 used what nobody wanted. Once channel 1 has rows, too, both have the same share from the first."""
    gate = gate_of(2)
    for _ in range(600):
        put(gate, 0, [0] * 10, size_bytes=10_000)
    assert served(gate, 400, 10) == [4_000, 0]
    for _ in range(400):
        put(gate, 1, [1] * 10, size_bytes=10_000)
    counts = served(gate, 100, 10)
    assert abs(counts[0] - counts[1]) <= 70, counts


def test_a_row_larger_than_a_turn_neither_starves_nor_reigns() -> None:
    gate = gate_of(3)
    for _ in range(40):
        put(gate, 0, [0], size_bytes=1_000_000)
    for channel in (1, 2):
        for _ in range(4_000):
            put(gate, channel, [channel], size_bytes=10_000)
    counts = served(gate, 1_000, 1)
    assert abs(counts[1] - counts[2]) <= 8, counts
    assert abs(counts[0] * 100 - counts[1]) <= 110, counts


def test_all_channels_are_served_when_there_are_many() -> None:
    gate = gate_of(50)
    for channel in range(50):
        for _ in range(20):
            put(gate, channel, [channel] * 5, size_bytes=5_000)
    counts = served(gate, 500, 5)
    assert min(counts) >= 30 and max(counts) <= 70, counts


# ---- layers -----------------------------------------------------------------------------------------------------


def layer(channel: int, gate: InputGate, first: int, elements: list[Any]) -> Layer:
    return Layer("a-b-0-0", channel, 0, channel, first, first + 100, elements)


def test_layers_come_before_anything_live_and_in_their_order() -> None:
    gate = gate_of(2)
    put(gate, 0, [100])
    barrier(gate, 1, 1)
    gate.layers.append(layer(1, gate, 40, [RecoveredRows(40, 3, batch_of([1, 2, 3])), RecoveredEvent(43, EndOfData())]))
    gate.layers.append(layer(0, gate, 7, [RecoveredRows(7, 2, batch_of([4, 5]))]))
    assert take(gate, 2) == [1, 2]
    unread = gate.layers[0].unread()
    assert [(r.first, r.rows, r.skip) for r in unread.rows] == [(42, 1, 2)]
    assert unread.events == [(43, EndOfData())]
    found = take_all(gate)
    assert found[:3] == [[3], GateEvent(1, EndOfData(), recovered=True), [4, 5]]
    assert [100] in found[3:] and any(isinstance(f, BarrierReached) for f in found[3:])
    assert not gate.layers
    assert gate.channels[0].applied == 1, "recovered rows have no numbers in this generation"


def test_an_open_layer_is_not_mistaken_for_the_next_one() -> None:
    gate = gate_of(1)
    parts = [RecoveredRows(0, 2, batch_of([1, 2])), RecoveredRows(2, 2, batch_of([3, 4]))]
    gate.layers.append(layer(0, gate, 0, parts))
    assert take_all(gate, rows_max=1) == [[1], [2], [3], [4]]


def test_a_virtual_channel_says_when_its_layer_is_read() -> None:
    gate = gate_of(1)
    elements: list[RecoveredRows | RecoveredEvent] = [
        RecoveredRows(0, 2, batch_of([1, 2])),
        RecoveredEvent(2, EndOfData()),
    ]
    gate.layers.append(Layer("a-b-0-0", 0, 0, 0, 0, 3, elements, virtual=7))
    found = take_all(gate)
    assert found == [[1, 2], GateEvent(0, EndOfData(), recovered=True, virtual=7), GateLayerRead(7)]


def test_a_held_subtask_takes_barriers_past_layers_but_not_past_live_rows() -> None:
    gate = gate_of(2)
    gate.layers.append(layer(0, gate, 0, [RecoveredRows(0, 2, batch_of([1, 2]))]))
    put(gate, 0, [100])
    barrier(gate, 0, 1)
    barrier(gate, 1, 1)
    assert gate.poll_barrier() is None
    found = gate.poll_barrier(past_layers=True)
    assert found is not None and found.channel == 1
    assert gate.poll_barrier(past_layers=True) is None


# ---- what is wrong, and what is kept ----------------------------------------------------------------------------


def test_a_frame_whose_batch_has_another_number_of_rows_is_an_error_by_channel() -> None:
    gate = gate_of(2)
    into = gate.channels[1]
    into.receive(Data(into.id, 0, 3, 24, batch_of([1, 2])))
    with pytest.raises(ProtocolError, match=r"producer=1.*a frame of 3 rows holds a batch of 2"):
        take_all(gate)


def test_nothing_of_a_batch_is_kept_once_it_is_applied() -> None:
    gate = gate_of(2)
    put(gate, 0, [1, 2, 3])
    opened = gate.poll()
    assert isinstance(opened, OpenBatch)
    taken = weakref.ref(opened.batch)
    gate.applied(opened, 3)
    del opened
    gc.collect()
    assert taken() is None, "the gate holds on to a batch that is through"
    gate.layers.append(layer(0, gate, 0, [RecoveredRows(0, 1, batch_of([1])), RecoveredEvent(1, EndOfData())]))
    opened = gate.poll()
    assert isinstance(opened, OpenBatch)
    taken = weakref.ref(opened.batch)
    gate.applied(opened, 1)
    del opened
    gc.collect()
    assert taken() is None


# ---- windows ----------------------------------------------------------------------------------------------------


def test_windows_are_even_shares_and_follow_what_is_consumed() -> None:
    gate = InputGate([edge(4)], 0, BoundSizer(8_192, 400_000, 10), lambda slot, frame: None)
    assert [c.window_bytes for c in gate.channels] == [1_024] * 4
    gate.resize(0.0)
    for now_ms in range(10, 100, 10):
        put(gate, 0, [0], size_bytes=90_000)
        take(gate)
        gate.resize(float(now_ms))
    assert [c.window_bytes for c in gate.channels] == [90_000 // 8] * 4
    for now_ms in range(100, 1_000, 10):
        gate.resize(float(now_ms))
    assert [c.window_bytes for c in gate.channels] == [1_024] * 4
