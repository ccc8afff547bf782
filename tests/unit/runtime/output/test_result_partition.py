"""Tests output queues: when rows leave, what waits for credit, and how barriers pass."""

from __future__ import annotations

from collections import deque
from typing import Any

import pyarrow as pa

from penstock.common.types import Types
from penstock.graph.job_graph import Edge
from penstock.graph.logical import Partitioner, PartitionerKind
from penstock.operators.batches import as_batch
from penstock.protocol.channel.ends import InputChannel
from penstock.protocol.channel.flow_control import BoundSizer
from penstock.protocol.subtask.cut import Cut
from penstock.protocol.subtask.drain_gate import DrainGate
from penstock.protocol.subtask.effects import (
    CloseCapture,
    FinishRow,
    OutputsSent,
    RowFinished,
    SendFrame,
    SendQueued,
    TimePassed,
)
from penstock.protocol.subtask.subtask_machine import SubtaskMachine
from penstock.protocol.values.elements import Barrier, ChannelId, EndOfData, Generation, SubtaskId
from penstock.protocol.values.frames import (
    FRAME_OVERHEAD_BYTES,
    JOINED_FLUSH_BYTES,
    AlignedBarrier,
    CancelBarrier,
    CreditWanted,
    Data,
    Event,
    Frame,
    UrgentBarrier,
)
from penstock.protocol.values.messages import CheckpointEnded, TriggerCheckpoint
from penstock.runtime.output.result_partition import ResultPartition
from penstock.runtime.output.routing import Routed, Router, create_router

TIMEOUT_MS = 100.0
QUEUE_BYTES = 100_000


class Outputs:
    """A partition of subtask 0 in slot 0, and what it sent."""

    def __init__(
        self,
        consumers: int = 1,
        kind: PartitionerKind = PartitionerKind.REBALANCE,
        credit_bytes: int = 1 << 30,
        buffer_timeout_ms: float = TIMEOUT_MS,
        has_input: bool = False,
    ) -> None:
        edge = Edge(0, "a-b-0-0", 0, 1, 0, Partitioner(kind), Types.LONG(), 1, consumers)
        self.sent: list[tuple[int, Frame]] = []
        self.now_ms = 0.0
        self.partition = ResultPartition(
            edge,
            0,
            create_router(edge, 0, 128, "op", 0),
            0,
            lambda slot, frame: self.sent.append((slot, frame)),
            BoundSizer(QUEUE_BYTES, QUEUE_BYTES, 0),
            [credit_bytes] * consumers,
            buffer_timeout_ms,
            lambda: self.now_ms,
        )
        self.input = InputChannel(ChannelId(1, 0, 0), 1 << 30)
        gate = DrainGate(SubtaskId(0, 0), Generation(1, 1), 0)
        self.machine = SubtaskMachine([self.input] if has_input else [], self.partition.channels, gate)

    def emit(self, rows: list[int], now_ms: float = 0.0) -> None:
        batch = pa.RecordBatch.from_arrays(Types.LONG().encode(rows), schema=Types.LONG().schema)
        self.partition.emit(batch, rows, now_ms, batch.nbytes)

    def handle(self, event: Any) -> list[Cut]:
        """Tell the subtask's machine of an event, and carry out what it decides. Return what is closed."""
        closed: list[Cut] = []
        waiting = deque(self.machine.handle(event, self.now_ms))
        while waiting:
            match waiting.popleft():
                case FinishRow():
                    self.partition.flush_held()
                    waiting.extend(self.machine.handle(RowFinished(), self.now_ms))
                case SendFrame(frame):
                    self.sent.append((frame.channel.consumer, frame))
                case SendQueued(position):
                    self.partition.send_queued(position)
                case CloseCapture(cut):
                    closed.append(cut)
        return closed

    def trigger(self, barrier: Barrier) -> list[Cut]:
        closed = self.handle(TriggerCheckpoint(Generation(1, 1), barrier))
        return [*closed, *self.handle(OutputsSent())]

    def taken(self) -> list[Any]:
        """Return what has been sent since the last look: rows as lists, other frames by the names of their classes, but
        for those that ask for credit."""
        found = []
        for slot, frame in self.sent:
            if isinstance(frame, Data):
                assert isinstance(frame.payload, pa.RecordBatch) == (slot == 0), "by reference in our own slot only"
                batch = as_batch(frame.payload, Types.LONG().schema)
                assert batch.num_rows == frame.rows
                found.append(batch.column(0).to_pylist())
            elif not isinstance(frame, CreditWanted):
                found.append(type(frame).__name__)
        self.sent.clear()
        return found


# ---- when rows leave ------------------------------------------------------------------------------------------------


def test_rows_wait_for_more_until_their_time() -> None:
    outputs = Outputs()
    outputs.emit([1], 10.0)
    outputs.emit([2, 3], 50.0)
    assert outputs.partition.flush(60.0, idle=False) == 110.0, "counted from the oldest"
    assert outputs.taken() == []
    assert outputs.partition.flush(110.0, idle=False) is None
    assert outputs.taken() == [[1, 2, 3]], "one frame"
    outputs.emit([4], 200.0)
    assert outputs.partition.flush(201.0, idle=False) == 300.0, "the clock starts anew"


def test_rows_leave_at_once_when_there_is_nothing_else_to_do_or_when_they_are_many() -> None:
    outputs = Outputs()
    outputs.emit([1])
    assert outputs.partition.flush(1.0, idle=True) is None
    assert outputs.taken() == [[1]]
    outputs.emit(list(range(JOINED_FLUSH_BYTES // 8)))
    assert outputs.partition.flush(1.0, idle=False) is None
    assert len(outputs.taken()) == 1


def test_each_channel_has_its_own_time() -> None:
    outputs = Outputs(2)
    outputs.emit([1], 0.0)
    outputs.emit([2], 40.0)
    assert outputs.partition.flush(50.0, idle=False) == 100.0
    assert outputs.partition.flush(100.0, idle=False) == 140.0
    assert outputs.taken() == [[1]]


def test_what_waits_for_credit_needs_no_timer() -> None:
    """A subtask would wake up for nothing; and with the buffer timeout off, in 30,000 years."""
    outputs = Outputs(credit_bytes=0)
    outputs.emit([1])
    assert outputs.partition.flush(10.0, idle=True) is None
    assert outputs.partition.flush(500.0, idle=False) is None
    never = Outputs(buffer_timeout_ms=1e15, credit_bytes=0)
    never.emit([1])
    assert never.partition.flush(10.0, idle=True) is None
    assert outputs.taken() == never.taken() == []


# ---- credit and room ------------------------------------------------------------------------------------------------


def test_a_queue_asks_once_for_the_credit_of_all_its_rows() -> None:
    outputs = Outputs(credit_bytes=0)
    outputs.emit([1])
    outputs.partition.flush(0.0, idle=True)
    outputs.emit([2])
    outputs.partition.flush(0.0, idle=True)
    (channel,) = outputs.partition.channels
    assert [frame for _, frame in outputs.sent] == [CreditWanted(channel.id, channel.queued_bytes // 2)]
    outputs.sent.clear()
    outputs.partition.grant(channel.id, channel.queued_bytes // 2)
    (frame,) = (frame for _, frame in outputs.sent)
    assert isinstance(frame, Data) and frame.wanted_bytes == 2 * frame.size_bytes, "the rest is wanted by the way"


def test_rows_wait_for_credit_and_leave_when_it_comes() -> None:
    outputs = Outputs(credit_bytes=1)
    for row in range(3):
        outputs.emit([row] * 4_096)  # 32 KB: a frame of its own
    outputs.partition.flush(0.0, idle=True)
    assert [len(rows) for rows in outputs.taken()] == [4_096], "one frame while any credit is left"
    channel = outputs.partition.channels[0]
    outputs.partition.grant(channel.id, channel.sent_bytes + 1)
    assert [len(rows) for rows in outputs.taken()] == [4_096]
    outputs.partition.grant(channel.id, channel.sent_bytes)
    assert outputs.taken() == []


def test_room_is_what_the_queues_do_not_hold_and_less_than_a_quarter_is_none() -> None:
    outputs = Outputs(consumers=2, credit_bytes=0)
    partition = outputs.partition
    assert partition.has_room and partition.room_bytes == QUEUE_BYTES
    outputs.emit(list(range(8_000)))
    expected = 2 * (4_000 * 8 + FRAME_OVERHEAD_BYTES)
    assert partition.queued_bytes == expected == sum(c.queued_bytes for c in partition.channels)
    assert partition.has_room
    outputs.emit(list(range(2_000)))
    assert not partition.has_room and partition.room_bytes > 0
    outputs.emit(list(range(10_000)))
    assert partition.room_bytes < 0, "a slice's output is queued in full"
    for channel in partition.channels:
        partition.grant(channel.id, 1 << 30)
    assert partition.queued_bytes == 0 and partition.has_room
    assert partition.bytes_out == sum(c.sent_bytes for c in partition.channels)


def test_small_parts_of_a_large_batch_do_not_keep_it() -> None:
    outputs = Outputs(consumers=50, credit_bytes=0)
    outputs.emit(list(range(50_000)))
    for channel in outputs.partition.channels:
        (waiting,) = channel.queue
        assert isinstance(waiting, Data) and waiting.payload.get_total_buffer_size() <= 4 * waiting.size_bytes


# ---- rows that the router holds -------------------------------------------------------------------------------------


class Holding(Router):
    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    @property
    def holds(self) -> bool:
        return bool(self.batches)

    def route(self, batch: pa.RecordBatch, rows: list[Any] | None) -> Routed:
        self.batches.append(batch)
        return []

    def flush_held(self) -> Routed:
        held, self.batches = self.batches, []
        return [(0, batch) for batch in held]


def holding() -> Outputs:
    outputs = Outputs()
    outputs.partition.router = Holding()
    return outputs


def test_held_rows_leave_when_their_time_comes_or_nothing_else_is_to_do() -> None:
    outputs = holding()
    outputs.emit([1], 10.0)
    outputs.emit([2], 50.0)
    assert outputs.partition.flush(60.0, idle=False) == 110.0 and outputs.taken() == []
    assert outputs.partition.flush(110.0, idle=False) is None and outputs.taken() == [[1, 2]]
    outputs.emit([3], 120.0)
    assert outputs.partition.flush(121.0, idle=True) is None and outputs.taken() == [[3]]


def test_held_rows_leave_before_an_event() -> None:
    outputs = holding()
    outputs.emit([1])
    outputs.partition.emit_event(EndOfData())
    assert outputs.taken() == [[1], "Event"]


def test_held_rows_are_emitted_before_the_cut() -> None:
    outputs = holding()
    outputs.emit([1, 2])
    assert outputs.partition.emitted == [0]
    (closed,) = outputs.trigger(Barrier(1, None))
    assert list(closed.emitted.values()) == [2]
    assert outputs.taken() == [[1, 2], "AlignedBarrier"]


# ---- events and barriers --------------------------------------------------------------------------------------------


def test_an_event_takes_the_rows_before_it_along() -> None:
    outputs = Outputs(2)
    outputs.emit([1])
    outputs.partition.emit_event(EndOfData())
    assert outputs.taken() == [[1], "Event", "Event"]


def test_an_event_waits_behind_rows_without_credit() -> None:
    outputs = Outputs(credit_bytes=0)
    outputs.emit([1])
    outputs.partition.emit_event(EndOfData())
    assert outputs.taken() == []
    outputs.partition.grant(outputs.partition.channels[0].id, 1 << 20)
    assert outputs.taken() == [[1], "Event"]


def test_an_aligned_barrier_leaves_at_once_with_the_rows_before_it() -> None:
    outputs = Outputs(2)
    outputs.emit([1, 2])
    (closed,) = outputs.trigger(Barrier(1, None))
    assert outputs.taken() == [[1], "AlignedBarrier", [2], "AlignedBarrier"]
    assert closed.outputs == {}


def test_an_aligned_barrier_grows_older_while_it_waits_for_credit() -> None:
    """[Else the alignment timeout starts again at every vertex whose output queue is full.]"""
    outputs = Outputs(credit_bytes=0)
    outputs.now_ms = 1_000.0
    outputs.emit([1, 2])
    outputs.trigger(Barrier(1, 100, age_ms=30.0))
    outputs.now_ms = 1_050.0
    outputs.partition.grant(outputs.partition.channels[0].id, 1 << 20)
    barrier = outputs.sent[-1][1]
    assert isinstance(barrier, AlignedBarrier) and barrier.barrier.age_ms == 80.0


def test_an_aligned_barrier_behind_rows_without_credit_turns_when_its_time_is_up() -> None:
    outputs = Outputs(2, credit_bytes=0)
    outputs.emit([1, 2, 3, 4])
    assert outputs.trigger(Barrier(1, 100)) == []
    outputs.emit([5, 6])
    assert outputs.machine.deadline_ms == 100.0
    outputs.now_ms = 100.0
    (closed,) = outputs.handle(TimePassed())
    assert {to.consumer: [(r.first, r.rows) for r in c.rows] for to, c in closed.outputs.items()} == {
        0: [(0, 2)],
        1: [(0, 2)],
    }
    frames = [frame for _, frame in outputs.sent if not isinstance(frame, CreditWanted)]
    assert all(isinstance(f, UrgentBarrier) and (f.emitted, f.handed) == (2, 0) for f in frames) and len(frames) == 2
    assert outputs.machine.deadline_ms is None and outputs.handle(TimePassed()) == []


def test_an_urgent_barrier_goes_to_everybody_at_once() -> None:
    outputs = Outputs(3, PartitionerKind.BROADCAST, credit_bytes=0)
    outputs.emit([1, 2])
    (closed,) = outputs.trigger(Barrier(4, 0))
    assert [channel.consumer for channel in closed.outputs] == [0, 1, 2] and set(closed.emitted.values()) == {2}
    assert outputs.taken() == ["UrgentBarrier"] * 3


def test_a_purely_aligned_barrier_that_is_overtaken_is_cancelled_where_it_waits() -> None:
    outputs = Outputs(2, credit_bytes=0)
    outputs.emit([1])
    assert len(outputs.trigger(Barrier(1, None))) == 1
    assert outputs.taken() == ["AlignedBarrier"], "nothing waits before it on the second channel"
    (closed,) = outputs.trigger(Barrier(2, 0))
    assert [channel.consumer for channel in closed.outputs] == [0], "nothing is in flight on the second channel"
    assert outputs.taken() == ["CancelBarrier", "UrgentBarrier", "UrgentBarrier"]


def test_a_barrier_of_a_checkpoint_that_is_over_leaves_the_queue() -> None:
    outputs = Outputs(credit_bytes=0)
    outputs.emit([1])
    outputs.trigger(Barrier(1, 100))
    outputs.handle(CheckpointEnded(Generation(1, 1), 1, True))
    assert not outputs.partition.channels[0].holds_barrier(1)
    assert outputs.taken() == []


def test_a_declined_checkpoint_is_cancelled_at_every_consumer() -> None:
    outputs = Outputs(2, has_input=True)
    outputs.handle(CancelBarrier(outputs.input.id, 2))
    assert [(slot, frame.channel.consumer) for slot, frame in outputs.sent] == [(0, 0), (1, 1)]
    assert outputs.taken() == ["CancelBarrier", "CancelBarrier"]


def test_frames_are_what_their_channels_say() -> None:
    outputs = Outputs(2)
    outputs.emit([1, 2])
    outputs.trigger(Barrier(1, None))
    for slot, frame in outputs.sent:
        assert isinstance(frame, (Data, Event, AlignedBarrier))
        assert (frame.channel.producer, frame.channel.consumer) == (0, slot)
