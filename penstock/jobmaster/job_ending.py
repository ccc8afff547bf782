"""Executes the effects of `protocol.driver.ending`: asks the log, deletes, reports the outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.jobmaster.commits import Commits
from penstock.jobmaster.current_job import CurrentJob, Driver
from penstock.jobmaster.job_directory import JobDirectory
from penstock.jobmaster.ports import JobOutcome, MasterPorts
from penstock.protocol.driver.driver_effects import FailureCause
from penstock.protocol.driver.ending import (
    STORAGE_TIMEOUT_MS,
    CommitsIdle,
    Finish,
    Holdings,
    LogChecked,
    LogEnded,
    NewestLookedFor,
    NothingPublishing,
    Swept,
)
from penstock.protocol.log.publication import Closed, PublicationError
from penstock.storage.store import ObjectMissing, StoreRemoved


class JobEnding:
    """Ends a job, and gives its outcome to `finished_with`."""

    def __init__(
        self,
        job: CurrentJob,
        driver: Driver,
        job_directory: JobDirectory,
        commits: Commits,
        finished_with: Callable[[JobOutcome], None],
        ports: MasterPorts,
    ) -> None:
        self._job = job
        self._driver = driver
        self._job_directory = job_directory
        self._commits = commits
        self._finished_with = finished_with
        self._ports = ports
        self._closed: Closed | None = None
        self.started_ms = 0.0

    def finish(self, effect: Finish) -> None:
        runtime_ms = self._ports.clock.monotonic_ms() - self.started_ms
        resume_from = self._kept_in if effect.is_resumable else None
        is_suspended = self._driver.machine.suspends or self._job_directory.takeover is not None
        said = self._with_loss(effect.error)
        self._finished_with(JobOutcome(effect.state, said, resume_from, runtime_ms, is_suspended, effect.releases))

    def delete_and_sweep(self) -> None:
        assert self._closed is not None
        self._job_directory.delete_unneeded(self._closed)
        self._job_directory.sweep_at_end(lambda: self._driver.handle(Swept()))

    def _with_loss(self, error: str | None) -> str | None:
        """Say that the job was taken over, before the error of this driver's slots: it may come from that. Without
        this: a driver that has slept over its job's end reports that rows are missing which were not needed any more.
        """
        lost = self._job_directory.takeover
        if error is None or lost is None or lost in error:
            return error
        return f"{lost}\nBefore this driver knew that, it had failed: {error}"

    def await_publications(self) -> None:
        conversations = self._job_directory.conversations
        if conversations is None:
            self._driver.handle(NothingPublishing())
        else:
            conversations.when_idle(lambda: self._driver.handle(NothingPublishing()))

    def report_holdings(self) -> None:
        """Report the facts that decide about deleting: nothing is being committed now."""
        store, machine, lifecycle = self._job_directory, self._driver.machine, self._driver.lifecycle
        publication = store.publication
        is_fenced = publication is not None and publication.fence is not None and store.conversations is not None
        keeps = self._job.settings.keeps_checkpoints(lifecycle.verdict) or bool(self._commits.unconfirmed)
        holdings = Holdings(
            is_fenced and store.is_owner,
            machine.keeps_everything or machine.suspends,
            lifecycle.has_run or lifecycle.is_finishing,
            keeps,
            publication is not None and publication.newest_id > 0,
            lambda: store.store is not None and self._kept_in is not None,
        )
        self._driver.handle(CommitsIdle(holdings))

    def check_log(self) -> None:
        store = self._job_directory
        assert store.publication is not None and store.conversations is not None

        def checked(result: PublicationError | None) -> None:
            lost = isinstance(result, PublicationError)
            self._driver.handle(LogChecked(str(result) if lost else None))

        store.conversations.begin(store.publication.check_ours(), checked)

    def end_log(self, state: str, keeps: bool) -> None:
        store = self._job_directory
        assert store.publication is not None and store.conversations is not None

        def ended(result: PublicationError | Closed) -> None:
            if isinstance(result, Closed):
                self._closed = result
            self._driver.handle(LogEnded(None if isinstance(result, Closed) else str(result)))

        store.conversations.begin(store.publication.end(state, keeps), ended)

    @property
    def _kept_in(self) -> str | None:
        """Return the job's directory, if a checkpoint is retained there."""
        return self._job.identity.directory if self._job_directory.retained_paths else None

    def look_for_newest(self) -> None:
        store = self._job_directory.store
        assert store is not None
        newest = self._job_directory.retained_paths[-1]

        def looked(result: Any) -> None:
            self._driver.handle(NewestLookedFor(isinstance(result, (ObjectMissing, StoreRemoved))))

        self._ports.work.submit("look for the newest checkpoint", lambda: store.size(newest), looked)

    def give_up(self, attempts: int, failed: FailureCause) -> None:
        directory = self._job.identity.directory
        way_out = f" Resume from {directory} to commit it." if directory is not None and failed.restartable else ""
        self._driver.abandon(
            f"{failed.traceback}{failed.summary}\nAll rows have been processed, but the last output is not "
            f"committed after {attempts} attempt(s).{way_out}"
        )

    def warn_of_silence(self) -> None:
        committing = self._commits.committing
        who = (
            "the checkpoint storage did not answer"
            if committing is None
            else f"sink '{committing}' did not finish committing its output"
        )
        self._ports.console.warning(
            f"{who} within {STORAGE_TIMEOUT_MS / 1000:g} s after the job's end; everything was kept"
        )
