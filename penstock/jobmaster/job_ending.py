"""Executes the effects of `protocol.driver.ending`: asks the log, deletes, reports the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.jobmaster.commits import CommitFailed, CommitQueue
from penstock.jobmaster.current_job import CurrentJob, Driver
from penstock.jobmaster.job_directory import JobDirectory
from penstock.jobmaster.ports import JobOutcome, MasterPorts, ProcessLinks
from penstock.protocol.driver.ending import (
    STORAGE_TIMEOUT_MS,
    AwaitCommits,
    AwaitPublications,
    CheckLog,
    CommitsIdle,
    DeleteAndSweep,
    Effect,
    Ending,
    EndLog,
    Event,
    FinalCommitRefused,
    Finish,
    GiveUpFinalCommits,
    Holdings,
    LogChecked,
    LogEnded,
    LookForNewest,
    NewestLookedFor,
    NothingPublishing,
    ReleaseSlots,
    RetryFinalCommits,
    SlotsGone,
    Swept,
    TimePassed,
    WarnOfLoss,
    WarnOfRefusal,
    WarnOfSilence,
)
from penstock.protocol.log.publication import Closed, PublicationError
from penstock.storage.store import ObjectMissing, StoreRemoved


class JobEnding:
    """Ends a job, and gives its outcome to `finished_with`. `suspends`: only this driver ends, and the log says nothing
    of it.
    """

    def __init__(
        self,
        job: CurrentJob,
        driver: Driver,
        links: ProcessLinks,
        job_directory: JobDirectory,
        commits: CommitQueue,
        finished_with: Callable[[JobOutcome], None],
        ports: MasterPorts,
    ) -> None:
        self._job = job
        self._driver = driver
        self._links = links
        self._job_directory = job_directory
        self._commits = commits
        self._finished_with = finished_with
        self._ports = ports
        self._machine = Ending()
        self._refused: CommitFailed | None = None
        self._closed: Closed | None = None
        self._lost: str | None = None
        """The refusal of the log, if another driver has taken the job over before this end."""
        self.suspends = False
        self._is_decided = False
        """True once it is decided what the log says of the end."""
        self.started_ms = 0.0

    def next_deadline_ms(self) -> float | None:
        return self._machine.next_deadline_ms()

    def on_time(self, now_ms: float) -> None:
        self._execute(self._machine.handle(TimePassed(), now_ms))

    def on_cancelled(self, suspends: bool) -> None:
        """Record the request: to cancel the job, or to end only this driver. A job that is about to be suspended can
        still be cancelled, until it is decided what its log says."""
        if not self._driver.lifecycle.is_over:
            self.suspends = suspends
        elif not suspends and not self._is_decided:
            self.suspends = False

    def begin(self, state: str, error: str | None) -> None:
        """Begin to end the job: every slot has left, or was given up."""
        self._handle(SlotsGone(state, error))

    def commit_failed(self, failed: CommitFailed) -> None:
        """Handle a failure of the last commits. They need no slot any more: they are retried, and at last left to a
        later driver.
        """
        self._refused = failed
        self._handle(FinalCommitRefused(failed.restartable))

    # ---- effects ------------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        self._execute(self._machine.handle(event, self._ports.clock.monotonic_ms()))

    def _execute(self, effects: Iterable[Effect]) -> None:
        directory, commits, warn = self._job_directory, self._commits, self._ports.console.warning
        for effect in effects:
            match effect:
                case ReleaseSlots():
                    self._ports.slots.cancel_all()
                    self._links.close_all()
                case AwaitPublications():
                    self._await_publications()
                case AwaitCommits():
                    commits.when_idle(lambda: self._handle(CommitsIdle(self._holdings())))
                case CheckLog():
                    self._check_log()
                case EndLog(state, keeps):
                    self._end_log(state, keeps)
                case DeleteAndSweep():
                    assert self._closed is not None
                    directory.delete_unneeded(self._closed)
                    directory.sweep_at_end(lambda: self._handle(Swept()))
                case LookForNewest():
                    self._look_for_newest()
                case RetryFinalCommits():
                    commits.retry()
                case WarnOfRefusal():
                    assert self._refused is not None
                    warn(f"{self._refused.summary}; trying again")
                case GiveUpFinalCommits(attempts):
                    self._give_up(attempts)
                case WarnOfLoss(detail):
                    directory.is_owner = False
                    warn(detail)
                case WarnOfSilence():
                    self._warn_of_silence()
                case Finish(state, error, is_resumable, releases):
                    runtime_ms = self._ports.clock.monotonic_ms() - self.started_ms
                    resume_from = self._kept_in if is_resumable else None
                    is_suspended = self.suspends or directory.is_taken_over
                    said = self._with_loss(error)
                    self._finished_with(JobOutcome(state, said, resume_from, runtime_ms, is_suspended, releases))

    def _with_loss(self, error: str | None) -> str | None:
        """Say that the job was taken over, before the error of this driver's slots: it may come from that. Without
        this: a driver that has slept over its job's end reports that rows are missing which were not needed any more.
        """
        if error is None or self._lost is None or not self._job_directory.is_taken_over or self._lost in error:
            return error
        return f"{self._lost}\nBefore this driver knew that, it had failed: {error}"

    def _await_publications(self) -> None:
        conversations = self._job_directory.conversations
        if conversations is None:
            self._handle(NothingPublishing())
        else:
            conversations.when_idle(lambda: self._handle(NothingPublishing()))

    def _holdings(self) -> Holdings:
        self._is_decided = True
        store, lifecycle = self._job_directory, self._driver.lifecycle
        publication = store.publication
        is_fenced = publication is not None and publication.fence is not None and store.conversations is not None
        keeps = self._job.settings.keeps_checkpoints(lifecycle.verdict) or bool(self._commits.unconfirmed)
        return Holdings(
            is_fenced and store.is_owner,
            self._driver.machine.keeps_everything or self.suspends,
            lifecycle.has_run or lifecycle.is_finishing,
            keeps,
            publication is not None and publication.newest_id > 0,
            lambda: store.store is not None and self._kept_in is not None,
        )

    def _check_log(self) -> None:
        store = self._job_directory
        assert store.publication is not None and store.conversations is not None

        def checked(result: PublicationError | None) -> None:
            lost = isinstance(result, PublicationError)
            self._lost = str(result) if lost else self._lost
            store.is_owner = store.is_owner and not lost
            self._handle(LogChecked(str(result) if lost else None))

        store.conversations.begin(store.publication.check_ours(), checked)

    def _end_log(self, state: str, keeps: bool) -> None:
        store = self._job_directory
        assert store.publication is not None and store.conversations is not None

        def ended(result: PublicationError | Closed) -> None:
            if isinstance(result, Closed):
                self._closed = result
            else:
                self._lost = str(result)
            self._handle(LogEnded(None if isinstance(result, Closed) else str(result)))

        store.conversations.begin(store.publication.end(state, keeps), ended)

    @property
    def _kept_in(self) -> str | None:
        """Return the job's directory, if a checkpoint is retained there."""
        return self._job.identity.directory if self._job_directory.retained_paths else None

    def _look_for_newest(self) -> None:
        store = self._job_directory.store
        assert store is not None
        newest = self._job_directory.retained_paths[-1]

        def looked(result: Any) -> None:
            self._handle(NewestLookedFor(isinstance(result, (ObjectMissing, StoreRemoved))))

        self._ports.work.submit("look for the newest checkpoint", lambda: store.size(newest), looked)

    def _give_up(self, attempts: int) -> None:
        failed, directory = self._refused, self._job.identity.directory
        assert failed is not None
        way_out = f" Resume from {directory} to commit it." if directory is not None and failed.restartable else ""
        self._driver.abandon(
            f"{failed.traceback}{failed.summary}\nAll rows have been processed, but the last output is not "
            f"committed after {attempts} attempt(s).{way_out}"
        )

    def _warn_of_silence(self) -> None:
        committing = self._commits.committing
        who = (
            "the checkpoint storage did not answer"
            if committing is None
            else f"sink '{committing}' did not finish committing its output"
        )
        self._ports.console.warning(
            f"{who} within {STORAGE_TIMEOUT_MS / 1000:g} s after the job's end; everything was kept"
        )
