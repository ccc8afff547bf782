"""Encodes the entries of a state of rows that have changed since a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from penstock.state import state_sizes
from penstock.state.backend import EncodedState
from penstock.state.changes import KeysSince
from penstock.state.rocksdb.database import PREFIX_BYTES, Entry, StoredTable, View
from penstock.state.rocksdb.snapshot import encoded_run, encoded_runs

Noted = bytes | bool
"""The note on a key that has changed: its value; True if it has one that is too large to keep, and False if it has
none."""
NOTED_BYTES_MAX = 128
"""The largest value that is kept with its key until the next checkpoint. To read it again would take longer than all
else that the checkpoint does for it."""
_GROUP_END = PREFIX_BYTES + 2
"""The position where the key group of a key ends."""


class KeyTable(StoredTable, Protocol):
    """Encodes the keys of one state, too."""

    def encoded_keys(self, keys: Sequence[bytes]) -> pa.RecordBatch:
        """Encode keys that have no entry any more."""


class ChangedKeys:
    """Holds the keys of a table that have changed, with what was noted of them."""

    def __init__(self, table: KeyTable, since: KeysSince) -> None:
        self._table = table
        self._since = since

    def runs(self, view: View, is_over: Callable[[], bool]) -> Iterator[EncodedState]:
        table, changed = self._table, self._since.changed()
        keys = list(_in_order(changed))
        if deleted := [key for key in keys if changed[key] is False]:
            yield encoded_run(table.schema, [table.encoded_keys(deleted)], deleted[0], deleted[-1])
        yield from encoded_runs(table, _present(view, keys, changed), state_sizes.BYTES_PER_RANGE, is_over)

    def release(self) -> None:
        """Do nothing: what was noted is there for others, too."""


def _in_order(changed: Mapping[bytes, Noted]) -> Iterator[bytes]:
    """Yield the keys in order, one key group after the other. To sort all at once would hold the interpreter's lock,
    and so the stream, for a tenth of a second and more.
    """
    by_group: dict[bytes, list[bytes]] = {}
    for key in changed:
        by_group.setdefault(key[:_GROUP_END], []).append(key)
    for group in sorted(by_group):
        yield from sorted(by_group[group])


def _present(view: View, keys: Iterable[bytes], changed: Mapping[bytes, Noted]) -> Iterator[Entry]:
    """Yield the keys that have a value, with it."""
    for key in keys:
        noted = changed[key]
        if noted is True:
            yield key, view.value(key)
        elif noted is not False:
            yield key, noted
