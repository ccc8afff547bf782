"""Implements the client of a job that had ended before this program started it again: nothing runs."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.common.completable_future import CompletableFuture
from penstock.common.job_client import JobClient
from penstock.common.job_execution import (
    CheckpointFailed,
    JobExecutionError,
    JobExecutionResult,
    JobStatus,
    RescaleFailed,
    SavepointFailed,
)
from penstock.common.job_id import JobID
from penstock.monitoring.report import JobReport


class EndedJobClient(JobClient):
    """Reports how a job has ended. `state` is FINISHED or CANCELED, `message` what the user was told."""

    def __init__(self, job_id: JobID, job_name: str, state: str, message: str) -> None:
        self._job_id = job_id
        self._status = JobStatus[state]
        self._report = JobReport(str(job_id), job_name, state, 0, 0, (), (), 0, 0, (), 0, 0)
        self._result: CompletableFuture[JobExecutionResult] = CompletableFuture()
        if self._status is JobStatus.FINISHED:
            self._result.set_result(JobExecutionResult(job_id, 0))
        else:
            self._result.set_exception(JobExecutionError(message, status=self._status, job_id=job_id))

    def get_job_id(self) -> JobID:
        return self._job_id

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(self._status)

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return self._result

    def report(self) -> JobReport:
        return self._report

    def cancel(self) -> CompletableFuture[None]:
        return CompletableFuture.completed(None)

    def trigger_checkpoint(self) -> CompletableFuture[None]:
        refused: CompletableFuture[None] = CompletableFuture()
        refused.set_exception(CheckpointFailed("the job has ended"))
        return refused

    def trigger_savepoint(
        self, savepoint_directory: str | None = None, *, aligned: bool | None = None
    ) -> CompletableFuture[str]:
        return _refused(SavepointFailed("the job has ended"))

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool = False,
        savepoint_directory: str | None = None,
        *,
        aligned: bool | None = None,
    ) -> CompletableFuture[str]:
        return _refused(SavepointFailed("the job has ended"))

    def rescale(self, parallelism: int | Mapping[str, int]) -> CompletableFuture[None]:
        refused: CompletableFuture[None] = CompletableFuture()
        refused.set_exception(RescaleFailed("the job has ended"))
        return refused


def _refused(error: Exception) -> CompletableFuture[str]:
    refused: CompletableFuture[str] = CompletableFuture()
    refused.set_exception(error)
    return refused
