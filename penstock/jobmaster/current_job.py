"""Holds the objects that all parts of the JobMaster share: settings, the present job, the door to its machine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.common.clock import Clock
from penstock.common.configuration import Configuration
from penstock.common.options import (
    CheckpointingOptions,
    ExecutionOptions,
    HeartbeatOptions,
    HighAvailabilityOptions,
    JobManagerOptions,
    OptionError,
    ResourceManagerOptions,
    RestartStrategyOptions,
    SlotOptions,
    StateRecoveryOptions,
    WebOptions,
)
from penstock.common.options.modes import ExternalizedCheckpointRetention, RecoveryClaimMode, RuntimeExecutionMode
from penstock.common.options.restart import INFINITE
from penstock.common.settings.checkpoint_settings import backlog_interval_ms, concurrent_checkpoints_max
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.identity import JobIdentity
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.adaptive_scaling import AdaptiveSettings
from penstock.protocol.driver.coordinator import CoordinatorSettings
from penstock.protocol.driver.driver_effects import CheckpointAborted, FailureCause, TriggerCheckpoint
from penstock.protocol.driver.driver_machine import DriverMachine, Effect, Event
from penstock.protocol.driver.lifecycle import LifecycleSettings
from penstock.protocol.driver.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart, RestartStrategy
from penstock.protocol.restore.given_up import NOTHING, RowsToGiveUp
from penstock.protocol.values.metadata import Metadata


@dataclass(frozen=True)
class JobSettings:
    """Holds the settings of one job. `checkpointing`: whether there is an interval. `history_max`: checkpoints that a
    report remembers. `object_bytes_max`: the largest object that storage in the driver's memory takes. `adaptive`: None
    with the default scheduler.
    """

    checkpointing: bool
    coordinator: CoordinatorSettings
    lifecycle: LifecycleSettings
    retained_max: int
    retention: ExternalizedCheckpointRetention
    claim: bool
    ignore_unclaimed_state: bool
    history_max: int
    object_bytes_max: int
    fsync: bool
    savepoint_directory: str | None = None
    without_channel_state: RowsToGiveUp = NOTHING
    """The rows in flight that are not restored."""
    is_available: bool = False
    """The next start of the program resumes the job."""
    adaptive: AdaptiveSettings | None = None
    is_batch: bool = False
    """The job runs in BATCH mode, without snapshots."""

    @property
    def sweep_grace_ms(self) -> float:
        """Return the wait before a sweep, in ms: a slot that has lost its driver ends after one heartbeat timeout."""
        return 2 * self.lifecycle.heartbeat_timeout_ms

    def keeps_checkpoints(self, state: str) -> bool:
        """Return whether the retained checkpoints survive the job's end (Flink's table)."""
        if state == "FAILED" and self.is_available:
            return True
        if state == "CANCELED":
            return self.retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
        return state == "FAILED" and self.retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    @classmethod
    def from_configuration(cls, configuration: Configuration, slots: int) -> JobSettings:
        """Read the settings. Raises `OptionError`."""
        get = configuration.get
        interval = get(CheckpointingOptions.CHECKPOINTING_INTERVAL)
        alignment_timeout_ms: int | None = None
        if get(CheckpointingOptions.ENABLE_UNALIGNED):
            alignment_timeout_ms = int(get(CheckpointingOptions.ALIGNED_CHECKPOINT_TIMEOUT).ms)
        coordinator = CoordinatorSettings(
            None if interval is None else float(interval.ms),
            float(get(CheckpointingOptions.MIN_PAUSE_BETWEEN_CHECKPOINTS).ms),
            float(get(CheckpointingOptions.CHECKPOINTING_TIMEOUT).ms),
            concurrent_checkpoints_max(configuration),
            alignment_timeout_ms,
            get(CheckpointingOptions.TOLERABLE_FAILURE_NUMBER),
            backlog_interval_ms(configuration),
        )
        adaptive = None
        slot_timeout = SlotOptions.SLOT_REQUEST_TIMEOUT
        if get(JobManagerOptions.SCHEDULER) == "adaptive":
            slot_timeout = JobManagerOptions.SUBMISSION_RESOURCE_WAIT_TIMEOUT
            adaptive = AdaptiveSettings(
                float(get(JobManagerOptions.SUBMISSION_RESOURCE_STABILIZATION_TIMEOUT).ms),
                float(get(JobManagerOptions.EXECUTING_RESOURCE_STABILIZATION_TIMEOUT).ms),
                float(get(JobManagerOptions.EXECUTING_COOLDOWN_AFTER_RESCALING).ms),
                may_raise=interval is not None,
                least=get(JobManagerOptions.ADAPTIVE_MIN_PARALLELISM),
            )
        lifecycle = LifecycleSettings(
            slots,
            float(get(slot_timeout).ms),
            float(get(HeartbeatOptions.HEARTBEAT_TIMEOUT).ms),
            float(get(ExecutionOptions.TASK_CANCELLATION_TIMEOUT).ms),
            spares=get(ResourceManagerOptions.REDUNDANT_TASK_MANAGER_NUM),
            restore_timeout_ms=float(get(CheckpointingOptions.CHECKPOINTING_TIMEOUT).ms),
            slot_timeout_option=slot_timeout.key,
            slots_min=None if adaptive is None else min(adaptive.least, slots),
        )
        return cls(
            interval is not None,
            coordinator,
            lifecycle,
            get(CheckpointingOptions.MAX_RETAINED_CHECKPOINTS),
            get(CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION),
            get(StateRecoveryOptions.RESTORE_MODE) is RecoveryClaimMode.CLAIM,
            get(StateRecoveryOptions.SAVEPOINT_IGNORE_UNCLAIMED_STATE),
            get(WebOptions.CHECKPOINTS_HISTORY_SIZE),
            get(CheckpointingOptions.JOBMANAGER_STORAGE_MAX_SIZE),
            get(CheckpointingOptions.STORAGE_FSYNC),
            get(CheckpointingOptions.SAVEPOINT_DIRECTORY),
            _rows_to_give_up(configuration),
            get(HighAvailabilityOptions.HA_MODE) == "filesystem",
            adaptive,
            get(ExecutionOptions.RUNTIME_MODE) is RuntimeExecutionMode.BATCH,
        )


def _rows_to_give_up(configuration: Configuration) -> RowsToGiveUp:
    options = StateRecoveryOptions
    checkpoint_id, channels = options.WITHOUT_CHANNEL_STATE, options.WITHOUT_CHANNEL_STATE_OF_CHANNELS
    named = configuration.get(channels)
    give_up = RowsToGiveUp.parse(configuration.get(checkpoint_id), named)
    if give_up.channels and give_up.checkpoint_id < 0:
        raise OptionError(f"{channels.key} needs {checkpoint_id.key}: name the checkpoint, too", channels.key)
    return give_up


def restart_strategy(configuration: Configuration) -> RestartStrategy:
    """Build the strategy that `restart-strategy.type` names; by default exponential delay with checkpointing on, else
    none.
    """
    get, options = configuration.get, RestartStrategyOptions
    kind = get(options.RESTART_STRATEGY)
    if kind is None:
        kind = "none" if get(CheckpointingOptions.CHECKPOINTING_INTERVAL) is None else "exponential-delay"
    if kind == "fixed-delay":
        return FixedDelay(get(options.FIXED_DELAY_ATTEMPTS), float(get(options.FIXED_DELAY_DELAY).ms))
    if kind == "failure-rate":
        return FailureRate(
            get(options.FAILURE_RATE_MAX),
            float(get(options.FAILURE_RATE_INTERVAL).ms),
            float(get(options.FAILURE_RATE_DELAY).ms),
        )
    if kind == "exponential-delay":
        attempts = get(options.EXPONENTIAL_DELAY_ATTEMPTS)
        return ExponentialDelay(
            float(get(options.EXPONENTIAL_DELAY_INITIAL_BACKOFF).ms),
            float(get(options.EXPONENTIAL_DELAY_MAX_BACKOFF).ms),
            get(options.EXPONENTIAL_DELAY_BACKOFF_MULTIPLIER),
            get(options.EXPONENTIAL_DELAY_JITTER_FACTOR),
            float(get(options.EXPONENTIAL_DELAY_RESET_THRESHOLD).ms),
            None if attempts == INFINITE else attempts,
        )
    return NoRestart()


@dataclass(frozen=True)
class RestorePoint:
    """Holds a restore point. `data` is the encoded metadata, as slots get it. `root` is the directory that its segments
    lie in, if that is not the job's own. `warning`: what the user should know of it.
    """

    metadata: Metadata
    data: bytes
    root: str | None = None
    warning: str | None = None
    path: str | None = None
    """The path of the metadata below `root`."""


@dataclass
class CurrentJob:
    """Holds a job's constants (the first four), and its variables."""

    identity: JobIdentity
    incarnation: str
    configuration: Configuration
    settings: JobSettings
    graph: JobGraph
    """The graph that runs, or that the next generation runs. Only `JobMaster.adopt` replaces it."""
    restore_point: RestorePoint | None = None
    """Names what the next generation restores: the newest checkpoint, or what the job starts from."""
    holds_sources: bool = False
    """True in the first of two steps of a restore: the job's sources emit nothing."""


class Driver:
    """Lets every part of the JobMaster tell the machine its events. `execute` executes one effect.

    No effect is executed inside another one: what follows from an event that arises meanwhile is executed next, before
    all that waits.
    """

    def __init__(self, machine: DriverMachine, clock: Clock, execute: Callable[[Effect], None]) -> None:
        self.machine = machine
        self.lifecycle = machine.lifecycle
        self.coordinator = machine.coordinator
        self._execute = execute
        self._clock = clock
        self._waiting: deque[Effect] = deque()
        self._following: list[Effect] | None = None
        """The effects of events that have arisen while an effect is executed; None if none is."""

    def handle(self, event: Event, now_ms: float | None = None) -> None:
        """Let the machine decide, and execute its effects; at once, or after the effect that is being executed.
        `now_ms` None: ask the clock.
        """
        self.execute(self.decide(event, now_ms))

    def decide(self, event: Event, now_ms: float | None = None) -> list[Effect]:
        """Let the machine decide. The caller must `execute` the effects before it hands over another event."""
        return self.machine.handle(event, self._clock.monotonic_ms() if now_ms is None else now_ms)

    def execute(self, effects: Sequence[Effect]) -> None:
        """Execute effects; at once, or after the effect that is being executed."""
        if self._following is not None:
            self._following += effects
            return
        self._waiting.extend(effects)
        try:
            while self._waiting:
                self._following = []
                self._one(self._waiting.popleft())
                self._put_in_front(self._following)
        finally:
            self._waiting.clear()
            self._following = None

    def _one(self, effect: Effect) -> None:
        if isinstance(effect, CheckpointAborted):
            self._drop_trigger(effect.checkpoint_id)
        self._execute(effect)

    def _drop_trigger(self, checkpoint_id: int) -> None:
        """Trigger no checkpoint that has been aborted while its trigger waited."""
        for waiting in [w for w in self._waiting if isinstance(w, TriggerCheckpoint)]:
            if waiting.barrier.checkpoint_id == checkpoint_id:
                self._waiting.remove(waiting)

    def _put_in_front(self, following: list[Effect]) -> None:
        """Execute these next. But a later trigger never passes one that waits: slots take the older one for late."""
        places = [place for place, w in enumerate(self._waiting) if isinstance(w, TriggerCheckpoint)]
        if places:
            for place, trigger in enumerate([f for f in following if isinstance(f, TriggerCheckpoint)], places[-1] + 1):
                self._waiting.insert(place, trigger)
            following = [f for f in following if not isinstance(f, TriggerCheckpoint)]
        self._waiting.extendleft(reversed(following))

    def finish(self) -> None:
        """End the job as FINISHED: everything up to its final checkpoint is committed."""
        self.handle(events.Finished())

    def fail(self, cause: FailureCause) -> None:
        """Fail the job over."""
        self.handle(events.Failed(cause))

    def abandon(self, error: str) -> None:
        """End the job as FAILED, and delete nothing."""
        self.handle(events.Abandoned(error))
