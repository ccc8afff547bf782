"""Identifies the job before anything is started: its id, its directory, and what it starts from.

`execution.state-recovery.path` (on the command line `-s`) names a job's directory, and that job continues: same id,
same log. Or it names a checkpoint (`…/chk-<n>`) or a savepoint, and a new job starts from it. `latest` is the
directory of the job whose id is given, or of the only job below the checkpoint directory that has this job's name.
With `high-availability.type` the job's log decides whether it is resumed, started or finished (`has_run`).
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.common.configuration import Configuration
from penstock.common.options import (
    CheckpointingOptions,
    HighAvailabilityOptions,
    OptionError,
    PipelineOptions,
    StateRecoveryOptions,
)
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, stopped_with
from penstock.storage.damage import kind_of
from penstock.storage.layout import LOG_FOLDER, METADATA_NAME, is_unfinished_savepoint, metadata_path
from penstock.storage.location import location
from penstock.storage.log import Entry, log_length, look_at_log
from penstock.storage.metadata_file import read_metadata
from penstock.storage.opening import OpenStore
from penstock.storage.store import DirectoryMissing, ObjectMissing, ObjectStore, StoreAway, StoreError


def is_available(configuration: Configuration) -> bool:
    """Return whether every start resumes the job. Raises `OptionError` if it could not."""
    if configuration.get(HighAvailabilityOptions.HA_MODE) == "none":
        return False
    needed = [CheckpointingOptions.CHECKPOINTING_INTERVAL.key, CheckpointingOptions.CHECKPOINTS_DIRECTORY.key]
    missing = [key for key in needed if configuration.get(key) is None]
    if configuration.get(CheckpointingOptions.CHECKPOINT_STORAGE) == "jobmanager":
        missing = [f"{CheckpointingOptions.CHECKPOINT_STORAGE.key} = filesystem"]
    if missing:
        raise OptionError(
            f"{HighAvailabilityOptions.HA_MODE.key} is filesystem, so that each start resumes the job from its "
            f"checkpoints; that needs {' and '.join(missing)}",
            HighAvailabilityOptions.HA_MODE.key,
        )
    return True


def job_id_of(job_name: str) -> str:
    """Return the id of a job that is found by its name: the same for every start."""
    return hashlib.sha256(f"penstock job {job_name}".encode()).hexdigest()[:32]


def has_run(store: ObjectStore) -> tuple[bool, Ended | None, str | None]:
    """Return whether the job's log has entries, how its last driver ended it, and the savepoint that it was stopped
    with. Raises `StoreError` if the log is damaged.

    A job counts as cancelled only until somebody resumes it from what it has kept.
    """
    return look_at_log(store, _look)


def _look(log: list[Entry]) -> tuple[bool, Ended | None, str | None]:
    for entry in reversed(log):
        if isinstance(entry, CheckpointEntry):
            break
        if isinstance(entry, Ended):
            was_resumed = entry is not log[-1] and entry.retained
            return True, None if was_resumed else entry, stopped_with(log)
    return bool(log), None, None


LATEST = "latest"


_CHECKPOINT = re.compile(rf"(.*?)/?chk-(\d+)(?:/{METADATA_NAME})?")
_LISTED_MAX = 20
_JOB_ID = re.compile(r"[0-9a-f]{32}")


class RestoreSourceError(Exception):
    """Signals that the checkpoint to start from is missing or ambiguous. The message names the path and the way out."""


@dataclass(frozen=True)
class CheckpointToStartFrom:
    """Names a checkpoint of another job by its job's directory and its number, or a savepoint by its own directory."""

    directory: str
    checkpoint_id: int | None

    @property
    def is_savepoint(self) -> bool:
        return self.checkpoint_id is None

    @property
    def path(self) -> str:
        return (
            self.directory if self.checkpoint_id is None else f"{self.directory.rstrip('/')}/chk-{self.checkpoint_id}"
        )

    @property
    def metadata_path(self) -> str:
        """Return the path of the checkpoint's metadata below `directory`."""
        return METADATA_NAME if self.checkpoint_id is None else metadata_path(self.checkpoint_id)

    @classmethod
    def parse(cls, path: str) -> CheckpointToStartFrom | None:
        """Parse the path of a checkpoint (…/chk-<n>) or of a savepoint, or of its `_metadata`. Return None if it can
        only be a job's directory."""
        match = _CHECKPOINT.fullmatch(path)
        if match:
            return cls(match[1] or "/", int(match[2]))
        directory = path.removesuffix(f"/{METADATA_NAME}")
        return None if _JOB_ID.fullmatch(posixpath.basename(directory)) else cls(directory, None)


@dataclass(frozen=True)
class JobIdentity:
    """Identifies the job. `directory`: where its log and checkpoints are; None if they are kept in the driver's memory,
    or there are none. `resume`: the job existed before, and continues. `ended`: how its last driver has ended it, if
    every start resumes it, and `stopped_with`: with which savepoint. `is_private`: the id is random, so no other start
    knows the directory before the job has a log.
    """

    job_id: str
    directory: str | None
    resume: bool = False
    start_from: CheckpointToStartFrom | None = None
    ended: Ended | None = None
    stopped_with: str | None = None
    is_private: bool = field(default=False, compare=False)

    @property
    def is_over(self) -> bool:
        """Return whether the job is not to be run again: it has finished, or a user has cancelled it."""
        return self.ended is not None and self.ended.state in ("FINISHED", "CANCELED")


def identify(
    configuration: Configuration, job_name: str, random_job_id: Callable[[], str], open_store: OpenStore
) -> JobIdentity:
    """Read the options, and for a restore the directory that they name.

    Raises `OptionError`, `RestoreSourceError`, `StoreError`.
    """
    given_id = configuration.get(PipelineOptions.FIXED_JOB_ID)
    root = _checkpoint_root(configuration)
    path = configuration.get(StateRecoveryOptions.SAVEPOINT_PATH)
    if is_available(configuration):
        assert root is not None
        given_id = given_id or job_id_of(job_name)
        if (found := _resumed_or_over(posixpath.join(root, given_id), given_id, path, open_store)) is not None:
            return found
    if path is None:
        job_id = given_id or random_job_id()
        return JobIdentity(job_id, root and posixpath.join(root, job_id), is_private=given_id is None)
    if path == LATEST:
        directory = _latest(root, given_id, job_name, open_store)
        return _resumed(configuration, directory, posixpath.basename(directory), open_store)
    path = location(path)
    start_from = CheckpointToStartFrom.parse(path)
    if start_from is not None:
        if start_from.is_savepoint:
            _check_savepoint(start_from, open_store)
        job_id = given_id or random_job_id()
        own = root and posixpath.join(root, job_id)
        return JobIdentity(job_id, own, start_from=start_from, is_private=given_id is None)
    directory = path
    job_id = posixpath.basename(directory)
    if given_id is not None and given_id != job_id:
        raise RestoreSourceError(
            f"{StateRecoveryOptions.SAVEPOINT_PATH.key} resumes job {job_id}, but {PipelineOptions.FIXED_JOB_ID.key} "
            f"is {given_id}: leave that out, or start a new job from one of its checkpoints ({directory}/chk-<n>)"
        )
    return _resumed(configuration, directory, job_id, open_store)


def look_whether_over(job_name: str, configuration: Configuration, open_store: OpenStore) -> JobIdentity | None:
    """Return the job if every start resumes it and its log says now that it is over; None if it is not, or if nothing
    can be said. Another driver may have ended it since this one has looked."""
    try:
        if not is_available(configuration):
            return None
        identity = identify(configuration, job_name, lambda: "", open_store)
    except (OptionError, RestoreSourceError, StoreError):
        return None
    return identity if identity.is_over else None


def _resumed_or_over(directory: str, job_id: str, path: str | None, open_store: OpenStore) -> JobIdentity | None:
    """Return the job if its log says that it has run before; None: it is to be started, from what `path` names if it
    names a checkpoint or a savepoint, or `path` names what to resume.
    """
    if path is not None and (path == LATEST or CheckpointToStartFrom.parse(location(path)) is None):
        return None
    try:
        store = open_store(directory, False)
    except DirectoryMissing:
        return None
    has_log, ended, savepoint = has_run(store)
    return JobIdentity(job_id, directory, resume=True, ended=ended, stopped_with=savepoint) if has_log else None


def _check_savepoint(start: CheckpointToStartFrom, open_store: OpenStore) -> None:
    key, path = StateRecoveryOptions.SAVEPOINT_PATH.key, start.directory
    try:
        store = open_store(path, False)
        try:
            store.size(METADATA_NAME)
            return
        except ObjectMissing:
            is_unfinished = is_unfinished_savepoint(path, lambda: store.list(""))
    except StoreAway:
        raise
    except StoreError as error:
        raise RestoreSourceError(
            f"{key}: {path} cannot be read as a savepoint: {error}. Give a savepoint's directory, a job's (32 "
            "hex digits), or one of its checkpoints (…/chk-<n>)"
        ) from None
    if is_unfinished:
        raise RestoreSourceError(
            f"{key}: {path} is an unfinished savepoint: it has segments, but no {METADATA_NAME}. The driver that took "
            "it was killed, or is still at it. Start from another one; if no job that runs writes this one, its "
            "directory may be deleted"
        )
    raise RestoreSourceError(
        f"{key}: {path} is neither a savepoint (it has no {METADATA_NAME}), nor a job's directory (which is called by "
        f"the job's id, 32 hex digits), nor one of its checkpoints (…/chk-<n>), nor '{LATEST}'"
    )


def _checkpoint_root(configuration: Configuration) -> str | None:
    if configuration.get(CheckpointingOptions.CHECKPOINTING_INTERVAL) is None:
        # A job without checkpoints has nothing to store; `latest` still needs to know where to look.
        if configuration.get(StateRecoveryOptions.SAVEPOINT_PATH) != LATEST:
            return None
    directory = configuration.get(CheckpointingOptions.CHECKPOINTS_DIRECTORY)
    storage = configuration.get(CheckpointingOptions.CHECKPOINT_STORAGE)
    if storage == "filesystem" and directory is None:
        raise OptionError(
            f"{CheckpointingOptions.CHECKPOINT_STORAGE.key} is filesystem, so "
            f"{CheckpointingOptions.CHECKPOINTS_DIRECTORY.key} must name a directory",
            CheckpointingOptions.CHECKPOINTS_DIRECTORY.key,
        )
    if storage == "jobmanager" or directory is None:
        return None
    return location(directory)


def _resumed(configuration: Configuration, directory: str, job_id: str, open_store: OpenStore) -> JobIdentity:
    if configuration.get(CheckpointingOptions.CHECKPOINTING_INTERVAL) is None:
        raise OptionError(
            f"resuming a job needs checkpoints, because they continue its log: set "
            f"{CheckpointingOptions.CHECKPOINTING_INTERVAL.key}, or start a new job from {directory}/chk-<n>",
            CheckpointingOptions.CHECKPOINTING_INTERVAL.key,
        )
    try:
        entries = log_length(open_store(directory, False))
    except StoreAway:
        raise
    except StoreError as error:
        raise RestoreSourceError(f"{StateRecoveryOptions.SAVEPOINT_PATH.key}: {error}") from None
    if not entries:
        raise RestoreSourceError(
            f"{StateRecoveryOptions.SAVEPOINT_PATH.key}: {directory} has no job's log ({LOG_FOLDER}/), so there is no "
            "job to resume"
        )
    return JobIdentity(job_id, directory, resume=True)


def _latest(root: str | None, given_id: str | None, job_name: str, open_store: OpenStore) -> str:
    key = StateRecoveryOptions.SAVEPOINT_PATH.key
    if root is None:
        raise RestoreSourceError(
            f"{key} is '{LATEST}', so {CheckpointingOptions.CHECKPOINTS_DIRECTORY.key} must say where to look"
        )
    if given_id is not None:
        return posixpath.join(root, given_id)
    try:
        folders = open_store(root, False).folders("")
    except DirectoryMissing as error:
        raise RestoreSourceError(f"{key}: there is nothing to resume: {error}") from None
    names = {job_id: _name_of(open_store, root, job_id) for job_id in folders if _JOB_ID.fullmatch(job_id)}
    found = {job_id: name for job_id, name in names.items() if name is not None}
    named = [job_id for job_id, name in found.items() if name == job_name]
    if len(named) == 1:
        return posixpath.join(root, named[0])
    if not named:
        others = [f"\n  {posixpath.join(root, job_id)}: {_described(name)}" for job_id, name in sorted(found.items())]
        raise RestoreSourceError(
            f"{key}: no job called '{job_name}' has a completed checkpoint below {root}"
            f"{'; there are' if others else ''}{''.join(others[:_LISTED_MAX])}"
        )
    listed = ", ".join(posixpath.join(root, job_id) for job_id in sorted(named))
    raise RestoreSourceError(f"{key}: {len(named)} jobs are called '{job_name}'; name the directory of one: {listed}")


@dataclass(frozen=True)
class _NotResumable:
    """Explains why the job in a directory has no name: nothing can be restored from it."""

    reason: str


def _described(name: str | _NotResumable) -> str:
    return name.reason if isinstance(name, _NotResumable) else f"a job called '{name}'"


def _name_of(open_store: OpenStore, root: str, job_id: str) -> str | _NotResumable | None:
    """Return the name of a job that can be resumed, or why it has none; None if there is no job's log."""
    try:
        store = open_store(posixpath.join(root, job_id), False)
        return look_at_log(store, lambda log: _name_in(store, log))
    except StoreAway:
        raise  # it may be the job that is asked for
    except StoreError as error:
        return _NotResumable(f"it is {kind_of(error)}: {error}")


def _name_in(store: ObjectStore, log: list[Entry]) -> str | _NotResumable | None:
    if not log:
        return None
    last = log[-1]
    if isinstance(last, Ended) and not last.retained:
        if (savepoint := stopped_with(log)) is not None:
            return _NotResumable(f"it has ended ({last.state}) with the savepoint {savepoint}")
        return _NotResumable(f"it has ended ({last.state}) and kept no checkpoint")
    newest = next((entry for entry in reversed(log) if isinstance(entry, CheckpointEntry)), None)
    if newest is None:
        return _NotResumable("it has no completed checkpoint")
    return read_metadata(store, newest.path).job_name
