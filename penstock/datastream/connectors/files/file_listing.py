"""Lists the files that a path means, and checks that a file is the one that was listed."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.datastream.connectors.base import SourceChanged, SourceError


@dataclass(frozen=True)
class ListedFile:
    """Identifies a file as it was when it was listed, by its size in bytes and the time of its modification."""

    path: str
    size: int
    mtime_ns: int

    @staticmethod
    def of(path: str) -> ListedFile:
        """Identify a file as it is now.

        Args:
            path: The file.

        Returns:
            Its path, size and time of modification.

        Raises:
            SourceError: It cannot be read.
        """
        try:
            stat = os.stat(path)
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}") from error
        return ListedFile(os.path.abspath(path), stat.st_size, stat.st_mtime_ns)

    def raise_if_changed(self) -> None:
        """Check that the file is the one that was listed: a position has no meaning in other bytes.

        Raises:
            SourceChanged: Its size or time of modification differs.
            SourceError: It cannot be read.
        """
        try:
            stat = os.stat(self.path)
        except OSError as error:
            raise SourceError(
                f"{self.path} cannot be read: {error.strerror}. It was there when the job started or took its "
                "checkpoint; put it back, or start without the checkpoint."
            ) from error
        changes = []
        if stat.st_size != self.size:
            changes.append(f"its size was {self.size} bytes and is {stat.st_size}")
        if stat.st_mtime_ns != self.mtime_ns:
            changes.append(f"its time of modification was {self.mtime_ns} ns and is {stat.st_mtime_ns}")
        if changes:
            raise SourceChanged(
                f"{self.path} has changed since the job started or took its checkpoint: {'; '.join(changes)}. "
                "Put the old file back, or start without the checkpoint."
            )


def local_path(path: str | os.PathLike[str]) -> str:
    """Return the local path of a path or `file:` URI.

    Args:
        path: The path or URI.

    Returns:
        The path.

    Raises:
        ValueError: It is a URI of another file system.
    """
    text = os.fspath(path)
    if "://" not in text:
        return text.removeprefix("file:")
    scheme, rest = text.split("://", 1)
    if scheme != "file":
        raise ValueError(f"{text}: only local paths and file: URIs are supported, not {scheme}:")
    return "/" + rest.lstrip("/")


def files_of(path: str) -> Iterator[str]:
    """List the files that a path, a directory or a pattern means, in order.

    Args:
        path: The path.

    Yields:
        The paths of the files.

    Raises:
        SourceError: There are none.
    """
    if os.path.isdir(path):
        files = _files_below(path)
        if not files:
            raise SourceError(f"there are no files in directory {path} (names that begin with . or _ are left out)")
        yield from files
    elif os.path.exists(path) or not glob.has_magic(path):
        if not os.path.exists(path):
            raise SourceError(f"{path} is missing: there is no such file, and it is no directory and no pattern")
        yield path
    else:
        matches = sorted(match for match in glob.glob(path, recursive=True) if not _hidden(os.path.basename(match)))
        if not matches:
            raise SourceError(f"no file matches {path}")
        for match in matches:
            yield from _files_below(match) if os.path.isdir(match) else [match]


def _files_below(directory: str) -> list[str]:
    found = []
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not _hidden(name)]
        found += [os.path.join(parent, name) for name in names if not _hidden(name)]
    return sorted(found)


def _hidden(name: str) -> bool:
    """Return True if Spark, too, skips files of this name.

    A bucket of a column whose name begins with "_" is not hidden.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
