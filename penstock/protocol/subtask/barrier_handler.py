"""Decides the response of a subtask to barriers: align all channels, or snapshot at the first barrier and capture.

It knows which channels there are, which barrier came where, and when. It knows nothing of rows, state, files, threads.

There is one alignment per checkpoint. Several may be under way: an expired checkpoint and the next overlap on the wire,
and checkpoints run concurrently. `TABLE` says what each event does in each state.

*Turn*: every older alignment first, in order; then snapshot now. Barriers that stand in our own queues are taken out
(their place is the end of that channel's window), blocked channels are released, all others get an open window.

Ids are handled in growing order: a barrier of an older checkpoint than the newest snapshot here is late, and its
checkpoint is declined. Every checkpoint that is offered ends here in exactly one acknowledgement or one decline, or
is ended by the coordinator. Ended ids are remembered while a barrier of theirs may still come.

Channels do not drop out: a subtask keeps answering barriers after its end of data, until its generation ends. So
end of data needs no transition here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, ParamSpec

import msgspec

from penstock.protocol.channel.ends import ProtocolError
from penstock.protocol.machine import Cell, MachineState, Story, Table, step
from penstock.protocol.subtask.ended_checkpoints import EndedCheckpoints
from penstock.protocol.values.elements import Barrier
from penstock.protocol.values.reasons import FailureReason


class AlignmentState(MachineState):
    """Lists the states of a checkpoint in this subtask."""

    UNKNOWN = "unknown"
    WAITING = "waiting"
    COLLECTING_ALIGNED = "aligning"
    COLLECTING_UNALIGNED = "capturing"
    ENDED = "ended"


_UNKNOWN, _WAITING, _ALIGNED, _UNALIGNED, _ENDED = AlignmentState
_ANY_OPEN = (_UNALIGNED, _ENDED)

TABLE: Table[AlignmentState] = Table(
    "the alignment",
    {
        "triggered": {
            _UNKNOWN: Cell("snapshot at once: a source has no channels; late: decline", (_ENDED,)),
            _ENDED: Cell("ignore", (_ENDED,)),
        },
        "queued": {
            _UNKNOWN: Cell("remember its place; late: decline; overdue: turn", (_WAITING, *_ANY_OPEN)),
            _WAITING: Cell("remember its place; overdue: turn", (_WAITING, *_ANY_OPEN)),
            _ALIGNED: Cell("remember its place; overdue: turn", (_ALIGNED, *_ANY_OPEN)),
            _UNALIGNED: Cell("take it out, limit that channel's window", _ANY_OPEN),
            _ENDED: Cell("take it out", (_ENDED,)),
        },
        "reached": {
            _WAITING: Cell("block; all in: snapshot", (_ALIGNED, *_ANY_OPEN)),
            _ALIGNED: Cell("block; all in: snapshot", (_ALIGNED, *_ANY_OPEN)),
            _ENDED: Cell("ignore", (_ENDED,)),
        },
        "urgent": {
            _UNKNOWN: Cell("turn; late: decline", _ANY_OPEN),
            _WAITING: Cell("turn", _ANY_OPEN),
            _ALIGNED: Cell("turn", _ANY_OPEN),
            _UNALIGNED: Cell("limit that channel's window", _ANY_OPEN),
            _ENDED: Cell("ignore", (_ENDED,)),
        },
        "deadline": {
            _WAITING: Cell("turn", _ANY_OPEN),
            _ALIGNED: Cell("turn", _ANY_OPEN),
        },
        "cancel": {
            _UNKNOWN: Cell("decline", (_ENDED,)),
            _WAITING: Cell("decline", (_ENDED,)),
            _ALIGNED: Cell("decline", (_ENDED,)),
            _UNALIGNED: Cell("decline", (_ENDED,)),
            _ENDED: Cell("ignore", (_ENDED,)),
        },
        "ended": {
            _UNKNOWN: Cell("drop what was captured", (_ENDED,)),
            _WAITING: Cell("drop what was captured", (_ENDED,)),
            _ALIGNED: Cell("drop what was captured", (_ENDED,)),
            _UNALIGNED: Cell("drop what was captured", (_ENDED,)),
            _ENDED: Cell("drop what was captured", (_ENDED,)),
        },
    },
)


P = ParamSpec("P")


class Block(msgspec.Struct, frozen=True):
    """Take nothing more from this input channel until `Unblock` of the same checkpoint."""

    channel: int
    checkpoint_id: int


class Unblock(msgspec.Struct, frozen=True):
    """End the `Block` of this checkpoint. The channel stays blocked while another checkpoint's lasts."""

    channel: int
    checkpoint_id: int


class TakeOut(msgspec.Struct, frozen=True):
    """Remove the barrier of this checkpoint from its place in the channel's queue."""

    channel: int
    checkpoint_id: int


class Snapshot(msgspec.Struct, frozen=True):
    """Take the snapshot now and send the barrier to all outputs, urgent if `unaligned`. `windows`: (channel, number
    at which it ends or None) of the input channels to capture. `barrier.age_ms` is of now."""

    barrier: Barrier
    unaligned: bool
    windows: tuple[tuple[int, int | None], ...]
    start_delay_ms: float


class LimitWindow(msgspec.Struct, frozen=True):
    """End the capture of this channel at number `until`."""

    channel: int
    checkpoint_id: int
    until: int


class AllBarriersIn(msgspec.Struct, frozen=True):
    """Expect no more barriers of this checkpoint. `alignment_ms`: the time from the first one to the last."""

    checkpoint_id: int
    alignment_ms: float


class Declined(msgspec.Struct, frozen=True):
    """Decline to the coordinator and, by a cancel frame, to all consumers; drop what was captured."""

    checkpoint_id: int
    reason: FailureReason


class Drop(msgspec.Struct, frozen=True):
    """Drop the capture: the coordinator ended the checkpoint."""

    checkpoint_id: int


Effect = Block | Unblock | TakeOut | Snapshot | LimitWindow | AllBarriersIn | Declined | Drop


class Moved(NamedTuple):
    """Describes the change of a checkpoint's alignment by an event."""

    checkpoint_id: int
    before: AlignmentState
    after: AlignmentState


@dataclass(slots=True)
class _Alignment:
    """Knows which barriers of one checkpoint have come. Each input channel is in at most one of `reached`, `urgent`,
    `queued`."""

    barrier: Barrier
    triggered_ms: float
    """The time of the trigger on the local monotonic clock, computed from the age that the message carried."""
    state: AlignmentState
    reached: set[int]
    """channels of which everything before the barrier has been applied"""
    urgent: dict[int, int]
    """channel -> the number at which its window ends"""
    queued: dict[int, int]
    """channel -> the place of its barrier in our queue, not reached yet"""
    first_barrier_ms: float | None = None

    def expect(self, channel: int) -> None:
        """Raise `ProtocolError` if the barrier has come on this channel before."""
        if channel in self.reached or channel in self.urgent or channel in self.queued:
            raise ProtocolError(f"checkpoint {self.barrier.checkpoint_id}: a second barrier on input channel {channel}")

    @property
    def deadline_ms(self) -> float | None:
        timeout = self.barrier.alignment_timeout_ms
        return None if timeout is None else self.triggered_ms + timeout

    def is_overdue(self, now_ms: float) -> bool:
        deadline_ms = self.deadline_ms
        is_open = self.state is not AlignmentState.COLLECTING_UNALIGNED
        return is_open and deadline_ms is not None and now_ms >= deadline_ms


class BarrierHandler:
    """Decides about all alignments of one subtask. `channels` is the number of its input channels (0 for a source).
    `story`: the story of the machine around it, which remembers what came of each event.
    """

    def __init__(self, channels: int, story: Story | None = None) -> None:
        self._story = story or Story()
        self._channels = channels
        self._alignments: dict[int, _Alignment] = {}
        self._ended = EndedCheckpoints()
        self._newest_snapshot = 0
        self.moved: Moved | None = None
        """The transition of the last event that was about one checkpoint."""

    # ---- events -----------------------------------------------------------------------------------------------

    def on_trigger(self, barrier: Barrier, now_ms: float) -> list[Effect]:
        """Start a checkpoint at a source."""
        return self._checked("triggered", barrier.checkpoint_id, self._trigger, barrier)

    def on_barrier_queued(self, channel: int, barrier: Barrier, position: int, now_ms: float) -> list[Effect]:
        """Handle an aligned barrier that arrived in a channel's queue; elements before it are still to be applied."""
        return self._checked("queued", barrier.checkpoint_id, self._queued, channel, barrier, position, now_ms)

    def on_barrier_reached(self, channel: int, barrier: Barrier, now_ms: float) -> list[Effect]:
        """Handle an aligned barrier before which everything has been applied. `on_barrier_queued` came before."""
        return self._checked("reached", barrier.checkpoint_id, self._reached, channel, barrier, now_ms)

    def on_urgent_barrier(self, channel: int, barrier: Barrier, handed: int, now_ms: float) -> list[Effect]:
        """Handle an unaligned barrier: it forces unaligned whatever the local clock says."""
        return self._checked("urgent", barrier.checkpoint_id, self._urgent, channel, barrier, handed, now_ms)

    def on_cancel(self, channel: int, checkpoint_id: int) -> list[Effect]:
        """Handle a producer's decline: its barrier will not come."""

        def decline() -> list[Effect]:
            # 2.3a: an ended checkpoint is not declined again.
            if checkpoint_id in self._ended:
                return []
            return self._decline(checkpoint_id, FailureReason.DECLINED_ON_CANCELLATION_BARRIER)

        return self._checked("cancel", checkpoint_id, decline)

    def on_ended(self, checkpoint_id: int) -> list[Effect]:
        """Handle the end of a checkpoint, completed or not, as the coordinator reports it."""

        def drop() -> list[Effect]:
            effects = self._release(checkpoint_id)
            self._ended.add(checkpoint_id)
            return [*effects, Drop(checkpoint_id)]

        return self._checked("ended", checkpoint_id, drop)

    def on_time(self, now_ms: float) -> list[Effect]:
        """Turn the barriers that have waited for longer than their alignment timeout."""
        effects: list[Effect] = []
        for checkpoint_id in sorted(self._alignments):
            alignment = self._alignments.get(checkpoint_id)
            if alignment is not None and alignment.is_overdue(now_ms):
                effects += self._checked("deadline", checkpoint_id, self._turn_if_due, alignment, now_ms)
        return effects

    def _checked(
        self, event: str, checkpoint_id: int, decide: Callable[P, list[Effect]], *args: P.args, **kwargs: P.kwargs
    ) -> list[Effect]:
        def state() -> AlignmentState:
            return self.state_of(checkpoint_id)

        before, who = state(), f" of checkpoint {checkpoint_id}"
        decided = partial(decide, *args, **kwargs)
        effects = step(TABLE, self._story, event, "", None, state, decided, who, remembers=False)
        self.moved = Moved(checkpoint_id, before, state())
        return effects

    def state_of(self, checkpoint_id: int) -> AlignmentState:
        """Return the state of a checkpoint here."""
        alignment = self._alignments.get(checkpoint_id)
        if alignment is not None:
            return alignment.state
        return AlignmentState.ENDED if checkpoint_id in self._ended else AlignmentState.UNKNOWN

    # ---- what can be seen -------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        if not self._alignments:
            return None
        deadlines = [
            a.deadline_ms
            for a in self._alignments.values()
            if a.state is not AlignmentState.COLLECTING_UNALIGNED and a.deadline_ms is not None
        ]
        return min(deadlines, default=None)

    @property
    def pending(self) -> dict[int, AlignmentState]:
        return {checkpoint_id: a.state for checkpoint_id, a in self._alignments.items()}

    # ---- transitions ------------------------------------------------------------------------------------------

    def _trigger(self, barrier: Barrier) -> list[Effect]:
        if barrier.checkpoint_id in self._ended:
            return []
        if barrier.checkpoint_id <= self._newest_snapshot:
            return self._decline(barrier.checkpoint_id, FailureReason.DECLINED_LATE_BARRIER)
        self._newest_snapshot = barrier.checkpoint_id
        self._ended.add(barrier.checkpoint_id)
        return [
            Snapshot(barrier, barrier.starts_unaligned, (), barrier.age_ms),
            AllBarriersIn(barrier.checkpoint_id, 0.0),
        ]

    def _queued(self, channel: int, barrier: Barrier, position: int, now_ms: float) -> list[Effect]:
        alignment, effects = self._alignment_for(barrier, now_ms)
        if alignment is None:
            return [*effects, TakeOut(channel, barrier.checkpoint_id)]
        alignment.expect(channel)
        if alignment.state is AlignmentState.COLLECTING_UNALIGNED:
            alignment.urgent[channel] = position
            effects += [TakeOut(channel, barrier.checkpoint_id), LimitWindow(channel, barrier.checkpoint_id, position)]
            return effects + self._finish_if_complete(alignment, now_ms)
        alignment.queued[channel] = position
        return effects + self._turn_if_due(alignment, now_ms)

    def _reached(self, channel: int, barrier: Barrier, now_ms: float) -> list[Effect]:
        alignment = self._alignments.get(barrier.checkpoint_id)
        if alignment is None:
            return []
        del alignment.queued[channel]
        alignment.reached.add(channel)
        if alignment.first_barrier_ms is None:
            alignment.first_barrier_ms = now_ms
        alignment.state = AlignmentState.COLLECTING_ALIGNED
        if len(alignment.reached) < self._channels:
            return [Block(channel, barrier.checkpoint_id), *self._turn_if_due(alignment, now_ms)]
        # No older alignment is left: its barriers came before these on every channel, and each that was reached has
        # blocked its channel until the alignment ended.
        released = [Unblock(c, barrier.checkpoint_id) for c in sorted(alignment.reached - {channel})]
        return [self._snapshot(alignment, False, now_ms), *released, *self._finish_if_complete(alignment, now_ms)]

    def _urgent(self, channel: int, barrier: Barrier, handed: int, now_ms: float) -> list[Effect]:
        alignment, effects = self._alignment_for(barrier, now_ms)
        if alignment is None:
            return effects
        alignment.expect(channel)
        alignment.urgent[channel] = handed
        if alignment.first_barrier_ms is None:
            alignment.first_barrier_ms = now_ms
        if alignment.state is AlignmentState.COLLECTING_UNALIGNED:
            effects.append(LimitWindow(channel, barrier.checkpoint_id, handed))
        else:
            effects += self._turn(alignment, now_ms)
        return effects + self._finish_if_complete(alignment, now_ms)

    def _alignment_for(self, barrier: Barrier, now_ms: float) -> tuple[_Alignment | None, list[Effect]]:
        """Return the alignment that a barrier belongs to; None if its checkpoint has ended here, or is late."""
        checkpoint_id = barrier.checkpoint_id
        alignment = self._alignments.get(checkpoint_id)
        if alignment is not None:
            return alignment, []
        if checkpoint_id in self._ended:
            return None, []
        if checkpoint_id <= self._newest_snapshot:
            return None, self._decline(checkpoint_id, FailureReason.DECLINED_LATE_BARRIER)
        alignment = _Alignment(barrier, now_ms - barrier.age_ms, AlignmentState.WAITING, set(), {}, {})
        self._alignments[checkpoint_id] = alignment
        return alignment, []

    def _turn_if_due(self, alignment: _Alignment, now_ms: float) -> list[Effect]:
        if not alignment.is_overdue(now_ms):
            return []
        effects = self._turn(alignment, now_ms)
        return effects + self._finish_if_complete(alignment, now_ms)

    def _turn(self, alignment: _Alignment, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        checkpoint_id = alignment.barrier.checkpoint_id
        # 2.1: older alignments turn first.
        for older_id in sorted(i for i in self._alignments if i < checkpoint_id):
            older = self._alignments[older_id]
            if older.state is AlignmentState.COLLECTING_UNALIGNED:
                continue
            if older.barrier.alignment_timeout_ms is None:
                effects += self._decline(older_id, FailureReason.DECLINED_SUBSUMED)
                continue
            effects += self._turn(older, now_ms)
            effects += self._finish_if_complete(older, now_ms)
        effects += [TakeOut(channel, checkpoint_id) for channel in sorted(alignment.queued)]
        alignment.urgent.update(alignment.queued)
        alignment.queued.clear()
        if alignment.first_barrier_ms is None:
            alignment.first_barrier_ms = now_ms
        effects += [Unblock(channel, checkpoint_id) for channel in sorted(alignment.reached)]
        effects.append(self._snapshot(alignment, True, now_ms))
        alignment.state = AlignmentState.COLLECTING_UNALIGNED
        return effects

    def _snapshot(self, alignment: _Alignment, unaligned: bool, now_ms: float) -> Snapshot:
        barrier = alignment.barrier
        self._newest_snapshot = max(self._newest_snapshot, barrier.checkpoint_id)
        windows: list[tuple[int, int | None]] = []
        if unaligned:
            missing = (c for c in range(self._channels) if c not in alignment.reached)
            windows = [(c, alignment.urgent.get(c)) for c in missing]
        # 2.5: the age counts from the trigger.
        age_ms = now_ms - alignment.triggered_ms
        aged = msgspec.structs.replace(barrier, age_ms=age_ms)
        first = alignment.first_barrier_ms if alignment.first_barrier_ms is not None else now_ms
        return Snapshot(aged, unaligned, tuple(windows), first - alignment.triggered_ms)

    def _finish_if_complete(self, alignment: _Alignment, now_ms: float) -> list[Effect]:
        if len(alignment.reached) + len(alignment.urgent) < self._channels:
            return []
        checkpoint_id = alignment.barrier.checkpoint_id
        if self._alignments.pop(checkpoint_id, None) is None:
            return []
        self._ended.add(checkpoint_id)
        first = alignment.first_barrier_ms if alignment.first_barrier_ms is not None else now_ms
        return [AllBarriersIn(checkpoint_id, now_ms - first)]

    def _decline(self, checkpoint_id: int, reason: FailureReason) -> list[Effect]:
        effects = self._release(checkpoint_id)
        self._ended.add(checkpoint_id)
        return [*effects, Declined(checkpoint_id, reason)]

    def _release(self, checkpoint_id: int) -> list[Effect]:
        alignment = self._alignments.pop(checkpoint_id, None)
        if alignment is None:
            return []
        effects: list[Effect] = [TakeOut(channel, checkpoint_id) for channel in sorted(alignment.queued)]
        if alignment.state is AlignmentState.COLLECTING_ALIGNED:
            effects += [Unblock(channel, checkpoint_id) for channel in sorted(alignment.reached)]
        return effects
