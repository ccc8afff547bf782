"""Holds the values that entries had at a barrier, if they have changed since a checkpoint.

Where values cannot be changed in place, the stream notes each one twice: in the table, and in a dict of what has
changed since the newest snapshot. The next snapshot takes that dict, so the writer looks nothing up in the table: with
millions of entries a look there waits for memory four times, and the stream waits for the interpreter meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, repeat
from typing import Any

VALUES_MAX = 250_000
"""If more entries of a state change, values are not noted any more until the next snapshot. The dict costs 100 bytes an
entry, and freeing it at once, if its snapshot is not wanted, some 10 ms."""


class ChangedEntries(dict[Any, int]):
    """Notes which entries have changed since the newest snapshot, each with its key group. `newest`: what each of them
    is now, `ABSENT` if there is none; None: values are not noted.
    """

    __slots__ = ("newest",)

    def __init__(self) -> None:
        super().__init__()
        self.newest: dict[Any, Any] | None = {}

    def clear(self) -> None:
        super().clear()
        if self.newest is not None:
            self.newest.clear()


class ChangedValues:
    """Holds the changed entries of a table at a barrier: the key group of each, and its value; `ABSENT`: it is gone.
    Both must have the same keys in the same order, and the stream must not use them any more. Any thread may call
    `release_all`.
    """

    def __init__(self, key_groups: Mapping[Any, int], values: dict[Any, Any]) -> None:
        assert len(key_groups) == len(values), "a key was noted without its value"
        self._key_groups = key_groups
        self._values = values

    def release_all(self) -> None:
        self._values = {}

    def take(self, entries_max: int) -> Iterator[tuple[list[Any], list[int], list[Any]]]:
        """Yield keys, key groups and values, and keep none. The last come first, because a dict gives them away at
        once, and the memory of some can be used again before the next ones are read.
        """
        values, reversed_groups = self._values, reversed(list(self._key_groups.values()))
        while values:
            entries = list(map(dict.popitem, repeat(values, min(len(values), entries_max))))
            keys, taken = map(list, zip(*entries, strict=True))
            yield keys, list(islice(reversed_groups, len(keys))), taken
