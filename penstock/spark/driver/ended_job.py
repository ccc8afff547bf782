"""Implements the client of a job that had ended before this program started it again: nothing runs."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.common.completable_future import CompletableFuture
from penstock.common.job_client import JobClient
from penstock.common.job_execution import CheckpointFailed, JobExecutionError, RescaleFailed, SavepointFailed
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.options import PipelineOptions
from penstock.jobmaster.identity import JobIdentity
from penstock.monitoring.report import JobReport


class EndedJobClient(JobClient):
    """Reports the outcome of an ended job. `state` is FINISHED or CANCELED, `message` the user's text."""

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


def how_it_ended(job_name: str, identity: JobIdentity) -> str:
    """Return the message for a job that is not run again, because it has ended."""
    assert identity.ended is not None
    state, what = identity.ended.state, f"job {identity.job_id} ({job_name}) in {identity.directory}"
    again = f"To run it again, give another {PipelineOptions.FIXED_JOB_ID.key} or another job name"
    if identity.stopped_with is not None:
        return (
            f"{what} was stopped before, with the savepoint {identity.stopped_with}, and is not run again. A new job "
            f"starts from it with -s {identity.stopped_with}, under another {PipelineOptions.FIXED_JOB_ID.key}"
        )
    elif state == "FINISHED":
        return f"{what} has FINISHED before, and is not run again. {again}"
    else:
        resumed = f"resume it with -s {identity.directory}" if identity.ended.retained else "it has kept no checkpoint"
        return f"{what} was CANCELED before, and is not run again: {resumed}. {again}"


def _refused(error: Exception) -> CompletableFuture[str]:
    refused: CompletableFuture[str] = CompletableFuture()
    refused.set_exception(error)
    return refused
