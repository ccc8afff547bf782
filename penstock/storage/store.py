"""Declares the object store that checkpoints need, small enough for every store there is.

Paths are relative, with "/" between parts. All calls block, and may come from any thread.
`tests/unit/storage/conformance.py` is the suite that every implementation passes.
"""

from __future__ import annotations

import builtins
import threading
from typing import Callable, NamedTuple, Protocol, Sequence

from penstock.common.program.failures import Fault

DELETED_AT_ONCE = 8
"""The number of deletions that are on their way at a time, where each is a request."""
TEMPORARY_GRACE_S = 3600.0
"""A half-written object that is older has lost its writer, as far as anybody knows."""


class StoreError(Fault):
    """Signals that the store failed, as far as it knows; the message names the path and the cause."""


class StoreAway(StoreError):
    """Signals that the store does not answer, or answers that it cannot now: the same call may succeed later. Nothing
    is known of what the store holds.
    """


class DirectoryMissing(StoreError):
    """Signals that the directory of the store does not exist (yet)."""


class UnnameableKey(StoreError):
    """Signals that a listing has a key that the client cannot ask for, because a part of it is empty or dotted."""


class StoreRefused(StoreError):
    """Signals that nothing was written, and nothing will be: a full disk, a missing permission."""


class StoreRemoved(StoreError):
    """Signals that the directory of the store was removed with all its objects: no later attempt will succeed."""


class ObjectMissing(StoreError):
    """Signals that there is no object of that name."""


class ObjectExists(StoreError):
    """Signals that the name is taken. That does not prove another writer: read the object back and compare."""


class RangeMissing(StoreError):
    """Signals that the object exists, and ends before the range does."""


class ObjectWriter(Protocol):
    """Writes a new object that grows in parts. It is invisible to all other calls until `finish`. The caller must call
    `finish` or `abort` exactly once.
    """

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """Write these buffers, which may change afterwards. Raises `ObjectExists` if the name is taken, and
        `StoreError`; then call `abort`.
        """

    def finish(self) -> None:
        """Finish the object: it is durable when this returns. Raises as `write`."""

    def abort(self) -> None:
        """Leave nothing behind, as far as the store can. Never raises."""


def write_whole(writer: ObjectWriter, parts: Sequence[bytes | memoryview]) -> None:
    """Write these buffers as one object, and finish it. Raises as `ObjectWriter.write`; then nothing of it stays."""
    try:
        writer.write(parts)
        writer.finish()
    except BaseException:
        writer.abort()
        raise


class ObjectStore(Protocol):
    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        """Write a new object of a name that nobody else uses (it has a random part). It is durable when this returns.
        Raises `ObjectExists` if the name is taken.
        """

    def writer(self, path: str) -> ObjectWriter:
        """Return a writer with the promises of `put`, for what is too large to be held in memory whole."""

    def create(self, path: str, data: bytes) -> None:
        """Create if absent: all or nothing, durable when this returns. Raises `ObjectExists`, and `StoreRefused` only
        if it is certain that the object was not and will not be created.
        """

    def get(self, path: str, offset: int = 0, length_bytes: int | None = None) -> bytes:
        """Return a range, or all. Raises `ObjectMissing`, and `RangeMissing` if the object is shorter."""

    def size(self, path: str) -> int:
        """Return the size in bytes. Raises `ObjectMissing`."""

    def list(self, prefix: str) -> list[str]:
        """Return the paths of all objects below the folder `prefix` ("" is all), sorted. [] if there are none."""

    def folders(self, prefix: str, with_links: bool = True) -> builtins.list[str]:
        """Return the names of the folders directly below `prefix`, sorted. It costs no more if much lies in them.
        `with_links`: also of those that are links to a folder, in a file system.
        """

    def delete(self, path: str) -> None:
        """Delete exactly this object. It is no error if it is missing already."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete these objects, some at a time where each costs a request. Raises the first `StoreError`, after all
        have been tried twice.
        """

    def remove_if_empty(self) -> None:
        """Remove the directory that the store lies in, if nothing is left in it. Never raises."""

    def sweep_temporary(self, grace_s: float = TEMPORARY_GRACE_S) -> None:
        """Delete half-written objects of killed writers, if they are older than `grace_s`. Raises `StoreError`."""


class Found(NamedTuple):
    """Describes an object that a listing has found. `modified_s`: seconds since 1970. `tag`: what the store gives each
    version of an object, if it gives one and `stat` was asked.
    """

    path: str
    size_bytes: int
    modified_s: float
    tag: str = ""


class BrowsableStore(ObjectStore, Protocol):
    """Describes a store that people and connectors look at, too."""

    def objects(self, prefix: str) -> builtins.list[Found]:
        """Return all objects below the folder `prefix`, sorted by path, as `list` does."""

    def stat(self, path: str) -> Found:
        """Describe one object. Raises `ObjectMissing`."""

    def move(self, path: str, new_path: str) -> None:
        """Give an object another name, which nobody else uses: it appears there whole. Raises `ObjectMissing` if there
        is none under the old name, because an earlier call has moved it, for example. A call that is cut off may leave
        the object under both names; the next call ends that.
        """


class CollectingWriter:
    """Collects an `ObjectWriter`'s parts for a store that takes objects whole: `finish` passes them to `put`."""

    def __init__(self, path: str, put: Callable[[str, list[bytes]], None]) -> None:
        self._path = path
        self._put = put
        self._pieces: list[bytes] = []

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        self._pieces += [bytes(memoryview(part).cast("B")) for part in parts]

    def finish(self) -> None:
        self._put(self._path, self._pieces)

    def abort(self) -> None:
        self._pieces = []


def delete_each(delete: Callable[[str], None], paths: Sequence[str], at_once: int = 1) -> None:
    """Delete objects one by one, `at_once` at a time. Continues with the others if one cannot be deleted, and tries
    again once; raises for the first that stays.
    """
    failed: list[Exception] = []
    left = iter(paths)

    def work() -> None:
        for path in left:
            try:
                try:
                    delete(path)
                except StoreError:
                    delete(path)
            except Exception as error:
                failed.append(error)

    if min(at_once, len(paths)) <= 1:
        work()
    else:
        # Daemons: a process that ends does not wait for a store that does not answer.
        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(at_once, len(paths)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def checked(path: str) -> str:
    """Return the path itself. Raises ValueError unless it is relative, without empty or dotted parts."""
    if not path or any(part in ("", ".", "..") or part.startswith(".") for part in path.split("/")) or "\0" in path:
        raise ValueError(f"not a path of an object: {path!r}")
    return path
