"""Finds the checkpoint that a user's path names: a job's directory, a chk-<n> in it, a savepoint, or a `_metadata`."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field

from penstock.protocol.values.log_entries import CheckpointEntry, Ended, stopped_with
from penstock.protocol.values.metadata import Metadata
from penstock.storage.layout import LOG_FOLDER, METADATA_NAME, is_savepoint_segment
from penstock.storage.location import location, parent_of
from penstock.storage.log import read_log
from penstock.storage.metadata_file import read_metadata
from penstock.storage.opening import open_store
from penstock.storage.store import ObjectMissing, ObjectStore, StoreError
from penstock.storage.store_settings import DEFAULT_SETTINGS, StoreSettings

_CHECKPOINT = re.compile(r"chk-\d+")


@dataclass(frozen=True)
class CheckpointFiles:
    """Holds the metadata of a checkpoint, and the store that its segments lie in. `path`: what messages call it;
    `root`: the location that the metadata's paths are relative to.
    """

    path: str
    root: str
    metadata: Metadata
    settings: StoreSettings
    store: ObjectStore = field(repr=False)

    @property
    def is_savepoint(self) -> bool:
        return all(is_savepoint_segment(segment.path) for segment in self.metadata.segments)


def find_checkpoint(path: str, settings: StoreSettings = DEFAULT_SETTINGS) -> CheckpointFiles:
    """Read the metadata of the checkpoint that a path names; of a job's directory, the newest. Raises `StoreError`
    where there is none, `DamagedObject` and `NewerFormat`.
    """
    folder = location(path)
    if posixpath.basename(folder) == METADATA_NAME:
        folder = parent_of(folder)
    store = open_store(folder, settings)
    try:
        metadata = read_metadata(store, METADATA_NAME)
    except ObjectMissing:
        return _newest_of_job(folder, store, settings)
    if metadata.savepoint is not None:
        # A job that was stopped with a savepoint: its last checkpoint says where everything is.
        return find_checkpoint(metadata.savepoint, settings)
    of_job = _CHECKPOINT.fullmatch(posixpath.basename(folder)) and not all(
        is_savepoint_segment(segment.path) for segment in metadata.segments
    )
    root = parent_of(folder) if of_job else folder
    return CheckpointFiles(folder, root, metadata, settings, open_store(root, settings) if of_job else store)


def checkpoints_of(path: str, settings: StoreSettings = DEFAULT_SETTINGS) -> list[str]:
    """Return the locations of the checkpoints at a path: all that a job's directory retains. Raises `StoreError`."""
    folder = location(path)
    if posixpath.basename(folder) == METADATA_NAME:
        folder = parent_of(folder)
    store = open_store(folder, settings)
    try:
        store.size(METADATA_NAME)
    except ObjectMissing:
        entries = read_log(store) if LOG_FOLDER in store.folders("") else []
        if (savepoint := stopped_with(entries)) is not None:
            return [savepoint]
        retained = next((e.retained for e in reversed(entries) if isinstance(e, CheckpointEntry | Ended)), [])
        if not retained:
            raise _no_checkpoint(folder, store) from None
        return [posixpath.join(folder, posixpath.dirname(name)) for name in retained]
    return [folder]


def _newest_of_job(folder: str, store: ObjectStore, settings: StoreSettings) -> CheckpointFiles:
    log = read_log(store) if LOG_FOLDER in store.folders("") else []
    newest = next((entry for entry in reversed(log) if isinstance(entry, CheckpointEntry)), None)
    if newest is None:
        raise _no_checkpoint(folder, store)
    if newest.savepoint is not None:
        # Everything is there; the end of the job has deleted the metadata of its last checkpoint.
        try:
            return find_checkpoint(newest.savepoint, settings)
        except StoreError as error:
            raise StoreError(
                f"the job in {folder} was stopped with the savepoint {newest.savepoint}: {error}"
            ) from None
    last = log[-1]
    if isinstance(last, Ended) and newest.path not in last.retained:
        raise StoreError(f"the job in {folder} has ended ({last.state}) and kept no checkpoint")
    metadata = read_metadata(store, newest.path, newest.metadata_crc)
    if metadata.savepoint is not None:
        return find_checkpoint(metadata.savepoint, settings)
    return CheckpointFiles(posixpath.join(folder, posixpath.dirname(newest.path)), folder, metadata, settings, store)


def _no_checkpoint(folder: str, store: ObjectStore) -> StoreError:
    if LOG_FOLDER in store.folders(""):
        return StoreError(f"the job in {folder} has completed no checkpoint that is kept")
    return StoreError(
        f"{folder} is neither a checkpoint, a savepoint nor a job's directory: it has no {METADATA_NAME} and no "
        f"{LOG_FOLDER}/; give a job's directory, a chk-<n> in it, or a savepoint's directory"
    )
