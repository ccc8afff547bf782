"""Remembers which keys were removed from a table, for incremental checkpoints."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

REMOVED_KEYS_MAX = 1_000_000
"""If more keys were removed since a checkpoint, the next one stores everything."""


class Removed(NamedTuple):
    """Holds key columns and key groups of keys that were removed in the time with this number."""

    number: int
    keys: list[pa.Array]
    key_groups: npt.NDArray[np.uint16]


class RemovedKeys:
    """Holds removed keys by the number of the time in which they were removed."""

    def __init__(self) -> None:
        self._parts: list[Removed] = []
        self._count = 0
        self._known_after = 0
        """Only what was removed in later times is known."""

    def add(self, now: int, keys: list[pa.Array], key_groups: npt.NDArray[np.uint16]) -> None:
        self._parts.append(Removed(now, keys, key_groups))
        self._count += len(key_groups)
        if self._count > REMOVED_KEYS_MAX:
            self._parts, self._count, self._known_after = [], 0, now

    def since(self, number: int) -> list[Removed] | None:
        """Return the removals after a time; None if they were dropped."""
        if number < self._known_after:
            return None
        return [part for part in self._parts if part.number > number]

    def forget(self, number: int) -> None:
        """Forget the removals up to this time: nobody will ask for it."""
        self._known_after = max(self._known_after, number)
        self._parts = [part for part in self._parts if part.number > number]
        self._count = sum(len(part.key_groups) for part in self._parts)
