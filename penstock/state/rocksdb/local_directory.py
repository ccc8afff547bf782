"""Makes directories on the local disk that belong to one process, and deletes those of processes that are gone."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Sequence

from penstock.state.backend import StateError

_PREFIX = "penstock-state-"
_OWNER = "owner"
_TRIES = 8


class LocalDirectory:
    """Makes a directory that nobody else uses, in one of `parents`, and holds a lock on it as long as the process
    lives. Raises `StateError` if none can be made.
    """

    def __init__(self, parents: Sequence[str]) -> None:
        parent = random.choice(parents)
        try:
            os.makedirs(parent, exist_ok=True)
            delete_abandoned(parent)
            self.path, lock = _made(parent)
        except OSError as error:
            raise StateError(
                f"no directory for RocksDB can be made in {parent}: {error}. Name another one: "
                "state.backend.rocksdb.localdir or io.tmp.dirs"
            ) from error
        self.delete = weakref.finalize(self, _delete, self.path, lock, os.getpid())
        """Call it to delete the directory with all that is in it. The end of the process calls it, too."""


def delete_abandoned(parent: str) -> None:
    """Delete the directories in `parent` whose processes have ended without deleting them."""
    for path in Path(parent).glob(_PREFIX + "*"):
        try:
            lock = os.open(path / _OWNER, os.O_RDWR)
        except OSError:
            continue  # it is being made, or deleted, or another user's
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _delete(path: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that the user's code has forked
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _made(parent: str) -> tuple[Path, int]:
    for _ in range(_TRIES):
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        lock = os.open(path / _OWNER, os.O_RDWR | os.O_CREAT, 0o600)
        # Between those two lines another process may have taken it for abandoned.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (path / _OWNER).exists():
                return path, lock
        os.close(lock)
    raise OSError(f"{_TRIES} new directories were deleted at once by others")
