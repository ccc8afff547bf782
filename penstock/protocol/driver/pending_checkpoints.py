"""Follows each checkpoint from its trigger to its end: who has acknowledged it, and which files it leaves.

Every checkpoint that is triggered ends exactly once, published or aborted. Ids are never used again, so a late
acknowledgement is distinguished from a current one by its id, and answered with the file to delete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from penstock.protocol.driver.driver_effects import (
    CheckpointAborted,
    CheckpointEffect,
    DiscardSegments,
    PublishCheckpoint,
    RescaleNotTaken,
    StillPublishing,
    TriggerCheckpoint,
)
from penstock.protocol.driver.savepoint import Alignment, Savepoint
from penstock.protocol.machine import Cell, MachineState, Story, Table, step
from penstock.protocol.values.elements import Barrier, Generation, SnapshotKind
from penstock.protocol.values.messages import Decline, SlotAck
from penstock.protocol.values.reasons import FailureReason


class CheckpointState(MachineState):
    """Lists the states of a checkpoint, for the whole job."""

    UNKNOWN = "unknown"
    """Not triggered by this driver, or ended long ago."""
    TRIGGERED = "triggered"
    """Slots have still to acknowledge it."""
    PUBLISHING = "publishing"
    """Every slot has acknowledged it. Its log entry may exist, so it cannot be aborted from here; but a savepoint whose
    directory is still written has none yet."""
    PUBLISHED = "published"
    ABORTED = "aborted"


_UNKNOWN, _TRIGGERED, _PUBLISHING, _PUBLISHED, _ABORTED = CheckpointState


def _ignored(*states: CheckpointState) -> dict[CheckpointState, Cell[CheckpointState]]:
    return {state: Cell("ignore", (state,)) for state in states}


CHECKPOINT_TABLE: Table[CheckpointState] = Table(
    "checkpoint",
    {
        "triggered": {_UNKNOWN: Cell("send the trigger to all slots", (_TRIGGERED,))},
        "acknowledged": {
            _UNKNOWN: Cell("leave its file to the sweep", (_UNKNOWN,)),
            _TRIGGERED: Cell(
                "by the last slot: publish; again, with another file: delete that", (_TRIGGERED, _PUBLISHING)
            ),
            _PUBLISHING: Cell("again, with another file: delete that", (_PUBLISHING,)),
            _PUBLISHED: Cell("with a file that it does not name: delete that", (_PUBLISHED,)),
            _ABORTED: Cell("delete its file", (_ABORTED,)),
        },
        "declined": {
            _TRIGGERED: Cell("abort; by another generation: ignore", (_TRIGGERED, _ABORTED)),
            **_ignored(_UNKNOWN, _PUBLISHING, _PUBLISHED, _ABORTED),
        },
        "trigger failed": {_TRIGGERED: Cell("abort", (_ABORTED,)), **_ignored(_ABORTED)},
        "expired": {
            _TRIGGERED: Cell("abort", (_ABORTED,)),
            _PUBLISHING: Cell(
                "a savepoint that is still written: abort; else warn, and wait as long again", (_PUBLISHING, _ABORTED)
            ),
        },
        "generation ended": {
            _TRIGGERED: Cell("abort", (_ABORTED,)),
            _PUBLISHING: Cell("a stop that is still written: abort", (_PUBLISHING, _ABORTED)),
        },
        "newer, or the final one, published": {_TRIGGERED: Cell("abort", (_ABORTED,)), **_ignored(_PUBLISHING)},
        "published": {_PUBLISHING: Cell("remember which files it names", (_PUBLISHED,))},
        "not published": {_PUBLISHING: Cell("abort", (_ABORTED,))},
    },
)


ENDED_REMEMBERED_MAX = 64
"""The most ended checkpoints that are remembered for late acknowledgements; files of older ones are left to the
sweep."""


@dataclass
class PendingCheckpoint:
    """Tracks a checkpoint that has not ended. `slots`: by which it is to be acknowledged; `subtasks`: how many they
    run.
    """

    barrier: Barrier
    generation: Generation
    slots: frozenset[int]
    subtasks: int
    triggered_ms: float
    expires_ms: float
    savepoint: Savepoint | None = None
    state: CheckpointState = CheckpointState.TRIGGERED
    is_written: bool = False
    """True for a savepoint whose directory is complete: its log entry may exist, or its output may be committed."""
    acks: dict[int, SlotAck] = field(default_factory=dict)

    @property
    def checkpoint_id(self) -> int:
        return self.barrier.checkpoint_id

    @property
    def missing(self) -> list[int]:
        return sorted(self.slots - self.acks.keys())

    @property
    def segments(self) -> frozenset[str]:
        return frozenset[str]().union(*(ack.own for ack in self.acks.values()))


@dataclass(frozen=True)
class _Ended:
    """Remembers a checkpoint that has ended. `kept`: the segments that its metadata names; none if it was aborted."""

    state: CheckpointState
    kept: frozenset[str]
    savepoint: Savepoint | None


class PendingCheckpoints:
    """Holds all checkpoints that have not ended, and what is remembered of those that have. `timeout_ms`: the time
    after which one expires.
    """

    def __init__(self, timeout_ms: float, story: Story) -> None:
        self._timeout_ms = timeout_ms
        self._story = story
        self._pending: dict[int, PendingCheckpoint] = {}
        self._ended: dict[int, _Ended] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[PendingCheckpoint]:
        return iter(self._pending.values())

    @property
    def ids(self) -> list[int]:
        return list(self._pending)

    def of(self, generation: Generation) -> list[int]:
        """Return the ids of the pending checkpoints that a generation triggered. A savepoint outlives its generation
        while it is written."""
        return [checkpoint_id for checkpoint_id, p in self._pending.items() if p.generation == generation]

    @property
    def is_exclusive(self) -> bool:
        """Return whether nothing else may be triggered: a checkpoint is pending behind which the job takes no input, or
        an aligned savepoint, which would get rows in flight if an unaligned barrier overtook its own."""
        aligned = any(p.savepoint is not None and p.savepoint.alignment is Alignment.ALIGNED for p in self)
        return aligned or any(p.barrier.kind.terminates for p in self)

    @property
    def saves(self) -> bool:
        """Return whether a savepoint is pending."""
        return any(p.savepoint is not None for p in self)

    @property
    def rescales(self) -> bool:
        """Return whether a checkpoint is pending from which the job continues at another parallelism."""
        return any(p.barrier.kind is SnapshotKind.RESCALE for p in self)

    def state_of(self, checkpoint_id: int) -> CheckpointState:
        pending = self._pending.get(checkpoint_id)
        if pending is not None:
            return pending.state
        ended = self._ended.get(checkpoint_id)
        return CheckpointState.UNKNOWN if ended is None else ended.state

    def savepoint_of(self, checkpoint_id: int) -> Savepoint | None:
        """Return the savepoint that a pending checkpoint writes; None if it is no savepoint."""
        pending = self._pending.get(checkpoint_id)
        return None if pending is None else pending.savepoint

    def next_deadline_ms(self) -> float | None:
        return min((pending.expires_ms for pending in self._pending.values()), default=None)

    def expired(self, now_ms: float) -> list[int]:
        """Return the ids of the checkpoints that have been pending for too long, the oldest first."""
        return [number for number, pending in self._pending.items() if pending.expires_ms <= now_ms]

    # ---- events -------------------------------------------------------------------------------------------------

    def trigger(
        self,
        barrier: Barrier,
        generation: Generation,
        slots: frozenset[int],
        subtasks: int,
        now_ms: float,
        savepoint: Savepoint | None = None,
    ) -> list[CheckpointEffect]:
        def begin() -> list[CheckpointEffect]:
            expires_ms = now_ms + self._timeout_ms
            pending = PendingCheckpoint(barrier, generation, slots, subtasks, now_ms, expires_ms, savepoint)
            self._pending[barrier.checkpoint_id] = pending
            return [TriggerCheckpoint(barrier, savepoint)]

        return self._step("triggered", barrier.checkpoint_id, "the coordinator", now_ms, begin)

    def on_ack(self, ack: SlotAck, now_ms: float) -> list[CheckpointEffect]:
        def acknowledge() -> list[CheckpointEffect]:
            return self._acknowledge(ack, now_ms)

        return self._step("acknowledged", ack.checkpoint_id, f"slot {ack.slot}", now_ms, acknowledge)

    def on_decline(self, decline: Decline, vertex_name: str, now_ms: float) -> list[CheckpointEffect]:
        checkpoint_id, by = decline.checkpoint_id, f"subtask {decline.subtask.subtask + 1} of {vertex_name}"

        def give_up() -> list[CheckpointEffect]:
            pending = self._pending.get(checkpoint_id)
            if pending is None or pending.generation != decline.generation:
                return []
            detail = f"declined by {by}" + (f": {decline.detail}" if decline.detail else "")
            return self._abort_if_triggered(checkpoint_id, decline.reason, detail)

        return self._step("declined", checkpoint_id, by, now_ms, give_up)

    def on_expired(self, checkpoint_id: int, now_ms: float) -> list[CheckpointEffect]:
        def expire() -> list[CheckpointEffect]:
            pending = self._pending[checkpoint_id]
            limit = f"within {self._timeout_ms / 1000:g} s"
            if pending.state is CheckpointState.TRIGGERED:
                detail = f"not acknowledged {limit} by slot(s) {', '.join(map(str, pending.missing))}"
            elif pending.savepoint is not None and not pending.is_written:
                detail = f"its metadata were not written {limit}: its storage is slow, or does not answer"
            else:
                pending.expires_ms = now_ms + self._timeout_ms
                return [StillPublishing(checkpoint_id, now_ms - pending.triggered_ms)]
            return self._abort(pending, FailureReason.EXPIRED, detail)

        return self._step("expired", checkpoint_id, "time", now_ms, expire)

    def on_progress(self, progress_ms: Mapping[str, float]) -> None:
        """Restart the timeout of savepoints whose storage still makes progress. `progress_ms`: directory -> when
        something of a source's files was copied to it last."""
        for pending in self:
            if pending.savepoint is not None and pending.savepoint.directory in progress_ms:
                by_ms = progress_ms[pending.savepoint.directory] + self._timeout_ms
                pending.expires_ms = max(pending.expires_ms, by_ms)

    def on_written(self, checkpoint_id: int) -> None:
        """Note that the directory of a savepoint that stops the job is complete: from now on it cannot be given up."""
        self._pending[checkpoint_id].is_written = True

    def on_trigger_failed(self, checkpoint_id: int, detail: str, now_ms: float) -> list[CheckpointEffect]:
        def give_up() -> list[CheckpointEffect]:
            return self._abort_if_triggered(checkpoint_id, FailureReason.IO_EXCEPTION, detail)

        return self._step("trigger failed", checkpoint_id, "the JobMaster", now_ms, give_up)

    def on_generation_ended(self, reason: FailureReason, detail: str, now_ms: float) -> list[CheckpointEffect]:
        """Abort triggered checkpoints, and a stop that is still written: it would end the job in the middle of a
        restart, or keep the next generation from every checkpoint."""
        return self._abort_triggered("generation ended", self.ids, reason, detail, now_ms, self._is_written_for_a_stop)

    def _is_written_for_a_stop(self, pending: PendingCheckpoint) -> bool:
        # 11.14: a stop's entry is begun only while its generation runs.
        return pending.barrier.kind is SnapshotKind.STOP and not pending.is_written

    def on_saved(self, checkpoint_id: int, now_ms: float) -> None:
        """End a savepoint that is complete. Older checkpoints stay pending, because a savepoint is not canonical."""
        self._step("published", checkpoint_id, "the JobMaster", now_ms, lambda: self._complete(checkpoint_id))

    def _complete(self, checkpoint_id: int) -> list[CheckpointEffect]:
        pending = self._pending[checkpoint_id]
        self._end(pending, CheckpointState.PUBLISHED, pending.segments)
        return []

    def on_published(self, checkpoint_id: int, is_final: bool, now_ms: float) -> list[CheckpointEffect]:
        """Return the ends of older checkpoints that are not being published; behind the final one, of newer ones, too.
        Savepoints do not: somebody waits for them."""
        self._step("published", checkpoint_id, "the JobMaster", now_ms, lambda: self._complete(checkpoint_id))
        detail = f"checkpoint {checkpoint_id} has completed" + (", the job's last" if is_final else "")
        subsumed = [n for n, p in self._pending.items() if p.savepoint is None and (is_final or n < checkpoint_id)]
        return self._abort_triggered(
            "newer, or the final one, published", subsumed, FailureReason.SUBSUMED, detail, now_ms
        )

    def on_not_published(
        self, checkpoint_id: int, reason: FailureReason, detail: str, now_ms: float
    ) -> list[CheckpointEffect]:
        def give_up() -> list[CheckpointEffect]:
            return self._abort(self._pending[checkpoint_id], reason, detail)

        return self._step("not published", checkpoint_id, "the JobMaster", now_ms, give_up)

    # ---- what they do -------------------------------------------------------------------------------------------

    def _step(
        self, event: str, checkpoint_id: int, cause: str, now_ms: float, decide: Callable[[], list[CheckpointEffect]]
    ) -> list[CheckpointEffect]:
        def state() -> CheckpointState:
            return self.state_of(checkpoint_id)

        which = f" {checkpoint_id}"
        return step(CHECKPOINT_TABLE, self._story, event, cause, now_ms, state, decide, which)

    def _acknowledge(self, ack: SlotAck, now_ms: float) -> list[CheckpointEffect]:
        pending = self._pending.get(ack.checkpoint_id)
        if pending is None or ack.generation != pending.generation or ack.slot not in pending.slots:
            return self._discard_late(ack, pending)
        known = pending.acks.get(ack.slot)
        if known is not None:
            return [] if known.segment == ack.segment else self._discard_late(ack, pending)
        pending.acks[ack.slot] = ack
        if len(pending.acks) < len(pending.slots):
            return []
        pending.state = CheckpointState.PUBLISHING
        acks = tuple(pending.acks[slot] for slot in sorted(pending.acks))
        duration_ms = now_ms - pending.triggered_ms
        is_final, savepoint = _is_final(pending), pending.savepoint
        return [PublishCheckpoint(pending.barrier, pending.generation, acks, duration_ms, is_final, savepoint)]

    def _discard_late(self, ack: SlotAck, pending: PendingCheckpoint | None) -> list[CheckpointEffect]:
        """Delete the late segment only if its checkpoint is known to have ended without it. An unknown checkpoint may
        have completed with it."""
        if pending is not None:
            kept, savepoint = pending.segments, pending.savepoint
        elif ack.checkpoint_id in self._ended:
            kept, savepoint = self._ended[ack.checkpoint_id].kept, self._ended[ack.checkpoint_id].savepoint
        else:
            return []
        late = ack.own - kept
        return [DiscardSegments(tuple(sorted(late)), _directory_of(savepoint))] if late else []

    def _abort_triggered(
        self,
        event: str,
        checkpoint_ids: list[int],
        reason: FailureReason,
        detail: str,
        now_ms: float,
        takes_too: Callable[[PendingCheckpoint], bool] = lambda pending: False,
    ) -> list[CheckpointEffect]:
        """Abort those that are triggered, and those that are being published if `takes_too` says so."""
        effects: list[CheckpointEffect] = []
        for checkpoint_id in checkpoint_ids:
            give_up = partial(self._abort_if_triggered, checkpoint_id, reason, detail, takes_too)
            effects += self._step(event, checkpoint_id, "the JobMaster", now_ms, give_up)
        return effects

    def _abort_if_triggered(
        self,
        checkpoint_id: int,
        reason: FailureReason,
        detail: str,
        takes_too: Callable[[PendingCheckpoint], bool] = lambda pending: False,
    ) -> list[CheckpointEffect]:
        pending = self._pending.get(checkpoint_id)
        if pending is None or (pending.state is CheckpointState.PUBLISHING and not takes_too(pending)):
            return []
        return self._abort(pending, reason, detail)

    def _abort(self, pending: PendingCheckpoint, reason: FailureReason, detail: str) -> list[CheckpointEffect]:
        self._end(pending, CheckpointState.ABORTED, frozenset())
        savepoint = pending.savepoint
        effects: list[CheckpointEffect] = [CheckpointAborted(pending.checkpoint_id, reason, detail, savepoint)]
        if pending.barrier.kind is SnapshotKind.RESCALE:
            effects.append(RescaleNotTaken(reason, detail))
        if pending.segments:
            effects.append(DiscardSegments(tuple(sorted(pending.segments)), _directory_of(savepoint)))
        return effects

    def _end(self, pending: PendingCheckpoint, state: CheckpointState, kept: frozenset[str]) -> None:
        del self._pending[pending.checkpoint_id]
        self._ended[pending.checkpoint_id] = _Ended(state, kept, pending.savepoint)
        if len(self._ended) > ENDED_REMEMBERED_MAX:
            del self._ended[next(iter(self._ended))]


def _is_final(pending: PendingCheckpoint) -> bool:
    """Return whether the job ends with it: every subtask had finished, or it is a savepoint that stops the job."""
    if pending.barrier.kind.is_savepoint:
        return pending.barrier.kind is SnapshotKind.STOP
    snapshots = [s for a in pending.acks.values() for s in a.subtasks]
    return len(snapshots) == pending.subtasks and all(s.finished for s in snapshots)


def _directory_of(savepoint: Savepoint | None) -> str | None:
    return None if savepoint is None else savepoint.directory
