"""Looks for expired entries in a table in memory."""

from __future__ import annotations

from typing import Any

from penstock.state.cleanup import Found
from penstock.state.heap.tables import StateTable
from penstock.state.ttl import oldest_ms, unexpired


class TableWalk:
    """Looks at a table's entries while they change: the keys of one bucket at a time are copied."""

    def __init__(self, table: StateTable) -> None:
        self._table = table
        self._next_group = 0
        self._key_group = 0
        self._keys: list[Any] = []

    def look(self, entries_max: int, expired_ms: int, least_ms: int) -> Found:
        buckets, kind = self._table.buckets, self._table.schema.kind
        entries, expired = 0, list[tuple[Any, int, bool]]()
        while entries < entries_max:
            if not self._keys:
                if self._next_group == len(buckets):
                    self._next_group = 0
                    break
                self._key_group = self._next_group
                self._keys = list(buckets[self._key_group])
                self._next_group += 1
                continue
            at = max(0, len(self._keys) - (entries_max - entries))
            bucket = buckets[self._key_group]
            for key in self._keys[at:]:
                kept = bucket.get(key)
                left = unexpired(kind, kept, expired_ms)
                if left is not kept:
                    expired.append((key, self._key_group, left is None))
                if left is not None:
                    least_ms = min(least_ms, oldest_ms(kind, left))
            entries += len(self._keys) - at
            del self._keys[at:]
        return Found(entries, least_ms, expired)
