"""Makes directories on the local disk that belong to one process, where the options say."""

from __future__ import annotations

import random
import shutil
import tempfile
from typing import Mapping, Sequence

from penstock.common.configuration import Configuration
from penstock.common.options import CoreOptions
from penstock.storage.owned_directory import OwnedDirectory, delete_ownerless
from penstock.storage.store import StoreError

_PREFIX = "penstock-state-"


class LocalDirectory:
    """Makes a directory that nobody else uses, in one of `parents`, and holds a lock on it as long as the process
    lives. `use` says what it is for, in errors. Raises `StoreError` if none can be made.
    """

    def __init__(self, parents: Sequence[str], use: str = "state", options: str = CoreOptions.TMP_DIRS.key) -> None:
        parent = random.choice(parents)
        try:
            delete_abandoned(parent)
            owned = OwnedDirectory(parent, _PREFIX)
        except OSError as error:
            raise StoreError(
                f"no directory for {use} can be made in {parent}: {error}. Name another one: {options}"
            ) from error
        self._owned = owned
        self.path = owned.path
        self.delete = owned.delete
        """Call it to delete the directory with all that is in it. The end of the process calls it, too."""

    @property
    def free_bytes(self) -> int:
        """Return the free bytes on its disk."""
        return shutil.disk_usage(self.path.parent).free

    @property
    def room(self) -> str:
        """Return a text about its disk."""
        try:
            usage = shutil.disk_usage(self.path.parent)
        except OSError as error:
            return f"The disk of {self.path.parent} cannot be looked at ({error})"
        return f"The disk of {self.path.parent} has {_megabytes(usage.free)} free of {_megabytes(usage.total)}"


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1024 / 1024:.1f} MB"


def temporary_directories(configuration: Configuration, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories for a slot's temporary files. Spark deletes its own local directories when its application
    ends, however the slots have ended.
    """
    if named := configuration.get(CoreOptions.TMP_DIRS):
        return tuple(named)
    of_spark = tuple(d for d in environment.get("SPARK_LOCAL_DIRS", "").split(",") if d)
    return of_spark or (tempfile.gettempdir(),)


def delete_abandoned(parent: str) -> None:
    """Delete the directories in `parent` whose processes have ended without deleting them."""
    delete_ownerless(parent, _PREFIX)
