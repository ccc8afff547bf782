"""Executes the effects of `protocol.driver.recovery`: opens, takes over, reads and checks what a generation
restores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.assembly import committables_of
from penstock.jobmaster.commits import CommitQueue
from penstock.jobmaster.current_job import CurrentJob
from penstock.jobmaster.driver import Driver
from penstock.jobmaster.fit import fitted_in_steps, nothing_to_resume, refusal
from penstock.jobmaster.identity import CheckpointToStartFrom
from penstock.jobmaster.job_directory import JobDirectory
from penstock.jobmaster.master_ports import MasterPorts
from penstock.jobmaster.rescales import Rescales
from penstock.jobmaster.restore import RestorePoint, check_log, damage, read_start, without_channel_state
from penstock.jobmaster.sources import FinalPositions
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.driver_effects import FailureCause
from penstock.protocol.driver.recovery import (
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
from penstock.storage.metadata_file import encode_metadata
from penstock.storage.store import StoreRemoved


class JobRecovery:
    """Finds the restore point of the next generation. `adopt` takes the job's graph, changed by what it restores."""

    def __init__(
        self,
        job: CurrentJob,
        driver: Driver,
        job_directory: JobDirectory,
        commits: CommitQueue,
        rescales: Rescales,
        adopt: Callable[[JobGraph], None],
        positions: FinalPositions,
        ports: MasterPorts,
    ) -> None:
        self._positions = positions
        self._job = job
        self._driver = driver
        self._job_directory = job_directory
        self._commits = commits
        self._rescales = rescales
        self._adopt = adopt
        self._ports = ports
        self._machine = Recovery()
        self._found: RestorePoint | None = None
        """The checkpoint that is to be fitted."""
        self._start: CheckpointToStartFrom | None = None
        """The other job's checkpoint that was read."""

    def begin(self) -> None:
        """Find the restore point of the next generation; the lifecycle asks for it."""
        start = self._job.identity.start_from
        self._handle(Begun(self._job.settings.checkpointing, None if start is None else start.path))

    def supersede(self) -> None:
        """Ignore the answers that are still to come: the job failed meanwhile, and asks again."""
        self._handle(Superseded())

    # ---- effects ------------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        self._execute(self._machine.handle(event, self._ports.clock.monotonic_ms()))

    def _execute(self, effects: Iterable[Effect]) -> None:
        directory, driver = self._job_directory, self._driver
        for effect in effects:
            match effect:
                case OpenDirectory():
                    directory.open(lambda: self._handle(StoreOpened()), lambda error: self._handle(Refused(error)))
                case TakeOverLog():
                    self._take_over()
                case ReadStart(path):
                    self._read(path)
                case FitCheckpoint():
                    self._fit()
                case Claim():
                    if self._job.settings.claim and self._start is not None:
                        directory.claim(self._start.path)
                case QueueCommits(is_last):
                    self._queue_commits(is_last)
                case AwaitPublications(attempt):
                    self._await_publications(attempt)
                case RetryCommits():
                    self._commits.retry()
                case CheckFiles(attempt):
                    self._check_files(attempt)
                case LoseLog():
                    directory.is_owner = False
                case KeepEverything(keeps):
                    driver.handle(events.EverythingKept(keeps))
                case Warn(text):
                    self._ports.console.warning(text)
                case Prepared():
                    driver.prepared()
                case Fail(cause):
                    driver.fail(FailureCause(cause))
                case Abandon(error):
                    driver.abandon(error)
                case AbandonEnded(state):
                    driver.abandon(nothing_to_resume(self._job.identity.job_id, state))

    def _take_over(self) -> None:
        store, identity = self._job_directory, self._job.identity
        assert store.publication is not None and store.conversations is not None
        start = None if identity.start_from is None else identity.start_from.path
        claims = self._job.settings.claim
        conversation = store.publication.take_over(resume=identity.resume, restored_from=start, claims=claims)
        store.conversations.begin(conversation, self._taken_over)

    def _taken_over(self, result: PublicationError | TakenOver) -> None:
        if isinstance(result, PublicationError):
            self._handle(Refused(str(result), lost_log=True))
            return
        self._job_directory.is_owner = True
        # Without this: an option that several jobs share names checkpoint 7 of one of them, another one begins and is
        # killed behind its own checkpoint 7, and whoever resumes it gives up rows that nobody meant.
        given_up = self._job.settings.without_channel_state.checkpoint_id
        self._driver.handle(events.IdsUsed(max(result.next_checkpoint_id, given_up + 1)))
        metadata, ended = result.metadata, result.ended
        if metadata is not None:
            self._found = RestorePoint(metadata, encode_metadata(metadata))
        ended_as = None if ended is None else ended.state
        self._handle(LogTaken(metadata is not None, ended_as, result.had_checkpoints, result.restored_from))

    def _read(self, path: str) -> None:
        start = CheckpointToStartFrom.parse(path)
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
            self._found, self._start = result, start
            self._handle(StartRead(result.warning))

        open_store, give_up = self._ports.open_store, self._job.settings.without_channel_state
        read = partial(read_start, open_store, start, give_up)
        self._ports.work.submit("read the checkpoint to start from", read, done)

    def _fit(self) -> None:
        job, driver, point, warn = self._job, self._driver, self._found, self._ports.console.warning
        assert point is not None
        settings, is_adaptive = job.settings, job.settings.adaptive is not None
        try:
            metadata, lost = without_channel_state(point.metadata, settings.without_channel_state)
            fit = fitted_in_steps(
                job.graph, metadata, settings.ignore_unclaimed_state, settings.checkpointing, is_adaptive
            )
        except IncompatibleGraph as error:
            text = refusal(error, point.metadata.checkpoint_id, settings.without_channel_state)
            self._handle(Refused(text))
            return
        if lost is not None:
            warn(lost)
            point = self._found = replace(point, metadata=metadata, data=encode_metadata(metadata))
        driver.handle(events.IdsUsed(metadata.checkpoint_id + 1))
        job.restore_point = point
        if fit.then is not None:
            warn(fit.text(metadata.checkpoint_id))
            self._rescales.continue_as(fit.then)
        if fit.graph is not job.graph:
            self._adopt(fit.graph)
        slots = fit.graph.slots
        if slots != driver.lifecycle.roster.slots and not driver.lifecycle.is_over:
            driver.handle(events.SlotsNeeded(slots))
            driver.handle(events.Resized(slots))
        self._handle(Fitted(metadata.is_final, point.root is None, self._holds_files()))

    def _queue_commits(self, is_last: bool) -> None:
        point = self._job.restore_point
        assert point is not None
        committables = committables_of(point.metadata)
        if is_last:
            if (savepoint := point.metadata.savepoint) is not None:
                # Who asked for it has had no answer, and other savepoints may lie next to it.
                self._ports.console.warning(
                    f"job {self._job.identity.job_id} was stopped with the savepoint {savepoint}, but had not ended. "
                    f"Now it ends; a new job starts from there with -s {savepoint}"
                )
            self._driver.handle(events.Finishing())
            metadata = point.metadata
            self._commits.add(
                committables,
                partial(self._positions.report, metadata.enumerators, metadata.subtasks, self._driver.finish),
            )
        else:
            self._commits.add(committables)

    def _await_publications(self, attempt: int) -> None:
        lifecycle, conversations = self._driver.lifecycle, self._job_directory.conversations

        def idle() -> None:
            needs_slots = not (lifecycle.is_over or lifecycle.is_finishing)
            self._handle(PublicationsIdle(attempt, needs_slots, self._holds_files()))

        if conversations is None:
            idle()
        else:
            conversations.when_idle(idle)

    def _holds_files(self) -> bool:
        point = self._job.restore_point
        has_directory = self._job_directory.store is not None and self._job.identity.directory is not None
        return has_directory and (point is None or point.root is None)

    def _check_files(self, attempt: int) -> None:
        point, store, lifecycle = self._job.restore_point, self._job_directory.store, self._driver.lifecycle
        directory, retained = self._job.identity.directory, self._job_directory.retained_paths
        metadata = None if point is None else point.metadata
        assert store is not None

        def done(result: Any) -> None:
            files = Files.COMPLETE if result is None else Files.DAMAGED
            if isinstance(result, Exception):
                files = Files.REMOVED if isinstance(result, StoreRemoved) else Files.UNREACHABLE
            self._handle(FilesChecked(attempt, files, str(result or ""), lifecycle.is_over))

        def look() -> str | None:
            check_log(store)
            return None if metadata is None else damage(store, metadata, retained, directory)

        self._ports.work.submit("check the checkpoint", look, done)
