"""JobClient: a running job, as the program that submitted it sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.common.completable_future import CompletableFuture
from penstock.common.job_execution import JobExecutionResult, JobStatus
from penstock.common.job_id import JobID


class JobClient(ABC):
    @abstractmethod
    def get_job_id(self) -> JobID: ...

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]: ...

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Ends the job without a savepoint. Done when it has ended and its slots are gone."""

    @abstractmethod
    def trigger_checkpoint(self) -> None:
        """Asks for a checkpoint now, beside the periodic ones (Flink's `POST /jobs/:id/checkpoints`). Returns at once;
        `report()` tells what became of it. A job without checkpointing ignores it."""

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Done when the job has ended; raises `JobExecutionError` where it did not finish."""

    @abstractmethod
    def report(self) -> Any:
        """A `penstock.monitoring.report.JobReport` of this moment; None before there is one. From any thread."""

    def wait(self, timeout_ms: float | None = None) -> JobExecutionResult:
        """Waits until the job has ended. Raises `JobExecutionError`, or TimeoutError after `timeout_ms`."""
        return self.get_job_execution_result().result(None if timeout_ms is None else timeout_ms / 1000)
