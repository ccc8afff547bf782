"""Deletes savepoints: exactly the files that one consists of."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from penstock.protocol.values.metadata import Metadata
from penstock.storage.layout import FRAMES_FOLDER, FRAMES_MANIFEST, LOG_FOLDER, METADATA_NAME, is_savepoint_segment
from penstock.storage.metadata import read_metadata
from penstock.storage.opening import local_path, open_store
from penstock.storage.store import StoreError

_CHECKPOINT = re.compile(r"chk-\d+")
_TEMPORARY = ".tmp"


def savepoint_folder(path: str) -> Path | None:
    """Return the folder of a savepoint that `path`, or its `_metadata`, names; None if it has no `_metadata`, or is a
    checkpoint of a job. Raises `StoreError`.
    """
    folder = Path(local_path(path))
    folder = folder.parent if folder.name == METADATA_NAME else folder
    is_checkpoint = _CHECKPOINT.fullmatch(folder.name) and (folder.parent / LOG_FOLDER).is_dir()
    return folder if not is_checkpoint and (folder / METADATA_NAME).is_file() else None


def dispose(path: str) -> tuple[int, list[str]]:
    """Delete a savepoint. Return how many files were deleted, and what lies in its directory and is none of its own.

    Its metadata is deleted last: if this is interrupted, it can be repeated. Raises `StoreError`, before it deletes
    anything, if there is no savepoint.
    """
    folder = savepoint_folder(path)
    if folder is None:
        raise StoreError(_why_none(Path(local_path(path))))
    metadata = read_metadata(open_store(str(folder)), METADATA_NAME)
    foreign = [segment.path for segment in metadata.segments if not is_savepoint_segment(segment.path)]
    if foreign:
        raise StoreError(
            f"{folder} holds a checkpoint of job {metadata.job_id}, not a savepoint: it refers to {foreign[0]}"
        )
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


def _files(folder: Path, metadata: Metadata) -> list[Path]:
    """List the segments, and the rows of DataFrames that the savepoint has taken along."""
    files = [folder / segment.path for segment in metadata.segments]
    for manifest in sorted((folder / FRAMES_FOLDER).glob(f"*/{FRAMES_MANIFEST}")):
        rows = [file for file in manifest.parent.iterdir() if file.is_file() and not file.name.startswith("_")]
        files += [*sorted(rows), manifest]
    return files


def _why_none(path: Path) -> str:
    if not path.exists():
        return f"{path} does not exist"
    folder = path.parent if path.name == METADATA_NAME else path
    if _CHECKPOINT.fullmatch(folder.name):
        return f"{folder} is a checkpoint of a job, not a savepoint: the job deletes it when it has a newer one"
    return f"{path} is no savepoint: it has no {METADATA_NAME}. Nothing was deleted"
