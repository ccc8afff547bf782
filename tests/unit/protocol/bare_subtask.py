"""A subtask of nothing but the protocol: a barrier handler between input and output channels. Every row that it applies
goes on to one of its outputs. What runs it says what arrives and when; frames to send pile up in `sent`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from penstock.protocol.channel.ends import Captured, InputChannel, OutputChannel, Overtaken
from penstock.protocol.subtask.barrier_handler import (
    AllBarriersIn,
    BarrierHandler,
    Block,
    Declined,
    Discard,
    Effect,
    LimitWindow,
    Snapshot,
    TakeOut,
    Unblock,
)
from penstock.protocol.values.elements import Barrier, ChannelId
from penstock.protocol.values.frames import (
    AlignedBarrier,
    CancelBarrier,
    CreditLimit,
    Data,
    Event,
    Frame,
    UrgentBarrier,
)

ROW_BYTES = 1_000


def rows_of(captured: Captured) -> list[tuple[int, Any]]:
    """(number, row) of captured rows."""
    return [(first + i, payload[skip + i]) for first, rows, skip, payload in captured.rows for i in range(rows)]


@dataclass
class Part:
    """One subtask's part of one checkpoint."""

    barrier: Barrier
    unaligned: bool
    applied: dict[ChannelId, int]
    emitted: dict[ChannelId, int]
    captured: dict[ChannelId, list[tuple[int, Any]]] = field(default_factory=dict)
    windows_open: set[ChannelId] = field(default_factory=set)
    barriers_missing: bool = True
    alignment_ms: float = 0.0


@dataclass
class SetClock:
    now_ms: float = 0.0


class BareSubtask:
    def __init__(
        self, inputs: list[ChannelId], outputs: list[ChannelId], clock: SetClock, window_bytes: int = 1 << 30
    ) -> None:
        self._clock = clock
        self.inputs = [InputChannel(c, window_bytes) for c in inputs]
        self.outputs = [OutputChannel(c, window_bytes) for c in outputs]
        self.handler = BarrierHandler(len(inputs))
        self.sent: deque[Frame] = deque()
        self.log: list[str] = []
        self.taken: dict[int, Part] = {}
        self.acknowledged: dict[int, Part] = {}
        self.declined: dict[int, str] = {}
        self.ended: set[int] = set()
        self._index = {c: i for i, c in enumerate(inputs)}
        self._output = {c.id: c for c in self.outputs}
        self._deadlines: dict[int, float] = {}
        self._next_output = 0

    # ---- rows ---------------------------------------------------------------------------------------------------

    def emit(self, row: Any) -> None:
        if self.outputs:
            self.outputs[self._next_output].enqueue_rows(1, ROW_BYTES, [row])
            self._next_output = (self._next_output + 1) % len(self.outputs)

    def pop(self, output: int) -> bool:
        frame = self.outputs[output].pop()
        if frame is None:
            return False
        if isinstance(frame, Data):
            rows = [row for payload in frame.payload for row in payload]
            frame = Data(frame.channel, frame.first, frame.rows, frame.size_bytes, rows)
        self.sent.append(frame)
        self._look_at_outputs()
        return True

    def apply(self, channel: int) -> Any | None:
        """One row of a channel, or its barrier. Returns the row."""
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
                self._carry_out(self.handler.on_barrier_reached(channel, barrier, self._clock.now_ms))
            case Event():
                into.apply_event()
        return None

    # ---- what arrives -------------------------------------------------------------------------------------------

    def receive(self, frame: Frame) -> None:
        now_ms = self._clock.now_ms
        match frame:
            case Data() | Event():
                index = self._index[frame.channel]
                for checkpoint_id in self.inputs[index].receive(frame):
                    self._window_closed(index, checkpoint_id)
            case AlignedBarrier(channel, position, barrier):
                self.inputs[self._index[channel]].receive_barrier(frame)
                self._carry_out(self.handler.on_barrier_queued(self._index[channel], barrier, position, now_ms))
            case UrgentBarrier(channel, _, handed, barrier):
                self._carry_out(self.handler.on_urgent_barrier(self._index[channel], barrier, handed, now_ms))
            case CancelBarrier(channel, checkpoint_id):
                self._carry_out(self.handler.on_cancel(self._index[channel], checkpoint_id))
            case CreditLimit(channel, limit_bytes):
                self._output[channel].grant(limit_bytes)

    def trigger(self, barrier: Barrier) -> None:
        self._carry_out(self.handler.on_trigger(barrier, self._clock.now_ms))

    def end(self, checkpoint_id: int) -> None:
        self.ended.add(checkpoint_id)
        self._carry_out(self.handler.on_ended(checkpoint_id))

    def on_time(self) -> None:
        self._carry_out(self.handler.on_time(self._clock.now_ms))
        for checkpoint_id in [i for i, at_ms in self._deadlines.items() if at_ms <= self._clock.now_ms]:
            del self._deadlines[checkpoint_id]
            for output in self.outputs:
                self._send_overtaken(output, output.turn(checkpoint_id))
        self._look_at_outputs()

    @property
    def next_deadline_ms(self) -> float | None:
        deadlines = list(self._deadlines.values())
        if (alignment := self.handler.next_deadline_ms()) is not None:
            deadlines.append(alignment)
        return min(deadlines, default=None)

    @property
    def blocked(self) -> set[int]:
        return {i for i, c in enumerate(self.inputs) if c.blocked}

    # ---- effects ------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Block(channel, checkpoint_id):
                    self.inputs[channel].blocked_by.add(checkpoint_id)
                case Unblock(channel, checkpoint_id):
                    self.inputs[channel].blocked_by.remove(checkpoint_id)
                case TakeOut(channel, checkpoint_id):
                    self.inputs[channel].take_out_barrier(checkpoint_id)
                case Snapshot():
                    self._snapshot(effect)
                case LimitWindow(channel, checkpoint_id, until):
                    if self.inputs[channel].limit_window(checkpoint_id, until):
                        self._window_closed(channel, checkpoint_id)
                case AllBarriersIn(checkpoint_id, alignment_ms):
                    part = self.taken[checkpoint_id]
                    part.barriers_missing = False
                    part.alignment_ms = alignment_ms
                    self._acknowledge_if_complete(checkpoint_id)
                case Declined(checkpoint_id, reason):
                    self.log.append(f"decline {checkpoint_id}")
                    assert checkpoint_id not in self.declined, "declined twice"
                    assert checkpoint_id not in self.acknowledged, "declined after its acknowledgement"
                    self.declined[checkpoint_id] = reason
                    self._drop(checkpoint_id)
                    for output in self.outputs:
                        output.drop_barrier(checkpoint_id)
                        self.sent.append(CancelBarrier(output.id, checkpoint_id))
                case Discard(checkpoint_id):
                    self._drop(checkpoint_id)
                    for output in self.outputs:
                        output.drop_barrier(checkpoint_id)
        self._look_at_outputs()

    def _snapshot(self, effect: Snapshot) -> None:
        barrier, checkpoint_id = effect.barrier, effect.barrier.checkpoint_id
        self.log.append(f"{'unaligned' if effect.unaligned else 'aligned'} {checkpoint_id}")
        part = self.taken[checkpoint_id] = Part(
            barrier, effect.unaligned, {c.id: c.applied for c in self.inputs}, {c.id: c.emitted for c in self.outputs}
        )
        for output in self.outputs:
            if effect.unaligned:
                self._send_overtaken(output, output.overtake(barrier))
            else:
                output.enqueue_barrier(barrier)
        if not effect.unaligned and barrier.alignment_timeout_ms is not None:
            left_ms = barrier.alignment_timeout_ms - barrier.age_ms
            self._deadlines[checkpoint_id] = self._clock.now_ms + max(0.0, left_ms)
        for channel, until in effect.windows:
            part.windows_open.add(self.inputs[channel].id)
            if self.inputs[channel].open_window(checkpoint_id, until):
                self._window_closed(channel, checkpoint_id)

    def _send_overtaken(self, output: OutputChannel, overtaken: list[Overtaken]) -> None:
        for barrier, frame, captured in overtaken:
            if frame is None:
                self.sent.append(CancelBarrier(output.id, barrier.checkpoint_id))
                continue
            self.sent.append(frame)
            if part := self.taken.get(barrier.checkpoint_id):
                part.captured.setdefault(output.id, []).extend(rows_of(captured))

    def _window_closed(self, channel: int, checkpoint_id: int) -> None:
        captured = self.inputs[channel].take_window(checkpoint_id)
        part = self.taken[checkpoint_id]
        part.windows_open.discard(self.inputs[channel].id)
        part.captured.setdefault(self.inputs[channel].id, []).extend(rows_of(captured))
        self._acknowledge_if_complete(checkpoint_id)

    def _look_at_outputs(self) -> None:
        for checkpoint_id in list(self.taken):
            self._acknowledge_if_complete(checkpoint_id)

    def _acknowledge_if_complete(self, checkpoint_id: int) -> None:
        part = self.taken[checkpoint_id]
        may_turn = part.barrier.alignment_timeout_ms is not None
        if part.windows_open or part.barriers_missing:
            return
        if may_turn and any(o.holds_barrier(checkpoint_id) for o in self.outputs):
            return
        del self.taken[checkpoint_id]
        self._deadlines.pop(checkpoint_id, None)
        assert checkpoint_id not in self.acknowledged and checkpoint_id not in self.declined
        self.acknowledged[checkpoint_id] = part

    def _drop(self, checkpoint_id: int) -> None:
        self.taken.pop(checkpoint_id, None)
        self._deadlines.pop(checkpoint_id, None)
        for channel in self.inputs:
            channel.discard_window(checkpoint_id)
