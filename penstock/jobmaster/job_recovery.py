"""Finds the restore point of a generation: before anything is started, and again when the log is ours.

The first check costs the user no start of Spark. It writes nothing. If it cannot read something for any reason other
than its content (another driver may be deleting what it lists), `JobRecovery` reads it again when it owns the log.
`JobRecovery` executes the effects of `protocol.driver.recovery`: opens, takes over, reads and checks. The functions
block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock.common.options import PipelineOptions, StateRecoveryOptions
from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.fit import fitted_in_steps, left_of, refusal, without_channel_state
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.commits import Commits
from penstock.jobmaster.current_job import CurrentJob, Driver, RestorePoint
from penstock.jobmaster.generations import FinalPositions
from penstock.jobmaster.identity import CheckpointToStartFrom, JobIdentity, RestoreSourceError
from penstock.jobmaster.job_directory import JobDirectory
from penstock.jobmaster.ports import MasterPorts
from penstock.jobmaster.rescales import Rescales
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.commit_order import committables_of
from penstock.protocol.driver.recovery import (
    Files,
    FilesChecked,
    Fitted,
    LogTaken,
    PublicationsIdle,
    Refused,
    StartRead,
    StoreOpened,
)
from penstock.protocol.log.publication import LOG_EXISTS, PublicationError, TakenOver, unrestorable
from penstock.protocol.restore.drained import undrained
from penstock.protocol.restore.given_up import NOTHING, RowsToGiveUp
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.values.metadata import Metadata
from penstock.storage.damage import DAMAGE, check_segments
from penstock.storage.layout import LOG_FOLDER, metadata_path
from penstock.storage.log import Entry, log_length, look_at_log, newest_checkpoint
from penstock.storage.metadata_file import encode_metadata, read_metadata
from penstock.storage.opening import OpenStore
from penstock.storage.sealed import DamagedObject, NewerFormat
from penstock.storage.store import DirectoryMissing, ObjectStore, StoreAway, StoreError, StoreRemoved

START_ELSEWHERE = "Start from another savepoint or checkpoint; penstock state verify PATH shows whether one is whole"
"""The way out of damage to what another job has left."""


def read_start(open_store: OpenStore, start: CheckpointToStartFrom, give_up: RowsToGiveUp = NOTHING) -> RestorePoint:
    """Read a checkpoint of another job, all of it, and check that it is complete but for rows in flight that a user
    gives up. Raises `RestoreSourceError`.
    """
    try:
        store = open_store(start.directory, False)
        metadata = undrained(read_metadata(store, start.metadata_path))
        check_segments(store, left_of(metadata, give_up)[0])
        newest = None if start.is_savepoint else newest_checkpoint(store)
    except StoreAway:
        raise
    except StoreError as error:
        what = "savepoint" if start.is_savepoint else "checkpoint"
        way_out = f". {START_ELSEWHERE}" if isinstance(error, DAMAGE) else ""
        raise RestoreSourceError(
            f"{StateRecoveryOptions.SAVEPOINT_PATH.key}: {what} {start.path} cannot be restored: {error}{way_out}"
        ) from None
    warning = None
    if newest is not None and newest.checkpoint_id > metadata.checkpoint_id:
        warning = (
            f"starting from {start.path}, which is not the newest checkpoint of its job ({newest.checkpoint_id}): rows "
            f"that were put out after checkpoint {metadata.checkpoint_id} are put out again"
        )
    return RestorePoint(metadata, encode_metadata(metadata), start.directory, warning, start.metadata_path)


def check_log(store: ObjectStore) -> None:
    """Raise `StoreRemoved` if nothing is left of the job's log, which has one entry at least: our own fence."""
    if not store.list(LOG_FOLDER):
        raise StoreRemoved(
            f"the job's log ({LOG_FOLDER}/ in its directory) was removed while the job ran: nothing can be published "
            "or resumed. Put it back with what was in it, or start the job afresh"
        )


def damage(store: ObjectStore, metadata: Metadata, retained: list[str], directory: str | None) -> str | None:
    """Return why the job's own newest checkpoint cannot be restored and never will be; None if it can.

    Raises `StoreError` where it cannot be said now.
    """
    try:
        read_metadata(store, metadata_path(metadata.checkpoint_id))
        check_segments(store, metadata)
    except (*DAMAGE, NewerFormat) as error:
        return damage_text(metadata, str(error), retained, directory)
    return None


def damage_text(metadata: Metadata, detail: str, retained: list[str], directory: str | None) -> str:
    """Return the message for a job whose own newest checkpoint is damaged."""
    path = metadata_path(metadata.checkpoint_id)
    return unrestorable(metadata.checkpoint_id, detail, path, retained, directory or "")


# ---- before anything is started ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoundCheckpoint:
    """Names a checkpoint and the directory of the job that took it."""

    metadata: Metadata
    directory: str


def check_fit(
    graph: JobGraph,
    identity: JobIdentity,
    open_store: OpenStore,
    ignore_unclaimed_state: bool,
    give_up: RowsToGiveUp = NOTHING,
    checkpointing: bool = True,
    may_lower: bool = False,
) -> FoundCheckpoint | None:
    """Return the checkpoint that the job will be restored from, as far as it can be seen now. `checkpointing` and
    `may_lower`: as `fitted_in_steps`.

    Raises `RestoreSourceError` where it would be refused, or where a new job's directory has a log already."""
    if not identity.resume and identity.directory is not None and _has_log(identity.directory, open_store):
        raise RestoreSourceError(f"{PipelineOptions.FIXED_JOB_ID.key} {identity.job_id}: {LOG_EXISTS}")
    found = checkpoint_to_restore(identity, open_store, give_up)
    if found is not None:
        try:
            metadata, _ = without_channel_state(found.metadata, give_up)
            fitted_in_steps(graph, metadata, ignore_unclaimed_state, checkpointing, may_lower)
        except IncompatibleGraph as error:
            raise _refused(refusal(error, found.metadata.checkpoint_id, give_up)) from None
    return found


def nothing_to_resume(job_id: str, state: str, savepoint: str | None = None) -> str:
    """Return the message for a job that has ended. `savepoint`: what it was stopped with."""
    if savepoint is not None:
        return (
            f"job {job_id} has ended ({state}): it was stopped with the savepoint {savepoint}. Start a new job from "
            f"that (-s {savepoint}), under another id"
        )
    return (
        f"job {job_id} has ended ({state}) and kept no checkpoint, so there is nothing to resume. Start it afresh, "
        "without execution.state-recovery.path (-s) and under another id"
    )


def _has_log(directory: str, open_store: OpenStore) -> bool:
    try:
        return log_length(open_store(directory, False)) > 0
    except DirectoryMissing:
        return False
    except (*DAMAGE, NewerFormat):
        return True


def checkpoint_to_restore(
    identity: JobIdentity, open_store: OpenStore, give_up: RowsToGiveUp = NOTHING
) -> FoundCheckpoint | None:
    """Return the checkpoint to restore, or None if there is none, or if the JobMaster will refuse it with its own
    message. Raises `RestoreSourceError` if the start would be refused, and `StoreAway`."""
    directory, start = identity.directory, identity.start_from
    if identity.resume and directory is not None:

        def look(log: list[Entry]) -> FoundCheckpoint | CheckpointToStartFrom | None:
            newest, ended, start = _newest(log)
            if ended is not None and (newest is None or newest.path not in ended.retained):
                if ended.state == "FINISHED" or newest is not None:
                    savepoint = None if newest is None else newest.savepoint
                    raise _refused(nothing_to_resume(identity.job_id, ended.state, savepoint))
            elif newest is not None:
                return FoundCheckpoint(_read(store, newest, directory), directory)
            return start

        try:
            store = open_store(directory, False)
            found = look_at_log(store, look)
        except StoreAway:
            raise
        except StoreError:
            return None
        if isinstance(found, FoundCheckpoint):
            return found
        start = found
    return None if start is None else FoundCheckpoint(read_start(open_store, start, give_up).metadata, start.directory)


def _read(store: ObjectStore, newest: CheckpointEntry, directory: str) -> Metadata:
    try:
        return read_metadata(store, newest.path, newest.metadata_crc)
    except (NewerFormat, DamagedObject) as error:
        told = unrestorable(newest.checkpoint_id, str(error), newest.path, newest.retained, directory)
        raise _refused(told) from None


def _refused(text: str) -> RestoreSourceError:
    return RestoreSourceError(f"{StateRecoveryOptions.SAVEPOINT_PATH.key}: {text}")


def _newest(log: list[Entry]) -> tuple[CheckpointEntry | None, Ended | None, CheckpointToStartFrom | None]:
    """Return a job's newest checkpoint, its end after that, and, without a checkpoint, what it started from."""
    ended = start = None
    for entry in reversed(log):
        if isinstance(entry, CheckpointEntry):
            return entry, ended, None
        if isinstance(entry, Ended):
            ended = ended or entry
        elif isinstance(entry, Fence) and start is None and entry.restored_from is not None:
            start = CheckpointToStartFrom.parse(entry.restored_from)
    return None, ended, start


# ---- in the JobMaster ----------------------------------------------------------------------------------------------


class JobRecovery:
    """Finds the restore point of the next generation. `adopt` takes the job's graph, changed by what it restores."""

    def __init__(
        self,
        job: CurrentJob,
        driver: Driver,
        job_directory: JobDirectory,
        commits: Commits,
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
        self._found: RestorePoint | None = None
        """The checkpoint that is to be fitted."""
        self._start: CheckpointToStartFrom | None = None
        """The other job's checkpoint that was read."""

    # ---- effects ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self._job_directory.open(
            lambda: self._driver.handle(StoreOpened()), lambda error: self._driver.handle(Refused(error))
        )

    def claim(self) -> None:
        if self._job.settings.claim and self._start is not None:
            self._job_directory.claim(self._start.path)

    def take_over(self) -> None:
        store, identity = self._job_directory, self._job.identity
        assert store.publication is not None and store.conversations is not None
        start = None if identity.start_from is None else identity.start_from.path
        claims = self._job.settings.claim
        conversation = store.publication.take_over(resume=identity.resume, restored_from=start, claims=claims)
        store.conversations.begin(conversation, self._taken_over)

    def _taken_over(self, result: PublicationError | TakenOver) -> None:
        if isinstance(result, PublicationError):
            self._driver.handle(Refused(str(result), lost_log=True))
            return
        # Without this: an option that several jobs share names checkpoint 7 of one of them, another one begins and is
        # killed behind its own checkpoint 7, and whoever resumes it gives up rows that nobody meant.
        given_up = self._job.settings.without_channel_state.checkpoint_id
        self._driver.handle(events.IdsUsed(max(result.next_checkpoint_id, given_up + 1)))
        metadata, ended = result.metadata, result.ended
        if metadata is not None:
            self._found = RestorePoint(metadata, encode_metadata(metadata))
        ended_as = None if ended is None else ended.state
        self._driver.handle(
            LogTaken(
                metadata is not None, ended_as, result.had_checkpoints, result.restored_from, self._job_directory.fence
            )
        )

    def read(self, path: str) -> None:
        start = CheckpointToStartFrom.parse(path)
        if start is None:
            self._driver.handle(
                Refused(
                    f"the job's log names {path} as what it started from, which is neither a checkpoint nor a savepoint"
                )
            )
            return

        def done(result: Any) -> None:
            if isinstance(result, Exception):
                self._driver.handle(Refused(str(result)))
                return
            self._found, self._start = result, start
            self._driver.handle(StartRead(result.warning))

        open_store, give_up = self._ports.open_store, self._job.settings.without_channel_state
        read = partial(read_start, open_store, start, give_up)
        self._ports.work.submit("read the checkpoint to start from", read, done)

    def fit(self) -> None:
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
            self._driver.handle(Refused(text))
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
        self._driver.handle(Fitted(metadata.is_final, point.root is None, self._holds_files()))

    def queue_commits(self, is_last: bool) -> None:
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

    def await_publications(self, attempt: int) -> None:
        lifecycle, conversations = self._driver.lifecycle, self._job_directory.conversations

        def idle() -> None:
            needs_slots = not (lifecycle.is_over or lifecycle.is_finishing)
            self._driver.handle(PublicationsIdle(attempt, needs_slots, self._holds_files()))

        if conversations is None:
            idle()
        else:
            conversations.when_idle(idle)

    def _holds_files(self) -> bool:
        point = self._job.restore_point
        has_directory = self._job_directory.store is not None and self._job.identity.directory is not None
        return has_directory and (point is None or point.root is None)

    def check_files(self, attempt: int) -> None:
        point, store, lifecycle = self._job.restore_point, self._job_directory.store, self._driver.lifecycle
        directory, retained = self._job.identity.directory, self._job_directory.retained_paths
        metadata = None if point is None else point.metadata
        assert store is not None

        def done(result: Any) -> None:
            files = Files.COMPLETE if result is None else Files.DAMAGED
            if isinstance(result, Exception):
                files = Files.REMOVED if isinstance(result, StoreRemoved) else Files.UNREACHABLE
            self._driver.handle(FilesChecked(attempt, files, str(result or ""), lifecycle.is_over))

        def look() -> str | None:
            check_log(store)
            return None if metadata is None else damage(store, metadata, retained, directory)

        self._ports.work.submit("check the checkpoint", look, done)
