"""Decides when a checkpoint is triggered, and what its end means for the job.

It knows checkpoints by id, slots by number, and time as `now_ms` of one monotonic clock. It never knows what a
snapshot contains beyond "finished" and the segment that holds it, and nothing of the log: a checkpoint that all slots
have acknowledged is handed over (`PublishCheckpoint`), and it has completed when `on_published` says so.
`coordinator_tables.py` shows what leads from one phase to another, and what becomes of each checkpoint
(`pending_checkpoints.py`).

The end of a job is a checkpoint, too. When every subtask has reached its end of data, the final one is taken at once,
ahead of interval and minimum pause; a checkpoint in which every subtask was finished is the final one, whatever it
was triggered for. Without an interval it is the only one, and collects only committables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.protocol.checkpoint.coordinator_effects import CheckpointAborted, Effect, FailJob
from penstock.protocol.checkpoint.coordinator_tables import COORDINATOR_TABLE, CheckpointState, CoordinatorPhase
from penstock.protocol.checkpoint.failure_manager import CheckpointFailureManager
from penstock.protocol.checkpoint.pending_checkpoints import PendingCheckpoints
from penstock.protocol.checkpoint.request_decider import (
    CheckpointRequest,
    CheckpointRequestDecider,
    Decision,
    Situation,
    Start,
)
from penstock.protocol.machine import Story, step
from penstock.protocol.values.elements import Barrier, Generation, SubtaskId
from penstock.protocol.values.messages import Decline, SlotAck
from penstock.protocol.values.reasons import FailureReason

RETRY_FINAL_AFTER_MS = 1000.0


@dataclass(frozen=True)
class CoordinatorSettings:
    """Holds the coordinator's options. `interval_ms` None: no checkpoints but the final one. `alignment_timeout_ms` as
    in `Barrier`.
    """

    interval_ms: float | None
    min_pause_ms: float = 0.0
    timeout_ms: float = 600_000.0
    concurrent_max: int = 1
    alignment_timeout_ms: int | None = None
    tolerable_failures_max: int | None = 0


class CheckpointCoordinator:
    """Coordinates the checkpoints of one job. `next_checkpoint_id` must be above every id that the job's log or the
    restored checkpoint has named. `vertex_names`: by vertex number, for messages.
    """

    def __init__(
        self, settings: CoordinatorSettings, next_checkpoint_id: int = 1, vertex_names: Sequence[str] = ()
    ) -> None:
        self.settings = settings
        self._vertex_names = vertex_names
        self.next_checkpoint_id = next_checkpoint_id
        self.phase = CoordinatorPhase.STOPPED
        self.story = Story()
        self._interval_ms = None if settings.interval_ms is None else max(settings.interval_ms, settings.min_pause_ms)
        self._decider = CheckpointRequestDecider(settings.concurrent_max, settings.min_pause_ms)
        self._failures = CheckpointFailureManager(settings.tolerable_failures_max)
        self.pending = PendingCheckpoints(settings.timeout_ms, self.story)
        self._requests = 0
        self._generation: Generation | None = None
        self._slots: frozenset[int] = frozenset()
        self._subtasks = 0
        self._at_end: set[SubtaskId] = set()
        self._has_run = False
        self._next_trigger_ms: float | None = None
        self._final_due_ms: float | None = None
        self._final_attempted = False
        self._last_completion_ms: float | None = None
        self.completed = 0

    @property
    def pending_ids(self) -> list[int]:
        return self.pending.ids

    @property
    def may_trigger(self) -> bool:
        """Return whether a checkpoint may be triggered: a generation runs, and the final one is still to come."""
        return self.phase in (CoordinatorPhase.RUNNING, CoordinatorPhase.ENDING)

    def state_of(self, checkpoint_id: int) -> CheckpointState:
        return self.pending.state_of(checkpoint_id)

    def skip_ids_to(self, next_checkpoint_id: int) -> None:
        self.next_checkpoint_id = max(self.next_checkpoint_id, next_checkpoint_id)

    def _step(self, event: str, cause: str, now_ms: float, decide: Callable[[], list[Effect]]) -> list[Effect]:
        return step(COORDINATOR_TABLE, self.story, event, cause, now_ms, lambda: self.phase, decide)

    # ---- life of a generation -----------------------------------------------------------------------------------

    def on_running(
        self, generation: Generation, slots: frozenset[int], subtasks: int, now_ms: float, spread: float = 0.0
    ) -> list[Effect]:
        """Start checkpoints: all subtasks of a generation run. `spread` in [0, 1) places the job's first checkpoint
        between the minimum pause and the interval; after a restart it comes after the minimum pause.
        """

        def start() -> list[Effect]:
            self.phase = CoordinatorPhase.RUNNING
            self._generation, self._slots, self._subtasks = generation, slots, subtasks
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
            return self._look_at_the_clock(now_ms)

        return self._step("started", "the JobMaster", now_ms, start)

    def on_stopped(
        self, now_ms: float, reason: FailureReason = FailureReason.JOB_FAILOVER, detail: str = ""
    ) -> list[Effect]:
        """Stop checkpoints: the generation has ended. What is being published continues; everything else is aborted."""

        def stop() -> list[Effect]:
            if self.phase is not CoordinatorPhase.FINAL:
                self.phase = CoordinatorPhase.STOPPED
            self._generation = None
            self._next_trigger_ms = None
            self._final_due_ms = None
            self._decider.abandon(reason)
            return self.pending.on_generation_ended(reason, detail, now_ms)

        return self._step("stopped", "the JobMaster", now_ms, stop)

    # ---- time ---------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        deadlines = (self.pending.next_deadline_ms(), self._next_trigger_ms, self._final_due_ms)
        return min((t for t in deadlines if t is not None), default=None)

    def on_time(self, now_ms: float) -> list[Effect]:
        return self._step("time", "time", now_ms, lambda: self._look_at_the_clock(now_ms))

    def _look_at_the_clock(self, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        for checkpoint_id in self.pending.expired(now_ms):
            effects += self._after_abort(self.pending.on_expired(checkpoint_id, now_ms), now_ms)
            if isinstance(effects[-1], FailJob):
                # Without this: the generation has ended, and what is triggered next finds none.
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
        """Request a checkpoint for a user: limited by what is pending, but by no pause."""
        return self._step("requested", "a user", now_ms, lambda: self._request(now_ms) if self.may_trigger else [])

    def _request(self, now_ms: float, *, is_periodic: bool = False) -> list[Effect]:
        self._requests += 1
        request = CheckpointRequest(self._requests, is_periodic=is_periodic)
        return self._execute(self._decider.on_request(request, self._situation(now_ms)), now_ms)

    def _situation(self, now_ms: float) -> Situation:
        return Situation(now_ms, pending=len(self.pending), last_completion_ms=self._last_completion_ms)

    def _execute(self, decisions: list[Decision], now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        for decision in decisions:
            if isinstance(decision, Start):
                effects += self._trigger(now_ms)
            elif decision.retry_after_ms is not None:
                self._next_trigger_ms = now_ms + decision.retry_after_ms
        return effects

    def _trigger(self, now_ms: float) -> list[Effect]:
        assert self._generation is not None
        commits_only = self._interval_ms is None
        timeout_ms = None if commits_only else self.settings.alignment_timeout_ms
        barrier = Barrier(self.next_checkpoint_id, timeout_ms, commits_only=commits_only)
        self.next_checkpoint_id += 1
        return self.pending.trigger(barrier, self._generation, self._slots, self._subtasks, now_ms)

    # ---- answers ------------------------------------------------------------------------------------------------

    def on_ack(self, ack: SlotAck, now_ms: float) -> list[Effect]:
        return self.pending.on_ack(ack, now_ms)

    def on_decline(self, decline: Decline, now_ms: float) -> list[Effect]:
        vertex = self._name_of(decline.subtask)
        return self._after_abort(self.pending.on_decline(decline, vertex, now_ms), now_ms)

    def on_trigger_failed(self, checkpoint_id: int, detail: str, now_ms: float) -> list[Effect]:
        """Abort a checkpoint whose trigger could not be sent (an enumerator's snapshot raised)."""
        return self._after_abort(self.pending.on_trigger_failed(checkpoint_id, detail, now_ms), now_ms)

    def on_end_of_data(self, subtask: SubtaskId, now_ms: float) -> list[Effect]:
        def reached() -> list[Effect]:
            if self.phase is not CoordinatorPhase.RUNNING:
                return []
            self._at_end.add(subtask)
            if len(self._at_end) < self._subtasks:
                return []
            self.phase = CoordinatorPhase.ENDING
            return self._final(now_ms)

        cause = f"subtask {subtask.subtask + 1} of {self._name_of(subtask)}"
        return self._step("end of data", cause, now_ms, reached)

    def _name_of(self, subtask: SubtaskId) -> str:
        names, vertex = self._vertex_names, subtask.vertex
        return f"'{names[vertex]}'" if vertex < len(names) else f"vertex {vertex}"

    # ---- ends ---------------------------------------------------------------------------------------------------

    def on_published(self, checkpoint_id: int, is_final: bool, now_ms: float) -> list[Effect]:
        """Complete a checkpoint: its log entry exists (or, if it collects only committables, they are committed)."""

        def complete() -> list[Effect]:
            effects = self.pending.on_published(checkpoint_id, now_ms)
            self._failures.on_completed(checkpoint_id)
            self._last_completion_ms = now_ms
            self.completed += 1
            if is_final:
                self.phase = CoordinatorPhase.FINAL
                self._next_trigger_ms = self._final_due_ms = None
                self._decider.abandon(FailureReason.PERIODIC_SCHEDULER_SHUTDOWN)
            return effects + self._start_next(now_ms)

        return self._step("published", f"checkpoint {checkpoint_id}", now_ms, complete)

    def on_publication_failed(self, checkpoint_id: int, detail: str, now_ms: float) -> list[Effect]:
        """Fail a checkpoint that certainly has no log entry, and never will."""
        return self._not_published(checkpoint_id, FailureReason.FINALIZE_FAILURE, detail, now_ms)

    def on_id_taken(self, checkpoint_id: int, detail: str, now_ms: float) -> list[Effect]:
        """Give up a checkpoint whose id a driver that was fenced meanwhile had used. That is no failure of this job:
        the next checkpoint gets an unused id.
        """
        return self._not_published(checkpoint_id, FailureReason.ID_TAKEN, detail, now_ms)

    def on_publication_subsumed(self, checkpoint_id: int, now_ms: float) -> list[Effect]:
        """Give up a checkpoint because a newer one was in the log already."""
        return self._not_published(checkpoint_id, FailureReason.SUBSUMED, "a newer one has completed", now_ms)

    def _not_published(self, checkpoint_id: int, reason: FailureReason, detail: str, now_ms: float) -> list[Effect]:
        return self._after_abort(self.pending.on_not_published(checkpoint_id, reason, detail, now_ms), now_ms)

    def _after_abort(self, effects: list[Effect], now_ms: float) -> list[Effect]:
        """Return `effects`, and what follows from the checkpoint that they abort, if they do."""
        ended = next((effect for effect in effects if isinstance(effect, CheckpointAborted)), None)
        if ended is None:
            return effects

        def follow() -> list[Effect]:
            message = self._failures.on_failed(ended.checkpoint_id, ended.reason, ended.detail)
            if message is not None and self.may_trigger:
                return [FailJob(message)]
            return self._start_next(now_ms)

        return effects + self._step("aborted", f"checkpoint {ended.checkpoint_id}", now_ms, follow)

    def _start_next(self, now_ms: float) -> list[Effect]:
        """Start the final checkpoint, or the next queued request, if limits allow: a checkpoint has ended."""
        if not self.may_trigger:
            return []
        return self._final(now_ms) or self._execute(self._decider.on_change(self._situation(now_ms)), now_ms)

    def _final(self, now_ms: float) -> list[Effect]:
        """Trigger the final checkpoint if it is time for it. One that is pending is waited for: it may turn out to be
        the final one itself. After a failed attempt the next one follows after a moment, not at once."""
        if self.phase is not CoordinatorPhase.ENDING or len(self.pending):
            return []
        self._next_trigger_ms = None
        self._decider.abandon(FailureReason.PERIODIC_SCHEDULER_SHUTDOWN)
        if not self._final_attempted:
            self._final_attempted = True
            return self._trigger(now_ms)
        self._final_due_ms = now_ms + RETRY_FINAL_AFTER_MS
        return []
