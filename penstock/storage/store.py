"""The object store that checkpoints need, small enough for every store there is.

Paths are relative, with "/" between parts. All calls block, and may come from any thread.
`tests/unit/storage/conformance.py` is the suite that every implementation passes.
"""

from __future__ import annotations

from typing import Protocol, Sequence


class StoreError(Exception):
    """The store did not do it, as far as it knows; the message names the path and the cause."""


class StoreRefused(StoreError):
    """Nothing was written, and nothing will be: a full disk, a missing permission."""


class ObjectMissing(StoreError):
    """There is no object of that name."""


class ObjectExists(StoreError):
    """The name is taken. No proof that somebody else took it: read it back and compare."""


class RangeMissing(StoreError):
    """The object is there, and ends before the range does."""


class ObjectStore(Protocol):
    def put(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        """Writes a new object of a name that nobody else uses (it has a random part). Durable when it returns.
        Raises `ObjectExists` where that is not so."""

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


def checked(path: str) -> str:
    """The path itself. Raises ValueError unless it is relative, without empty or dotted parts."""
    if not path or any(part in ("", ".", "..") or part.startswith(".") for part in path.split("/")) or "\0" in path:
        raise ValueError(f"not a path of an object: {path!r}")
    return path
