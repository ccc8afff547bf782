"""Decides the triggers of checkpoints, and the consequences of their ends for the job.

It knows checkpoints by id, slots by number, and time as `now_ms` of one monotonic clock. It never knows what a
snapshot contains beyond "finished" and the segment that holds it, and nothing of the log: a checkpoint that all slots
have acknowledged is handed over (`PublishCheckpoint`), and it has completed when `on_published` says so.
`COORDINATOR_TABLE` shows what leads from one phase to another, and what becomes of each checkpoint
(`pending_checkpoints.py`).

The end of a job is a checkpoint, too. When every subtask has reached its end of data, the final one is taken at once,
ahead of interval and minimum pause; a checkpoint in which every subtask was finished is the final one, whatever it
was triggered for. Without an interval it is the only one, and collects only committables.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from penstock.protocol.driver.driver_effects import (
    CheckpointAborted,
    CheckpointEffect,
    DrainSources,
    FailJob,
    PublishCheckpoint,
    RescaleNotTaken,
    SavepointRefused,
    StillDraining,
)
from penstock.protocol.driver.pending_checkpoints import PendingCheckpoint, PendingCheckpoints
from penstock.protocol.driver.savepoint import Alignment, Savepoint
from penstock.protocol.machine import Cell, MachineState, Story, Table, step
from penstock.protocol.values.elements import Barrier, Generation, SnapshotKind, SubtaskId
from penstock.protocol.values.messages import Decline, SlotAck
from penstock.protocol.values.reasons import FailureReason


@dataclass(frozen=True)
class CoordinatorSettings:
    """Holds settings. `interval_ms` None: no checkpoints but the final one. `alignment_timeout_ms` as in `Barrier`."""

    interval_ms: float | None
    min_pause_ms: float = 0.0
    timeout_ms: float = 600_000.0
    concurrent_max: int = 1
    alignment_timeout_ms: int | None = None
    tolerable_failures_max: int | None = 0
    backlog_interval_ms: float | None = None
    """The interval while a source works off a backlog; None: the same, 0: no periodic checkpoints meanwhile."""

    def barrier(self, checkpoint_id: int, savepoint: Savepoint | None) -> Barrier:
        """Return the barrier of a checkpoint, or of a savepoint."""
        if savepoint is None:
            if self.interval_ms is None:
                return Barrier(checkpoint_id, None, kind=SnapshotKind.COMMITS_ONLY)
            return Barrier(checkpoint_id, self.alignment_timeout_ms)
        timeout_ms = self.alignment_timeout_ms
        if savepoint.alignment is not Alignment.CONFIGURED:
            timeout_ms = None if savepoint.alignment is Alignment.ALIGNED else 0
        kind = SnapshotKind.STOP if savepoint.stops else SnapshotKind.SAVEPOINT
        return Barrier(checkpoint_id, timeout_ms, kind=kind)

    def rescale_barrier(self, checkpoint_id: int, aligned: bool) -> Barrier:
        """Return the barrier of the checkpoint from which the job continues at another parallelism."""
        return Barrier(checkpoint_id, None if aligned else 0, kind=SnapshotKind.RESCALE)


class CoordinatorPhase(MachineState):
    """Lists the kinds of checkpoints that the coordinator may trigger."""

    STOPPED = "stopped"
    """No generation runs."""
    RUNNING = "running"
    ENDING = "ending"
    """Every subtask has reached its end of data: the next checkpoint is the final one."""
    FINAL = "final"
    """The final checkpoint is published: nothing follows."""


_STOPPED, _RUNNING, _ENDING, _FINAL = CoordinatorPhase

COORDINATOR_TABLE: Table[CoordinatorPhase] = Table(
    "the checkpoint coordinator",
    {
        "started": {_STOPPED: Cell("plan the first trigger: after the pause", (_RUNNING,))},
        "stopped": {
            _STOPPED: Cell("ignore", (_STOPPED,)),
            _RUNNING: Cell("drop all requests, abort what is triggered", (_STOPPED,)),
            _ENDING: Cell("drop all requests, abort what is triggered", (_STOPPED,)),
            _FINAL: Cell("abort what is triggered", (_FINAL,)),
        },
        "time": {
            _STOPPED: Cell("look for expired ones", (_STOPPED,)),
            _RUNNING: Cell("look for expired ones; the interval is over: request one", (_RUNNING,)),
            _ENDING: Cell("look for expired ones; the pause after a failure is over: request one", (_ENDING,)),
            _FINAL: Cell("look for expired ones", (_FINAL,)),
        },
        "requested": {
            _STOPPED: Cell("ignore", (_STOPPED,)),
            _RUNNING: Cell("trigger; too many pending: queue", (_RUNNING,)),
            _ENDING: Cell("trigger; too many pending: queue", (_ENDING,)),
            _FINAL: Cell("ignore", (_FINAL,)),
        },
        "savepoint requested": {
            _STOPPED: Cell("refuse it", (_STOPPED,)),
            _RUNNING: Cell("trigger; drains: end the sources; the job is stopped, or rescaled: refuse it", (_RUNNING,)),
            _ENDING: Cell(
                "trigger; drains: with the final one; the job is stopped, or rescaled: refuse it", (_ENDING,)
            ),
            _FINAL: Cell("refuse it", (_FINAL,)),
        },
        "rescale requested": {
            _STOPPED: Cell("ignore", (_STOPPED,)),
            _RUNNING: Cell("trigger; a savepoint is pending, or what nothing may follow: ignore", (_RUNNING,)),
            _ENDING: Cell("ignore", (_ENDING,)),
            _FINAL: Cell("ignore", (_FINAL,)),
        },
        "saved": {
            _STOPPED: Cell("ignore", (_STOPPED,)),
            _RUNNING: Cell("trigger the next request", (_RUNNING,)),
            _ENDING: Cell("trigger the final one", (_ENDING,)),
            _FINAL: Cell("ignore", (_FINAL,)),
        },
        "end of data": {
            _STOPPED: Cell("ignore", (_STOPPED,)),
            _RUNNING: Cell("of the last subtask: trigger the final one, once none is pending", (_RUNNING, _ENDING)),
            _ENDING: Cell("ignore", (_ENDING,)),
            _FINAL: Cell("ignore", (_FINAL,)),
        },
        "published": {
            _STOPPED: Cell("abort older ones", (_STOPPED, _FINAL)),
            _RUNNING: Cell("abort older ones; trigger the next request", (_RUNNING, _FINAL)),
            _ENDING: Cell("abort older ones; trigger the final one", (_ENDING, _FINAL)),
            _FINAL: Cell("abort older ones", (_FINAL,)),
        },
        "aborted": {
            _STOPPED: Cell("count it", (_STOPPED,)),
            _RUNNING: Cell("too many failures: fail the job; else trigger the next request", (_RUNNING,)),
            _ENDING: Cell("too many failures: fail the job; else trigger the final one, after a pause", (_ENDING,)),
            _FINAL: Cell("count it", (_FINAL,)),
        },
    },
)


RETRY_FINAL_AFTER_MS = 1000.0


class TriggerSchedule:
    """Plans triggers: the first between the minimum pause and the interval, the next ones an interval apart, whenever
    the checkpoints complete. `interval_ms` None: there are none. One below the minimum pause is raised to that.
    `backlog_interval_ms` is the interval while a source works off a backlog; None: the same, 0: none meanwhile.
    """

    def __init__(
        self, interval_ms: float | None, min_pause_ms: float, backlog_interval_ms: float | None = None
    ) -> None:
        self.next_ms: float | None = None
        self.is_backlog = False
        self._usual_ms = None if interval_ms is None else max(interval_ms, min_pause_ms)
        self._backlog_ms = self._usual_ms
        if self._usual_ms is not None and backlog_interval_ms is not None:
            self._backlog_ms = max(backlog_interval_ms, min_pause_ms) if backlog_interval_ms > 0 else None
        self._min_pause_ms = min_pause_ms
        self._has_started = False
        self._is_running = False

    @property
    def _interval_ms(self) -> float | None:
        return self._backlog_ms if self.is_backlog else self._usual_ms

    def follow_backlog(self, is_backlog: bool, now_ms: float) -> None:
        """Follow the interval for backlog, or the usual one, from now on. A trigger that is planned is not postponed,
        except by an interval that allows none.
        """
        if is_backlog is self.is_backlog:
            return
        self.is_backlog = is_backlog
        interval_ms = self._interval_ms
        if interval_ms is None or not self._is_running:
            self.next_ms = None
        elif self.next_ms is None or now_ms + interval_ms < self.next_ms:
            self.next_ms = now_ms + interval_ms

    def start(self, now_ms: float, spread: float) -> None:
        """Start again. `spread` in [0, 1) places the job's very first trigger; after a restart the pause is enough."""
        self.next_ms = None
        self._is_running = True
        if self._interval_ms is not None:
            delay_ms = self._min_pause_ms
            if not self._has_started:
                delay_ms += spread * (self._interval_ms - delay_ms)
            self.next_ms = now_ms + delay_ms
        self._has_started = True

    def stop(self) -> None:
        """Trigger nothing until the next start."""
        self.next_ms = None
        self._is_running = False

    def postpone(self, until_ms: float) -> None:
        """Trigger the next checkpoint at this time, instead of the planned one."""
        if self._interval_ms is not None:
            self.next_ms = until_ms

    def take_due(self, now_ms: float) -> bool:
        """Return whether a trigger is due, and plan the next one. Missed ones become one."""
        if self.next_ms is None or self._interval_ms is None or self.next_ms > now_ms:
            return False
        self.next_ms = max(self.next_ms + self._interval_ms, now_ms)
        return True


class FinalAttempts:
    """Plans the attempts of one generation at its final checkpoint: the first at once, the next after a moment. An
    attempt that is due, but must wait for another checkpoint to end, follows that at once.
    """

    def __init__(self) -> None:
        self.due_ms: float | None = None
        self._has_begun = False

    def begin(self, now_ms: float) -> bool:
        """Return whether to trigger it now; else an attempt is due later."""
        if not self._has_begun:
            self._has_begun = True
            return True
        self.due_ms = now_ms + RETRY_FINAL_AFTER_MS
        return False

    def take_due(self, now_ms: float) -> bool:
        """Return whether a later attempt is due."""
        if self.due_ms is None or self.due_ms > now_ms:
            return False
        self.due_ms, self._has_begun = None, False
        return True


QUEUE_MAX = 1000


@dataclass(frozen=True)
class CheckpointRequest:
    """Holds one request. `number` grows with every request. `is_forced`: it passes the limit of concurrent
    checkpoints.
    """

    number: int
    is_periodic: bool = False
    is_forced: bool = False
    savepoint: Savepoint | None = None

    @property
    def is_savepoint(self) -> bool:
        return self.savepoint is not None

    @property
    def rank(self) -> tuple[bool, bool, bool, int]:
        return (not self.is_savepoint, not self.is_forced, self.is_periodic, self.number)


@dataclass(frozen=True)
class Situation:
    """Describes the coordinator's state. `is_triggering`: an earlier request has been chosen, and its trigger has not
    left yet. `is_congested`: a checkpoint has expired, and none has completed since. `last_completion_ms`
    None: no checkpoint has completed yet.
    """

    now_ms: float
    pending: int = 0
    is_triggering: bool = False
    is_congested: bool = False
    last_completion_ms: float | None = None


@dataclass(frozen=True)
class Start:
    """Trigger a checkpoint for the request now."""

    request: CheckpointRequest


@dataclass(frozen=True)
class Drop:
    """Drop the request. `retry_after_ms`: when the periodic trigger is to fire again; None: at its own time."""

    request: CheckpointRequest
    reason: FailureReason
    retry_after_ms: float | None = None


Decision = Start | Drop


@dataclass
class CheckpointRequestDecider:
    """Holds the requests that wait, at most `queue_max`, and picks one whenever the situation has changed."""

    concurrent_max: int = 1
    min_pause_ms: float = 0.0
    queue_max: int = QUEUE_MAX
    _queue: list[CheckpointRequest] = field(default_factory=list, init=False)

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Return whether a user's request for a checkpoint would be dropped."""
        return len(self._queue) >= self.queue_max and not self._queue[-1].is_periodic

    def on_request(self, request: CheckpointRequest, situation: Situation) -> list[Decision]:
        dropped: list[Decision] = []
        if len(self._queue) >= self.queue_max:
            worst = self._queue[-1]
            if not worst.is_periodic or worst.rank < request.rank:
                return [Drop(request, FailureReason.TOO_MANY_REQUESTS)]
            self._queue.pop()
            dropped.append(Drop(worst, FailureReason.TOO_MANY_REQUESTS))
        insort(self._queue, request, key=lambda r: r.rank)
        return dropped + self.on_change(situation)

    def on_change(self, situation: Situation) -> list[Decision]:
        """Return the next decisions. Call it whenever a checkpoint has been triggered or has ended."""
        if situation.is_triggering or not self._queue:
            return []
        head = self._queue[0]
        if situation.pending >= (1 if situation.is_congested else self.concurrent_max):
            return [Start(self._queue.pop(0))] if head.is_forced else []
        if head.is_periodic and not head.is_forced and situation.last_completion_ms is not None:
            remaining_ms = situation.last_completion_ms + self.min_pause_ms - situation.now_ms
            if remaining_ms > 0:
                self._queue.pop(0)
                return [Drop(head, FailureReason.MINIMUM_TIME_BETWEEN, remaining_ms)]
        return [Start(self._queue.pop(0))]

    def abandon(self, reason: FailureReason) -> list[Decision]:
        """Drops everything queued (the job restarts or ends)."""
        dropped: list[Decision] = [Drop(r, reason) for r in self._queue]
        self._queue.clear()
        return dropped


class CheckpointFailureManager:
    """Counts failures. `tolerable_failures_max`: how many in a row are tolerated; None: any number."""

    def __init__(self, tolerable_failures_max: int | None = 0) -> None:
        self._tolerable_failures_max = tolerable_failures_max
        self._newest_completed = -1
        self._failed: set[int] = set()

    def on_completed(self, checkpoint_id: int) -> None:
        self._newest_completed = max(self._newest_completed, checkpoint_id)
        self._failed.clear()

    def on_failed(self, checkpoint_id: int, reason: FailureReason, detail: str = "") -> str | None:
        """Return the message of the failure of the whole job, or None if the job continues."""
        if not reason.counts or checkpoint_id <= self._newest_completed or self._tolerable_failures_max is None:
            return None
        self._failed.add(checkpoint_id)
        if len(self._failed) <= self._tolerable_failures_max:
            return None
        count = len(self._failed)
        self._failed.clear()
        return (
            f"Exceeded checkpoint tolerable failure threshold: {count} checkpoint(s) in a row failed, the latest, "
            f"checkpoint {checkpoint_id}, due to {reason}{': ' + detail if detail else ''}. "
            f"execution.checkpointing.tolerable-failed-checkpoints is {self._tolerable_failures_max}."
        )


class Stopping:
    """Holds one savepoint at most: a second request to stop is refused until the first has failed."""

    def __init__(self) -> None:
        self.savepoint: Savepoint | None = None
        self._began_ms = self._warns_ms = 0.0

    def begin(self, savepoint: Savepoint, now_ms: float, patience_ms: float) -> None:
        """Remember the savepoint, if it stops the job. `patience_ms`: how often to warn that the job is drained."""
        if savepoint.stops:
            self.savepoint = savepoint
            self._began_ms, self._warns_ms = now_ms, now_ms + patience_ms

    def next_warning_ms(self) -> float | None:
        """Return the time of the next warning that the job is still being drained: nothing
        limits how long that takes."""
        return self._warns_ms if self.is_draining else None

    def take_warning(self, now_ms: float, patience_ms: float) -> float | None:
        """Return the duration of the drain so far, if it is time to warn of it."""
        if not self.is_draining or now_ms < self._warns_ms:
            return None
        self._warns_ms = now_ms + patience_ms
        return now_ms - self._began_ms

    @property
    def is_draining(self) -> bool:
        """Return whether the sources were ended for the savepoint: no other checkpoint may be triggered. Without this:
        another checkpoint stores that the sources have finished, the savepoint fails, and the job restarts from that
        checkpoint without the rest of its rows.
        """
        # 9.5: no other checkpoint between the end of the sources and the savepoint.
        return self.savepoint is not None and self.savepoint.drains

    def on_final(self, published: Savepoint | None, pending: Iterable[PendingCheckpoint]) -> list[CheckpointEffect]:
        """End the stop: the job's last checkpoint is canonical, which is `published` if it is a savepoint. One that
        waited for a final checkpoint, which was being published when it was asked for, is refused.
        """
        stop, self.savepoint = self.savepoint, None
        if stop is None or stop == published or any(p.savepoint == stop for p in pending):
            return []
        return [SavepointRefused(stop, FailureReason.JOB_ENDED)]

    def refused(self, savepoint: Savepoint, reason: FailureReason) -> SavepointRefused:
        """Return the answer to whoever asked for the savepoint, with which the job is not being stopped any more."""
        if savepoint == self.savepoint:
            self.savepoint = None
        return SavepointRefused(savepoint, reason)

    def on_failed(self, savepoint: Savepoint, detail: str, is_running: bool) -> list[CheckpointEffect]:
        """Restart the job only if its sources were ended for the failed savepoint."""
        was_stop = savepoint == self.savepoint
        if was_stop:
            self.savepoint = None
        if was_stop and is_running and savepoint.drains:
            return [FailJob(f"the savepoint that the job was drained for has failed: {detail}", planned=True)]
        return []

    def on_generation_ended(
        self, pending: Iterable[PendingCheckpoint], ended: list[CheckpointEffect], reason: FailureReason
    ) -> list[CheckpointEffect]:
        """End the stop with the generation, unless its savepoint is being published. `ended`: what was aborted."""
        stop = self.savepoint
        if stop is None or any(p.savepoint == stop for p in pending):
            return []
        self.savepoint = None
        is_answered = any(isinstance(e, CheckpointAborted) and e.savepoint == stop for e in ended)
        return [] if is_answered else [SavepointRefused(stop, reason)]

    def not_final(self, effects: list[CheckpointEffect]) -> list[CheckpointEffect]:
        """Return the effects for a job that ends with its savepoint, not with a checkpoint that was under way."""
        if self.savepoint is None:
            return effects
        return [
            replace(e, is_final=False)
            if isinstance(e, PublishCheckpoint) and e.barrier.kind in (SnapshotKind.CHECKPOINT, SnapshotKind.RESCALE)
            else e
            for e in effects
        ]


class CheckpointCoordinator:
    """Coordinates the checkpoints of one job. `next_checkpoint_id` must be above every id that the job's log or the
    restored checkpoint has named. `vertex_names`: by vertex number, for messages. `story`: the story of the machine
    around it.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        next_checkpoint_id: int = 1,
        vertex_names: Sequence[str] = (),
        story: Story | None = None,
    ) -> None:
        self.settings = settings
        self._vertex_names = vertex_names
        self.next_checkpoint_id = next_checkpoint_id
        self.phase = CoordinatorPhase.STOPPED
        self.story = story or Story()
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

    def _step(
        self, event: str, cause: str, now_ms: float, decide: Callable[[], list[CheckpointEffect]]
    ) -> list[CheckpointEffect]:
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
    ) -> list[CheckpointEffect]:
        """Start checkpoints: all subtasks of a generation run. `spread` in [0, 1) places the job's first checkpoint
        between the minimum pause and the interval; after a restart it comes after the minimum pause. `holds_sources`:
        they cannot end in this generation, so the job is not drained."""

        def start() -> list[CheckpointEffect]:
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
    ) -> list[CheckpointEffect]:
        """Stop checkpoints: the generation has ended. What is being published continues; everything else is aborted."""

        def stop() -> list[CheckpointEffect]:
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

    def on_time(self, now_ms: float) -> list[CheckpointEffect]:
        return self._step("time", "time", now_ms, lambda: self._look_at_the_clock(now_ms))

    def on_backlog(self, is_backlog: bool, now_ms: float) -> None:
        """Follow whether any source works off a backlog: periodic checkpoints may have another interval then."""
        # 10.5: a backlog has an interval of its own.
        self.schedule.follow_backlog(is_backlog, now_ms)

    def _look_at_the_clock(self, now_ms: float) -> list[CheckpointEffect]:
        effects: list[CheckpointEffect] = []
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

    def request(self, now_ms: float) -> list[CheckpointEffect]:
        """Request a checkpoint for a user: limited by what is pending, but by no pause."""
        may_trigger = self.why_no_checkpoint is None
        return self._step("requested", "a user", now_ms, lambda: self._request(now_ms) if may_trigger else [])

    def request_savepoint(self, savepoint: Savepoint, now_ms: float) -> list[CheckpointEffect]:
        """Request a savepoint for a user. It passes the limit of pending checkpoints. While one stops the job, or must
        not hold rows in flight, nothing else is triggered."""

        def ask() -> list[CheckpointEffect]:
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

    def request_rescale(self, aligned: bool, now_ms: float) -> list[CheckpointEffect]:
        """Trigger the checkpoint from which the job continues at another parallelism; it passes the limit of pending
        checkpoints, waits for savepoints, and nothing is triggered behind it. Return [] while it cannot be: ask again
        after each event. While it waits for savepoints, only one that stops the job may begin.
        """

        def trigger() -> list[CheckpointEffect]:
            # Without this: a savepoint that somebody waits for is aborted when the job continues from the checkpoint.
            is_saving = self.stopping.savepoint is not None or self.pending.saves
            self._rescale_waits = is_saving
            if self.phase is not CoordinatorPhase.RUNNING or is_saving or self.pending.is_exclusive:
                return []
            return self._trigger_with(self.settings.rescale_barrier(self.next_checkpoint_id, aligned), now_ms)

        return self._step("rescale requested", "the JobMaster", now_ms, trigger)

    def _request(
        self, now_ms: float, *, is_periodic: bool = False, savepoint: Savepoint | None = None
    ) -> list[CheckpointEffect]:
        self._requests += 1
        request = CheckpointRequest(self._requests, is_periodic, is_forced=savepoint is not None, savepoint=savepoint)
        return self._execute(self._decider.on_request(request, self._situation(now_ms)), now_ms)

    def _situation(self, now_ms: float) -> Situation:
        # 2.8a: after an expired checkpoint (`is_congested`) they go one at a time.
        return Situation(
            now_ms,
            len(self.pending),
            is_triggering=self.pending.is_exclusive,
            is_congested=self._is_congested,
            last_completion_ms=self._last_completion_ms,
        )

    def _execute(self, decisions: list[Decision], now_ms: float) -> list[CheckpointEffect]:
        effects: list[CheckpointEffect] = []
        for decision in decisions:
            if isinstance(decision, Start):
                effects += self._trigger(now_ms, decision.request.savepoint)
            elif decision.request.savepoint is not None:
                effects.append(self.stopping.refused(decision.request.savepoint, decision.reason))
            elif decision.retry_after_ms is not None:
                self.schedule.postpone(now_ms + decision.retry_after_ms)
        return effects

    def _trigger(self, now_ms: float, savepoint: Savepoint | None = None) -> list[CheckpointEffect]:
        return self._trigger_with(self.settings.barrier(self.next_checkpoint_id, savepoint), now_ms, savepoint)

    def _trigger_with(
        self, barrier: Barrier, now_ms: float, savepoint: Savepoint | None = None
    ) -> list[CheckpointEffect]:
        assert self._generation is not None
        self.next_checkpoint_id += 1
        return self.pending.trigger(barrier, self._generation, self._slots, self._subtasks, now_ms, savepoint)

    # ---- answers ------------------------------------------------------------------------------------------------

    def on_ack(self, ack: SlotAck, now_ms: float) -> list[CheckpointEffect]:
        return self.stopping.not_final(self.pending.on_ack(ack, now_ms))

    def on_decline(self, decline: Decline, now_ms: float) -> list[CheckpointEffect]:
        vertex = _vertex_name(self._vertex_names, decline.subtask)
        return self._after_abort(self.pending.on_decline(decline, vertex, now_ms), now_ms)

    def on_trigger_failed(self, checkpoint_id: int, detail: str, now_ms: float) -> list[CheckpointEffect]:
        """Abort a checkpoint whose trigger could not be sent (an enumerator's snapshot raised)."""
        return self._after_abort(self.pending.on_trigger_failed(checkpoint_id, detail, now_ms), now_ms)

    def on_end_of_data(self, subtask: SubtaskId, now_ms: float) -> list[CheckpointEffect]:
        def reached() -> list[CheckpointEffect]:
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

    def on_published(self, checkpoint_id: int, is_final: bool, now_ms: float) -> list[CheckpointEffect]:
        """Complete a checkpoint: its log entry exists (or, if it collects only committables, they are committed)."""

        def complete() -> list[CheckpointEffect]:
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

    def on_saved(self, checkpoint_id: int, now_ms: float) -> list[CheckpointEffect]:
        """Complete a savepoint of a job that continues."""

        def complete() -> list[CheckpointEffect]:
            self.pending.on_saved(checkpoint_id, now_ms)
            self._last_completion_ms = now_ms
            return self._start_next(now_ms)

        return self._step("saved", f"savepoint {checkpoint_id}", now_ms, complete)

    def on_not_published(
        self, checkpoint_id: int, reason: FailureReason, detail: str, now_ms: float
    ) -> list[CheckpointEffect]:
        """Abort a checkpoint that certainly has no log entry, and never will (`ID_TAKEN`: a fenced driver has it)."""
        return self._after_abort(self.pending.on_not_published(checkpoint_id, reason, detail, now_ms), now_ms)

    def _after_abort(self, effects: list[CheckpointEffect], now_ms: float) -> list[CheckpointEffect]:
        """Return `effects`, followed by the consequences of an aborted checkpoint, if they abort one."""
        ended = next((effect for effect in effects if isinstance(effect, CheckpointAborted)), None)
        if ended is None:
            return effects

        def follow() -> list[CheckpointEffect]:
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

    def _start_next(self, now_ms: float) -> list[CheckpointEffect]:
        """Start the final checkpoint, or what is queued, as far as limits allow: a checkpoint has ended."""
        if not self.may_trigger:
            return []
        effects = self._final(now_ms)
        # One that has completed may have ended several older ones, so there may be room for several.
        while decisions := self._decider.on_change(self._situation(now_ms)):
            effects += self._execute(decisions, now_ms)
        return effects

    def _final(self, now_ms: float) -> list[CheckpointEffect]:
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
