"""Lists the reasons of failures. Decisions depend on these values, never on the accompanying text."""

from __future__ import annotations

from enum import StrEnum


class FailureReason(StrEnum):
    """Lists why a checkpoint failed, in the words of Flink's CheckpointFailureReason."""

    DECLINED_SUBSUMED = "CHECKPOINT_DECLINED_SUBSUMED"
    DECLINED_ON_CANCELLATION_BARRIER = "CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER"
    DECLINED_TASK_NOT_READY = "CHECKPOINT_DECLINED_TASK_NOT_READY"
    DECLINED_LATE_BARRIER = "CHECKPOINT_DECLINED_LATE_BARRIER"
    DECLINED = "CHECKPOINT_DECLINED"
    EXPIRED = "CHECKPOINT_EXPIRED"
    ASYNC_EXCEPTION = "CHECKPOINT_ASYNC_EXCEPTION"
    IO_EXCEPTION = "IO_EXCEPTION"
    FINALIZE_FAILURE = "FINALIZE_CHECKPOINT_FAILURE"
    SUBSUMED = "CHECKPOINT_SUBSUMED"
    COORDINATOR_SUSPEND = "CHECKPOINT_COORDINATOR_SUSPEND"
    JOB_FAILOVER = "JOB_FAILOVER_REGION"
    MINIMUM_TIME_BETWEEN = "MINIMUM_TIME_BETWEEN_CHECKPOINTS"
    TOO_MANY_REQUESTS = "TOO_MANY_CHECKPOINT_REQUESTS"
    PERIODIC_SCHEDULER_SHUTDOWN = "PERIODIC_SCHEDULER_SHUTDOWN"
    NOT_ALL_TASKS_RUNNING = "NOT_ALL_REQUIRED_TASKS_RUNNING"
    STOP_PENDING = "STOP_WITH_SAVEPOINT_PENDING"
    """Ours: the job is being stopped with another savepoint already."""
    RESCALE_PENDING = "RESCALE_PENDING"
    """Ours: the job is about to continue at another parallelism."""
    JOB_ENDED = "JOB_ENDED"
    """Ours: the job ended before its savepoint could be triggered."""
    ID_TAKEN = "CHECKPOINT_ID_TAKEN"
    """Ours: a driver that was fenced meanwhile has written metadata of this id."""

    @property
    def counts(self) -> bool:
        """Return whether a failure for this reason counts towards the tolerable ones."""
        return self in _COUNTED


# 11.9: an id that foreign metadata has taken is no failure.
_COUNTED = frozenset(
    {
        FailureReason.IO_EXCEPTION, FailureReason.ASYNC_EXCEPTION,
        FailureReason.DECLINED, FailureReason.EXPIRED, FailureReason.FINALIZE_FAILURE,
    }
)  # fmt: skip


class SubtaskFailureReason(StrEnum):
    """Lists why a subtask failed, as far as the job's further life depends on it."""

    FUNCTION = "function"
    """Something raised that may not raise again: a restart may do better."""
    PERMANENT = "permanent"
    """The error says of itself that it will be the same at every attempt."""
    DAMAGE = "damage"
    """While the job restores: what it reads is missing, or not what was written."""
    DAMAGED_RANGE = "damaged range"
    """A range of the checkpoint is not what was written, whenever that is found: it may be read while the job runs."""
