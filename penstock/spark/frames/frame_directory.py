"""Keeps the files of DataFrames in a job's directory, of a file system or in a store. Nothing here imports PySpark.

<job's directory>/data-frames/<operator uid>-<random>/part-*           Arrow messages or Parquet
                                                     /_penstock.json   how to read them; written last
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import secrets
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.connectors.base import SourceChanged, SourceError
from penstock.connectors.files.input_file import InputFile
from penstock.storage.layout import FRAMES_FOLDER, FRAMES_MANIFEST, METADATA_NAME
from penstock.storage.location import is_local
from penstock.storage.opening import open_store
from penstock.storage.store import BrowsableStore, ObjectExists, ObjectMissing, StoreError
from penstock.storage.store_settings import StoreSettings

_CLAIMED_FROM = "_claimed_from"
_COPY_STEP_BYTES = 32 << 20
_CALLS_MAX = 8
_NAME = re.compile(r".+-[0-9a-f]{8}")


def new_name(uid: str) -> str:
    """Return the name of a folder for an operator's rows, which no other start uses."""
    return f"{uid}-{secrets.token_hex(4)}"


class FrameDirectory:
    """Represents the directory of a job or a savepoint, as far as DataFrames are concerned. `create`: it may have to be
    made. Raises `StoreError`.
    """

    def __init__(self, place: str, settings: StoreSettings, create: bool = False) -> None:
        self.place = place
        self.settings = settings
        self.is_local = is_local(place)
        self._store = open_store(place, settings, create_root=create)

    def folder(self, name: str) -> str:
        """Return the place of a folder, for messages and for Spark."""
        return posixpath.join(self.place, FRAMES_FOLDER, name)

    def is_complete(self, name: str) -> bool:
        return _exists(self._store, _manifest(name))

    def complete(self, uid: str) -> list[str]:
        """Return the names of an operator's folders that are complete, the one that was written last at the end."""
        names = [name for name in self._store.folders(FRAMES_FOLDER) if _is_of(uid, name) and self.is_complete(name)]
        return sorted(names, key=self.written_s)

    def written_s(self, name: str) -> float:
        """Return the time at which a folder was complete, in seconds since 1970."""
        return self._store.stat(_manifest(name)).modified_s

    def manifest(self, name: str) -> dict[str, Any]:
        """Read a folder's manifest. Raises `SourceChanged`, and `SourceError` where the store fails."""
        where = f"{self.folder(name)}/{FRAMES_MANIFEST}"
        try:
            manifest: dict[str, Any] = json.loads(self._store.get(_manifest(name)))
            for key in ("columns", "origin", "arrow"):
                manifest[key]
            return manifest
        except StoreError as error:
            if isinstance(error, ObjectMissing):
                raise SourceChanged(f"{where} cannot be read: {error}. Start without the checkpoint.") from error
            raise SourceError(str(error)) from error
        except (ValueError, KeyError, TypeError) as error:
            raise SourceChanged(f"{where} cannot be read: {error!r}. Start without the checkpoint.") from error

    def write_manifest(self, name: str, manifest: dict[str, Any]) -> None:
        self._store.put(_manifest(name), [json.dumps(manifest, indent=1).encode()])

    def parts(self, name: str) -> list[tuple[str, int]]:
        """Return the paths of a folder's files, relative to this directory, and their sizes. Of files in a store the
        manifest has a list: a task that failed has left others.
        """
        folder = f"{FRAMES_FOLDER}/{name}"
        named = self.manifest(name).get("files")
        if named is not None:
            return [(f"{folder}/{file}", size) for file, size in named]
        found = self._store.objects(folder)
        return [(f.path, f.size_bytes) for f in found if posixpath.basename(f.path).startswith("part-")]

    def file(self, path: str) -> InputFile:
        return InputFile(posixpath.join(self.place, path), self.settings)

    def note_claim(self, name: str, origin: FrameDirectory) -> None:
        """Note that a folder was taken from another job, whose checkpoint has become this job's own."""
        self._store.put(f"{FRAMES_FOLDER}/{name}/{_CLAIMED_FROM}", [origin.folder(name).encode()])

    def names(self) -> list[str]:
        """Return the names of all folders that starts of the job have made. [] where the store does not answer."""
        try:
            return [name for name in self._store.folders(FRAMES_FOLDER) if _NAME.fullmatch(name)]
        except StoreError:
            return []

    def remove(self, name: str) -> None:
        """Remove this folder and no other one. Never raises."""
        if self.is_local:
            shutil.rmtree(self.folder(name), ignore_errors=True)
            with suppress(OSError):  # others may be there
                Path(self.place, FRAMES_FOLDER).rmdir()
            return
        with suppress(StoreError):
            _each(self._store.delete, self._store.list(f"{FRAMES_FOLDER}/{name}"))

    def remove_claimed(self, name: str) -> None:
        """Remove the folder that this one was taken from, once no checkpoint of its job needs it. Never raises."""
        with suppress(StoreError, SourceError):
            origin = self._store.get(f"{FRAMES_FOLDER}/{name}/{_CLAIMED_FROM}").decode()
            there = FrameDirectory(origin.rpartition(f"/{FRAMES_FOLDER}/")[0], self.settings)
            checkpoints = [f"{folder}/" for folder in there._store.folders("") if folder.startswith("chk-")]
            # A savepoint's metadata lie at the top.
            if not any(_exists(there._store, f"{folder}{METADATA_NAME}") for folder in ["", *checkpoints]):
                there.remove(posixpath.basename(origin))
                there._store.remove_if_empty()

    def take(
        self,
        name: str,
        origin: FrameDirectory,
        progress: Callable[[], None] = lambda: None,
        new_name: str | None = None,
        is_private: bool = False,
    ) -> list[str]:
        """Copy a folder from another job, as links where both lie in one file system. So a new job needs nothing of
        the job whose checkpoint it started from. Other starts of this job may copy the same folder at the same time:
        what is there already is kept. `progress` is called whenever some of the data has been copied.

        Args:
            new_name: The name of the copy; None: the same.
            is_private: Nobody else uses the copy, so a copy that fails is removed.

        Returns:
            The copies: paths relative to this directory.

        Raises:
            SourceError: Something could not be copied.
        """
        there, target = name, new_name or name
        try:
            if self.is_local and origin.is_local:
                take_along(Path(origin.folder(there)), Path(self.folder(target)), progress)
                return [f"{FRAMES_FOLDER}/{target}/{file.name}" for file in sorted(Path(self.folder(target)).iterdir())]
            files = [posixpath.basename(path) for path, _ in origin.parts(there)]
            _each(lambda file: self._copy(file, origin, there, target, progress), files)
            self._copy(FRAMES_MANIFEST, origin, there, target, progress)  # the manifest is last
            return [f"{FRAMES_FOLDER}/{target}/{file}" for file in (*files, FRAMES_MANIFEST)]
        except BaseException as error:
            if is_private:
                self.remove(target)
            if isinstance(error, StoreError):
                raise SourceError(
                    f"{origin.folder(there)}, with rows of a DataFrame, could not be copied to {self.folder(target)}: "
                    f"{error}"
                ) from error
            raise

    def _copy(self, file: str, origin: FrameDirectory, there: str, here: str, progress: Callable[[], None]) -> None:
        path, copy = f"{FRAMES_FOLDER}/{there}/{file}", f"{FRAMES_FOLDER}/{here}/{file}"
        size = origin._store.size(path)
        with suppress(ObjectMissing):
            if self._store.size(copy) == size:
                return  # another start of the job has copied it, and objects appear whole
        writer = self._store.writer(copy)
        try:
            for start in range(0, size, _COPY_STEP_BYTES):
                writer.write([origin._store.get(path, start, min(_COPY_STEP_BYTES, size - start))])
                progress()
            writer.finish()
        except ObjectExists:
            writer.abort()
            if self._store.size(copy) != size:
                raise
        except BaseException:
            writer.abort()
            raise


def take_along(source: Path, target: Path, progress: Callable[[], None]) -> None:
    """Copy the folder `source` to `target`, as links where the file system has them. Files appear whole, the manifest
    last; those that are there already are kept. Raises `SourceError`, and the errors of `progress`."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        for file in sorted(source.iterdir(), key=lambda file: file.name == FRAMES_MANIFEST):  # the manifest is last
            # Other names that begin with _ are notes on the folder itself. They are not linked, because two jobs
            # would then write to one file. Names that begin with a dot are Hadoop's checksums, which we never read.
            if file.is_file() and (file.name == FRAMES_MANIFEST or not file.name.startswith(("_", "."))):
                _link_or_copy(file, target / file.name, progress)
    except OSError as error:
        with suppress(OSError):  # only if nothing is in them
            target.rmdir()
            target.parent.rmdir()
        raise SourceError(
            f"{source}, with rows of a DataFrame, could not be copied to {target}: {error}. Make room or set the "
            "permissions, and start the job again."
        ) from error


def _link_or_copy(source: Path, target: Path, progress: Callable[[], None]) -> None:
    try:
        os.link(source, target)
        return
    except FileExistsError:
        if target.stat().st_size == source.stat().st_size:
            return  # another start of the job, which restores the same checkpoint, has copied it
    except OSError:  # another file system, or one without links
        pass
    # Under a name of its own until it is whole: another start may be copying the same file.
    growing = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    try:
        with source.open("rb") as old, growing.open("xb") as new:
            while data := old.read(_COPY_STEP_BYTES):
                new.write(data)
                progress()
        shutil.copystat(source, growing)
        growing.replace(target)
    except BaseException:
        growing.unlink(missing_ok=True)
        raise


def _manifest(name: str) -> str:
    return f"{FRAMES_FOLDER}/{name}/{FRAMES_MANIFEST}"


def _is_of(uid: str, name: str) -> bool:
    return name.rpartition("-")[0] == uid


def _exists(store: BrowsableStore, path: str) -> bool:
    try:
        store.size(path)
    except ObjectMissing:
        return False
    return True


def _each(call: Callable[[str], None], paths: Iterable[str]) -> None:
    """Make the call for each path, some at a time. Raises the first error."""
    with ThreadPoolExecutor(_CALLS_MAX, "data frames") as pool:
        for done in [pool.submit(call, path) for path in paths]:
            done.result()
