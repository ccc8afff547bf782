"""Decides for the driver of one job, behind one door: life, checkpoints, recoveries, commits, rescales, and the end.

`handle` takes one event, and returns the effects in the order in which they are to be executed. What one part decides
may be an event for another: the end of a generation ends its checkpoints, too many failed checkpoints fail the
generation, a finished recovery lets the job start, and a commit that fails ends what runs. Such an event never calls
into a part that is still deciding. It waits in a queue, at the place of its cause, and the queue is empty when `handle`
returns. So effects are in the order of their causes, and no part is entered twice.

What executing an effect brings about is a further event, which the caller hands over once `handle` has returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from penstock.protocol.driver import adaptive_scaling, commit_order, driver_effects, driver_events, ending, recovery
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver import rescaling as rescales
from penstock.protocol.driver.adaptive_scaling import AdaptiveScaling, AdaptiveSettings, Resources
from penstock.protocol.driver.commit_order import CommitOrder, CommitState
from penstock.protocol.driver.coordinator import CheckpointCoordinator, CoordinatorSettings
from penstock.protocol.driver.driver_effects import (
    CheckpointAborted,
    FailJob,
    FailureCause,
    FollowPublication,
    GenerationEnded,
    Prepare,
    RescaleNotTaken,
    Restarting,
    SlotsGone,
    TriggerCheckpoint,
)
from penstock.protocol.driver.ending import Ending
from penstock.protocol.driver.lifecycle import Lifecycle, LifecycleSettings, Phase
from penstock.protocol.driver.published_checkpoints import FOLLOWS, Follow
from penstock.protocol.driver.recovery import Recovery
from penstock.protocol.driver.rescaling import Rescale, Rescaling, Situation
from penstock.protocol.driver.restarts import RestartStrategy
from penstock.protocol.machine import Story
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import Decline, SlotAck
from penstock.protocol.values.reasons import FailureReason

Event = driver_events.Event | recovery.Event | commit_order.Event | ending.Event
Effect = (
    driver_effects.Effect
    | recovery.Effect
    | commit_order.Effect
    | ending.Effect
    | rescales.RescalingEffect
    | adaptive_scaling.AdaptiveEffect
)

NOT_RESTORED = "the job cannot be restored at the parallelism that it is to have"
_FAILED_OVER = (FailureReason.JOB_FAILOVER, FailureReason.SUBSUMED)


class _Look(Enum):
    """Lets a part look at the clock, once all that the passed time means for those before it is decided."""

    CHECKPOINTS = "checkpoints"
    END = "end"
    COMMITS = "commits"
    RESOURCES = "resources"


class DriverMachine:
    """Decides about one job. `vertex_names`: by vertex number, for messages. `jitter` returns the caller's next random
    number in [-1, 1]. `has_log`: the job takes checkpoints. `start`: the checkpoint that the user named to start from.
    `adaptive`: None with the default scheduler. `runs_already`: whether the job runs as a rescale orders.

    Its parts and flags may be read by everybody; only `handle` changes them.
    """

    def __init__(
        self,
        lifecycle: LifecycleSettings,
        coordinator: CoordinatorSettings,
        strategy: RestartStrategy,
        jitter: Callable[[], float],
        vertex_names: Sequence[str] = (),
        has_log: bool = False,
        start: str | None = None,
        adaptive: AdaptiveSettings | None = None,
        runs_already: Callable[[Rescale], bool] = lambda rescale: False,
    ) -> None:
        self._has_log, self._start = has_log, start
        self.story = Story()
        self.owns_log = not has_log
        """True from the fence that counts to the first sign of another owner: what lies in the directory is ours.
        Without this: a driver that was slow deletes what its successor needs (PROTOCOL.md 11.23)."""
        self.fence = 0
        """The position from which the log is ours."""
        self.suspends = False
        """True if only this driver ends: the log says nothing of it, and another one continues the job."""
        self.keeps_everything = False
        """True if the job's end deletes nothing, whatever the settings say."""
        self.lifecycle = Lifecycle(lifecycle, strategy, jitter, self.story)
        self.coordinator = CheckpointCoordinator(coordinator, vertex_names=vertex_names, story=self.story)
        self.recovery = Recovery(self.story)
        self.commits = CommitOrder(coordinator.timeout_ms, self.story)
        self.ending = Ending(self.story)
        self.rescaling = Rescaling(runs_already, self.story)
        self.adaptive = None if adaptive is None else AdaptiveScaling(adaptive, self.story)
        self._facts = driver_events.Facts()
        self._rescale_checkpoint: int | None = None
        """The checkpoint that was triggered for a rescale."""
        self._when_committed: Effect | None = None
        """An effect that waits until nothing is being committed."""

    def next_deadline_ms(self) -> float | None:
        """Return the deadline of `TimePassed`; None: never."""
        parts = (self.lifecycle, self.coordinator, self.ending, self.commits, self.rescaling)
        deadlines = [self.adaptive_deadline_ms(), *(part.next_deadline_ms() for part in parts)]
        return min((t for t in deadlines if t is not None), default=None)

    def adaptive_deadline_ms(self) -> float | None:
        # A job that is over is not looked at, so a deadline that has passed would be reported again and again.
        return None if self.adaptive is None or self.lifecycle.is_over else self.adaptive.next_deadline_ms()

    def handle(self, event: Event, now_ms: float) -> list[Effect]:
        """Return the effects, in order. Raises `IllegalEvent`."""
        waiting: deque[Effect | _Look] = deque(self._decide(event, now_ms))
        effects: list[Effect] = []
        while waiting:
            effect = waiting.popleft()
            following: Sequence[Effect] | None
            match effect:
                case CheckpointAborted():
                    fails_job = any(isinstance(behind, FailJob) for behind in waiting)
                    following = [replace(effect, fails_job=fails_job)]
                    effects += following
                    continue
                case _Look():
                    following = self._look(effect, now_ms)
                case _:
                    following = self._decide_on_effect(effect, now_ms)
                    if following is None or isinstance(effect, _TOLD_AND_FOLLOWED):
                        effects.append(effect)
            waiting.extendleft(reversed(following or ()))
        return effects

    def _look(self, look: _Look, now_ms: float) -> Sequence[Effect]:
        match look:
            case _Look.CHECKPOINTS:
                return self.coordinator.on_time(now_ms)
            case _Look.RESOURCES:
                return self._look_at_resources(now_ms)
            case _Look.END if _is_due(self.ending.next_deadline_ms(), now_ms):
                return self.ending.handle(ending.TimePassed(), now_ms)
            case _Look.COMMITS if _is_due(self.commits.next_deadline_ms(), now_ms):
                return self.commits.handle(commit_order.TimePassed(), now_ms)
        return ()

    # ---- what one part decides for another ----------------------------------------------------------------------

    def _decide_on_effect(self, effect: Effect, now_ms: float) -> Sequence[Effect] | None:
        """Return the consequences of an effect that is an event for another part; None: it is for the caller."""
        life = self.lifecycle
        match effect:
            case FailJob(message, planned):
                return self._fail(None, FailureCause(message, planned=planned), now_ms)
            case GenerationEnded(cause=ended):
                return self.coordinator.on_stopped(now_ms, detail=ended)
            case FollowPublication(step, checkpoint_id):
                return self._follow(step, checkpoint_id, now_ms)
            case Prepare():
                return self.recovery.handle(recovery.Begun(self._has_log, self._start), now_ms)
            case Restarting():
                return self.recovery.handle(recovery.Superseded(), now_ms)
            case SlotsGone(state, error):
                return self.ending.handle(ending.SlotsGone(state, error), now_ms)
            case recovery.Prepared():
                return life.on_prepared(self.fence, now_ms)
            case recovery.Fail(summary):
                return self._fail(None, FailureCause(summary), now_ms)
            case recovery.Abandon(error):
                return self._abandon(error, now_ms)
            case recovery.LoseLog() | ending.WarnOfLoss():
                self.owns_log = False
            case recovery.KeepEverything(keeps):
                self.keeps_everything = keeps
            case recovery.RetryCommits() | ending.RetryFinalCommits():
                return self.commits.handle(commit_order.Retried(), now_ms)
            case commit_order.ReportRefusal(cause):
                return self._decide_on_failed_commit(cause, now_ms)
            case commit_order.NotifyIdle() if self.commits.state is not CommitState.COMMITTING:
                waited, self._when_committed = self._when_committed, None
                return [] if waited is None else [waited]
            case commit_order.NotifyIdle():
                return []
            case ending.AwaitCommits() if self.commits.state is CommitState.COMMITTING:
                self._when_committed = effect
            case RescaleNotTaken(reason, detail):
                return self._decide_without_rescale(reason, detail, now_ms)
            case rescales.ProvideSlots(slots):
                return life.provide(slots)
            case rescales.TakeCheckpoint():
                return self._trigger_for_rescale(now_ms)
            case rescales.RestoreAgain(why):
                return self._fail(None, FailureCause(f"{NOT_RESTORED}: {why}"), now_ms)
            case rescales.NotRescaled():
                return life.release_unneeded(now_ms)
            case _:
                return None
        return []

    def _follow(self, step: Follow, checkpoint_id: int, now_ms: float) -> Sequence[Effect] | None:
        match step:
            case Follow.COUNT_PROGRESS:
                self.lifecycle.restarts.on_checkpoint_completed()
            case Follow.NEED_NO_SLOTS:
                self.lifecycle.on_finishing()
            case Follow.COMPLETE_SAVED:
                return self.coordinator.on_saved(checkpoint_id, now_ms)
            case Follow.RESCALE if checkpoint_id == self._rescale_checkpoint:
                self._rescale_checkpoint = None
                return self.rescaling.on_published(now_ms)
            case Follow.RESCALE:
                pass
            case Follow.COMPLETE | Follow.COMPLETE_LAST:
                return self.coordinator.on_published(checkpoint_id, step is Follow.COMPLETE_LAST, now_ms)
            case _:
                return None
        return []

    def _decide_on_failed_commit(self, cause: FailureCause, now_ms: float) -> Sequence[Effect]:
        if self.lifecycle.is_over:
            return []
        if self.lifecycle.is_finishing:
            return self.ending.handle(ending.FinalCommitRefused(cause), now_ms)
        return self._fail(None, replace(cause, keeps_everything=not cause.restartable), now_ms)

    def _fail(self, generation: Generation | None, cause: FailureCause, now_ms: float) -> Sequence[Effect]:
        self.keeps_everything |= cause.keeps_everything
        return self.lifecycle.on_failure(generation, cause, now_ms)

    def _abandon(self, error: str, now_ms: float) -> Sequence[Effect]:
        self.keeps_everything = True
        return self.lifecycle.abandon(error, now_ms)

    # ---- rescales -----------------------------------------------------------------------------------------------

    def _situation(self) -> Situation:
        life, capacity = self.lifecycle, self._facts.capacity
        running = life.generation if life.phase is Phase.RUNNING and not life.is_finishing else None
        processes = len(life.roster.processes)
        return Situation(
            None if running is None else running.counter,
            self._facts.is_aligned and not self._facts.is_drained,
            life.roster.slots,
            processes,
            life.settings.spares,
            capacity is None or processes < capacity,
            self.adaptive is None,
        )

    def _resources(self) -> Resources:
        life, capacity = self.lifecycle, self._facts.capacity
        running = life.generation if life.phase is Phase.RUNNING and not life.is_finishing else None
        processes = life.roster.own_processes
        return Resources(
            None if running is None else running.counter,
            life.is_short,
            life.is_prepared,
            life.roster.slots,
            self._facts.wanted_slots,
            processes,
            may_come=capacity is None or processes < capacity,
            gather_by_ms=life.gather_by_ms,
            is_rescaled=not self.rescaling.is_idle,
        )

    def _look_at_slots(self, facts: driver_events.Facts, now_ms: float) -> Sequence[Effect | _Look]:
        self._facts = facts
        looked = [] if self.rescaling.is_idle else self.rescaling.look(self._situation(), now_ms)
        return [*looked, *([] if self.adaptive is None else [_Look.RESOURCES])]

    def _look_at_resources(self, now_ms: float) -> Sequence[Effect]:
        if self.adaptive is None or self.lifecycle.is_over:
            return []
        looked = self.adaptive.look(self._resources(), now_ms)
        self.lifecycle.shares_slots = self.adaptive.may_share
        return looked

    def _trigger_for_rescale(self, now_ms: float) -> Sequence[Effect]:
        effects = self.coordinator.request_rescale(self._facts.is_aligned, now_ms)
        for effect in effects:
            if isinstance(effect, TriggerCheckpoint):
                self._rescale_checkpoint = effect.barrier.checkpoint_id
                self.rescaling.on_triggered(now_ms)
        return effects

    def _decide_without_rescale(self, reason: FailureReason, detail: str, now_ms: float) -> Sequence[Effect]:
        """Let the job continue as it was, or restore again: there is no checkpoint for its rescale."""
        self._rescale_checkpoint = None
        current = self.rescaling.current
        why = f"its checkpoint failed ({reason}{f': {detail}' if detail else ''})"
        why += "" if current is not None and current.is_restore else "; the job continues as it was"
        return self.rescaling.on_not_taken(why, reason in _FAILED_OVER, self._situation(), now_ms)

    # ---- events -------------------------------------------------------------------------------------------------

    def _decide(self, event: Event, now_ms: float) -> Sequence[Effect | _Look]:
        life, coordinator = self.lifecycle, self.coordinator
        match event:
            case SlotAck():
                return coordinator.on_ack(event, now_ms)
            case Decline():
                return coordinator.on_decline(event, now_ms)
            case events.TimePassed(progress_ms):
                looked = life.on_time(now_ms)
                coordinator.pending.on_progress(progress_ms)
                return [*looked, _Look.CHECKPOINTS, _Look.END, _Look.COMMITS]
            case events.Started():
                return life.start(now_ms)
            case events.Registered(register):
                return life.on_register(register, now_ms)
            case events.LinkLost(process, detail):
                return life.on_link_lost(process, detail, now_ms)
            case events.SlotConnected(process, generation):
                return life.on_connected(process, generation, now_ms)
            case events.SlotRestored(process, generation):
                return life.on_restored(process, generation, now_ms)
            case events.SlotLeft(process, generation):
                return life.on_left(process, generation, now_ms)
            case events.Heard(process):
                life.processes.on_heard(process, now_ms)
            case events.Restoring(process, names):
                life.processes.on_restoring(process, names)
            case events.Failed(cause, generation):
                return self._fail(generation, cause, now_ms)
            case _:
                return self._decide_on_request(event, now_ms)
        return []

    def _decide_on_request(self, event: Event, now_ms: float) -> Sequence[Effect | _Look]:
        """Handle the requests of other parts of the driver, and of its user, to the job's life."""
        life = self.lifecycle
        match event:
            case events.SlotsKept(slots):
                life.roster.kept_slots = slots
            case events.SlotsNeeded(slots):
                return life.provide(slots)
            case events.SlotsUnneeded():
                return life.release_unneeded(now_ms)
            case events.Rescaled(slots, why):
                return life.rescale(slots, why, now_ms)
            case events.Resized(slots):
                return life.resize(slots, now_ms)
            case events.Finishing():
                life.on_finishing()
            case events.Finished():
                return life.finish(now_ms)
            case events.Cancelled(suspends):
                # A job that is about to be suspended can still be cancelled, until it is decided what its log says.
                if not life.is_over or not (suspends or self.ending.is_decided):
                    self.suspends = suspends
                return life.cancel(now_ms)
            case events.LogLost(error):
                self.owns_log = False
                return self._abandon(error, now_ms)
            case events.Abandoned(error):
                return self._abandon(error, now_ms)
            case _:
                return self._decide_on_checkpoint(event, now_ms)
        return []

    def _decide_on_checkpoint(self, event: Event, now_ms: float) -> Sequence[Effect | _Look]:
        coordinator = self.coordinator
        match event:
            case events.Running(generation, slots, subtasks, spread, holds_sources):
                return coordinator.on_running(generation, slots, subtasks, now_ms, spread, holds_sources)
            case events.BacklogChanged(is_backlog):
                coordinator.on_backlog(is_backlog, now_ms)
            case events.CheckpointAsked():
                return coordinator.request(now_ms)
            case events.SavepointAsked(savepoint):
                return coordinator.request_savepoint(savepoint, now_ms)
            case events.TriggerFailed(checkpoint_id, detail):
                return coordinator.on_trigger_failed(checkpoint_id, detail, now_ms)
            case events.EndOfData(subtask):
                return coordinator.on_end_of_data(subtask, now_ms)
            case events.CheckpointPublished(checkpoint_id, kind):
                return [FollowPublication(step, checkpoint_id) for step in FOLLOWS[kind]]
            case events.SavepointWritten(checkpoint_id):
                coordinator.on_written(checkpoint_id)
            case events.CheckpointNotPublished(checkpoint_id, reason, detail):
                return coordinator.on_not_published(checkpoint_id, reason, detail, now_ms)
            case events.IdsUsed(next_checkpoint_id):
                coordinator.skip_ids_to(next_checkpoint_id)
            case _:
                return self._decide_on_answer(event, now_ms)
        return []

    def _decide_on_slots(self, event: Event, now_ms: float) -> Sequence[Effect | _Look]:
        """Handle the events of rescales and of the adaptive scheduler."""
        match event:
            case events.Looked(facts):
                return self._look_at_slots(facts, now_ms)
            case events.RescaleOrdered(rescale, facts):
                self._facts = facts
                return self.rescaling.on_ordered(rescale, self._situation(), now_ms)
            case events.RescaleRefused(why):
                return self.rescaling.on_refused(why, self._situation(), now_ms)
            case events.RescalesEnded(why):
                return self.rescaling.end(why)
            case events.NotLowered() if self.adaptive is not None:
                following = self.adaptive.on_not_lowered(now_ms)
                self.lifecycle.shares_slots = self.adaptive.may_share
                return following
            case events.Raised(is_done) if self.adaptive is not None:
                return self.adaptive.on_raised(is_done, now_ms)
        raise AssertionError(f"{type(event).__name__} comes from inside of the machine")

    def _decide_on_answer(self, event: Event, now_ms: float) -> Sequence[Effect | _Look]:
        """Handle the answers to effects of the recovery, of commits and of the job's end."""
        match event:
            case commit_order.Added() | commit_order.Retried() | commit_order.Committed() | commit_order.Refused():
                return self.commits.handle(event, now_ms)
            case events.CommitOverdue(cause):
                return self._decide_on_failed_commit(cause, now_ms)
            case recovery.LogTaken(fence=fence):
                self.owns_log, self.fence = True, fence
                return self.recovery.handle(event, now_ms)
            case ending.LogChecked(lost):
                self.owns_log = self.owns_log and lost is None
                return self.ending.handle(event, now_ms)
            case (
                ending.NothingPublishing()
                | ending.CommitsIdle()
                | ending.LogEnded()
                | ending.Swept()
                | ending.NewestLookedFor()
            ):
                return self.ending.handle(event, now_ms)
            case (
                recovery.Refused()
                | recovery.StoreOpened()
                | recovery.StartRead()
                | recovery.Fitted()
                | recovery.PublicationsIdle()
                | recovery.FilesChecked()
            ):
                return self.recovery.handle(event, now_ms)
            case _:
                return self._decide_on_slots(event, now_ms)


_TOLD_AND_FOLLOWED = (GenerationEnded, Restarting, ending.WarnOfLoss, rescales.NotRescaled)
"""The effects that are an event for another part, and for the caller."""


def _is_due(deadline_ms: float | None, now_ms: float) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms
