"""Reads the entries of a table in RocksDB for their times: those that are to be removed, or left out of a snapshot."""

from __future__ import annotations

from itertools import islice
from typing import Any, Callable

from penstock.common.row_types.scalar_types import pickled
from penstock.protocol.values.keys import KeyDecoder
from penstock.state.cleanup import Found
from penstock.state.rocksdb.database import PREFIX_BYTES, Entry
from penstock.state.rocksdb.disk_table import KEY_AT, DiskTable
from penstock.state.ttl import oldest_ms, unexpired
from penstock.state.unpickling import unpickled


class DiskWalk:
    """Reads a table's entries while they change. Each call begins a scan where the last one has ended, because an open
    scan would keep RocksDB from deleting files. `flush`: writes what is only in memory yet, before a pass.
    """

    def __init__(self, table: DiskTable, flush: Callable[[], None]) -> None:
        self._table = table
        self._flush = flush
        self._decoder = KeyDecoder()
        self._behind = b""

    def look(self, entries_max: int, expired_ms: int, least_ms: int) -> Found:
        table, kind = self._table, self._table.schema.kind
        expired: list[tuple[Any, int, bool]] = []
        if not self._behind:
            self._flush()
        entries = list(islice(table.scan(self._behind), entries_max))
        self._behind = entries[-1][0] if len(entries) == entries_max else b""
        for at, data in entries:
            kept = unpickled(data, table.described)
            left = unexpired(kind, kept, expired_ms)
            if left is not kept:
                # It has expired in the database. In memory it may have been used later, or be gone already.
                key = self._decoder.decode([at[KEY_AT:]])[0]
                kept = table.in_memory(key, kept)
                left = unexpired(kind, kept, expired_ms)
                if left is not kept:
                    expired.append((key, int.from_bytes(at[PREFIX_BYTES:KEY_AT], "big"), left is None))
            if left is not None:
                least_ms = min(least_ms, oldest_ms(kind, left))
        return Found(len(entries), least_ms, expired)


def without_expired(table: DiskTable, expired_ms: int, entries: list[Entry]) -> list[Entry]:
    """Return entries of the database without what was last used at `expired_ms` or before."""
    left: list[Entry] = []
    for key, data in entries:
        kept = unpickled(data, table.described)
        found = unexpired(table.schema.kind, kept, expired_ms)
        if found is not None:
            left.append((key, data if found is kept else pickled(found)))
    return left
