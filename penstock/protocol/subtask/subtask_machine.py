"""Decides a subtask's part in checkpoints and in draining: alignment, the cut, what is in flight, and when all is in.

The machine owns the two ends of the subtask's channels as far as barriers go: it puts barriers into output queues and
takes them out, blocks inputs, and opens and closes the windows that capture what is in flight. Its caller receives,
applies and emits rows and events: they go straight to their channel, and the machine hears of them only if one has
closed a window. So the tests, the simulation and a slot run the same decisions.

A snapshot lies between two input rows. While a function is in the middle of a row's output, what was decided waits:
`FinishRow` asks for the rest of the row, and `RowFinished` reports that it is finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.protocol.channel.ends import InputChannel, OutputChannel, Overtaken, ProtocolError
from penstock.protocol.machine import Story, StoryEvent
from penstock.protocol.subtask import barrier_handler as alignment
from penstock.protocol.subtask.barrier_handler import AlignmentState, BarrierHandler, Moved
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
from penstock.protocol.values.frames import AlignedBarrier, CancelBarrier, UrgentBarrier
from penstock.protocol.values.messages import CheckpointEnded, ReleaseVertices, TriggerCheckpoint

Received = AlignedBarrier | UrgentBarrier | CancelBarrier | TriggerCheckpoint | CheckpointEnded | ReleaseVertices
NOTHING: Sequence[Effect] = ()


class SubtaskMachine:
    """Decides for one subtask in one generation. `inputs` and `outputs`: all its channels, in an order that stays."""

    def __init__(self, inputs: Sequence[InputChannel], outputs: Sequence[OutputChannel], gate: DrainGate) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.gate = gate
        self.story = Story()
        self._input_of = {channel.id: position for position, channel in enumerate(inputs)}
        self._alignments = BarrierHandler(len(inputs), self.story)
        self._cuts: dict[int, Cut] = {}
        self._decided: deque[alignment.Effect | _Resume] = deque()
        self._row_is_finished = False
        self._suspended_by: int | None = None
        self.deadline_ms: float | None = None
        """The time at which `TimePassed` is due, at the latest; None: never."""

    # ---- events -------------------------------------------------------------------------------------------------

    def handle(self, event: Received | LocalEvent, now_ms: float) -> Sequence[Effect]:
        """Return the effects, in order. Raises `ProtocolError` or `IllegalEvent` if the other end, or our own runtime,
        broke a rule.
        """
        if isinstance(event, WindowsClosed):
            return [effect for i in event.checkpoints for effect in self._close_window(event.channel, i)]
        if isinstance(event, OutputsSent):
            effects = self._close_outputs()
            self.deadline_ms = self._next_deadline_ms()
            return effects
        self._alignments.moved = None
        try:
            effects = self._execute(self._decide(event, now_ms), now_ms)
        except ProtocolError as error:
            self.story.add_to(error)
            raise
        moved = None if isinstance(event, TimePassed) else self._alignments.moved
        if isinstance(event, TimePassed):
            effects += [*self._turn_outputs(now_ms), *self._close_outputs()]
        self.story.add(partial(_told, now_ms, event, moved, tuple(map(type, effects))))
        self.deadline_ms = self._next_deadline_ms()
        return effects

    def _decide(self, event: Received | LocalEvent, now_ms: float) -> Sequence[alignment.Effect | _Resume]:
        alignments = self._alignments
        match event:
            case AlignedBarrier(channel, position, barrier):
                at = self._input_of[channel]
                self.inputs[at].receive_barrier(event)
                return alignments.on_barrier_queued(at, barrier, position, now_ms)
            case UrgentBarrier(channel, _, handed, barrier):
                return alignments.on_urgent_barrier(self._input_of[channel], barrier, handed, now_ms)
            case CancelBarrier(channel, checkpoint_id):
                return alignments.on_cancel(self._input_of[channel], checkpoint_id)
            case BarrierReached(at, barrier):
                return alignments.on_barrier_reached(at, barrier, now_ms)
            case TriggerCheckpoint(_, barrier):
                return alignments.on_trigger(barrier, now_ms)
            case CheckpointEnded(_, checkpoint_id, aborted):
                ended = alignments.on_ended(checkpoint_id)
                # Executed behind what was decided before. Without this: the snapshot waits for the rest of a row, its
                # checkpoint fails, the row is finished, the snapshot suspends the subtask, and nothing ever resumes it.
                return [*ended, _Resume(checkpoint_id)] if aborted else ended
            case ReleaseVertices(checkpoints=checkpoints, is_last=is_last):
                self.gate.on_release(is_last, checkpoints)
            case RowFinished():
                self._row_is_finished = True
            case TimePassed():
                return alignments.on_time(now_ms)
        return ()

    def _next_deadline_ms(self) -> float | None:
        alignment_ms = self._alignments.next_deadline_ms()
        if not self._cuts:
            return alignment_ms
        outputs_ms = [cut.output_deadline_ms for cut in self._cuts.values()]
        return min((at_ms for at_ms in (alignment_ms, *outputs_ms) if at_ms is not None), default=None)

    @property
    def waits_for_row(self) -> bool:
        """Return whether a snapshot waits for the rest of a row's output."""
        return bool(self._decided)

    @property
    def is_suspended(self) -> bool:
        """Return whether a terminating snapshot was taken: nothing is consumed until its checkpoint has failed."""
        # 9.3: nothing is consumed behind the snapshot of a terminating checkpoint.
        return self._suspended_by is not None

    def pending(self) -> dict[int, AlignmentState]:
        """Return the checkpoints whose barriers are still to come, with how far they are."""
        return self._alignments.pending

    # ---- what the alignment decides -----------------------------------------------------------------------------

    def _execute(self, decided: Iterable[alignment.Effect | _Resume], now_ms: float) -> list[Effect]:
        self._decided.extend(decided)
        effects: list[Effect] = []
        while self._decided:
            effect = self._decided[0]
            if isinstance(effect, alignment.Snapshot) and not self._row_is_finished:
                effects.append(FinishRow())
                return effects
            self._decided.popleft()
            effects += self._one(effect, now_ms)
        return effects

    def _one(self, effect: alignment.Effect | _Resume, now_ms: float) -> Sequence[Effect]:
        match effect:
            case alignment.Block(at, checkpoint_id):
                self.inputs[at].block(checkpoint_id)
            case alignment.Unblock(at, checkpoint_id):
                self.inputs[at].unblock(checkpoint_id)
            case alignment.TakeOut(at, checkpoint_id):
                self.inputs[at].take_out_barrier(checkpoint_id)
            case alignment.Snapshot():
                self._row_is_finished = False
                return self._snapshot(effect, now_ms)
            case alignment.LimitWindow(at, checkpoint_id, until):
                if checkpoint_id in self._cuts and self.inputs[at].limit_window(checkpoint_id, until):
                    return self._close_window(at, checkpoint_id)
            case alignment.AllBarriersIn(checkpoint_id, alignment_ms):
                if cut := self._cuts.get(checkpoint_id):
                    cut.barriers_missing = False
                    cut.alignment_ms = alignment_ms
                    return self._close_if_complete(cut)
            case alignment.Declined(checkpoint_id, reason):
                cancels = [SendFrame(CancelBarrier(output.id, checkpoint_id)) for output in self.outputs]
                return [*self._drop(checkpoint_id), *cancels, Decline(checkpoint_id, reason)]
            case alignment.Drop(checkpoint_id):
                return self._drop(checkpoint_id)
            case _Resume(checkpoint_id):
                if self._suspended_by == checkpoint_id:
                    self._suspended_by = None
        return NOTHING

    # ---- the cut ------------------------------------------------------------------------------------------------

    def _snapshot(self, effect: alignment.Snapshot, now_ms: float) -> Sequence[Effect]:
        """Send the barrier first, so that the consumers start while this subtask is still busy with its own part."""
        barrier = effect.barrier
        cut = Cut(
            barrier,
            effect.unaligned,
            now_ms,
            effect.start_delay_ms,
            {channel.id: channel.applied for channel in self.inputs},
            {channel.id: channel.emitted for channel in self.outputs},
        )
        self._cuts[barrier.checkpoint_id] = cut
        effects = self._send_barrier(cut, now_ms)
        closed = []
        for at, until in effect.windows:
            cut.windows_open.add(at)
            if self.inputs[at].open_window(barrier.checkpoint_id, until):
                closed.append(at)
        effects.append(TakeSnapshot(cut))
        if barrier.kind.terminates:
            self._suspended_by = barrier.checkpoint_id
        self.gate.on_checkpoint_ended(barrier.checkpoint_id)
        for at in closed:
            effects += self._close_window(at, barrier.checkpoint_id)
        return effects

    def _send_barrier(self, cut: Cut, now_ms: float) -> list[Effect]:
        barrier = cut.barrier
        if cut.unaligned:
            return [
                effect for output in self.outputs for effect in self._keep_overtaken(output, output.overtake(barrier))
            ]
        for output in self.outputs:
            output.enqueue_barrier(barrier, now_ms)
        cut.outputs_open = barrier.alignment_timeout_ms is not None and bool(self.outputs)
        return [SendQueued(position) for position in range(len(self.outputs))]

    def _turn_outputs(self, now_ms: float) -> list[Effect]:
        """Turn the barriers that still wait in the output queues: their alignment timeout has passed."""
        effects: list[Effect] = []
        for cut in list(self._cuts.values()):
            if cut.output_deadline_ms is not None and cut.output_deadline_ms <= now_ms:
                for output in self.outputs:
                    effects += self._keep_overtaken(output, output.turn(cut.checkpoint_id))
        return effects

    def _keep_overtaken(self, output: OutputChannel, overtaken: list[Overtaken]) -> list[Effect]:
        effects: list[Effect] = []
        for barrier, frame, captured in overtaken:
            if frame is None:
                # The part of this subtask is acknowledged; the consumer, which would have to capture, declines.
                effects.append(SendFrame(CancelBarrier(output.id, barrier.checkpoint_id)))
                continue
            effects.append(SendFrame(frame))
            cut = self._cuts.get(barrier.checkpoint_id)
            if cut is not None and captured and cut.stores:
                cut.outputs[output.id] = captured
        return effects

    def _close_outputs(self) -> list[Effect]:
        """Close the outputs of each checkpoint whose aligned barriers have left the output queues."""
        effects: list[Effect] = []
        for cut in [c for c in self._cuts.values() if c.outputs_open]:
            if not any(output.holds_barrier(cut.checkpoint_id) for output in self.outputs):
                cut.outputs_open = False
                effects += self._close_if_complete(cut)
        return effects

    def _close_window(self, at: int, checkpoint_id: int) -> Sequence[Effect]:
        captured = self.inputs[at].take_window(checkpoint_id)
        cut = self._cuts.get(checkpoint_id)
        if cut is None:
            return NOTHING
        cut.windows_open.discard(at)
        if captured and cut.stores:
            cut.inputs[self.inputs[at].id] = captured
        return self._close_if_complete(cut)

    def _close_if_complete(self, cut: Cut) -> Sequence[Effect]:
        if cut.is_closed and self._cuts.pop(cut.checkpoint_id, None) is not None:
            return [CloseCapture(cut)]
        return NOTHING

    def _drop(self, checkpoint_id: int) -> list[Effect]:
        self._cuts.pop(checkpoint_id, None)
        for channel in self.inputs:
            channel.discard_window(checkpoint_id)
        for output in self.outputs:
            output.drop_barrier(checkpoint_id)
        self.gate.on_checkpoint_ended(checkpoint_id)
        return [DropCapture(checkpoint_id)]


@dataclass(frozen=True)
class _Resume:
    """Ends the suspension by a terminating checkpoint, which has failed."""

    checkpoint_id: int


def _told(at_ms: float, event: Received | LocalEvent, moved: Moved | None, effects: tuple[type, ...]) -> StoryEvent:
    """Return an event for the story. `effects`: their types."""
    what, did = type(event).__name__, tuple(effect.__name__ for effect in effects)
    if moved is None:
        return StoryEvent(at_ms, _cause_of(event), what, "", "", did)
    what, before, after = f"{what} {moved.checkpoint_id}", str(moved.before.value), str(moved.after.value)
    return StoryEvent(at_ms, _cause_of(event), what, before, after, did)


def _cause_of(event: Received | LocalEvent) -> str:
    match event:
        case AlignedBarrier() | UrgentBarrier() | CancelBarrier():
            return f"channel {event.channel.edge}[{event.channel.producer}->{event.channel.consumer}]"
        case BarrierReached():
            return "the rows before it are applied"
        case RowFinished():
            return "the chain is between two rows"
        case TimePassed():
            return "an alignment timeout"
    return "JobMaster"
