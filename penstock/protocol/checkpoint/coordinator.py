"""The checkpoint coordinator: when a checkpoint is triggered, who has acknowledged it, and how it ends.

It knows checkpoints by id, slots by number, and time as `now_ms` of one monotonic clock. It never knows what a
snapshot contains beyond "finished" and the segment that holds it, and nothing of the log: a checkpoint that all slots
have acknowledged is handed over (`PublishCheckpoint`), and it has completed when `on_published` says so.

Every trigger ends exactly once: published, or `CheckpointAborted`. A checkpoint that is being published cannot be
given up any more (its log entry may exist already); expiry, failover and declines leave it alone. Ids grow and are
never used again, so an acknowledgement that comes late is told from a current one by its id, whatever has happened
in between, and is answered with what to delete.

The end of a job is a checkpoint, too. When every subtask has reached its end of data, the final one is taken at once,
ahead of interval and minimum pause; a checkpoint in which every subtask was finished is the final one, whatever it
was triggered for. Without an interval it is the only one, and collects only committables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.protocol.checkpoint.failure_manager import CheckpointFailureManager
from penstock.protocol.checkpoint.request_decider import (
    CheckpointRequest,
    CheckpointRequestDecider,
    Decision,
    Situation,
    Start,
)
from penstock.protocol.values.elements import Barrier, Generation, SubtaskId
from penstock.protocol.values.messages import Decline, SlotAck
from penstock.protocol.values.reasons import FailureReason

ENDED_REMEMBERED_MAX = 64
"""So many ended checkpoints are remembered for late acknowledgements; files of older ones are left to the sweep."""

RETRY_FINAL_AFTER_MS = 1000.0


@dataclass(frozen=True)
class CoordinatorSettings:
    """`interval_ms` None: no checkpoints but the final one. `alignment_timeout_ms` as in `Barrier`."""

    interval_ms: float | None
    min_pause_ms: float = 0.0
    timeout_ms: float = 600_000.0
    concurrent_max: int = 1
    alignment_timeout_ms: int | None = None
    tolerable_failures_max: int | None = 0


# ---- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TriggerCheckpoint:
    """Snapshot the enumerators, then send the trigger to every slot."""

    barrier: Barrier


@dataclass(frozen=True)
class PublishCheckpoint:
    """Every slot has acknowledged. `acks` in the order of slots. `duration_ms`: trigger to last acknowledgement."""

    barrier: Barrier
    generation: Generation
    acks: tuple[SlotAck, ...]
    duration_ms: float
    is_final: bool


@dataclass(frozen=True)
class CheckpointAborted:
    """Tell the slots, if the generation still runs."""

    checkpoint_id: int
    reason: FailureReason
    detail: str


@dataclass(frozen=True)
class DiscardSegments:
    """Nothing names these files, and nothing will."""

    paths: tuple[str, ...]


@dataclass(frozen=True)
class FailJob:
    """Too many checkpoints have failed: the job fails over."""

    message: str


@dataclass(frozen=True)
class StillPublishing:
    """The storage has not said for the time of a whole checkpoint whether this one is in the log. It is waited for, and
    no other is triggered meanwhile."""

    checkpoint_id: int
    waited_ms: float


Effect = TriggerCheckpoint | PublishCheckpoint | CheckpointAborted | DiscardSegments | FailJob | StillPublishing


@dataclass
class PendingCheckpoint:
    barrier: Barrier
    generation: Generation
    triggered_ms: float
    expires_ms: float
    slots: frozenset[int]
    acks: dict[int, SlotAck] = field(default_factory=dict)
    is_publishing: bool = False

    @property
    def missing(self) -> list[int]:
        return sorted(self.slots - self.acks.keys())

    @property
    def segments(self) -> frozenset[str]:
        return frozenset(ack.segment.path for ack in self.acks.values() if ack.segment is not None)


class CheckpointCoordinator:
    """`next_checkpoint_id` must be above every id that the job's log or the restored checkpoint has named.
    `vertex_names`: by vertex number, for messages."""

    def __init__(
        self, settings: CoordinatorSettings, next_checkpoint_id: int = 1, vertex_names: Sequence[str] = ()
    ) -> None:
        self.settings = settings
        self._vertex_names = vertex_names
        self.next_checkpoint_id = next_checkpoint_id
        self._interval_ms = None if settings.interval_ms is None else max(settings.interval_ms, settings.min_pause_ms)
        self._decider = CheckpointRequestDecider(settings.concurrent_max, settings.min_pause_ms)
        self._failures = CheckpointFailureManager(settings.tolerable_failures_max)
        self._pending: dict[int, PendingCheckpoint] = {}
        self._ended: dict[int, frozenset[str]] = {}
        self._requests = 0
        self._generation: Generation | None = None
        self._slots: frozenset[int] = frozenset()
        self._subtasks = 0
        self._at_end: set[SubtaskId] = set()
        self._has_run = False
        self._is_final_published = False
        self._next_trigger_ms: float | None = None
        self._final_due_ms: float | None = None
        self._final_attempted = False
        self._last_completion_ms: float | None = None
        self.completed = 0

    @property
    def pending_ids(self) -> list[int]:
        return list(self._pending)

    @property
    def is_running(self) -> bool:
        return self._generation is not None

    @property
    def all_at_end_of_data(self) -> bool:
        return self.is_running and len(self._at_end) >= self._subtasks

    def skip_ids_to(self, next_checkpoint_id: int) -> None:
        self.next_checkpoint_id = max(self.next_checkpoint_id, next_checkpoint_id)

    # ---- life of a generation -----------------------------------------------------------------------------------

    def on_running(
        self, generation: Generation, slots: frozenset[int], subtasks: int, now_ms: float, spread: float = 0.0
    ) -> list[Effect]:
        """All subtasks of a generation run. `spread` in [0, 1) places the job's first checkpoint between the minimum
        pause and the interval; after a restart it comes after the minimum pause."""
        self._generation = generation
        self._slots = slots
        self._subtasks = subtasks
        self._at_end.clear()
        self._final_due_ms = None
        self._final_attempted = False
        self._next_trigger_ms = None
        if self._interval_ms is not None:
            delay_ms = self.settings.min_pause_ms
            if not self._has_run:
                delay_ms += spread * (self._interval_ms - delay_ms)
            self._next_trigger_ms = now_ms + delay_ms
        self._has_run = True
        return self.on_time(now_ms)

    def on_stopped(self, reason: FailureReason = FailureReason.JOB_FAILOVER, detail: str = "") -> list[Effect]:
        """The generation has ended. What is being published goes on; everything else is given up."""
        self._generation = None
        self._next_trigger_ms = None
        self._final_due_ms = None
        self._decider.abandon(reason)
        effects: list[Effect] = []
        for pending in [p for p in self._pending.values() if not p.is_publishing]:
            effects += self._give_up(pending, reason, detail)
        return effects

    # ---- time ---------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        deadlines = [p.expires_ms for p in self._pending.values()]
        deadlines += [t for t in (self._next_trigger_ms, self._final_due_ms) if t is not None]
        return min(deadlines, default=None)

    def on_time(self, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        for pending in [p for p in self._pending.values() if p.expires_ms <= now_ms]:
            if pending.is_publishing:
                pending.expires_ms = now_ms + self.settings.timeout_ms
                effects.append(StillPublishing(pending.barrier.checkpoint_id, now_ms - pending.triggered_ms))
                continue
            missing = ", ".join(map(str, pending.missing))
            detail = f"not acknowledged within {self.settings.timeout_ms / 1000:g} s by slot(s) {missing}"
            effects += self._fail(pending, FailureReason.EXPIRED, detail, now_ms)
            if isinstance(effects[-1], FailJob):
                # The generation ends with this. Without it: what is triggered next finds no generation.
                return effects
        if self._next_trigger_ms is not None and self._next_trigger_ms <= now_ms and self._interval_ms is not None:
            self._next_trigger_ms = max(self._next_trigger_ms + self._interval_ms, now_ms)
            if self._decider.queued == 0:
                effects += self._request(now_ms, is_periodic=True)
        if self._final_due_ms is not None and self._final_due_ms <= now_ms:
            self._final_due_ms = None
            effects += self._request(now_ms)
        return effects

    # ---- requests -----------------------------------------------------------------------------------------------

    def request(self, now_ms: float) -> list[Effect]:
        """A user asks for a checkpoint: bound by what is pending, but by no pause."""
        return self._request(now_ms) if self.is_running and not self._is_final_published else []

    def _request(self, now_ms: float, *, is_periodic: bool = False) -> list[Effect]:
        self._requests += 1
        request = CheckpointRequest(self._requests, is_periodic=is_periodic)
        return self._carry_out(self._decider.on_request(request, self._situation(now_ms)), now_ms)

    def _situation(self, now_ms: float) -> Situation:
        return Situation(now_ms, pending=len(self._pending), last_completion_ms=self._last_completion_ms)

    def _carry_out(self, decisions: list[Decision], now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        for decision in decisions:
            if isinstance(decision, Start):
                effects.append(self._trigger(now_ms))
            elif decision.retry_after_ms is not None:
                self._next_trigger_ms = now_ms + decision.retry_after_ms
        return effects

    def _trigger(self, now_ms: float) -> TriggerCheckpoint:
        assert self._generation is not None
        commits_only = self._interval_ms is None
        barrier = Barrier(
            self.next_checkpoint_id,
            None if commits_only else self.settings.alignment_timeout_ms,
            commits_only=commits_only,
        )
        self.next_checkpoint_id += 1
        self._pending[barrier.checkpoint_id] = PendingCheckpoint(
            barrier, self._generation, now_ms, now_ms + self.settings.timeout_ms, self._slots
        )
        return TriggerCheckpoint(barrier)

    # ---- answers ------------------------------------------------------------------------------------------------

    def on_ack(self, ack: SlotAck, now_ms: float) -> list[Effect]:
        pending = self._pending.get(ack.checkpoint_id)
        if pending is None or ack.generation != pending.generation or ack.slot not in pending.slots:
            return self._discard_late(ack, pending)
        known = pending.acks.get(ack.slot)
        if known is not None:
            return [] if known.segment == ack.segment else self._discard_late(ack, pending)
        pending.acks[ack.slot] = ack
        if len(pending.acks) < len(pending.slots):
            return []
        pending.is_publishing = True
        snapshots = [s for a in pending.acks.values() for s in a.subtasks]
        is_final = len(snapshots) == self._subtasks and all(s.finished for s in snapshots)
        acks = tuple(pending.acks[slot] for slot in sorted(pending.acks))
        duration_ms = now_ms - pending.triggered_ms
        return [PublishCheckpoint(pending.barrier, pending.generation, acks, duration_ms, is_final)]

    def _discard_late(self, ack: SlotAck, pending: PendingCheckpoint | None) -> list[Effect]:
        """Only a checkpoint that is known to have ended without this file makes the file waste; one that nothing is
        known of may have completed."""
        if ack.segment is None:
            return []
        kept = self._ended.get(ack.checkpoint_id) if pending is None else pending.segments
        if kept is None or ack.segment.path in kept:
            return []
        return [DiscardSegments((ack.segment.path,))]

    def on_decline(self, decline: Decline, now_ms: float) -> list[Effect]:
        pending = self._pending.get(decline.checkpoint_id)
        if pending is None or pending.is_publishing or decline.generation != pending.generation:
            return []
        vertex, subtask = decline.subtask.vertex, decline.subtask.subtask
        name = f"'{self._vertex_names[vertex]}'" if vertex < len(self._vertex_names) else f"vertex {vertex}"
        detail = f"declined by subtask {subtask + 1} of {name}"
        if decline.detail:
            detail += f": {decline.detail}"
        return self._fail(pending, decline.reason, detail, now_ms)

    def on_trigger_failed(self, checkpoint_id: int, detail: str, now_ms: float) -> list[Effect]:
        """The trigger could not be sent (an enumerator's snapshot raised)."""
        pending = self._pending.get(checkpoint_id)
        return [] if pending is None else self._fail(pending, FailureReason.IO_EXCEPTION, detail, now_ms)

    def on_end_of_data(self, subtask: SubtaskId, now_ms: float) -> list[Effect]:
        if not self.is_running or subtask in self._at_end:
            return []
        self._at_end.add(subtask)
        return self._final(now_ms)

    # ---- ends ---------------------------------------------------------------------------------------------------

    def on_published(self, checkpoint_id: int, is_final: bool, now_ms: float) -> list[Effect]:
        """The log entry is there (for one that collects only committables: they are committed)."""
        done = self._pending.pop(checkpoint_id)
        self._remember_ended(checkpoint_id, done.segments)
        self._failures.on_completed(checkpoint_id)
        self._last_completion_ms = now_ms
        self.completed += 1
        self._is_final_published |= is_final
        effects: list[Effect] = []
        for older in [p for p in self._pending.values() if p.barrier.checkpoint_id < checkpoint_id]:
            if not older.is_publishing:
                effects += self._give_up(older, FailureReason.SUBSUMED, f"checkpoint {checkpoint_id} has completed")
        if self._is_final_published:
            self._next_trigger_ms = self._final_due_ms = None
            self._decider.abandon(FailureReason.PERIODIC_SCHEDULER_SHUTDOWN)
            return effects
        return effects + self._go_on(now_ms)

    def on_publication_failed(self, checkpoint_id: int, detail: str, now_ms: float) -> list[Effect]:
        """It is certain that there is no log entry for it, and never will be."""
        return self._fail(self._pending[checkpoint_id], FailureReason.FINALIZE_FAILURE, detail, now_ms)

    def on_id_taken(self, checkpoint_id: int, detail: str, now_ms: float) -> list[Effect]:
        """A driver that was fenced meanwhile had used the id. That is no failure of this job: the next checkpoint gets
        an id that nobody has used."""
        return self._fail(self._pending[checkpoint_id], FailureReason.ID_TAKEN, detail, now_ms)

    def on_publication_subsumed(self, checkpoint_id: int, now_ms: float) -> list[Effect]:
        """A newer one was in the log already."""
        return self._fail(self._pending[checkpoint_id], FailureReason.SUBSUMED, "a newer one has completed", now_ms)

    def _fail(self, pending: PendingCheckpoint, reason: FailureReason, detail: str, now_ms: float) -> list[Effect]:
        effects = self._give_up(pending, reason, detail)
        message = self._failures.on_failed(pending.barrier.checkpoint_id, reason, detail)
        if message is not None and self.is_running:
            return [*effects, FailJob(message)]
        return effects + self._go_on(now_ms)

    def _give_up(self, pending: PendingCheckpoint, reason: FailureReason, detail: str) -> list[Effect]:
        checkpoint_id = pending.barrier.checkpoint_id
        del self._pending[checkpoint_id]
        self._remember_ended(checkpoint_id, frozenset())
        effects: list[Effect] = [CheckpointAborted(checkpoint_id, reason, detail)]
        if pending.segments:
            effects.append(DiscardSegments(tuple(sorted(pending.segments))))
        return effects

    def _remember_ended(self, checkpoint_id: int, kept_segments: frozenset[str]) -> None:
        self._ended[checkpoint_id] = kept_segments
        if len(self._ended) > ENDED_REMEMBERED_MAX:
            del self._ended[next(iter(self._ended))]

    def _go_on(self, now_ms: float) -> list[Effect]:
        """After one has ended: whoever waits may go."""
        if not self.is_running:
            return []
        return self._final(now_ms) or self._carry_out(self._decider.on_change(self._situation(now_ms)), now_ms)

    def _final(self, now_ms: float) -> list[Effect]:
        """Triggers the final checkpoint if it is time for it. One that is pending is waited for: it may turn out to
        be the final one itself. After a failed attempt the next one follows after a moment, not at once."""
        if not self.all_at_end_of_data or self._pending or self._is_final_published:
            return []
        self._next_trigger_ms = None
        self._decider.abandon(FailureReason.PERIODIC_SCHEDULER_SHUTDOWN)
        if not self._final_attempted:
            self._final_attempted = True
            return [self._trigger(now_ms)]
        self._final_due_ms = now_ms + RETRY_FINAL_AFTER_MS
        return []
