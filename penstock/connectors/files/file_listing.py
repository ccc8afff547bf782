"""Lists the files that a path means, and checks that a file is the one that was listed."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.connectors.base import SourceChanged, SourceError
from penstock.connectors.files.input_file import InputFile
from penstock.connectors.files.stored_listing import NOTHING_AT, NOTHING_IN, NOTHING_MATCHES, is_hidden, stored_files
from penstock.storage.location import is_local, location
from penstock.storage.store import StoreError
from penstock.storage.store_settings import DEFAULT_SETTINGS, StoreSettings


@dataclass(frozen=True)
class ListedFile:
    """Identifies a file as it was when it was listed, by its size in bytes and the time of its modification.

    `tag` is what an object store gives to each version of an object.
    """

    path: str
    size: int
    mtime_ns: int
    tag: str = ""

    @staticmethod
    def of(path: str, settings: StoreSettings = DEFAULT_SETTINGS) -> ListedFile:
        """Identify a file as it is now.

        Args:
            path: The file, a path or a URI.
            settings: How stores are reached.

        Returns:
            Its path, size and time of modification.

        Raises:
            SourceError: It cannot be read.
        """
        file = InputFile(place_of(path), settings)
        try:
            return _identified(file)
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}") from error

    def raise_if_changed(self, settings: StoreSettings = DEFAULT_SETTINGS) -> None:
        """Check that the file is the one that was listed: a position has no meaning in other bytes.

        Args:
            settings: How stores are reached.

        Raises:
            SourceChanged: Its size, time of modification or tag differs.
            SourceError: It cannot be read.
        """
        try:
            found = _identified(InputFile(self.path, settings))
        except OSError as error:
            raise SourceError(
                f"{self.path} cannot be read: {error.strerror}. It was there when the job started or took its "
                "checkpoint; put it back, or start without the checkpoint."
            ) from error
        changes = []
        if found.size != self.size:
            changes.append(f"its size was {self.size} bytes and is {found.size}")
        if found.mtime_ns != self.mtime_ns:
            changes.append(f"its time of modification was {self.mtime_ns} ns and is {found.mtime_ns}")
        if found.tag != self.tag:
            changes.append(f"its tag was {self.tag} and is {found.tag}")
        if changes:
            raise SourceChanged(
                f"{self.path} has changed since the job started or took its checkpoint: {'; '.join(changes)}. "
                "Put the old file back, or start without the checkpoint."
            )


def _identified(file: InputFile) -> ListedFile:
    if file.is_local:
        stat = os.stat(file.path)
        return ListedFile(file.path, stat.st_size, stat.st_mtime_ns)
    found = file.stat()
    return ListedFile(file.path, found.size_bytes, round(found.modified_s * 1e3) * 1_000_000, found.tag)


def place_of(path: str | os.PathLike[str]) -> str:
    """Return the place that a path or URI names: an absolute path, or the URI of a store.

    Args:
        path: The path or URI.

    Returns:
        The place.

    Raises:
        ValueError: It is a URI of which nothing is known.
    """
    try:
        return location(os.fspath(path))
    except StoreError as error:
        raise ValueError(str(error)) from None


def files_of(path: str, settings: StoreSettings = DEFAULT_SETTINGS) -> Iterator[str]:
    """List the files that a place, a directory or a pattern means, in order.

    Args:
        path: The path or URI.
        settings: How stores are reached.

    Yields:
        The paths of the files.

    Raises:
        SourceError: There are none.
    """
    if not is_local(path):
        yield from stored_files(path, settings)
    elif os.path.isdir(path):
        files = _files_below(path)
        if not files:
            raise SourceError(NOTHING_IN.format(path))
        yield from files
    elif os.path.exists(path) or not glob.has_magic(path):
        if not os.path.exists(path):
            raise SourceError(NOTHING_AT.format(path))
        yield path
    else:
        found = glob.glob(_pattern(path), recursive=True)
        matches = sorted(match for match in found if not is_hidden(os.path.basename(match)))
        if not matches:
            raise SourceError(NOTHING_MATCHES.format(path))
        for match in matches:
            yield from _files_below(match) if os.path.isdir(match) else [match]


def _pattern(path: str) -> str:
    """Return the pattern that a path is. A directory's own name is no pattern, whatever characters it has."""
    above, name = os.path.split(path)
    if os.path.isdir(above):
        return os.path.join(glob.escape(above), name)
    return os.path.join(_pattern(above), name) if glob.has_magic(above) else path


def _files_below(directory: str) -> list[str]:
    found = []
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not is_hidden(name)]
        found += [os.path.join(parent, name) for name in names if not is_hidden(name)]
    return sorted(found)
