"""Turns rows of a keyed state, as Arrow, back into what a savepoint stores of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.columns import ColumnType
from penstock.common.composite_types import RowType, TupleType
from penstock.common.type_texts import parse_type
from penstock.common.typeinfo import LAST_ACCESS_COLUMN, TypeInformation
from penstock.protocol.values.keys import hash_int64, hash_strings, key_group, key_groups, key_hash
from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import EncodedState, StateError
from penstock.state.codecs import encode_keys, stream_schema, write_stream
from penstock.state.overriding import NewerKeys
from penstock.state.reading.state_rows import COLUMNS_KIND, KEY, LAST_ACCESS, VALUE
from penstock.state.stored_keys import OF_WINDOW
from penstock.state.ttl import StampedType

_OFFSET_MAX = 2**31 - 1
"""The most bytes that an array of `string` or `binary` can have."""
ENTRIES_PER_RUN = 1 << 17
"""The most entries of one range, so that a restore reads in bounded pieces."""


class StateTable:
    """Encodes a table with the columns `key` and `value` as the entries of a keyed state; others are not looked at, but
    for `last_access_ms` of state with a time to live: without it the restore is their last use. Raises `StateError` for
    a table that does not fit.
    """

    def __init__(self, described: str, schema: StateSchema, max_parallelism: int, table: pa.Table) -> None:
        type = None if schema.kind == COLUMNS_KIND or schema.name.startswith(OF_WINDOW) else parse_type(schema.codec)
        if type is None:
            raise StateError(
                f"{described} is {schema.kind} state of {schema.codec}, which is not replaced by a table: make it anew "
                "(remove_operator, with_operator)"
            )
        missing = [name for name in (KEY, VALUE) if name not in table.column_names]
        if missing:
            raise StateError(
                f"{described}: the table has no column '{missing[0]}', but {', '.join(table.column_names)}"
            )
        self._described = described
        self._schema = schema
        self._type = type
        self._max_parallelism = max_parallelism
        self._keys = _plain(table.column(KEY))
        values = _plain(table.column(VALUE))
        self._values = values if _is_long(values) else self._converted(values)
        self._stored_type: TypeInformation = type
        self._stamps: pa.Array | None = None
        if schema.expires and LAST_ACCESS in table.column_names:
            self._stored_type = StampedType(type, schema.kind)
            self._stamps = self._checked_stamps(_plain(table.column(LAST_ACCESS)))
        if self._keys.null_count or self._values.null_count:
            raise StateError(f"{described}: the table has nulls, but each key has a value: leave such rows out")
        self._groups = _key_groups(self._keys, max_parallelism)

    def _converted(self, values: pa.Array) -> pa.Array:
        wanted = self._type.arrow_type
        if values.type == wanted:
            return values
        try:
            return values.cast(wanted)
        except (pa.ArrowException, NotImplementedError) as error:
            hint = " (read it with pickles='bytes')" if "PICKLED" in self._schema.codec else ""
            raise StateError(
                f"{self._described} holds {self._type}, but the table's column '{VALUE}' is {values.type}{hint}: "
                f"{error}"
            ) from None

    def _checked_stamps(self, stamps: pa.Array) -> pa.Array:
        wanted = self._stored_type.schema.field(LAST_ACCESS_COLUMN).type
        per_item = pa.types.is_list(wanted)
        try:
            stamps = stamps.cast(wanted)
            fits = not stamps.null_count
            if fits and per_item:
                fits = np.array_equal(np.diff(stamps.offsets), np.diff(self._values.offsets))
        except (pa.ArrowException, NotImplementedError):
            fits = False
        if not fits:
            each = "a list of times, one for each item of the value" if per_item else "a time"
            raise StateError(
                f"{self._described}: the table's column '{LAST_ACCESS}' is {stamps.type}, but each row needs {each} "
                "in ms; without the column, what is restored counts as used at the restore"
            )
        return stamps

    def encoded(self, key_groups: range) -> Iterator[EncodedState]:
        """Yield the entries of these key groups."""
        rows = np.flatnonzero((self._groups >= key_groups.start) & (self._groups < key_groups.stop))
        rows = rows[np.argsort(self._groups[rows], kind="stable")]
        schema = stream_schema(self._schema, self._stored_type)
        newer = NewerKeys()
        for first in range(0, len(rows), ENTRIES_PER_RUN):
            taken = pa.array(rows[first : first + ENTRIES_PER_RUN])
            keys, values = _encoded_keys(self._keys.take(taken)), self._converted(self._values.take(taken))
            groups = pa.array(self._groups[taken.to_numpy()], pa.uint16())
            stamps = [] if self._stamps is None else [self._stamps.take(taken)]
            batch = pa.RecordBatch.from_arrays([*_columns(values, self._type), *stamps, keys, groups], schema=schema)
            self._check_once(batch, newer)
            yield EncodedState(
                self._schema.operator, self._schema.name, batch.num_rows, [write_stream(schema, [batch])]
            )

    def _check_once(self, batch: pa.RecordBatch, before: NewerKeys) -> None:
        keys = batch.column(batch.num_columns - 2)
        if len(pc.unique(keys)) < len(keys) or before.without(batch).num_rows < batch.num_rows:
            raise StateError(f"{self._described}: the table has a key more than once; each key has one value")
        before.add(batch.select(batch.schema.names[-2:]))


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. Strings that are too long together for their type get the large one."""
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(column.type)
    if large is not None and column.nbytes > _OFFSET_MAX:
        column = column.cast(large)
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _is_long(values: pa.Array) -> bool:
    """Return whether strings are too long together for their type, so that they are converted run by run."""
    return values.type in (pa.large_string(), pa.large_binary()) and values.nbytes > _OFFSET_MAX


def _columns(values: pa.Array, type: ColumnType) -> list[pa.Array]:
    return values.flatten() if isinstance(type, (TupleType, RowType)) else [values]


def _key_groups(keys: pa.Array, max_parallelism: int) -> npt.NDArray[np.uint16]:
    kind = keys.type
    if pa.types.is_signed_integer(kind):
        return key_groups(hash_int64(keys.cast(pa.int64()).to_numpy(zero_copy_only=False)), max_parallelism)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        distinct = pc.dictionary_encode(keys)
        hashes = hash_strings(distinct.dictionary.to_pylist())
        return key_groups(hashes[distinct.indices.to_numpy()], max_parallelism) if len(keys) else _none()
    return np.array([key_group(key_hash(key), max_parallelism) for key in _objects(keys)], np.uint16)


def _none() -> npt.NDArray[np.uint16]:
    return np.empty(0, np.uint16)


def _encoded_keys(keys: pa.Array) -> pa.Array:
    return encode_keys(_objects(keys))


def _objects(keys: pa.Array) -> list[object]:
    """Return keys as the job has them: structs are tuples."""
    if pa.types.is_struct(keys.type):
        return list(zip(*(_objects(column) for column in keys.flatten())))
    found: list[object] = keys.to_pylist()
    return found
