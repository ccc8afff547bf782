"""Makes directories on the local disk that belong to one process, and finds those of processes that are gone."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path

_OWNER = "owner"
_TRIES = 8


class OwnedDirectory:
    """Makes a directory in `parent` that nobody else uses, and holds a lock on it as long as the process lives. Its
    name begins with `prefix`. Raises `OSError` if none can be made.
    """

    def __init__(self, parent: str | Path, prefix: str) -> None:
        os.makedirs(parent, exist_ok=True)
        self.path, self._lock = _made(parent, prefix)
        self.delete = weakref.finalize(self, _delete, self.path, self._lock, os.getpid())
        """Call it to delete the directory with all that is in it. The end of the process calls it, too."""

    def touch(self) -> None:
        """Note that the directory is in use now. See `delete_ownerless`."""
        with suppress(OSError):
            os.utime(self.path / _OWNER)

    def leave(self) -> None:
        """Leave the directory to whoever finds it, as the death of the process does."""
        if self.delete.detach() is not None:
            os.close(self._lock)


def delete_ownerless(parent: str | Path, prefix: str, unused_for_s: float = 0.0) -> None:
    """Delete directories in `parent` that ended processes left behind, unused for `unused_for_s` at least."""
    for path in Path(parent).glob(prefix + "*"):
        delete_if_ownerless(path, unused_for_s)


def delete_if_ownerless(path: Path, unused_for_s: float = 0.0) -> None:
    """Delete one directory, unless its process lives. Never raises."""
    with _locked(path) as is_ownerless, suppress(OSError):
        if is_ownerless and time.time() - (path / _OWNER).stat().st_mtime >= unused_for_s:
            shutil.rmtree(path, ignore_errors=True)


def is_ownerless(path: Path) -> bool:
    """Return whether the process of a directory has ended without deleting it."""
    with _locked(path) as found:
        return found


class _locked:
    """Takes a directory's lock for a moment. `as`: False if it has an owner, changes, or is another user's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None

    def __enter__(self) -> bool:
        try:
            self._lock = os.open(self._path / _OWNER, os.O_RDWR)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)


def _delete(path: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that the user's code has forked
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _made(parent: str | Path, prefix: str) -> tuple[Path, int]:
    for _ in range(_TRIES):
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = os.open(path / _OWNER, os.O_RDWR | os.O_CREAT, 0o600)
        # Between those two lines another process may have taken it for abandoned.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (path / _OWNER).exists():
                return path, lock
        os.close(lock)
    raise OSError(f"{_TRIES} new directories were deleted at once by others")
