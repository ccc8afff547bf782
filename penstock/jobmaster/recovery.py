"""Executes what `protocol.job.recovery` decides: opens, takes over, reads and checks what a generation restores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from penstock.common.clock import Clock
from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.assembly import committables_of
from penstock.jobmaster.commits import CommitQueue
from penstock.jobmaster.console import Console
from penstock.jobmaster.ending import JobEnding
from penstock.jobmaster.fit import fitted_in_steps, nothing_to_resume
from penstock.jobmaster.identity import CheckpointToStartFrom, JobIdentity, OpenStore
from penstock.jobmaster.job_directory import JobDirectory
from penstock.jobmaster.ports import BlockingWork
from penstock.jobmaster.rescales import Rescales
from penstock.jobmaster.restore import RestorePoint, check_log, damage, read_start, without_channel_state
from penstock.jobmaster.settings import JobSettings
from penstock.protocol.checkpoint.coordinator import CheckpointCoordinator
from penstock.protocol.job import lifecycle_effects
from penstock.protocol.job.lifecycle import Lifecycle
from penstock.protocol.job.lifecycle_effects import FailureCause
from penstock.protocol.job.recovery import (
    Abandon,
    AbandonEnded,
    AwaitPublications,
    Begun,
    CheckFiles,
    Claim,
    Effect,
    Event,
    Fail,
    Files,
    FilesChecked,
    FitCheckpoint,
    Fitted,
    KeepEverything,
    LogTaken,
    LoseLog,
    OpenDirectory,
    Prepared,
    PublicationsIdle,
    QueueCommits,
    ReadStart,
    Recovery,
    Refused,
    RetryCommits,
    StartRead,
    StoreOpened,
    Superseded,
    TakeOverLog,
    Warn,
)
from penstock.protocol.log.publication import PublicationError, TakenOver
from penstock.storage.metadata import encode_metadata
from penstock.storage.store import StoreRemoved


class Master(Protocol):
    """Declares what a recovery needs of the JobMaster."""

    graph: JobGraph
    identity: JobIdentity
    settings: JobSettings
    job_directory: JobDirectory
    commits: CommitQueue
    coordinator: CheckpointCoordinator
    lifecycle: Lifecycle
    work: BlockingWork
    clock: Clock
    console: Console
    open_store: OpenStore
    restore_point: RestorePoint | None
    ending: JobEnding
    rescales: Rescales

    def adopt(self, graph: JobGraph) -> None:
        """Take the same job's graph with what it takes over from a checkpoint."""

    def execute(self, decided: Sequence[lifecycle_effects.Effect]) -> None: ...

    def prepared(self) -> None: ...

    def fail(self, cause: FailureCause) -> None: ...

    def abandon(self, error: str) -> None: ...

    def committed_all(self) -> None: ...

    def final_checkpoint_reached(self) -> None: ...


class JobRecovery:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._machine = Recovery()
        self._found: RestorePoint | None = None
        """The checkpoint that is to be fitted."""

    def begin(self) -> None:
        """Find out what the next generation restores; the lifecycle asks for it."""
        start = self._master.identity.start_from
        self._handle(Begun(self._master.settings.checkpointing, None if start is None else start.path))

    def supersede(self) -> None:
        """Ignore the answers that are still to come: the job failed meanwhile, and asks again."""
        self._handle(Superseded())

    # ---- effects ------------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        self._execute(self._machine.handle(event, self._master.clock.monotonic_ms()))

    def _execute(self, effects: Iterable[Effect]) -> None:
        master = self._master
        for effect in effects:
            match effect:
                case OpenDirectory():
                    master.job_directory.open(
                        lambda: self._handle(StoreOpened()), lambda error: self._handle(Refused(error))
                    )
                case TakeOverLog():
                    self._take_over()
                case ReadStart(path):
                    self._read(path)
                case FitCheckpoint():
                    self._fit()
                case Claim():
                    if master.settings.claim and self._found is not None:
                        master.job_directory.claim(self._found)
                case QueueCommits(is_last):
                    self._queue_commits(is_last)
                case AwaitPublications(attempt):
                    self._await_publications(attempt)
                case RetryCommits():
                    master.commits.retry()
                case CheckFiles(attempt):
                    self._check_files(attempt)
                case LoseLog():
                    master.job_directory.is_owner = False
                case KeepEverything(keeps):
                    master.ending.keep_everything = keeps
                case Warn(text):
                    master.console.warning(text)
                case Prepared():
                    master.prepared()
                case Fail(cause):
                    master.fail(FailureCause(cause))
                case Abandon(error):
                    master.abandon(error)
                case AbandonEnded(state):
                    master.abandon(nothing_to_resume(master.identity.job_id, state))

    def _take_over(self) -> None:
        store, identity = self._master.job_directory, self._master.identity
        assert store.publication is not None and store.conversations is not None
        start = None if identity.start_from is None else identity.start_from.path
        conversation = store.publication.take_over(resume=identity.resume, restored_from=start)
        store.conversations.begin(conversation, self._taken_over)

    def _taken_over(self, result: PublicationError | TakenOver) -> None:
        if isinstance(result, PublicationError):
            self._handle(Refused(str(result), lost_log=True))
            return
        self._master.coordinator.skip_ids_to(result.next_checkpoint_id)
        metadata, ended = result.metadata, result.ended
        if metadata is not None:
            self._found = RestorePoint(metadata, encode_metadata(metadata))
        ended_as = None if ended is None else ended.state
        self._handle(LogTaken(metadata is not None, ended_as, result.had_checkpoints, result.restored_from))

    def _read(self, path: str) -> None:
        master, start = self._master, CheckpointToStartFrom.parse(path)
        if start is None:
            self._handle(
                Refused(
                    f"the job's log names {path} as what it started from, which is neither a checkpoint nor a savepoint"
                )
            )
            return

        def done(result: Any) -> None:
            if isinstance(result, Exception):
                self._handle(Refused(str(result)))
                return
            self._found = result
            self._handle(StartRead(result.warning))

        master.work.submit("read the checkpoint to start from", lambda: read_start(master.open_store, start), done)

    def _fit(self) -> None:
        master, point = self._master, self._found
        assert point is not None
        metadata, lost = without_channel_state(point.metadata, master.settings.without_channel_state_of)
        if lost is not None:
            master.console.warning(lost)
            point = self._found = replace(point, metadata=metadata, data=encode_metadata(metadata))
        try:
            settings, is_adaptive = master.settings, master.settings.adaptive is not None
            fit = fitted_in_steps(
                master.graph, metadata, settings.ignore_unclaimed_state, settings.checkpointing, is_adaptive
            )
        except IncompatibleGraph as error:
            self._handle(Refused(str(error)))
            return
        master.coordinator.skip_ids_to(metadata.checkpoint_id + 1)
        master.restore_point = point
        if fit.then is not None:
            master.console.warning(fit.text(metadata.checkpoint_id))
            master.rescales.continue_as(fit.then)
        if fit.graph is not master.graph:
            master.adopt(fit.graph)
        slots = fit.graph.slots
        if slots != master.lifecycle.roster.slots and not master.lifecycle.is_over:
            master.execute(master.lifecycle.provide(slots))
            master.execute(master.lifecycle.resize(slots, master.clock.monotonic_ms()))
        self._handle(Fitted(metadata.is_final, point.root is None, self._holds_files()))

    def _queue_commits(self, is_last: bool) -> None:
        master, point = self._master, self._master.restore_point
        assert point is not None
        committables = committables_of(point.metadata)
        if is_last:
            master.final_checkpoint_reached()
            master.commits.add(committables, master.committed_all)
        else:
            master.commits.add(committables)

    def _await_publications(self, attempt: int) -> None:
        lifecycle, conversations = self._master.lifecycle, self._master.job_directory.conversations

        def idle() -> None:
            needs_slots = not (lifecycle.is_over or lifecycle.is_finishing)
            self._handle(PublicationsIdle(attempt, needs_slots, self._holds_files()))

        if conversations is None:
            idle()
        else:
            conversations.when_idle(idle)

    def _holds_files(self) -> bool:
        master, point = self._master, self._master.restore_point
        has_directory = master.job_directory.store is not None and master.identity.directory is not None
        return has_directory and (point is None or point.root is None)

    def _check_files(self, attempt: int) -> None:
        master, point, store = self._master, self._master.restore_point, self._master.job_directory.store
        directory, retained = master.identity.directory, master.job_directory.retained_paths
        metadata = None if point is None else point.metadata
        assert store is not None

        def done(result: Any) -> None:
            files = Files.COMPLETE if result is None else Files.DAMAGED
            if isinstance(result, Exception):
                files = Files.REMOVED if isinstance(result, StoreRemoved) else Files.UNREACHABLE
            self._handle(FilesChecked(attempt, files, str(result or ""), master.lifecycle.is_over))

        def look() -> str | None:
            check_log(store)
            return None if metadata is None else damage(store, metadata, retained, directory)

        master.work.submit("check the checkpoint", look, done)
