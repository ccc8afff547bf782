"""Keeps the entries of one state in RocksDB, and those that were used lately in memory, too.

An entry's key in the database is the number of its state, its key group, and its key in the canonical encoding, so
that a state is one sorted stretch of it and a key group one stretch of that. Its value is a pickle.

Handles see buckets, as in the hash-map backend, and work on objects in memory: an entry is read when it is first asked
for, or before its slice, and what was touched is written in batches, between two slices. A read of a value that the
user could change counts as a touch, so a program means the same with either backend; a touched entry whose pickle is
as before is not written. What was not used for long is dropped from memory.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.row_types.scalar_types import PickledType, pickled
from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN
from penstock.protocol.values.key_encoding import INT64_MAX, INT64_MIN, encode
from penstock.protocol.values.keys import KeyDecoder
from penstock.protocol.values.metadata import StateSchema
from penstock.state import state_sizes
from penstock.state.backend import EncodedState, StateError
from penstock.state.changes import KeyChanges, KeysSince, Since
from penstock.state.codecs import StateCodec, deleted_schema, described_failure, stream_schema
from penstock.state.rocksdb.database import PREFIX_BYTES, Batch, Database, Entry, View
from penstock.state.rocksdb.lazy_state import LoadingDatabase
from penstock.state.rocksdb.snapshot import encoded_run, encoded_runs
from penstock.state.unpickling import decoded, unpickled
from penstock.storage.store import StoreError

KEY_GROUP_BYTES = 2
KEY_AT = PREFIX_BYTES + KEY_GROUP_BYTES
"""The canonical key begins here."""

Noted = bytes | bool
"""The note on a key that has changed: its value; True if it has one that is too large to keep, and False if it has
none."""
NOTED_BYTES_MAX = 128
"""The largest value that is kept with its key until the next checkpoint. To read it again would take longer than all
else that the checkpoint does for it."""
_OBJECT_BYTES = 200
"""About how much an entry costs in memory besides its value; a value costs about twice as much as its pickle."""
_MISSING = object()
_INT64 = struct.Struct("<cq")
_LENGTH = struct.Struct("<cI")


class DiskBucket:
    """Accesses the entries of one key group, like a dict. None as a value means that there is no entry."""

    __slots__ = ("_key_group", "_table")

    def __init__(self, table: DiskTable, key_group: int) -> None:
        self._table = table
        self._key_group = key_group

    def get(self, key: Any) -> Any:
        try:
            return self._table.recent[key]
        except KeyError:
            return self._table.load(self._key_group, key)

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def __setitem__(self, key: Any, value: Any) -> None:
        self._table.recent[key] = value
        self._table.touched[key] = self._key_group

    def __delitem__(self, key: Any) -> None:
        self[key] = None

    def pop(self, key: Any) -> Any:
        value = self[key]
        self[key] = None
        return value

    def setdefault(self, key: Any, default: Any) -> Any:
        value = self.get(key)
        if value is None:
            self[key] = value = default
        return value


class DiskTable:
    """Holds the entries of one state. `prefix`: the prefix of its keys in the database. `described`: for messages.
    `changes`: notes keys; None: checkpoints are not incremental.

    `recent` has the objects in use: of entries read or written lately, None where there is no entry; `touched` the key
    groups of those that may differ from the database.
    """

    def __init__(
        self,
        schema: StateSchema,
        prefix: bytes,
        key_groups: int,
        codec: StateCodec,
        database: Database,
        described: str,
        changes: KeyChanges[dict[Any, Any]] | None,
    ) -> None:
        self.schema = schema
        self.prefix = prefix
        self.codec = codec
        self.described = described
        self._changes = changes
        self._stream_schema = stream_schema(schema, codec.stored_type)
        self.buckets: Any = [DiskBucket(self, key_group) for key_group in range(key_groups)]
        self.shared = range(key_groups)
        self._starts = [prefix + key_group.to_bytes(KEY_GROUP_BYTES, "big") for key_group in range(key_groups)]
        self.holds_pickles = isinstance(codec.stored_type, PickledType)
        """True if a checkpoint's column has the pickles that the database has."""
        self.recent: dict[Any, Any] = {}
        self.touched: dict[Any, int] = {}
        self._older: dict[Any, Any] = {}
        self._written: dict[Any, bytes | None] = {}
        """The pickle that the database has of each entry in memory, by key; None if it has none."""
        self._older_written: dict[Any, bytes | None] = {}
        self._database: Database | LoadingDatabase = database
        database.begin(prefix)
        self._values = self._value_bytes = 1
        self.loads = 0
        """The number of entries that were read one by one."""

    def read_from(self, database: Database | LoadingDatabase) -> None:
        self._database = database

    # ---- what handles do ----------------------------------------------------------------------------------------

    def own(self, key_group: int, key: Any) -> None:
        """Note that an entry is about to be changed, or returned to a user who can change it."""
        self.touched[key] = key_group

    def note(self, key_group: int, key: Any, value: Any) -> None:
        """Note that an entry is about to get another object, which `flush` finds among the recent ones."""
        self.touched[key] = key_group

    def scan(self, behind: bytes = b"") -> Iterator[Entry]:
        """Return the entries in the database, sorted, only those behind the key `behind`."""
        return self._database.scan(self.prefix, behind)

    def load(self, key_group: int, key: Any) -> Any:
        """Return an entry that is not among the recent ones; None if there is none."""
        value = self._older.pop(key, _MISSING)
        if value is not _MISSING:
            if key in self._older_written:
                self._written[key] = self._older_written.pop(key)
            self.recent[key] = value
            return value
        self.loads += 1
        try:
            data = self._database.get(self.key_of(key_group, key))
        except (StateError, StoreError):
            raise  # of what is restored lazily
        except Exception as error:
            raise self._database.failed("cannot be read", error) from error
        return self._take(key, data)

    # ---- what the backend does ----------------------------------------------------------------------------------

    def key_of(self, key_group: int, key: Any) -> bytes:
        """Return an entry's key in the database."""
        start = self._starts[key_group]
        kind = type(key)
        if kind is int and INT64_MIN <= key <= INT64_MAX:  # as `encode` does, but in less time
            return start + _INT64.pack(b"i", key)
        if kind is str:
            text: bytes = key.encode("utf-8", "surrogatepass")
            return start + _LENGTH.pack(b"s", len(text)) + text
        return start + encode(key)

    def read_ahead(self, keys: Iterable[Any], key_groups: Sequence[int]) -> None:
        """Read the entries of keys that are not in memory, in one call."""
        recent, older = self.recent, self._older
        missing = {k: g for k, g in zip(keys, key_groups) if k not in recent and k not in older}
        if not missing:
            return
        wanted = [self.key_of(key_group, key) for key, key_group in missing.items()]
        for key, data in zip(missing, self._database.read(wanted)):
            self._take(key, data)

    def in_memory(self, key: Any, stored: Any) -> Any:
        """Return an entry as it is in memory, where None means that it is gone; `stored` if it is not there."""
        value = self.recent.get(key, _MISSING)
        return self._older.get(key, stored) if value is _MISSING else value

    def _take(self, key: Any, data: bytes | None) -> Any:
        if data is None:
            self._written[key] = None
            self.recent[key] = None
            return None
        self._values += 1
        self._value_bytes += len(data)
        value = self.recent[key] = unpickled(data, self.described, key)
        if self.codec.changeable:
            self._written[key] = data
        return value

    def flush(self, batch: Batch) -> None:
        """Put the touched entries into a batch, and note their keys. Raises `StateError` if pickling fails."""
        changes = None if self._changes is None else self._changes.keys_now((self.schema.operator, self.schema.name))
        recent, written, changeable = self.recent, self._written, self.codec.changeable
        keys, values, deleted = batch
        key_of, value_bytes, values_before = self.key_of, 0, len(values)
        for key, key_group in self.touched.items():
            value = recent.get(key, _MISSING)
            if value is _MISSING:
                continue  # touched, but neither read nor written
            before = written.get(key, _MISSING)
            if value is None:
                if before is None:
                    continue
                in_database = key_of(key_group, key)
                noted: Noted = False
                deleted.append(in_database)
                written[key] = None
            else:
                data = self._pickled(key, value)
                if data == before:
                    continue
                in_database = key_of(key_group, key)
                noted = data if len(data) <= NOTED_BYTES_MAX else True
                keys.append(in_database)
                values.append(data)
                value_bytes += len(data)
                if changeable:
                    written[key] = data
                elif before is not _MISSING:
                    del written[key]
            if changes is not None:
                changes[in_database] = noted
        self.touched.clear()
        self._values += len(values) - values_before
        self._value_bytes += value_bytes

    def _pickled(self, key: Any, value: Any) -> bytes:
        try:
            return pickled(value)
        except Exception as error:
            raise StateError(
                f"{self.described}: the value of key {key!r:.80} cannot be pickled, so it cannot be kept in RocksDB: "
                f"{error}"
            ) from error

    # ---- what a snapshot does -----------------------------------------------------------------------------------

    def encoded(self, entries: Sequence[Entry]) -> pa.RecordBatch:
        """Encode entries of the database. Raises `StateError` for a value that cannot be encoded."""
        keys = [key for key, _ in entries]
        data = [value for _, value in entries]
        try:
            if self.holds_pickles:
                columns = [pa.array(data, pa.binary())]
            else:
                columns = self.codec.stored_type.encode(list(map(pickle.loads, data)))
        except Exception as error:  # catches whatever a user's object raises
            of_entries = KeyDecoder().decode([key[KEY_AT:] for key in keys])
            raise described_failure(error, self.described, of_entries) from error
        return pa.RecordBatch.from_arrays([*columns, *_key_columns(keys)], schema=self._stream_schema)

    def changed_since(self, since: Since) -> ChangedKeys | None:
        """Return the changed keys; None if they were dropped. All of it is in the database."""
        assert self._changes is not None
        keys = self._changes.keys_since((self.schema.operator, self.schema.name), since)
        return None if keys is None else ChangedKeys(self, keys)

    def encoded_keys(self, keys: Sequence[bytes]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(_key_columns(keys), schema=deleted_schema(self.schema))

    # ---- memory -------------------------------------------------------------------------------------------------

    @property
    def value_bytes(self) -> float:
        """Return the mean size of a pickled value, in bytes."""
        return self._value_bytes / self._values

    @property
    def recent_bytes(self) -> float:
        """Return the estimated memory of the recent entries, in bytes."""
        return len(self.recent) * (2 * self.value_bytes + _OBJECT_BYTES)

    def forget_older(self) -> None:
        """Drop the entries that were not used since the last call, or the last but one. Nothing may be touched."""
        self._older, self.recent = self.recent, {}
        self._older_written, self._written = self._written, {}


class ChangedKeys:
    """Holds the keys of a table that have changed, with what was noted of them."""

    def __init__(self, table: DiskTable, since: KeysSince) -> None:
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
        by_group.setdefault(key[:KEY_AT], []).append(key)
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


def _key_columns(keys: Sequence[bytes]) -> list[pa.Array]:
    """Return the columns of canonical keys and key groups of keys in the database's form."""
    starts = np.frombuffer(b"".join([key[PREFIX_BYTES:KEY_AT] for key in keys]), dtype=">u2")
    groups = pa.array(starts.astype("<u2"), pa.uint16())
    return [pa.array([key[KEY_AT:] for key in keys], pa.binary()), groups]


def stored_keys(prefix: bytes, entries: pa.RecordBatch) -> list[bytes]:
    """Return the keys of restored entries in the database's form. `prefix`: the prefix of their state."""
    starts = np.empty(entries.num_rows, np.dtype([("state", f"V{PREFIX_BYTES}"), ("key_group", ">u2")]))
    starts["state"] = np.void(prefix)
    starts["key_group"] = entries.column(KEY_GROUP_COLUMN).to_numpy()
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(KEY_AT), len(starts), [None, pa.py_buffer(starts)])
    keys: list[bytes] = pc.binary_join_element_wise(
        fixed.cast(pa.binary()), entries.column(KEY_COLUMN), pa.scalar(b"", pa.binary())
    ).to_pylist()
    return keys


def pickles_of(table: DiskTable, entries: pa.RecordBatch) -> list[bytes]:
    """Return the values of restored entries as the database has them."""
    if not table.holds_pickles:
        return list(map(pickled, decoded(table.codec.stored_type, entries, table.described)))
    pickles: list[bytes] = entries.column(0).to_pylist()
    if pickles:
        # One object per batch is read, so that a class that is missing is found before a row is processed.
        unpickled(pickles[0], table.described)
    return pickles
