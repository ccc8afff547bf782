"""The object store that checkpoints need, small enough for every store there is.

Paths are relative, with "/" between parts. All calls block, and may come from any thread.
`tests/unit/storage/conformance.py` is the suite that every implementation passes.
"""

from __future__ import annotations

from typing import Callable, Protocol, Sequence

from penstock.common.failures import Fault


class StoreError(Fault):
    """The store did not do it, as far as it knows; the message names the path and the cause."""


class StoreRefused(StoreError):
    """Nothing was written, and nothing will be: a full disk, a missing permission."""


class StoreRemoved(StoreError):
    """The directory that the store keeps its objects in was removed, and so are they: no later attempt will do."""


class ObjectMissing(StoreError):
    """There is no object of that name."""


class ObjectExists(StoreError):
    """The name is taken. No proof that somebody else took it: read it back and compare."""


class RangeMissing(StoreError):
    """The object is there, and ends before the range does."""


class ObjectWriter(Protocol):
    """A new object that grows a piece at a time. No call of the store's is told of it before `finish`; whoever began
    it ends it, by `finish` or by `abort`."""

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """Takes these buffers, which may change afterwards. Raises `ObjectExists` where the name is taken, and
        `StoreError`; then only `abort` is left."""

    def finish(self) -> None:
        """Durable when it returns. Raises as `write`."""

    def abort(self) -> None:
        """Leaves nothing behind, as far as the store lets it. Never raises."""


class ObjectStore(Protocol):
    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        """Writes a new object of a name that nobody else uses (it has a random part). Durable when it returns.
        Raises `ObjectExists` where that is not so."""

    def writer(self, path: str) -> ObjectWriter:
        """As `put`, for what is too large to be held in memory whole."""

    def create(self, path: str, data: bytes) -> None:
        """Create if absent: all or nothing, durable when it returns. Raises `ObjectExists`, and `StoreRefused` only
        where it is certain that the object was not and will not be created."""

    def get(self, path: str, offset: int = 0, length_bytes: int | None = None) -> bytes:
        """A range, or all. Raises `ObjectMissing`, and `RangeMissing` where the object is shorter."""

    def size(self, path: str) -> int:
        """In bytes. Raises `ObjectMissing`."""

    def list(self, prefix: str) -> list[str]:
        """Paths of all objects below the folder `prefix` ("" is all), sorted. [] where there is none."""

    def delete(self, path: str) -> None:
        """Exactly this object. No error where it is missing already."""


class CollectingWriter:
    """An `ObjectWriter` for a store that takes objects whole: `put` gets it when it is finished."""

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


def checked(path: str) -> str:
    """The path itself. Raises ValueError unless it is relative, without empty or dotted parts."""
    if not path or any(part in ("", ".", "..") or part.startswith(".") for part in path.split("/")) or "\0" in path:
        raise ValueError(f"not a path of an object: {path!r}")
    return path
