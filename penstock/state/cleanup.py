"""Removes expired entries that nobody reads, between two slices of rows.

The entries of a state are looked at in passes from the first to the last, some for each access to the state and a few
for each slice. So garbage is bounded by what a pass takes: with two entries per access and a new key with each, a state
has at most twice the entries that have not expired. A pass notes the oldest time that it leaves; before that entry can
have expired, the next pass does not begin.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from penstock.state.heap.handles import EntryTable
from penstock.state.heap.tables import ABSENT
from penstock.state.heap.ttl_handles import ExpiringHandle
from penstock.state.ttl import TimeToLive, WallClock, unexpired

_ENTRIES_PER_SLICE = 4


class Found(NamedTuple):
    """Reports the entries of one call of `look`: their number, the oldest time that is left (`least_ms` if none is
    older), and for each entry that has expired, in parts or as a whole, (key, key group, whether nothing is left).
    """

    entries: int
    oldest_ms: int
    expired: list[tuple[Any, int, bool]]


class Walk(Protocol):
    """Looks at a table's entries from the first to the last, over and over, while they change."""

    def look(self, entries_max: int, expired_ms: int, least_ms: int) -> Found:
        """Look at the next entries, at most `entries_max`. An entry that was last used at `expired_ms` or before has
        expired. If there are fewer than `entries_max`, the pass has ended, and the next call begins at the first entry
        again. `least_ms`: the oldest time to report.
        """


class Pace(NamedTuple):
    """Sets the number of entries that a cleanup looks at: `per_access`, `per_row` of a slice, and `at_once` at least,
    because less is not worth the effort. Between the beginnings of two passes lies `share_of_ttl` of the time to live
    at least.
    """

    per_access: int
    per_row: int = 0
    at_once: int = 1
    share_of_ttl: float = 0.0


class Cleanup:
    """Removes the expired entries of one state. `handle` counts the accesses."""

    def __init__(
        self, table: EntryTable, handle: ExpiringHandle, ttl: TimeToLive, walk: Walk, pace: Pace, wall_ms: WallClock
    ) -> None:
        self._table = table
        self._handle = handle
        self._ttl_ms = ttl.ttl_ms
        self._walk = walk
        self._pace = pace
        self._wall_ms = wall_ms
        self._due = 0
        self._began_ms: int | None = None
        """The time at which the present pass began; None: none is under way."""
        self._oldest_ms = 0
        """The oldest time that it leaves."""
        self._rests_until_ms: int | None = None

    def run(self, rows: int) -> None:
        """Look at as many entries as are due after a slice of `rows`. Nobody may use a value of the state meanwhile."""
        handle, pace = self._handle, self._pace
        accesses, handle.accesses = handle.accesses, 0
        self._due += accesses * pace.per_access + rows * pace.per_row + _ENTRIES_PER_SLICE
        if self._due < pace.at_once:
            return
        due, self._due = self._due, 0
        now_ms = self._wall_ms()
        if self._rests_until_ms is not None:
            if now_ms < self._rests_until_ms:
                return
            self._rests_until_ms = None
        if self._began_ms is None:
            self._began_ms = self._oldest_ms = now_ms
        expired_ms = now_ms - self._ttl_ms
        found = self._walk.look(due, expired_ms, self._oldest_ms)
        self._oldest_ms = found.oldest_ms
        self._remove(found.expired, expired_ms)
        if found.entries < due:
            rests_ms = int(self._ttl_ms * pace.share_of_ttl)
            self._rests_until_ms = max(self._oldest_ms + self._ttl_ms, self._began_ms + rests_ms)
            self._began_ms = None

    def _remove(self, expired: list[tuple[Any, int, bool]], expired_ms: int) -> None:
        table = self._table
        for key, key_group, is_gone in expired:
            is_shared = key_group in table.shared
            if is_gone:
                if is_shared:
                    table.note(key_group, key, ABSENT)
                del table.buckets[key_group][key]
                continue
            if is_shared:
                table.own(key_group, key)
            bucket = table.buckets[key_group]
            # What is left are the stream's own objects, not those of a snapshot.
            bucket[key] = unexpired(table.schema.kind, bucket[key], expired_ms)
