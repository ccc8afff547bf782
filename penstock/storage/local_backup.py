"""Keeps copies of the segments that a slot stores on its local disk, so that a restart in place reads them from there.

Each slot has a directory of its own, locked as long as its process lives, and all slots of a job on one host find each
other's: a copy has the name of its segment, which nothing else ever has. Who restores believes a copy if the range's
checksum is the one in the checkpoint's metadata, and takes a link of it over. So a directory whose process is gone is
not needed any more when the first checkpoint of the next generation completes, and is deleted then. Those of other jobs
are deleted when they have not been used for an hour: their jobs may be restarting.

A copy is worth nothing but time. Whatever goes wrong with it is logged, and the checkpoint or the restore continues.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.storage.layout import SHARED_FOLDER, SegmentName, parse
from penstock.storage.owned_directory import OwnedDirectory, delete_if_ownerless, delete_ownerless, is_ownerless

log = logging.getLogger(__name__)

PREFIX = "penstock-backup-"
SEGMENTS_FOLDER = "segments"
DATABASES_FOLDER = "databases"
UNUSED_FOR_S = 3600.0
"""The time after which a directory of another job is deleted, if its process is gone."""


class LocalBackup:
    """Keeps the copies of one slot, below one of `parents`. Any thread may call it. `warn` is called with what goes
    wrong. Raises `OSError` if no directory can be made.
    """

    database_copied_from_bytes = 16 * 1024 * 1024
    """A new copy of a database is taken when a restore would have to insert so much besides the last one."""

    def __init__(self, parents: Sequence[str], job_id: str, warn: Callable[[str], None] = log.warning) -> None:
        self.warn = warn
        self._parents = [Path(parent) for parent in parents]
        self._prefix = f"{PREFIX}{job_id}-"
        left_behind = self._left_behind()
        parent = left_behind[0].parent if left_behind else random.choice(self._parents)
        self._directory = OwnedDirectory(parent, self._prefix)
        self._segments = self._directory.path / SEGMENTS_FOLDER
        self._segments.mkdir()
        self._databases = self._directory.path / DATABASES_FOLDER
        self._databases.mkdir()
        self._lock = threading.Lock()
        self._stored: dict[int, frozenset[str]] = {}
        """The names of the segments of which each acknowledged checkpoint consists here."""
        self._others: list[Path] = []
        """The directories in which other slots of the job had copies when the generation began."""
        self._to_delete: list[Path] = []
        """The directories among them whose processes were gone."""
        self.on_completed: list[Callable[[int], None]] = []
        """Callbacks that get the id of each checkpoint of this generation that has completed."""
        self._kept: set[Path] = set()
        """The copies of databases that this generation uses."""
        self._gave_up = self._has_swept = False
        self.local_bytes = self.remote_bytes = self.opened_databases = 0
        """The bytes that this generation restored from copies, those that it read from the store because no copy had
        them, and the number of copied databases that it opened."""

    @property
    def path(self) -> Path:
        return self._directory.path

    # ---- while checkpoints are stored ---------------------------------------------------------------------------

    def new_copy(self, path: str) -> Copy:
        """Return the copy of a new segment, to be written."""
        return Copy(self, self._segments / _name(path))

    def on_given_up(self, name: str, error: Exception) -> None:
        """Note that a copy cannot be written. Said once, until one can be written again."""
        if not self._gave_up:
            self._gave_up = True
            self.warn(
                f"no local copy of segment {name} in {self.path}: {error}. The checkpoint is stored without it, and a "
                "restart reads what has no copy from checkpoint storage (execution.checkpointing.local-backup.dirs)"
            )

    def on_written(self, path: Path) -> None:
        """Note that a copy is complete."""
        self._gave_up = False

    def on_stored(self, checkpoint_id: int, paths: Iterable[str]) -> None:
        """Note the segments that the slot's part of a checkpoint consists of, before it is acknowledged."""
        with self._lock:
            self._stored[checkpoint_id] = frozenset(map(_name, paths))

    def on_ended(self, checkpoint_id: int, aborted: bool) -> None:
        """Delete the copies that nobody will restore from any more. A savepoint that has ended says nothing of them."""
        with self._lock:
            if aborted:
                self._stored.pop(checkpoint_id, None)
                self._delete_unnamed(range(checkpoint_id, checkpoint_id + 1))
                return
            if checkpoint_id not in self._stored:
                return
            for older in [number for number in self._stored if number < checkpoint_id]:
                del self._stored[older]
            self._delete_unnamed(range(checkpoint_id + 1))
            to_delete, self._to_delete = self._to_delete, []
        self._directory.touch()
        for path in to_delete:
            delete_if_ownerless(path)
        if not self._has_swept:
            self._has_swept = True
            for parent in self._parents:
                delete_ownerless(parent, PREFIX, UNUSED_FOR_S)
        for name in _listed(self._databases):
            if (path := self._databases / name) not in self._kept:
                shutil.rmtree(path, ignore_errors=True)
        for completed in list(self.on_completed):
            completed(checkpoint_id)

    def _delete_unnamed(self, checkpoint_ids: range) -> None:
        """Delete copies of the segments of these checkpoints, as far as none that is acknowledged consists of them."""
        named = frozenset[str]().union(*self._stored.values())
        for name in _listed(self._segments):
            found = parse(f"{SHARED_FOLDER}/{name}")
            if isinstance(found, SegmentName) and found.checkpoint_id in checkpoint_ids and name not in named:
                _delete(self._segments / name)

    # ---- restoring ----------------------------------------------------------------------------------------------

    def begin_generation(self) -> None:
        """Look for the directories of other slots. Called before anything is restored."""
        with self._lock:
            self._to_delete = self._left_behind()
            found = (path for parent in self._parents for path in parent.glob(self._prefix + "*"))
            self._others = sorted(path for path in found if path != self.path)
            self.local_bytes = self.remote_bytes = self.opened_databases = 0
            self._kept.clear()
            self.on_completed.clear()

    def read(self, path: str, offset: int, length_bytes: int, crc: int) -> bytes | None:
        """Return a range of a segment as it is stored; None if no copy has it. A damaged copy is deleted."""
        name = _name(path)
        for directory in (self.path, *self._others):
            copy = directory / SEGMENTS_FOLDER / name
            data = _range(copy, offset, length_bytes)
            if data is None:
                continue
            if zlib.crc32(data) == crc:
                self._take_over(copy, name)
                with self._lock:
                    self.local_bytes += length_bytes
                return data
            self.on_damaged(copy, offset, length_bytes)
        with self._lock:
            self.remote_bytes += length_bytes
        return None

    def on_damaged(self, copy: Path, offset: int, length_bytes: int) -> None:
        """Delete a copy that is not what the checkpoint says."""
        self.warn(
            f"the local copy {copy} is damaged: {length_bytes} bytes at {offset} have another checksum than the "
            "checkpoint says. It is deleted, and the segment is read from checkpoint storage"
        )
        _delete(copy)

    def log_restored(self, slot: int) -> None:
        """Log the share of a slot's state that came from copies."""
        if self.remote_bytes:
            self.warn(
                f"slot {slot} read {self.remote_bytes} bytes from checkpoint storage, because this host has no sound "
                f"copy of them, and {self.local_bytes} bytes from local copies, and opened {self.opened_databases} "
                "databases as they were"
            )
        elif self.local_bytes or self.opened_databases:
            told = "slot %d read all %d bytes from local copies, and opened %d databases as they were"
            log.info(told, slot, self.local_bytes, self.opened_databases)

    def _take_over(self, copy: Path, name: str) -> None:
        own = self._segments / name
        if copy != own:
            with suppress(OSError):  # the copy is there already, or is on another disk and serves only this restore
                os.link(copy, own)

    def _left_behind(self) -> list[Path]:
        found = (path for parent in self._parents for path in parent.glob(self._prefix + "*"))
        return sorted(filter(is_ownerless, found))

    # ---- copies of databases -------------------------------------------------------------------------------------

    def new_database(self) -> Path:
        """Return a new empty directory for a copy of a database. It is deleted with the slot's other copies, or by
        `drop_database`. Raises `OSError`.
        """
        return self.keep_database(Path(tempfile.mkdtemp(dir=self._databases)))

    def keep_database(self, path: Path) -> Path:
        """Note that this generation uses a copy that one before it has made here."""
        self._kept.add(path)
        return path

    def drop_database(self, path: Path) -> None:
        self._kept.discard(path)
        shutil.rmtree(path, ignore_errors=True)

    def on_database_opened(self) -> None:
        """Note that a subtask's database was opened with a copy."""
        with self._lock:
            self.opened_databases += 1

    def is_own(self, database: Path) -> bool:
        return database.parent == self._databases

    def databases(self) -> list[Path]:
        """Return all copies of databases that slots of the job have left on this machine, those of this slot first."""
        found: list[Path] = []
        for directory in (self.path, *self._others):
            with suppress(OSError):
                found += sorted((directory / DATABASES_FOLDER).iterdir())
        return found

    # ---- the end ------------------------------------------------------------------------------------------------

    def delete(self) -> None:
        """Delete all copies, because the slot leaves the job."""
        self._directory.delete()

    def leave(self) -> None:
        """Leave the copies to whoever restarts the job, as the death of the process does."""
        self._directory.leave()


class Copy:
    """Writes the copy of one segment. It never raises: what cannot be written is given up."""

    def __init__(self, backup: LocalBackup, path: Path) -> None:
        self._backup = backup
        self._path = path
        self._unfinished = path.with_name(f".{path.name}")
        self._is_given_up = False
        try:
            self._file = open(self._unfinished, "wb")  # noqa: SIM115
        except OSError as error:
            self._is_given_up = True
            backup.on_given_up(path.name, error)

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        if self._is_given_up:
            return
        try:
            for part in parts:
                self._file.write(part)
        except OSError as error:
            self.give_up(error)

    def finish(self) -> None:
        if self._is_given_up:
            return
        try:
            self._file.close()
            self._unfinished.rename(self._path)
        except OSError as error:
            self.give_up(error)
        else:
            self._backup.on_written(self._path)

    def abort(self) -> None:
        """Delete the copy, because the segment was given up."""
        if not self._is_given_up:
            self._is_given_up = True
            with suppress(OSError):
                self._file.close()
            _delete(self._unfinished)

    def give_up(self, error: OSError) -> None:
        """Delete the copy, because it cannot be written."""
        # 3.9b: a copy that cannot be written fails no checkpoint.
        self.abort()
        self._backup.on_given_up(self._path.name, error)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _listed(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _range(path: Path, offset: int, length_bytes: int) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            data = os.pread(file.fileno(), length_bytes, offset)
            while len(data) < length_bytes and (
                more := os.pread(file.fileno(), length_bytes - len(data), offset + len(data))
            ):
                data += more
            return data
    except OSError:
        return None


def _delete(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
