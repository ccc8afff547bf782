"""Defines the errors of a job: the failure that ends it, and the failures of users' requests to it."""

from __future__ import annotations

from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus


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


class RescaleFailed(Exception):
    """Signals that a job continues at the parallelism that it had."""


class CheckpointFailed(Exception):
    """Signals that a checkpoint that a user asked for was not taken."""


class SavepointFailed(Exception):
    """Signals that a savepoint was not taken. The job continues, unless it had ended before."""
