"""The end of a job, once its slots are gone: commits and log come to rest, then what is not kept is deleted.

Nothing is deleted before a log entry has proved that the job is still ours. Everything is kept where the job never ran
in this driver, where it was given up because of its storage, and where output is still waiting to be committed. The
log itself always stays: it keeps the id of an ended job from being used again.
"""

from __future__ import annotations

from typing import Any, Protocol

from penstock.common.clock import Clock
from penstock.jobmaster.commits import CommitFailed, CommitQueue
from penstock.jobmaster.console import Console
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.outcome import JobOutcome
from penstock.jobmaster.ports import BlockingWork, SlotSubmitter
from penstock.jobmaster.settings import JobSettings
from penstock.jobmaster.store import JobStore
from penstock.protocol.job.lifecycle import Lifecycle
from penstock.protocol.log.publication import Closed, PublicationError
from penstock.storage.store import ObjectMissing, StoreRemoved

FINAL_COMMIT_ATTEMPTS_MAX = 5
FINAL_COMMIT_PAUSE_MS = 1000.0
STORAGE_TIMEOUT_MS = 30_000.0


class Master(Protocol):
    identity: JobIdentity
    settings: JobSettings
    store: JobStore
    commits: CommitQueue
    lifecycle: Lifecycle
    slots: SlotSubmitter
    work: BlockingWork
    clock: Clock
    console: Console

    def close_all_links(self) -> None: ...

    def abandon(self, error: str) -> None: ...

    def finished_with(self, outcome: JobOutcome) -> None: ...


class Ending:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._verdict: tuple[str, str | None] | None = None
        self._give_up_at_ms: float | None = None
        self._retry_commit_at_ms: float | None = None
        self._commit_failures = 0
        self.keep_everything = False
        self.started_ms = 0.0

    def next_deadline_ms(self) -> float | None:
        return min((t for t in (self._give_up_at_ms, self._retry_commit_at_ms) if t is not None), default=None)

    def on_time(self, now_ms: float) -> None:
        if self._retry_commit_at_ms is not None and self._retry_commit_at_ms <= now_ms:
            self._retry_commit_at_ms = None
            self._master.commits.retry()
        if self._give_up_at_ms is not None and self._give_up_at_ms <= now_ms:
            committing = self._master.commits.committing
            who = "the checkpoint storage did not answer" if committing is None else (
                f"sink '{committing}' did not finish committing its output"
            )
            self._master.console.warning(
                f"{who} within {STORAGE_TIMEOUT_MS / 1000:g} s after the job's end; everything was kept"
            )
            self._finish(self._kept_in)

    def commit_failed(self, failed: CommitFailed) -> None:
        """The last commits, which need no slot any more: tried again, and at last left to a later driver."""
        self._commit_failures += 1
        if failed.restartable and self._commit_failures < FINAL_COMMIT_ATTEMPTS_MAX:
            self._master.console.warning(f"{failed.summary}; trying again")
            self._retry_commit_at_ms = self._master.clock.monotonic_ms() + FINAL_COMMIT_PAUSE_MS
            return
        directory = self._master.identity.directory
        way_out = f" Resume from {directory} to commit it." if directory is not None and failed.restartable else ""
        self._master.abandon(
            f"{failed.traceback}{failed.summary}\nAll rows have been processed, but the last output is not "
            f"committed after {self._commit_failures} attempt(s).{way_out}"
        )

    # ---- after the last slot ------------------------------------------------------------------------------------

    def begin(self, state: str, error: str | None) -> None:
        """Every slot has left, or was given up."""
        master = self._master
        self._verdict = (state, error)
        self._give_up_at_ms = master.clock.monotonic_ms() + STORAGE_TIMEOUT_MS
        master.slots.cancel_all()
        master.close_all_links()
        conversations = master.store.conversations
        if conversations is None:
            self._when_published()
        else:
            conversations.when_idle(self._when_published)

    def _when_published(self) -> None:
        self._master.commits.when_settled(self._end_log)

    def _end_log(self) -> None:
        if self._verdict is None:
            return
        store, state = self._master.store, self._verdict[0]
        publication, conversations = store.publication, store.conversations
        if publication is None or conversations is None or publication.fence is None or not store.is_owner:
            self._end(keeps=False)
            return
        if self.keep_everything or not self._ran:
            conversations.begin(publication.check_ours(), self._checked)
            return
        keeps = self._master.settings.keeps_checkpoints(state) or bool(self._master.commits.unconfirmed)
        conversations.begin(publication.end(state, keeps), lambda result: self._log_ended(result, keeps))

    def _checked(self, result: PublicationError | None) -> None:
        """A driver that was fenced while it failed says that: what it misses may be what its successor has deleted."""
        if isinstance(result, PublicationError) and self._verdict is not None:
            self._master.store.is_owner = False
            state, error = self._verdict
            self._verdict = (state, str(result) if error is not None else None)
        self._end(keeps=True)

    @property
    def _ran(self) -> bool:
        return self._master.lifecycle.has_run or self._master.lifecycle.is_finishing

    def _log_ended(self, result: PublicationError | Closed, keeps: bool) -> None:
        if isinstance(result, PublicationError):
            self._master.store.is_owner = False
            self._master.console.warning(str(result))
            self._end(keeps=False)
            return
        self._master.store.delete_unneeded(result.deletable, result.shortened)
        self._master.store.sweep_at_end(lambda: self._end(keeps))

    @property
    def _kept_in(self) -> str | None:
        """The job's directory, if a checkpoint is retained there."""
        return self._master.identity.directory if self._master.store.retained_paths else None

    def _end(self, keeps: bool) -> None:
        """Look whether the newest checkpoint is still there before anybody is advised to resume from it."""
        store, directory = self._master.store.store, self._kept_in if keeps else None
        if store is None or directory is None:
            self._finish(None)
            return
        newest = self._master.store.retained_paths[-1]

        def looked(result: Any) -> None:
            self._finish(None if isinstance(result, (ObjectMissing, StoreRemoved)) else directory)

        self._master.work.submit("look for the newest checkpoint", lambda: store.size(newest), looked)

    def _finish(self, resume_from: str | None) -> None:
        if self._verdict is None:
            return
        (state, error), self._verdict = self._verdict, None
        self._give_up_at_ms = None
        master = self._master
        runtime_ms = master.clock.monotonic_ms() - self.started_ms
        master.finished_with(JobOutcome(state, error, resume_from, runtime_ms))
