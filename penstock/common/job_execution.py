"""Defines the status of a job, its result, and the error that ends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock.common.job_id import JobID


class JobStatus(Enum):
    """Names Flink's states of a job."""

    INITIALIZING = 0
    CREATED = 1
    RUNNING = 2
    FAILING = 3
    FAILED = 4
    CANCELLING = 5
    CANCELED = 6
    FINISHED = 7
    RESTARTING = 8
    SUSPENDED = 9
    RECONCILING = 10

    def is_globally_terminal_state(self) -> bool:
        """Return True if the job has ended for good: FAILED, CANCELED or FINISHED."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Return True if the job has ended here: also SUSPENDED, when another driver may continue it."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED


class JobExecutionError(Exception):
    """Reports a job that ended without finishing. The message begins with the user's traceback if there is one.

    `status` is FAILED or CANCELED; `job_id` and `operator` are None if unknown; `checkpoint_path` names the checkpoint
    that the job can be resumed from, if one was retained.
    """

    def __init__(
        self,
        message: str,
        *,
        status: JobStatus = JobStatus.FAILED,
        job_id: JobID | None = None,
        operator: str | None = None,
        traceback: str | None = None,
        checkpoint_path: str | None = None,
    ) -> None:
        text = f"{traceback.rstrip()}\n\n{message}" if traceback else message
        if checkpoint_path:
            text += f"\nResume from: {checkpoint_path}"
        super().__init__(text)
        self.status = status
        self.job_id = job_id
        self.operator = operator
        self.traceback = traceback
        self.checkpoint_path = checkpoint_path


@dataclass(frozen=True)
class JobExecutionResult:
    """Holds the result of a finished job: `net_runtime_ms` from its submission to its end, `accumulators` by name."""

    job_id: JobID
    net_runtime_ms: int
    accumulators: dict[str, Any] = field(default_factory=dict)

    def get_job_id(self) -> JobID:
        """Return the id of the job."""
        return self.job_id

    def get_net_runtime(self) -> int:
        """Return the time from the job's submission to its end, in milliseconds."""
        return self.net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Return the result of an accumulator. Raises KeyError if there is none of this name.

        Args:
            accumulator_name: Its name.

        Returns:
            The result.
        """
        return self.accumulators[accumulator_name]

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Return the results of all accumulators by name."""
        return dict(self.accumulators)

    def is_job_execution_result(self) -> bool:
        """Return True: the job has ended. PyFlink's results of detached jobs return False."""
        return True

    def __str__(self) -> str:
        return (
            f"Program execution finished\nJob with JobID {self.job_id} has finished.\n"
            f"Job Runtime: {self.net_runtime_ms} ms"
        )


class RescaleFailed(Exception):
    """Signals that a job continues at the parallelism that it had."""


class CheckpointFailed(Exception):
    """Signals that a checkpoint that a user asked for was not taken."""


class SavepointFailed(Exception):
    """Signals that a savepoint was not taken. The job continues, unless it had ended before."""
