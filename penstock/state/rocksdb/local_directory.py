"""Makes the directory of one RocksDB on the local disk, and deletes those of processes that are gone."""

from __future__ import annotations

import random
from typing import Sequence

from penstock.state.backend import StateError
from penstock.storage.owned_directory import OwnedDirectory, delete_ownerless

_PREFIX = "penstock-state-"


class LocalDirectory:
    """Makes a directory that nobody else uses, in one of `parents`, and holds a lock on it as long as the process
    lives. Raises `StateError` if none can be made.
    """

    def __init__(self, parents: Sequence[str]) -> None:
        parent = random.choice(parents)
        try:
            delete_abandoned(parent)
            owned = OwnedDirectory(parent, _PREFIX)
        except OSError as error:
            raise StateError(
                f"no directory for RocksDB can be made in {parent}: {error}. Name another one: "
                "state.backend.rocksdb.localdir or io.tmp.dirs"
            ) from error
        self._owned = owned
        self.path = owned.path
        self.delete = owned.delete
        """Call it to delete the directory with all that is in it. The end of the process calls it, too."""


def delete_abandoned(parent: str) -> None:
    """Delete the directories in `parent` whose processes have ended without deleting them."""
    delete_ownerless(parent, _PREFIX)
