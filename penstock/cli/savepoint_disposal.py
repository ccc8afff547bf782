"""Deletes savepoints: exactly the files that one consists of."""

from __future__ import annotations

import contextlib
import posixpath
import re
from pathlib import Path

from penstock.cli.store_access import has_object, open_store
from penstock.protocol.values.metadata import Metadata
from penstock.storage.layout import (
    FRAMES_FOLDER,
    FRAMES_MANIFEST,
    LOG_FOLDER,
    METADATA_NAME,
    is_savepoint_segment,
    is_unfinished_savepoint,
)
from penstock.storage.location import is_local, location, parent_of
from penstock.storage.metadata_file import read_metadata
from penstock.storage.store import BrowsableStore, StoreError

_CHECKPOINT = re.compile(r"chk-\d+")
_TEMPORARY = ".tmp"


def savepoint_folder(path: str) -> str | None:
    """Return the location of a savepoint that `path`, or its `_metadata`, names; None if it has no `_metadata`, or is a
    checkpoint of a job. Raises `StoreError`.
    """
    folder = _without_metadata(location(path))
    if is_local(folder) and not Path(folder).is_dir():
        return None
    if _CHECKPOINT.fullmatch(posixpath.basename(folder)) and LOG_FOLDER in open_store(parent_of(folder)).folders(""):
        return None
    return folder if has_object(open_store(folder), METADATA_NAME) else None


def dispose(path: str) -> tuple[int, list[str]]:
    """Delete a savepoint. Return the number of deleted files, and the names of foreign files in its directory.

    Its metadata is deleted last: if this is interrupted, it can be repeated. Raises `StoreError`, before it deletes
    anything, if there is no savepoint.
    """
    place = savepoint_folder(path)
    if place is None:
        raise StoreError(_why_none(location(path)))
    metadata = read_metadata(open_store(place), METADATA_NAME)
    foreign = [segment.path for segment in metadata.segments if not is_savepoint_segment(segment.path)]
    if foreign:
        raise StoreError(
            f"{place} holds a checkpoint of job {metadata.job_id}, not a savepoint: it refers to {foreign[0]}"
        )
    return _dispose_of_files(Path(place), metadata) if is_local(place) else _dispose_of_objects(place, metadata)


def _dispose_of_objects(place: str, metadata: Metadata) -> tuple[int, list[str]]:
    store = open_store(place)
    deleted = 0
    for path in [*(segment.path for segment in metadata.segments), *_frames(store), METADATA_NAME]:
        deleted += has_object(store, path)
        store.delete(path)
    return deleted, store.list("")


def _frames(store: BrowsableStore) -> list[str]:
    """List the objects with rows of DataFrames that the savepoint has taken along; the manifests last."""
    paths = store.list(FRAMES_FOLDER)
    manifests = [path for path in paths if posixpath.basename(path) == FRAMES_MANIFEST]
    folders = {posixpath.dirname(path) for path in manifests}
    rows = [path for path in paths if posixpath.dirname(path) in folders]
    return [path for path in rows if not posixpath.basename(path).startswith("_")] + manifests


def _dispose_of_files(folder: Path, metadata: Metadata) -> tuple[int, list[str]]:
    """Delete the files one by one, with the hidden ones that Spark has written next to rows of DataFrames."""
    deleted = 0
    files = _files(folder, metadata)
    try:
        for file in [*files, folder / METADATA_NAME]:
            deleted += file.exists()
            file.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot delete {file}: {error.strerror}; {deleted} files of {folder} are deleted") from None
    frames = sorted({file.parent for file in files} - {folder})
    for empty in (*frames, folder / FRAMES_FOLDER, folder / _TEMPORARY, folder):
        with contextlib.suppress(OSError):
            empty.rmdir()
    left = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []
    return deleted, left


def _without_metadata(place: str) -> str:
    return parent_of(place) if posixpath.basename(place) == METADATA_NAME else place


def _files(folder: Path, metadata: Metadata) -> list[Path]:
    """List the segments, and the rows of DataFrames that the savepoint has taken along."""
    files = [folder / segment.path for segment in metadata.segments]
    for manifest in sorted((folder / FRAMES_FOLDER).glob(f"*/{FRAMES_MANIFEST}")):
        rows = [file for file in manifest.parent.iterdir() if file.is_file() and not file.name.startswith("_")]
        files += [*sorted(rows), manifest]
    return files


def _why_none(place: str) -> str:
    if is_local(place) and not Path(place).exists():
        return f"{place} does not exist"
    folder = _without_metadata(place)
    if _CHECKPOINT.fullmatch(posixpath.basename(folder)):
        return f"{folder} is a checkpoint of a job, not a savepoint: the job deletes it when it has a newer one"
    if is_unfinished_savepoint(folder, lambda: open_store(folder).list("")):
        return (
            f"{folder} is an unfinished savepoint: it has segments, but no {METADATA_NAME}, which would name what "
            "belongs to it. The driver that took it was killed, or is still at it. Nothing was deleted. If no job that "
            "runs writes it (penstock checkpoints JOB shows that), delete the directory"
        )
    return f"{place} is no savepoint: it has no {METADATA_NAME}. Nothing was deleted"
