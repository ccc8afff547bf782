"""Drives a `SubtaskMachine` without a runtime: it applies rows, puts them out, and carries out effects.

Nothing is decided here. Every row that is applied goes on to one of the outputs. What runs it says what arrives and
when; frames to send pile up in `sent`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.protocol.channel.captured import Captured
from penstock.protocol.channel.ends import InputChannel, OutputChannel
from penstock.protocol.subtask.barrier_handler import AlignmentState
from penstock.protocol.subtask.cut import Cut
from penstock.protocol.subtask.drain_gate import DrainGate
from penstock.protocol.subtask.effects import (
    BarrierReached,
    CloseCapture,
    Decline,
    DropCapture,
    Effect,
    FinishRow,
    LocalEvent,
    OutputsSent,
    RowFinished,
    SendFrame,
    SendQueued,
    TakeSnapshot,
    TimePassed,
    WindowsClosed,
)
from penstock.protocol.subtask.subtask_machine import Received, SubtaskMachine
from penstock.protocol.values.elements import Barrier, ChannelId, Generation, SubtaskId
from penstock.protocol.values.frames import AlignedBarrier, CreditLimit, CreditWanted, Data, Event, Frame
from penstock.protocol.values.messages import CheckpointEnded, TriggerCheckpoint

ROW_BYTES = 1_000
GENERATION = Generation(1, 1)


def rows_of(captured: Captured) -> list[tuple[int, Any]]:
    """(number, row) of captured rows."""
    return [(first + i, payload[skip + i]) for first, rows, skip, payload in captured.rows for i in range(rows)]


@dataclass
class Part:
    """One subtask's part of one checkpoint, by channel."""

    barrier: Barrier
    unaligned: bool
    applied: dict[ChannelId, int]
    emitted: dict[ChannelId, int]
    captured: dict[ChannelId, list[tuple[int, Any]]]
    alignment_ms: float


@dataclass
class SetClock:
    now_ms: float = 0.0


@dataclass
class DrivenSubtask:
    """`is_in_a_row`: a function is in the middle of a row's output, and a snapshot has to wait until `finish_row`."""

    input_ids: list[ChannelId]
    output_ids: list[ChannelId]
    clock: SetClock
    window_bytes: int = 1 << 30
    is_in_a_row: bool = False
    sent: deque[Frame] = field(default_factory=deque)
    log: list[str] = field(default_factory=list)
    taken: dict[int, Cut] = field(default_factory=dict)
    acknowledged: dict[int, Part] = field(default_factory=dict)
    declined: dict[int, str] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.inputs = [InputChannel(c, self.window_bytes) for c in self.input_ids]
        self.outputs = [OutputChannel(c, self.window_bytes) for c in self.output_ids]
        self.machine = SubtaskMachine(self.inputs, self.outputs, DrainGate(SubtaskId(0, 0), GENERATION, 0))
        self._input = {c.id: c for c in self.inputs}
        self._output = {c.id: c for c in self.outputs}
        self._next_output = 0

    # ---- rows ---------------------------------------------------------------------------------------------------

    def emit(self, row: Any) -> None:
        if self.outputs:
            self.outputs[self._next_output].enqueue_rows(1, ROW_BYTES, [row])
            self._next_output = (self._next_output + 1) % len(self.outputs)

    def pop(self, output: int) -> bool:
        """Send one frame of a queue. Return False if there is none that may leave."""
        frame = self.outputs[output].pop(self.clock.now_ms)
        if frame is None:
            return False
        if isinstance(frame, Data):
            rows = [row for payload in frame.payload for row in payload]
            frame = Data(frame.channel, frame.first, frame.rows, frame.size_bytes, rows)
        self.sent.append(frame)
        self.handle(OutputsSent())
        return True

    def apply(self, channel: int) -> Any | None:
        """Apply one row of a channel, or take its barrier. Return the row."""
        into = self.inputs[channel]
        head = into.head()
        match head:
            case Data():
                row = head.payload[into.head_skip]
                into.apply_rows(1)
                self.emit(row)
                if (limit_bytes := into.credit_due()) is not None:
                    self.sent.append(CreditLimit(into.id, limit_bytes))
                return row
            case AlignedBarrier(_, _, barrier):
                into.pass_barrier()
                self.handle(BarrierReached(channel, barrier))
            case Event():
                into.apply_event()
        return None

    def finish_row(self) -> None:
        """The row in hand is through."""
        self.is_in_a_row = False
        if self.machine.waits_for_row:
            self._execute([FinishRow()])

    # ---- what arrives -------------------------------------------------------------------------------------------

    def receive(self, frame: Frame) -> None:
        if isinstance(frame, CreditLimit):
            self._output[frame.channel].grant(frame.limit_bytes)
        elif isinstance(frame, CreditWanted):
            self._input[frame.channel].want(frame.wanted_bytes)
        elif isinstance(frame, Data | Event):
            if closed := self._input[frame.channel].receive(frame):
                self.handle(WindowsClosed(self.input_ids.index(frame.channel), closed))
        else:
            self.handle(frame)

    def trigger(self, barrier: Barrier) -> None:
        self.handle(TriggerCheckpoint(GENERATION, barrier))

    def end(self, checkpoint_id: int) -> None:
        self.ended.add(checkpoint_id)
        self.handle(CheckpointEnded(GENERATION, checkpoint_id, True))

    def on_time(self) -> None:
        self.handle(TimePassed())

    @property
    def next_deadline_ms(self) -> float | None:
        return self.machine.deadline_ms

    @property
    def blocked(self) -> set[int]:
        return {i for i, c in enumerate(self.inputs) if c.blocked}

    @property
    def pending(self) -> dict[int, AlignmentState]:
        return self.machine.pending()

    # ---- effects ------------------------------------------------------------------------------------------------

    def handle(self, event: Received | LocalEvent) -> None:
        self._execute(self.machine.handle(event, self.clock.now_ms))

    def _execute(self, effects: Iterable[Effect]) -> None:
        waiting = deque(effects)
        while waiting:
            effect = waiting.popleft()
            match effect:
                case FinishRow():
                    if not self.is_in_a_row:
                        waiting.extend(self.machine.handle(RowFinished(), self.clock.now_ms))
                case SendFrame(frame):
                    self.sent.append(frame)
                case SendQueued():
                    """What runs us says when rows leave, and barriers with them."""
                case TakeSnapshot(cut):
                    self.log.append(f"{'unaligned' if cut.unaligned else 'aligned'} {cut.checkpoint_id}")
                    self.taken[cut.checkpoint_id] = cut
                case CloseCapture(cut):
                    self._acknowledge(cut)
                case DropCapture(checkpoint_id):
                    self.taken.pop(checkpoint_id, None)
                case Decline(checkpoint_id, reason):
                    self.log.append(f"decline {checkpoint_id}")
                    assert checkpoint_id not in self.declined, "declined twice"
                    assert checkpoint_id not in self.acknowledged, "declined after its acknowledgement"
                    self.declined[checkpoint_id] = reason

    def _acknowledge(self, cut: Cut) -> None:
        assert self.taken.pop(cut.checkpoint_id) is cut, "closed without a snapshot, or twice"
        assert cut.checkpoint_id not in self.acknowledged and cut.checkpoint_id not in self.declined
        captured: dict[ChannelId, list[tuple[int, Any]]] = {}
        for channel, elements in (*cut.inputs.items(), *cut.outputs.items()):
            captured.setdefault(channel, []).extend(rows_of(elements))
        self.acknowledged[cut.checkpoint_id] = Part(
            cut.barrier,
            cut.unaligned,
            cut.applied,
            cut.emitted,
            captured,
            cut.alignment_ms,
        )
