"""Keeps the entries that have changed since a checkpoint as they were at a barrier, while the stream changes them.

A snapshot of changes holds no dict of the table. The writer reads an entry from the table, unless the stream was there
first: before the stream touches one of these entries for the first time after the barrier, it keeps the entry here, and
continues with a copy of a value that the user could change. So what a snapshot costs depends on what has changed, not
on the size of the state: to copy each dict of five million entries takes a quarter of a second, again and again. No
lock is needed: the stream keeps an entry before it changes it, and the writer looks for what was kept after it has read
the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from penstock.state.changes import KeysSince

Bucket = dict[Any, Any]

_READ_AT_ONCE = 2048
"""The number of entries that are read without giving the interpreter to the stream: to hand it to and fro costs more
than to wait a millisecond for it."""


class _Absent:
    """Takes the place of an entry that does not exist."""


ABSENT = _Absent()


class KeptEntries:
    """Holds the entries that have changed as they were at a barrier. `buckets`: the table's, by key group, which
    continue to change. `since`: says which keys have changed, each with its key group. Any thread may call
    `release_all`.
    """

    def __init__(self, buckets: Sequence[Bucket], since: KeysSince) -> None:
        self.since = since
        self.released = False
        self.kept: dict[Any, Any] = {}
        """The entries that the stream has touched since, as they were."""
        self._buckets = buckets
        self._newest: Mapping[Any, int] = since.epochs[-1]

    def release_all(self) -> None:
        """Let the stream change entries without keeping them, and free what was kept."""
        self.released = True
        self.kept = {}

    # ---- the stream's thread -------------------------------------------------------------------------------------

    def waits_for(self, key: Any) -> bool:
        """Return whether the stream has to keep an entry before it is touched."""
        if self.released or key in self.kept:
            return False
        return key in self._newest or any(key in epoch for epoch in self.since.epochs)

    def keep(self, key: Any, value: Any) -> None:
        """Keep an entry; `ABSENT`: there is none. The value must not change any more."""
        self.kept[key] = value

    # ---- the writer's thread -------------------------------------------------------------------------------------

    def read(self, keys: Sequence[Any], key_groups: Sequence[int]) -> list[Any]:
        """Return the values at the barrier, `ABSENT` where there was no entry. Until the entries are released, the
        stream changes none of these objects.
        """
        values: list[Any] = []
        for start in range(0, len(keys), _READ_AT_ONCE):
            part = slice(start, start + _READ_AT_ONCE)
            buckets = map(self._buckets.__getitem__, key_groups[part])
            found = list(map(dict.get, buckets, keys[part], repeat(ABSENT)))
            values += map(self.kept.get, keys[part], found)
        return values
