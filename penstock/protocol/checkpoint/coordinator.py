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

from penstock.protocol.checkpoint.coordinator_effects import (
    CheckpointAborted,
    DrainSources,
    Effect,
    FailJob,
    RescaleNotTaken,
    SavepointRefused,
    StillDraining,
)
from penstock.protocol.checkpoint.coordinator_settings import CoordinatorSettings
from penstock.protocol.checkpoint.coordinator_tables import COORDINATOR_TABLE, CoordinatorPhase
from penstock.protocol.checkpoint.failure_manager import CheckpointFailureManager
from penstock.protocol.checkpoint.pending_checkpoints import PendingCheckpoints
from penstock.protocol.checkpoint.request_decider import (
    CheckpointRequest,
    CheckpointRequestDecider,
    Decision,
    Situation,
    Start,
)
from penstock.protocol.checkpoint.savepoint import Savepoint
from penstock.protocol.checkpoint.stopping import Stopping
from penstock.protocol.checkpoint.trigger_schedule import FinalAttempts, TriggerSchedule
from penstock.protocol.machine import Story, step
from penstock.protocol.values.elements import Barrier, Generation, SubtaskId
from penstock.protocol.values.messages import Decline, SlotAck
from penstock.protocol.values.reasons import FailureReason


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
        self.schedule = TriggerSchedule(settings.interval_ms, settings.min_pause_ms, settings.backlog_interval_ms)
        self._decider = CheckpointRequestDecider(settings.concurrent_max, settings.min_pause_ms)
        self._failures = CheckpointFailureManager(settings.tolerable_failures_max)
        self.pending = PendingCheckpoints(settings.timeout_ms, self.story)
        self._requests = 0
        self._generation: Generation | None = None
        self._slots: frozenset[int] = frozenset()
        self._subtasks = 0
        self._holds_sources = False
        self._at_end: set[SubtaskId] = set()
        self._final_attempts = FinalAttempts()
        self.stopping = Stopping()
        self._rescale_waits = False
        self._last_completion_ms: float | None = None
        self._is_congested = False
        self.completed = 0

    @property
    def may_trigger(self) -> bool:
        """Return whether a checkpoint may be triggered: a generation runs, and the final one is still to come."""
        return self.phase in (CoordinatorPhase.RUNNING, CoordinatorPhase.ENDING)

    def skip_ids_to(self, next_checkpoint_id: int) -> None:
        self.next_checkpoint_id = max(self.next_checkpoint_id, next_checkpoint_id)

    def _step(self, event: str, cause: str, now_ms: float, decide: Callable[[], list[Effect]]) -> list[Effect]:
        return step(COORDINATOR_TABLE, self.story, event, cause, now_ms, lambda: self.phase, decide)

    # ---- life of a generation -----------------------------------------------------------------------------------

    def on_running(
        self,
        generation: Generation,
        slots: frozenset[int],
        subtasks: int,
        now_ms: float,
        spread: float = 0.0,
        holds_sources: bool = False,
    ) -> list[Effect]:
        """Start checkpoints: all subtasks of a generation run. `spread` in [0, 1) places the job's first checkpoint
        between the minimum pause and the interval; after a restart it comes after the minimum pause. `holds_sources`:
        they cannot end in this generation, so the job is not drained."""

        def start() -> list[Effect]:
            self.phase = CoordinatorPhase.RUNNING
            self._generation, self._slots, self._subtasks = generation, slots, subtasks
            self._holds_sources = holds_sources
            self._rescale_waits = False
            self._at_end.clear()
            self._final_attempts = FinalAttempts()
            self.schedule.start(now_ms, spread)
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
            self.schedule.stop()
            self._final_attempts.due_ms = None
            effects = self._execute(self._decider.abandon(reason), now_ms)
            ended = self.pending.on_generation_ended(reason, detail, now_ms)
            return [*effects, *self.stopping.on_generation_ended(self.pending, ended, reason), *ended]

        return self._step("stopped", "the JobMaster", now_ms, stop)

    # ---- time ---------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        deadlines = (
            self.pending.next_deadline_ms(),
            self.schedule.next_ms,
            self._final_attempts.due_ms,
            self.stopping.next_warning_ms(),
        )
        return min((t for t in deadlines if t is not None), default=None)

    def on_time(self, now_ms: float) -> list[Effect]:
        return self._step("time", "time", now_ms, lambda: self._look_at_the_clock(now_ms))

    def on_backlog(self, is_backlog: bool, now_ms: float) -> None:
        """Follow whether any source works off a backlog: periodic checkpoints may have another interval then."""
        self.schedule.follow_backlog(is_backlog, now_ms)

    def _look_at_the_clock(self, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        for checkpoint_id in self.pending.expired(now_ms):
            self._is_congested = True
            effects += self._after_abort(self.pending.on_expired(checkpoint_id, now_ms), now_ms)
            if isinstance(effects[-1], FailJob):
                # Without this: the generation has ended, and what is triggered next finds none.
                return effects
        if self.schedule.take_due(now_ms) and self._decider.queued == 0 and not self.stopping.is_draining:
            effects += self._request(now_ms, is_periodic=True)
        if self._final_attempts.take_due(now_ms):
            effects += self._final(now_ms)
        drained_ms = self.stopping.take_warning(now_ms, self.settings.timeout_ms)
        if drained_ms is not None and self.phase is CoordinatorPhase.RUNNING:
            effects.append(StillDraining(drained_ms, len(self._at_end), self._subtasks))
        return effects

    # ---- requests -----------------------------------------------------------------------------------------------

    @property
    def why_no_checkpoint(self) -> FailureReason | None:
        """Return why nobody may request a checkpoint now; None: he may."""
        if self.phase is CoordinatorPhase.FINAL:
            return FailureReason.JOB_ENDED
        if not self.may_trigger:
            return FailureReason.NOT_ALL_TASKS_RUNNING
        if self.stopping.is_draining:
            return FailureReason.STOP_PENDING
        return FailureReason.TOO_MANY_REQUESTS if self._decider.is_full else None

    def request(self, now_ms: float) -> list[Effect]:
        """Request a checkpoint for a user: limited by what is pending, but by no pause."""
        may_trigger = self.why_no_checkpoint is None
        return self._step("requested", "a user", now_ms, lambda: self._request(now_ms) if may_trigger else [])

    def request_savepoint(self, savepoint: Savepoint, now_ms: float) -> list[Effect]:
        """Request a savepoint for a user. It passes the limit of pending checkpoints. While one stops the job, or must
        not hold rows in flight, nothing else is triggered."""

        def ask() -> list[Effect]:
            if not self.may_trigger:
                is_over = self.phase is CoordinatorPhase.FINAL
                reason = FailureReason.JOB_ENDED if is_over else FailureReason.NOT_ALL_TASKS_RUNNING
                return [SavepointRefused(savepoint, reason)]
            if self.stopping.savepoint is not None:
                return [SavepointRefused(savepoint, FailureReason.STOP_PENDING)]
            # Without this: savepoints that always overlap keep a rescale waiting for ever.
            waits_for_saves = self._rescale_waits and self.pending.saves and not savepoint.stops
            if waits_for_saves or self.pending.rescales or (savepoint.drains and self._holds_sources):
                return [SavepointRefused(savepoint, FailureReason.RESCALE_PENDING)]
            self.stopping.begin(savepoint, now_ms, self.settings.timeout_ms)
            if savepoint.drains:
                refused = self._execute(self._decider.abandon(FailureReason.STOP_PENDING), now_ms)
                # Without a source left to end, the final checkpoint may be waiting for something already.
                return [DrainSources(), *refused, *self._final(now_ms)]
            return self._request(now_ms, savepoint=savepoint)

        return self._step("savepoint requested", "a user", now_ms, ask)

    def request_rescale(self, aligned: bool, now_ms: float) -> list[Effect]:
        """Trigger the checkpoint from which the job continues at another parallelism; it passes the limit of pending
        checkpoints, waits for savepoints, and nothing is triggered behind it. Return [] while it cannot be: ask again
        after each event. While it waits for savepoints, only one that stops the job may begin.
        """

        def trigger() -> list[Effect]:
            # Without this: a savepoint that somebody waits for is aborted when the job continues from the checkpoint.
            is_saving = self.stopping.savepoint is not None or self.pending.saves
            self._rescale_waits = is_saving
            if self.phase is not CoordinatorPhase.RUNNING or is_saving or self.pending.is_exclusive:
                return []
            return self._trigger_with(self.settings.rescale_barrier(self.next_checkpoint_id, aligned), now_ms)

        return self._step("rescale requested", "the JobMaster", now_ms, trigger)

    def _request(self, now_ms: float, *, is_periodic: bool = False, savepoint: Savepoint | None = None) -> list[Effect]:
        self._requests += 1
        request = CheckpointRequest(self._requests, is_periodic, is_forced=savepoint is not None, savepoint=savepoint)
        return self._execute(self._decider.on_request(request, self._situation(now_ms)), now_ms)

    def _situation(self, now_ms: float) -> Situation:
        return Situation(
            now_ms,
            len(self.pending),
            is_triggering=self.pending.is_exclusive,
            is_congested=self._is_congested,
            last_completion_ms=self._last_completion_ms,
        )

    def _execute(self, decisions: list[Decision], now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        for decision in decisions:
            if isinstance(decision, Start):
                effects += self._trigger(now_ms, decision.request.savepoint)
            elif decision.request.savepoint is not None:
                effects.append(self.stopping.refused(decision.request.savepoint, decision.reason))
            elif decision.retry_after_ms is not None:
                self.schedule.postpone(now_ms + decision.retry_after_ms)
        return effects

    def _trigger(self, now_ms: float, savepoint: Savepoint | None = None) -> list[Effect]:
        return self._trigger_with(self.settings.barrier(self.next_checkpoint_id, savepoint), now_ms, savepoint)

    def _trigger_with(self, barrier: Barrier, now_ms: float, savepoint: Savepoint | None = None) -> list[Effect]:
        assert self._generation is not None
        self.next_checkpoint_id += 1
        return self.pending.trigger(barrier, self._generation, self._slots, self._subtasks, now_ms, savepoint)

    # ---- answers ------------------------------------------------------------------------------------------------

    def on_ack(self, ack: SlotAck, now_ms: float) -> list[Effect]:
        return self.stopping.not_final(self.pending.on_ack(ack, now_ms))

    def on_decline(self, decline: Decline, now_ms: float) -> list[Effect]:
        vertex = _vertex_name(self._vertex_names, decline.subtask)
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
            # Without this: with several at once one is always pending, and the final one waits until none is.
            self.schedule.stop()
            return self._final(now_ms)

        cause = f"subtask {subtask.subtask + 1} of {_vertex_name(self._vertex_names, subtask)}"
        return self._step("end of data", cause, now_ms, reached)

    # ---- ends ---------------------------------------------------------------------------------------------------

    def on_published(self, checkpoint_id: int, is_final: bool, now_ms: float) -> list[Effect]:
        """Complete a checkpoint: its log entry exists (or, if it collects only committables, they are committed)."""

        def complete() -> list[Effect]:
            savepoint = self.pending.savepoint_of(checkpoint_id)
            effects = self.pending.on_published(checkpoint_id, is_final, now_ms)
            self._failures.on_completed(checkpoint_id)
            self._is_congested = False
            self._last_completion_ms = now_ms
            self.completed += 1
            if is_final:
                self.phase = CoordinatorPhase.FINAL
                self.schedule.stop()
                self._final_attempts.due_ms = None
                effects += self._execute(self._decider.abandon(FailureReason.JOB_ENDED), now_ms)
                effects += self.stopping.on_final(savepoint, self.pending)
            return effects + self._start_next(now_ms)

        return self._step("published", f"checkpoint {checkpoint_id}", now_ms, complete)

    def on_written(self, checkpoint_id: int) -> None:
        """Note that the directory of a savepoint is complete, before its entry in the log is begun."""
        self.pending.on_written(checkpoint_id)

    def on_saved(self, checkpoint_id: int, now_ms: float) -> list[Effect]:
        """Complete a savepoint of a job that continues."""

        def complete() -> list[Effect]:
            self.pending.on_saved(checkpoint_id, now_ms)
            self._last_completion_ms = now_ms
            return self._start_next(now_ms)

        return self._step("saved", f"savepoint {checkpoint_id}", now_ms, complete)

    def on_not_published(self, checkpoint_id: int, reason: FailureReason, detail: str, now_ms: float) -> list[Effect]:
        """Abort a checkpoint that certainly has no log entry, and never will (`ID_TAKEN`: a fenced driver has it)."""
        return self._after_abort(self.pending.on_not_published(checkpoint_id, reason, detail, now_ms), now_ms)

    def _after_abort(self, effects: list[Effect], now_ms: float) -> list[Effect]:
        """Return `effects`, and what follows from the checkpoint that they abort, if they do."""
        ended = next((effect for effect in effects if isinstance(effect, CheckpointAborted)), None)
        if ended is None:
            return effects

        def follow() -> list[Effect]:
            if any(isinstance(effect, RescaleNotTaken) for effect in effects):
                return self._start_next(now_ms)
            if ended.savepoint is not None:
                failed = self.stopping.on_failed(ended.savepoint, ended.detail, self.may_trigger)
                return failed or self._start_next(now_ms)
            message = self._failures.on_failed(ended.checkpoint_id, ended.reason, ended.detail)
            if message is not None and self.may_trigger:
                return [FailJob(message)]
            return self._start_next(now_ms)

        return effects + self._step("aborted", f"checkpoint {ended.checkpoint_id}", now_ms, follow)

    def _start_next(self, now_ms: float) -> list[Effect]:
        """Start the final checkpoint, or what is queued, as far as limits allow: a checkpoint has ended."""
        if not self.may_trigger:
            return []
        effects = self._final(now_ms)
        # One that has completed may have ended several older ones, so there may be room for several.
        while decisions := self._decider.on_change(self._situation(now_ms)):
            effects += self._execute(decisions, now_ms)
        return effects

    def _final(self, now_ms: float) -> list[Effect]:
        """Trigger the final checkpoint if it is time for it. One that is pending is waited for: it may turn out to be
        the final one itself. After a failed attempt the next one follows after a moment, not at once."""
        if self.phase is not CoordinatorPhase.ENDING or len(self.pending):
            return []
        self.schedule.stop()
        refused = self._execute(self._decider.abandon(FailureReason.PERIODIC_SCHEDULER_SHUTDOWN), now_ms)
        begins = self._final_attempts.begin(now_ms)
        return [*refused, *(self._trigger(now_ms, self.stopping.savepoint) if begins else ())]


def _vertex_name(names: Sequence[str], subtask: SubtaskId) -> str:
    return f"'{names[subtask.vertex]}'" if subtask.vertex < len(names) else f"vertex {subtask.vertex}"
