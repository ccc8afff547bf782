"""Implements a job on Spark as the program that submitted it sees it."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Mapping
from functools import partial
from types import FrameType
from typing import Any, Callable, TypeVar

from penstock.common.completable_future import CompletableFuture
from penstock.common.job_client import JobClient
from penstock.common.job_execution import CheckpointFailed, JobExecutionError, RescaleFailed, SavepointFailed
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.program.excepthook import is_interactive
from penstock.jobmaster.ports import CheckpointAnswer, JobOutcome, RescaleOrder, SavepointOrder
from penstock.monitoring.html_view import job_html
from penstock.monitoring.report import JobReport
from penstock.protocol.driver.savepoint import Alignment
from penstock.spark.driver.terminal import Terminal

T = TypeVar("T")

_ALIGNMENTS = {None: Alignment.CONFIGURED, True: Alignment.ALIGNED, False: Alignment.UNALIGNED}
CANCEL_TIMEOUT_S = 60.0


class SparkJobClient(JobClient):
    """Observes and controls a job that this process drives. `report` and `cancel` may be called from any thread;
    `on_ended` is called by the driver, once. `suspend`: ends only this driver, for a job that its next start resumes.
    """

    def __init__(
        self,
        job_id: JobID,
        report: Callable[[], JobReport],
        cancel: Callable[[], None],
        trigger_checkpoint: Callable[[CheckpointAnswer], None],
        order_savepoint: Callable[[SavepointOrder], None],
        order_rescale: Callable[[RescaleOrder], None],
        suspend: Callable[[], None] | None = None,
        tell: Callable[[str], None] = Terminal().tell,
        dashboard: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._dashboard = dashboard
        self._job_id = job_id
        self._report = report
        self._cancel = cancel
        self._trigger_checkpoint = trigger_checkpoint
        self._order_savepoint = order_savepoint
        self._order_rescale = order_rescale
        self._suspend = suspend
        self._tell = tell
        self._ordered: list[CompletableFuture[str]] = []
        self._checkpoints: set[CompletableFuture[None]] = set()
        self._rescales: list[CompletableFuture[None]] = []
        self._ended: CompletableFuture[JobExecutionResult] = CompletableFuture(cancellable=False)
        self._cancelled: CompletableFuture[None] = CompletableFuture(cancellable=False)
        self._resume_from: str | None = None
        self._ended_as: str | None = None
        self._waiting = 0

    def get_job_id(self) -> JobID:
        return self._job_id

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        # Another driver may have ended the job, of which the report knows nothing.
        return CompletableFuture.completed(JobStatus[self._ended_as or self._report().state])

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return self._ended

    def report(self) -> JobReport:
        return self._report()

    def _repr_html_(self) -> str:
        """Show the job in a notebook, with a link to its dashboard."""
        return job_html(self._report(), None if self._ended.done() else self._dashboard())

    @property
    def has_the_terminal(self) -> bool:
        """Return whether the program waits for the job, or is no prompt at which somebody may type meanwhile."""
        return self._waiting > 0 or not is_interactive()

    def cancel(self) -> CompletableFuture[None]:
        self._cancel()
        return self._cancelled

    def trigger_checkpoint(self) -> CompletableFuture[None]:
        accepted: CompletableFuture[None] = CompletableFuture()
        self._checkpoints.add(accepted)

        def answer(failed: CheckpointFailed | None) -> None:
            self._checkpoints.discard(accepted)
            if failed is None:
                accepted.set_result(None)
            else:
                accepted.set_exception(failed)

        if self._ended.done():
            answer(CheckpointFailed("the job has ended"))
        else:
            self._trigger_checkpoint(answer)
        return accepted

    def trigger_savepoint(
        self, savepoint_directory: str | None = None, *, aligned: bool | None = None
    ) -> CompletableFuture[str]:
        taken: CompletableFuture[str] = CompletableFuture()
        self._ordered.append(taken)
        order = SavepointOrder(partial(_answer, taken), _absolute(savepoint_directory), _ALIGNMENTS[aligned])
        self._order(order)
        return taken

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool = False,
        savepoint_directory: str | None = None,
        *,
        aligned: bool | None = None,
    ) -> CompletableFuture[str]:
        stopped: CompletableFuture[str] = CompletableFuture()
        self._ordered.append(stopped)

        def answer(result: str | SavepointFailed) -> None:
            if isinstance(result, SavepointFailed):
                stopped.set_exception(result)
            else:
                self._ended.add_done_callback(partial(_ended_with, stopped, result))

        drains = advance_to_end_of_event_time
        directory, alignment = _absolute(savepoint_directory), _ALIGNMENTS[aligned]
        self._order(SavepointOrder(answer, directory, alignment, stops=True, drains=drains))
        return stopped

    def _order(self, order: SavepointOrder) -> None:
        if self._ended.done():
            order.answer(SavepointFailed("the job has ended"))
        else:
            self._order_savepoint(order)

    def rescale(self, parallelism: int | Mapping[str, int]) -> CompletableFuture[None]:
        rescaled: CompletableFuture[None] = CompletableFuture()
        self._rescales.append(rescaled)

        def answer(failed: RescaleFailed | None) -> None:
            if failed is None:
                rescaled.set_result(None)
            else:
                rescaled.set_exception(failed)

        order = RescaleOrder(parallelism if isinstance(parallelism, int) else dict(parallelism), answer)
        if self._ended.done():
            answer(RescaleFailed("the job has ended"))
        else:
            self._order_rescale(order)
        return rescaled

    def on_ended(self, outcome: JobOutcome) -> None:
        self._resume_from, self._ended_as = outcome.resume_from, outcome.state
        if outcome.state == "FINISHED":
            accumulators = self.get_accumulators().result()
            self._ended.set_result(JobExecutionResult(self._job_id, int(outcome.runtime_ms), accumulators))
        else:
            did = "is suspended: its next start resumes it" if outcome.is_suspended else "was cancelled"
            message = outcome.error or f"Job {self._job_id} {did}."
            status = JobStatus.SUSPENDED if outcome.is_suspended else JobStatus[outcome.state]
            self._ended.set_exception(
                JobExecutionError(message, status=status, job_id=self._job_id, checkpoint_path=outcome.resume_from)
            )
        for order in self._ordered:  # one that came too late for the driver's loop; the others have their answers
            order.set_exception(SavepointFailed("the job has ended"))
        for accepted in list(self._checkpoints):
            accepted.set_exception(CheckpointFailed("the job has ended"))
        for rescaled in self._rescales:
            rescaled.set_exception(RescaleFailed("the job has ended"))
        self._cancelled.set_result(None)

    def wait(self, timeout_ms: float | None = None) -> JobExecutionResult:
        """Wait as `JobClient.wait`. Ctrl-C and SIGTERM cancel the job, wait until its slots have left, and print from
        where it can be resumed; then they continue as KeyboardInterrupt and SystemExit.
        """
        return self.interruptible(lambda: JobClient.wait(self, timeout_ms))

    def interruptible(self, call: Callable[[], T]) -> T:
        """Return the result of a call that waits for the job or its rows. Ctrl-C and SIGTERM end it as in `wait`."""
        with _OwnInterrupt():
            self._waiting += 1
            try:
                return call()
            except (KeyboardInterrupt, Terminated):
                self.leave()
                raise
            finally:
                self._waiting -= 1

    def leave(self) -> None:
        """Cancel the job if it still runs, wait for it, and print from where it can be resumed: the program ends. A job
        that its next start resumes is suspended instead.
        """
        if self._ended.done():
            return
        if self._suspend is None:
            self._tell(f"cancelling job {self._job_id}")
            self._cancel()
        else:
            self._tell(f"suspending job {self._job_id}; its next start resumes it")
            self._suspend()
        try:
            self._cancelled.result(CANCEL_TIMEOUT_S)
        except TimeoutError:
            self._tell(f"the job did not end within {CANCEL_TIMEOUT_S:.0f} s")
        if self._resume_from is not None and self._suspend is None:
            self._tell(f"resume it with -s {self._resume_from}")


class Terminated(SystemExit):
    """Signals that SIGTERM has asked the program to end while a job ran."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


_running: weakref.WeakSet[SparkJobClient] = weakref.WeakSet()


def end_in_order_on_sigterm(client: SparkJobClient) -> None:
    """Let SIGTERM end the program as Ctrl-C does while the job of `client` runs: its job is cancelled, and the program
    says from where it can be resumed. A handler of the program's own stays."""
    _running.add(client)
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(_number: int, _frame: FrameType | None) -> None:
    if any(not client.get_job_execution_result().done() for client in list(_running)):
        raise Terminated
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


class _OwnInterrupt:
    """Takes over Ctrl-C while the program waits for a job. PySpark's handler would cancel the slots' Spark jobs first,
    and the job would end without a message from its slots.
    """

    def __enter__(self) -> None:
        self._before: Any = None
        self._is_main = threading.current_thread() is threading.main_thread()
        if self._is_main:
            self._before = signal.signal(signal.SIGINT, self._interrupt)

    def __exit__(self, *_error: object) -> None:
        if self._is_main and self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    @staticmethod
    def _interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt


def _absolute(directory: str | None) -> str | None:
    """Make a path absolute: the program may change its working directory, and executors have another."""
    return directory if directory is None or ":/" in directory else os.path.abspath(directory)


def _answer(taken: CompletableFuture[str], result: str | SavepointFailed) -> None:
    if isinstance(result, SavepointFailed):
        taken.set_exception(result)
    else:
        taken.set_result(result)


def _ended_with(stopped: CompletableFuture[str], directory: str, ended: CompletableFuture[JobExecutionResult]) -> None:
    error = ended.exception()
    if error is None:
        stopped.set_result(directory)
        return
    assert isinstance(error, JobExecutionError)
    # Without this: its user knows of earlier savepoints only, starts from one of them, and gets output twice.
    way_out = f"The savepoint that the job was stopped with is complete, though: start from it with -s {directory}"
    told = JobExecutionError(f"{error}\n{way_out}", status=error.status, job_id=error.job_id)
    told.checkpoint_path = error.checkpoint_path
    stopped.set_exception(told)
