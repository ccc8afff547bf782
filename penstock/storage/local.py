"""Implements a store in a directory of a file system that all slots see.

An object appears under its name complete or not at all where that matters (`create`): it is written and synced under
a temporary name, then linked, which fails where the name is taken. Opening exclusively and then writing would leave a
taken, empty name behind a crash. A segment (`put`) has a name of its own and is not referred to before it is durable,
so it is written in place.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import time
import uuid
from pathlib import Path
from typing import Callable, Iterator, Sequence

from penstock.storage.local_files import NewFile, explained, read_range
from penstock.storage.store import (
    TEMPORARY_GRACE_S,
    DirectoryMissing,
    Found,
    ObjectExists,
    ObjectMissing,
    ObjectWriter,
    RangeMissing,
    StoreAway,
    StoreError,
    StoreRefused,
    StoreRemoved,
    checked,
    delete_each,
    write_whole,
)

TEMPORARY_FOLDER = ".tmp"
_ATTEMPTS_MAX = 100
_NOT_CARRIED_OUT = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)


class LocalStore:
    """Stores objects below `root`. It must exist already, unless `create_root` is set: only the driver creates it, so
    that a slot that does not see the driver's file system reports that instead of writing to a directory that nobody
    reads.

    `fsync` False gives up durability against a crash of the machine (not of a process). Raises `StoreError`.
    """

    def __init__(self, root: str | os.PathLike[str], *, fsync: bool = True, create_root: bool = False) -> None:
        self.root = Path(os.path.abspath(root))
        self._fsync = fsync
        try:
            if create_root:
                self._make_root()
            if not self.root.is_dir():
                if self.root.exists():
                    raise StoreError(f"checkpoint directory {self.root} is not a directory")
                raise DirectoryMissing(
                    f"checkpoint directory {self.root} does not exist here: it must be on a file system that the "
                    "driver and all executors share"
                )
        except OSError as error:
            raise explained(error, "create", self.root, self.root) from error

    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        write_whole(self.writer(path), parts)

    def writer(self, path: str) -> ObjectWriter:
        return _LocalWriter(self, self._target(path))

    @contextlib.contextmanager
    def new_object(self, target: Path) -> Iterator[None]:
        """Wrap the creation of an object: convert errors to the store's."""
        try:
            yield
        except FileExistsError:
            raise ObjectExists(f"{target} exists already") from None
        except OSError as error:
            raise explained(error, "write", target, self.root) from error

    def new_file(self, target: Path) -> NewFile:
        made: list[NewFile] = []
        self._in_folder(target.parent, lambda: made.append(NewFile(target)))
        return made[0]

    def sync_file(self, file: NewFile) -> None:
        """Make the file a durable object."""
        file.finish(self._fsync)
        self._sync_folder(file.path.parent)

    def create(self, path: str, data: bytes) -> None:
        target = self._target(path)
        temporary = self.root / TEMPORARY_FOLDER / uuid.uuid4().hex
        try:
            self._in_folder(temporary.parent, lambda: self._write(temporary, [data]))
            try:
                self._in_folder(target.parent, lambda: os.link(temporary, target))
            finally:
                # A temporary name that stays is swept later. Without this: the object is linked, removing its temporary
                # name fails on a full disk, and the caller gets an error that says that nothing was written.
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
        except FileExistsError:
            raise ObjectExists(f"{target} exists already") from None
        except OSError as error:
            told = explained(error, "write", target, self.root)
            raise StoreRefused(str(told)) if error.errno in _NOT_CARRIED_OUT else told from error
        try:
            self._sync_folder(target.parent)
        except OSError as error:
            raise explained(error, "write", target, self.root) from error

    def get(self, path: str, offset: int = 0, length_bytes: int | None = None) -> bytes:
        target = self._target(path)
        try:
            descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = os.fstat(descriptor).st_size
                if length_bytes is None:
                    length_bytes = max(0, size - offset)
                if offset + length_bytes > size:
                    raise RangeMissing(f"{target} has {size} bytes, and not those at {offset}..{offset + length_bytes}")
                return read_range(descriptor, offset, length_bytes)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            raise self._missing(target) from None
        except OSError as error:
            raise explained(error, "read", target, self.root) from error

    def size(self, path: str) -> int:
        return self.stat(path).size_bytes

    def stat(self, path: str) -> Found:
        target = self._target(path)
        try:
            stat = target.stat()
        except FileNotFoundError:
            raise self._missing(target) from None
        except OSError as error:
            raise explained(error, "read", target, self.root) from error
        return Found(path, stat.st_size, stat.st_mtime)

    def move(self, path: str, new_path: str) -> None:
        self.stat(path)
        source, target = self._target(path), self._target(new_path)
        try:
            self._in_folder(target.parent, lambda: os.replace(source, target))
            self._sync_folder(target.parent)
        except OSError as error:
            raise explained(error, "write", target, self.root) from error

    def list(self, prefix: str) -> builtins.list[str]:
        return sorted(path.relative_to(self.root).as_posix() for path in self._files(prefix))

    def objects(self, prefix: str) -> builtins.list[Found]:
        found = []
        for path in self._files(prefix):
            # A driver may delete files while they are listed.
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                found.append(Found(path.relative_to(self.root).as_posix(), stat.st_size, stat.st_mtime))
        return sorted(found)

    def folders(self, prefix: str, with_links: bool = True) -> builtins.list[str]:
        start = self._target(prefix) if prefix else self.root
        try:
            with os.scandir(start) as entries:
                return sorted(e.name for e in entries if not e.name.startswith(".") and _is_folder(e, with_links))
        except (FileNotFoundError, NotADirectoryError):
            self._check_root()
            return []
        except OSError as error:
            raise explained(error, "list", start, self.root) from error

    def _files(self, prefix: str) -> builtins.list[Path]:
        start = self._target(prefix) if prefix else self.root
        found: builtins.list[Path] = []
        try:
            if not start.is_dir():
                self._check_root()
                return []
            for folder, folders, files in os.walk(start, onerror=_raise):
                folders[:] = [name for name in folders if not name.startswith(".")]
                found += [Path(folder, name) for name in files if not name.startswith(".")]
        except FileNotFoundError:
            # A folder was removed during the walk: its objects were being deleted.
            self._check_root()
            return self._files(prefix)
        except OSError as error:
            raise explained(error, "list", start, self.root) from error
        return found

    def delete(self, path: str) -> None:
        target = self._target(path)
        try:
            target.unlink(missing_ok=True)
        except OSError as error:
            raise explained(error, "delete", target, self.root) from error
        folder = target.parent
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:
                break
            folder = folder.parent

    def delete_all(self, paths: Sequence[str]) -> None:
        delete_each(self.delete, paths)

    def remove_if_empty(self) -> None:
        for folder in (self.root / TEMPORARY_FOLDER, self.root):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def sweep_temporary(self, grace_s: float = TEMPORARY_GRACE_S) -> None:
        """Remove the leftovers of `create` of killed processes, if they are older than `grace_s`."""
        try:
            with os.scandir(self.root / TEMPORARY_FOLDER) as entries:
                for entry in entries:
                    if entry.stat().st_mtime < time.time() - grace_s:
                        os.unlink(entry.path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise explained(error, "sweep", self.root / TEMPORARY_FOLDER, self.root) from error

    def _target(self, path: str) -> Path:
        return self.root / checked(path)

    def _make_root(self) -> None:
        missing = [p for p in (self.root, *self.root.parents) if not p.exists()]
        self.root.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            self._sync_folder(folder.parent)

    def _in_folder(self, folder: Path, action: Callable[[], None]) -> None:
        """Run the action; if the folder is missing, make it (but never the root) and retry: `delete` in another thread
        removes folders that have become empty.
        """
        for _ in range(_ATTEMPTS_MAX):
            try:
                action()
                return
            except FileNotFoundError:
                self._check_root()
                with contextlib.suppress(FileNotFoundError):
                    self._make_folder(folder)
        raise StoreError(
            f"cannot write in {folder}: something removes the folder each time that it is made; stop what does, or "
            "choose another execution.checkpointing.dir"
        )

    def _make_folder(self, folder: Path) -> None:
        if folder == self.root or folder.is_dir():
            return
        self._make_folder(folder.parent)
        try:
            folder.mkdir()
        except FileExistsError:
            return
        self._sync_folder(folder.parent)

    def _write(self, target: Path, parts: Sequence[bytes | memoryview]) -> None:
        file = NewFile(target)
        try:
            file.write(parts)
            file.finish(self._fsync)
        except BaseException:
            file.discard()
            raise

    def _sync_folder(self, folder: Path) -> None:
        if not self._fsync:
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network file systems cannot sync a directory, and do not need to.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)

    def _check_root(self) -> None:
        """Raise `StoreRemoved` if the root is gone, and `StoreAway` if even the folder above it is: a file system that
        is not mounted at the moment looks like that.
        """
        if not self.root.is_dir():
            removed = StoreRemoved if self.root.parent.is_dir() else StoreAway
            raise removed(
                f"checkpoint directory {self.root} has been removed while it is in use: nothing can be stored or "
                "restored; stop the job, or put the directory back with what was in it"
            )

    def _missing(self, target: Path) -> StoreError:
        self._check_root()
        return ObjectMissing(f"{target} does not exist")


class _LocalWriter:
    """Implements `ObjectWriter`: the file grows under its own name, which nothing refers to yet."""

    def __init__(self, store: LocalStore, target: Path) -> None:
        self._store = store
        self._target = target
        self._file: NewFile | None = None

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        with self._store.new_object(self._target):
            self._opened().write(parts)

    def finish(self) -> None:
        with self._store.new_object(self._target):
            self._store.sync_file(self._opened())
        self._file = None

    def abort(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.discard()

    def _opened(self) -> NewFile:
        if self._file is None:
            self._file = self._store.new_file(self._target)
        return self._file


def _is_folder(entry: os.DirEntry[str], with_links: bool) -> bool:
    """Return whether this is a folder. A link to what cannot be looked at is none."""
    if not entry.is_symlink():
        return entry.is_dir(follow_symlinks=False)
    with contextlib.suppress(OSError):
        return with_links and entry.is_dir()
    return False


def _raise(error: OSError) -> None:
    raise error
