"""Decides for the driver of one job: its life and its checkpoints, in one machine with one door.

`handle` takes one event, and returns the effects in the order in which they are to be executed. What one part decides
may be an event for the other: the end of a generation ends its checkpoints, and too many failed checkpoints fail the
generation. Such an event never calls into a part that is still deciding. It waits in a queue, at the place of its
cause, and the queue is empty when `handle` returns. So effects are in the order of their causes, and no part is entered
twice.

What executing an effect brings about is a further event, which the caller hands over once `handle` has returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.coordinator import CheckpointCoordinator, CoordinatorSettings
from penstock.protocol.driver.driver_effects import (
    CheckpointAborted,
    Effect,
    FailJob,
    FailureCause,
    FollowPublication,
    GenerationEnded,
)
from penstock.protocol.driver.driver_events import Event
from penstock.protocol.driver.lifecycle import Lifecycle, LifecycleSettings
from penstock.protocol.driver.published_checkpoints import FOLLOWS, Follow
from penstock.protocol.driver.restarts import RestartStrategy
from penstock.protocol.machine import Story
from penstock.protocol.values.messages import Decline, SlotAck


@dataclass(frozen=True)
class _LookAtCheckpoints:
    """Lets the coordinator look at the clock, once all that the passed time means for the generation is decided."""


class DriverMachine:
    """Decides about one job. `vertex_names`: by vertex number, for messages. `jitter` returns the caller's next random
    number in [-1, 1].

    `lifecycle` and `coordinator` may be read by everybody; only `handle` changes them.
    """

    def __init__(
        self,
        lifecycle: LifecycleSettings,
        coordinator: CoordinatorSettings,
        strategy: RestartStrategy,
        jitter: Callable[[], float],
        vertex_names: Sequence[str] = (),
    ) -> None:
        self.story = Story()
        self.keeps_everything = False
        """True if the job's end deletes nothing, whatever the settings say."""
        self.lifecycle = Lifecycle(lifecycle, strategy, jitter, self.story)
        self.coordinator = CheckpointCoordinator(coordinator, vertex_names=vertex_names, story=self.story)

    def next_deadline_ms(self) -> float | None:
        """Return the deadline of `TimePassed`; None: never."""
        deadlines = (self.lifecycle.next_deadline_ms(), self.coordinator.next_deadline_ms())
        return min((t for t in deadlines if t is not None), default=None)

    def handle(self, event: Event, now_ms: float) -> list[Effect]:
        """Return the effects, in order. Raises `IllegalEvent`."""
        waiting: deque[Effect | _LookAtCheckpoints] = deque(self._decide(event, now_ms))
        effects: list[Effect] = []
        while waiting:
            effect = waiting.popleft()
            match effect:
                case FailJob(message, planned):
                    cause = FailureCause(message, planned=planned)
                    waiting.extendleft(reversed(self.lifecycle.on_failure(None, cause, now_ms)))
                case GenerationEnded(cause=ended):
                    effects.append(effect)
                    waiting.extendleft(reversed(self.coordinator.on_stopped(now_ms, detail=ended)))
                case CheckpointAborted():
                    fails_job = any(isinstance(behind, FailJob) for behind in waiting)
                    effects.append(replace(effect, fails_job=fails_job))
                case FollowPublication(Follow.COUNT_PROGRESS):
                    self.lifecycle.restarts.on_checkpoint_completed()
                case FollowPublication(Follow.NEED_NO_SLOTS):
                    self.lifecycle.on_finishing()
                case FollowPublication(Follow.COMPLETE | Follow.COMPLETE_LAST, checkpoint_id):
                    is_final = effect.step is Follow.COMPLETE_LAST
                    completed = self.coordinator.on_published(checkpoint_id, is_final, now_ms)
                    waiting.extendleft(reversed(completed))
                case _LookAtCheckpoints():
                    waiting.extendleft(reversed(self.coordinator.on_time(now_ms)))
                case _:
                    effects.append(effect)
        return effects

    def _decide(self, event: Event, now_ms: float) -> Sequence[Effect | _LookAtCheckpoints]:
        life, coordinator = self.lifecycle, self.coordinator
        match event:
            case SlotAck():
                return coordinator.on_ack(event, now_ms)
            case Decline():
                return coordinator.on_decline(event, now_ms)
            case events.TimePassed(progress_ms):
                looked = life.on_time(now_ms)
                coordinator.pending.on_progress(progress_ms)
                return [*looked, _LookAtCheckpoints()]
            case events.Started():
                return life.start(now_ms)
            case events.Prepared(fence):
                return life.on_prepared(fence, now_ms)
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
                self.keeps_everything |= cause.keeps_everything
                return life.on_failure(generation, cause, now_ms)
            case _:
                return self._decide_on_request(event, now_ms)
        return []

    def _decide_on_request(self, event: Event, now_ms: float) -> Sequence[Effect]:
        """Handle the requests of other parts of the driver, and of its user, to the job's life."""
        life = self.lifecycle
        match event:
            case events.SlotsKept(slots):
                life.roster.kept_slots = slots
            case events.SlotsShared(may_share):
                life.shares_slots = may_share
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
            case events.Cancelled():
                return life.cancel(now_ms)
            case events.EverythingKept(keeps):
                self.keeps_everything = keeps
            case events.Abandoned(error):
                self.keeps_everything = True
                return life.abandon(error, now_ms)
            case _:
                return self._decide_on_checkpoint(event, now_ms)
        return []

    def _decide_on_checkpoint(self, event: Event, now_ms: float) -> Sequence[Effect]:
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
            case events.RescaleAsked(is_aligned):
                return coordinator.request_rescale(is_aligned, now_ms)
            case events.TriggerFailed(checkpoint_id, detail):
                return coordinator.on_trigger_failed(checkpoint_id, detail, now_ms)
            case events.EndOfData(subtask):
                return coordinator.on_end_of_data(subtask, now_ms)
            case events.CheckpointPublished(checkpoint_id, kind):
                return [FollowPublication(step, checkpoint_id) for step in FOLLOWS[kind]]
            case events.SavepointWritten(checkpoint_id):
                coordinator.on_written(checkpoint_id)
            case events.Saved(checkpoint_id):
                return coordinator.on_saved(checkpoint_id, now_ms)
            case events.CheckpointNotPublished(checkpoint_id, reason, detail):
                return coordinator.on_not_published(checkpoint_id, reason, detail, now_ms)
            case events.IdsUsed(next_checkpoint_id):
                coordinator.skip_ids_to(next_checkpoint_id)
        return []
