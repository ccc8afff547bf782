"""Defines JobClient, which observes and controls a running job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.common.completable_future import CompletableFuture
from penstock.common.job_execution import JobExecutionResult, JobStatus
from penstock.common.job_id import JobID


class JobClient(ABC):
    """Observes and controls a running job. `execute_async` returns one."""

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Return the id of the job, which names its directory."""

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Return a future of the job's status now."""

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Cancel the job without a savepoint.

        The returned future is complete when the job has ended and its slots have been released.
        """

    @abstractmethod
    def trigger_checkpoint(self) -> None:
        """Request a checkpoint now, in addition to the periodic ones, and return at once.

        `report()` shows whether it completed. A job without checkpointing ignores the request.
        """

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Return a future of the result, complete when the job has ended.

        Its `result()` raises `JobExecutionError` if the job failed or was cancelled.
        """

    @abstractmethod
    def report(self) -> Any:
        """Return the newest `penstock.monitoring.report.JobReport`, or None if there is none yet.

        Any thread may call it.
        """

    def wait(self, timeout_ms: float | None = None) -> JobExecutionResult:
        """Wait until the job has ended. Raises `JobExecutionError` if it failed or was cancelled.

        Args:
            timeout_ms: How long to wait at most, in milliseconds; then TimeoutError is raised. None: no limit.

        Returns:
            The result of the finished job.
        """
        return self.get_job_execution_result().result(None if timeout_ms is None else timeout_ms / 1000)
