"""Keeps the files of DataFrames in a job's directory, of a file system or in a store. Nothing here imports PySpark.

<job's directory>/data-frames/<operator uid>-<random>/part-*           Arrow messages or Parquet
                                                     /_penstock.json   how to read them; written last
"""

from __future__ import annotations

import json
import os
import posixpath
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.datastream.connectors.base import SourceChanged, SourceError
from penstock.datastream.connectors.files.input_file import InputFile
from penstock.storage.layout import FRAMES_FOLDER, FRAMES_MANIFEST, METADATA_NAME
from penstock.storage.location import is_local
from penstock.storage.opening import open_store
from penstock.storage.store import BrowsableStore, ObjectMissing, StoreError
from penstock.storage.store_settings import StoreSettings

_CLAIMED_FROM = "_claimed_from"
_COPY_STEP_BYTES = 32 << 20
_CALLS_MAX = 8


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
        """Return when a folder was complete, in seconds since 1970."""
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

    def remove(self, uid_of: str) -> None:
        """Remove a folder, and others of the same operator, which starts that were killed have left. Never raises."""
        uid = uid_of.rpartition("-")[0]
        if self.is_local:
            parent = Path(self.place, FRAMES_FOLDER)
            for left in parent.glob(f"{uid}-*"):
                shutil.rmtree(left, ignore_errors=True)
            with suppress(OSError):  # others may be there
                parent.rmdir()
            return
        with suppress(StoreError):
            paths = self._store.list(FRAMES_FOLDER)
            _each(self._store.delete, [path for path in paths if _is_of(uid, path.split("/")[1])])

    def remove_claimed(self, name: str) -> None:
        """Remove the folder that this one was taken from, once its job has no checkpoint any more that needs it. Never
        raises.
        """
        with suppress(StoreError, SourceError):
            origin = self._store.get(f"{FRAMES_FOLDER}/{name}/{_CLAIMED_FROM}").decode()
            there = FrameDirectory(origin.rpartition(f"/{FRAMES_FOLDER}/")[0], self.settings)
            checkpoints = [f"{folder}/" for folder in there._store.folders("") if folder.startswith("chk-")]
            # A savepoint's metadata lie at the top.
            if not any(_exists(there._store, f"{folder}{METADATA_NAME}") for folder in ["", *checkpoints]):
                there.remove(posixpath.basename(origin))
                there._store.remove_if_empty()

    def take(self, name: str, origin: FrameDirectory, progress: Callable[[], None] = lambda: None) -> list[str]:
        """Make a folder a copy of one of the same name, of links where both are of one file system: complete or not at
        all. So a new job needs nothing of the job whose checkpoint it started from. `progress` is called whenever some
        of the data has been copied. Raises `SourceError`.

        Returns:
            The copies: paths relative to this directory.
        """
        try:
            if self.is_local and origin.is_local:
                take_along(Path(origin.folder(name)), Path(self.folder(name)), progress)
                return [f"{FRAMES_FOLDER}/{name}/{file.name}" for file in sorted(Path(self.folder(name)).iterdir())]
            self._delete_copies(name)
            try:
                paths = [path for path, _ in origin.parts(name)]
                _each(lambda path: self._copy(path, origin, progress), paths)
                self._copy(_manifest(name), origin, progress)  # the manifest is last
            except BaseException:
                with suppress(StoreError):
                    self._delete_copies(name)
                raise
            return [*paths, _manifest(name)]
        except StoreError as error:
            raise SourceError(
                f"{origin.folder(name)}, with rows of a DataFrame, could not be copied to {self.folder(name)}: {error}"
            ) from error

    def _delete_copies(self, name: str) -> None:
        _each(self._store.delete, self._store.list(f"{FRAMES_FOLDER}/{name}"))

    def _copy(self, path: str, origin: FrameDirectory, progress: Callable[[], None]) -> None:
        size = origin._store.size(path)
        writer = self._store.writer(path)
        try:
            for start in range(0, size, _COPY_STEP_BYTES):
                writer.write([origin._store.get(path, start, min(_COPY_STEP_BYTES, size - start))])
                progress()
            writer.finish()
        except BaseException:
            writer.abort()
            raise


def take_along(source: Path, target: Path, progress: Callable[[], None]) -> None:
    """Make `target` a copy of the folder `source`, of links where the file system has them, complete or not at all.
    Raises `SourceError`, and what `progress` raises."""
    shutil.rmtree(target, ignore_errors=True)
    try:
        target.mkdir(parents=True)
        for file in sorted(source.iterdir(), key=lambda file: file.name == FRAMES_MANIFEST):  # the manifest is last
            # Other names that begin with _ are notes on the folder itself: two jobs would write to a linked one. Those
            # that begin with a dot are checksums of Hadoop's, which nothing of ours reads.
            if file.is_file() and (file.name == FRAMES_MANIFEST or not file.name.startswith(("_", "."))):
                _link_or_copy(file, target / file.name, progress)
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        with suppress(OSError):  # others may be there
            target.parent.rmdir()
        if not isinstance(error, OSError):
            raise
        raise SourceError(
            f"{source}, with rows of a DataFrame, could not be copied to {target}: {error}. Make room or set the "
            "permissions, and start the job again."
        ) from error


def _link_or_copy(source: Path, target: Path, progress: Callable[[], None]) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        with source.open("rb") as old, target.open("xb") as new:
            while data := old.read(_COPY_STEP_BYTES):
                new.write(data)
                progress()
        shutil.copystat(source, target)


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
