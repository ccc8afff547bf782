"""Defines JobClient, which observes and controls a running job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from penstock.common.completable_future import CompletableFuture
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.missing_names import AdvisesOnMissing


class JobClient(AdvisesOnMissing, ABC):
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
    def trigger_checkpoint(self) -> CompletableFuture[None]:
        """Request a checkpoint now, in addition to the periodic ones, and return at once.

        Returns:
            A future, complete when the checkpoint is triggered, or waits for its turn; `report()` shows whether it
            completes. Its `result()` raises `CheckpointFailed` if the job takes none now: it starts, restarts, is
            drained or has ended, or has no checkpointing.
        """

    @abstractmethod
    def trigger_savepoint(
        self, savepoint_directory: str | None = None, *, aligned: bool | None = None
    ) -> CompletableFuture[str]:
        """Take a savepoint; the job continues. Also under backpressure, and while a checkpoint is being taken.

        A savepoint is self-contained: its directory can be copied or moved, and this job never deletes it.

        Args:
            savepoint_directory: Where to make the savepoint's directory: a path, or a store's URI, as for checkpoints.
                None: `execution.checkpointing.savepoint-dir`.
            aligned: True: it holds no rows in flight, so the program's graph may change before it is restored, but it
                waits until they are processed, and no checkpoint begins meanwhile. False: unaligned, fast under any
                load. None: as the job's checkpoints.

        Returns:
            A future of the savepoint's directory. Its `result()` raises `SavepointFailed` if there is none.
        """

    @abstractmethod
    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool = False,
        savepoint_directory: str | None = None,
        *,
        aligned: bool | None = None,
    ) -> CompletableFuture[str]:
        """Take a savepoint behind which the job takes no more input, commit its output, and end the job as FINISHED.

        If the savepoint fails, the job continues.

        Args:
            advance_to_end_of_event_time: Drain the job: end its sources and send the last watermark, so that all
                windows and event-time timers fire, before the savepoint. Right if the job ends for good.
            savepoint_directory: As for `trigger_savepoint`.
            aligned: As for `trigger_savepoint`.

        Returns:
            A future of the savepoint's directory, complete when the job has ended. Its `result()` raises
            `SavepointFailed` if the savepoint was not taken, and `JobExecutionError` if the job failed after it.
        """

    @abstractmethod
    def rescale(self, parallelism: int | Mapping[str, int]) -> CompletableFuture[None]:
        """Let the job continue at another parallelism, from a checkpoint that is taken for it, in living processes.

        What the job needs of further slots is started first, while it continues. Rescales queue up behind each other.
        A job with a broadcast first works off the rows in flight that the one before has left. If the checkpoint fails,
        the job continues as it was.

        Args:
            parallelism: Of the job: all operators get it that have the greatest one in the program; those that have
                less keep theirs, as far as there are slots. Or of single operators, by their uids (or names); the
                others stay as they are. Operators that are joined by forward edges change together.

        Returns:
            A future, complete when every subtask runs. Its `result()` raises `RescaleFailed` if the job continues as it
            was: the parallelism is beyond an operator's max parallelism, the checkpoint failed, the job has ended.
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

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Return a future of the counters of user functions by name, as the newest report has them.

        Each is the sum over all subtasks. It begins again after a restart.
        """
        report = self.report()
        return CompletableFuture.completed({} if report is None else report.accumulators)

    def wait(self, timeout_ms: float | None = None) -> JobExecutionResult:
        """Wait until the job has ended. Raises `JobExecutionError` if it failed or was cancelled.

        Args:
            timeout_ms: How long to wait at most, in milliseconds; then TimeoutError is raised. None: no limit.

        Returns:
            The result of the finished job.
        """
        return self.get_job_execution_result().result(None if timeout_ms is None else timeout_ms / 1000)
