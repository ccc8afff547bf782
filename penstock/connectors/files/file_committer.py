"""Opens the directory of a file sink, and commits the files in it."""

from __future__ import annotations

from penstock.connectors.base import Committer
from penstock.connectors.files.file_parts import FileCommittable, naming
from penstock.connectors.files.local_parts import LocalParts
from penstock.connectors.files.part_directory import PartDirectory
from penstock.connectors.files.stored_parts import StoredParts
from penstock.storage.location import is_local
from penstock.storage.store_settings import DEFAULT_SETTINGS, StoreSettings


def directory_at(place: str, settings: StoreSettings = DEFAULT_SETTINGS, create: bool = False) -> PartDirectory:
    """Open the directory at a place.

    Args:
        place: A path or a URI.
        settings: How stores are reached.
        create: True: it may have to be made.

    Returns:
        The directory. Raises `StoreError` if it cannot be opened.
    """
    if is_local(place):
        return LocalParts(place)
    return StoredParts(place, settings, create)


class FileCommitter(Committer):
    """Makes pending files visible. Every call may be repeated, and may be cut off anywhere."""

    def __init__(self, settings: StoreSettings = DEFAULT_SETTINGS) -> None:
        self._settings = settings
        self._directories: dict[str, PartDirectory] = {}

    def commit(self, checkpoint_id: int, committables: list[bytes]) -> None:
        parts: dict[str, list[FileCommittable]] = {}
        superseded: dict[str, list[str]] = {}
        for part in map(FileCommittable.decode, committables):
            parts.setdefault(part.directory, []).append(part)
            for entry in part.superseded:
                place, _, name = entry.rpartition("/")
                superseded.setdefault(place or part.directory, []).append(name)
        for place, group in parts.items():
            with naming(place, "committed"):
                self._at(place).commit(group)
        for place, names in superseded.items():
            with naming(place, "committed"):
                self._at(place).remove(names)

    def _at(self, place: str) -> PartDirectory:
        if place not in self._directories:
            self._directories[place] = directory_at(place, self._settings)
        return self._directories[place]
