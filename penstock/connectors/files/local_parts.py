"""Keeps the files of a file sink in a directory of a file system that all slots and the driver see.

Each step of a part's life is one atomic rename. See `file_parts` for the names.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence, Set
from typing import BinaryIO

from penstock.connectors.base import OutputGone, SinkError
from penstock.connectors.files.file_parts import (
    OF_A_SAVEPOINT,
    FileCommittable,
    PartNames,
    leftovers,
    naming,
    pattern_of_final,
)
from penstock.connectors.files.part_directory import PartDirectory

_COPY_BYTES = 1 << 20


class LocalParts(PartDirectory):
    """Represents a directory of a file system. What is in it is durable when `settle` has returned."""

    def probe(self) -> None:
        os.makedirs(self.place, exist_ok=True)
        path = os.path.join(self.place, f".penstock-probe-{os.getpid()}")
        with open(path, "wb"):
            pass
        os.unlink(path)

    def prepare(self, names: PartNames, predecessors: set[tuple[int, int]], kept: Set[str]) -> None:
        os.makedirs(self.place, exist_ok=True)
        self._unlink(leftovers(os.listdir(self.place), names, predecessors, kept))

    def path(self, name: str) -> str:
        return os.path.join(self.place, name)

    def flush(self, file: BinaryIO) -> int:
        file.flush()
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size

    def keep(self, name: str, size: int) -> None:
        # The part is written under this name, and `flush` makes it durable.
        return

    def make_pending(self, name: str, pending: str, keeps_name: bool) -> None:
        # A restore of an older checkpoint looks for the name that this checkpoint stores.
        place = os.link if keeps_name else os.rename
        place(self.path(name), self.path(pending))

    def settle(self, has_new_names: bool) -> None:
        if has_new_names:
            _synchronize(self.place)

    def still_pending(self, paths: list[str]) -> list[str]:
        return [path for path in paths if os.path.exists(path)]

    def read_part(self, name: str, bucket: str, size: int, operator_uid: str, suffix: str, file: BinaryIO) -> bool:
        found = self._find(name, bucket, operator_uid, suffix)
        if found is None:
            return False
        left = size
        with open(found, "rb") as old:
            while left:
                data = old.read(min(left, _COPY_BYTES))
                if not data:
                    raise OutputGone(
                        f"{found} has {size - left} bytes, and its checkpoint says {size}: it was changed from "
                        "outside. Start from another checkpoint."
                    )
                file.write(data)
                left -= len(data)
        return True

    def _find(self, name: str, bucket: str, operator_uid: str, suffix: str) -> str | None:
        for path in (self.path(name), self.path(name.removesuffix(".inprogress") + ".pending")):
            if os.path.exists(path):
                return path
        folder, final = os.path.join(self.place, bucket), pattern_of_final(name, operator_uid, suffix)
        if final is not None and os.path.isdir(folder):
            found = [entry for entry in os.listdir(folder) if final.fullmatch(entry)]
            if len(found) == 1:
                return os.path.join(folder, found[0])
        return None

    def close(self, left: Sequence[str]) -> None:
        for name in left:
            with contextlib.suppress(OSError):
                os.unlink(self.path(name))

    def commit(self, parts: Sequence[FileCommittable]) -> None:
        for part in parts:
            with naming(part.final_path, "committed"):
                _commit(part)
        for directory in sorted({directory for part in parts for directory in part.directories}, reverse=True):
            with naming(directory, "synchronized"):
                _synchronize(directory)

    def remove(self, names: Sequence[str]) -> None:
        self._unlink(names)

    def _unlink(self, names: Sequence[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(name))


def _commit(part: FileCommittable) -> None:
    if _is_committed(part):
        return
    pending_size = _size(part.pending_path)
    if pending_size is not None and pending_size != part.size:
        raise OutputGone(
            f"{part.pending_path} has {pending_size} bytes, but {part.size} were written for its checkpoint: it was "
            f"changed from outside, so it does not become {part.final}. Restore the file, or start from another "
            "checkpoint."
        )
    if pending_size is not None and len(part.directories) > 1:
        os.makedirs(part.directories[-1], exist_ok=True)
    try:
        os.rename(part.pending_path, part.final_path)
    except FileNotFoundError:
        # Another committer of the same checkpoint may just have renamed the file.
        if not _is_committed(part):
            # A directory that is not there may be a file system that is not mounted just now.
            gone = OutputGone if os.path.isdir(part.directory) else SinkError
            raise gone(
                f"rows of a completed checkpoint are lost: neither {part.pending_path}, which held them, nor "
                f"{part.final_path}, which it was to become, exists. Were files removed from {part.directory}, or is "
                "it not shared by all machines? If the rows have been taken from there on purpose, put an empty file "
                f"of {part.size} bytes in the final file's place (truncate -s) and remove it afterwards. "
                f"{OF_A_SAVEPOINT}"
            )


def _is_committed(part: FileCommittable) -> bool:
    size = _size(part.final_path)
    if size is None:
        return False
    if size != part.size:
        raise OutputGone(
            f"{part.final_path} has {size} bytes, but {part.size} were written for its checkpoint: it was changed "
            "from outside. Move it away if its rows are not needed, or start from another checkpoint."
        )
    return True


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def _synchronize(path: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
