"""Turns rows of a keyed state, as Arrow, back into what a savepoint stores of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.program.failures import summary
from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import RowType, TupleType
from penstock.common.row_types.type_texts import parse_type
from penstock.common.typeinfo import LAST_ACCESS_COLUMN, TypeInformation
from penstock.protocol.values.keys import hash_int64, hash_strings, key_group, key_groups, key_hash
from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import EncodedState, StateError
from penstock.state.codecs import encode_keys, stream_schema, write_stream
from penstock.state.overriding import NewerKeys
from penstock.state.reading.key_forms import (
    UNREADABLE_KEYS,
    ItemsForm,
    KeyForm,
    ScalarForm,
    TupleForm,
    UnfitKeys,
    fitted,
    plain_keys,
)
from penstock.state.reading.key_reader import is_plain
from penstock.state.reading.state_rows import COLUMNS_KIND, KEY, LAST_ACCESS, VALUE
from penstock.state.stored_keys import OF_WINDOW
from penstock.state.ttl import StampedType

_OFFSET_MAX = 2**31 - 1
"""The most bytes that an array of `string` or `binary` can have."""
ENTRIES_PER_RUN = 1 << 17
"""The most entries of one range, so that a restore reads in bounded pieces."""


class StateTable:
    """Encodes a table with the columns `key` and `value` as the entries of a keyed state; others are not looked at, but
    for `last_access_ms` of state with a time to live: without it, or where it is null, the restore is their last use.
    `keys`: how the stored keys are shown, so that a text becomes the UUID or the number again that it represents; with
    `keys_declared` the column has to fit that. Raises `StateError` for a table that does not fit.
    """

    def __init__(
        self,
        described: str,
        schema: StateSchema,
        max_parallelism: int,
        table: pa.Table,
        keys: KeyForm,
        keys_declared: bool = False,
    ) -> None:
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
        self.schema = schema
        self._type = type
        self._max_parallelism = max_parallelism
        self._keys = _plain(table.column(KEY))
        self._form = self._fitting(keys, keys_declared)
        values = _plain(table.column(VALUE))
        self._values = values if _is_long(values) else self._converted(values)
        self._stored_type: TypeInformation = type
        self._stamps: pa.Array | None = None
        if schema.expires and LAST_ACCESS in table.column_names:
            self._stored_type = StampedType(type, schema.kind)
            self._stamps = self._checked_stamps(_plain(table.column(LAST_ACCESS)))
        if self._keys.null_count or self._values.null_count:
            raise StateError(f"{described}: the table has nulls, but each key has a value: leave such rows out")
        self._groups = self._key_groups()

    def _fitting(self, keys: KeyForm, keys_declared: bool) -> KeyForm | None:
        """Return the form of the keys; None if they are of another type, where nobody has declared one."""
        is_scalar = not isinstance(keys, TupleForm | ItemsForm)
        try:
            if is_scalar and not keys_declared:
                fitted(self._keys.slice(0, 0), keys.arrow_type)
        except UnfitKeys:
            return None
        try:
            for first in range(0, len(self._keys), ENTRIES_PER_RUN):
                keys.keys(self._keys.slice(first, ENTRIES_PER_RUN))
        except UNREADABLE_KEYS as error:
            shown = f"{keys.arrow_type}, {keys.name}" if isinstance(keys, ScalarForm) else str(keys.arrow_type)
            raise StateError(
                f"{self._described}: the column '{KEY}' is {self._keys.type}, but the keys of the state are {shown}: "
                f"{summary(error)}; give the type that the table was read with (key_type=...)"
            ) from None
        return keys

    def _converted(self, values: pa.Array) -> pa.Array:
        wanted = self._type.arrow_type
        if values.type == wanted:
            return values
        try:
            return values.cast(wanted)
        except (pa.ArrowException, NotImplementedError) as error:
            hint = " (read it with pickles='bytes')" if "PICKLED" in self.schema.codec else ""
            raise StateError(
                f"{self._described} holds {self._type}, but the table's column '{VALUE}' is {values.type}{hint}: "
                f"{error}"
            ) from None

    def _checked_stamps(self, stamps: pa.Array) -> pa.Array:
        wanted = self._stored_type.schema.field(LAST_ACCESS_COLUMN).type
        per_item = pa.types.is_list(wanted)
        try:
            stamps = stamps.cast(wanted)
            fits = not per_item or not stamps.values.null_count
            if fits and per_item:
                counts = [np.diff(column.offsets) for column in (stamps, self._values)]
                fits = bool(((counts[0] == counts[1]) | ~_valid(stamps)).all())
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
        newer = NewerKeys()
        if self._stamps is None:
            yield from self._runs(rows, self._type, newer)
            return
        # What some subtasks had not asked for since it got a time to live has no times, and runs of its own.
        stamped = _valid(self._stamps)[rows]
        yield from self._runs(rows[stamped], self._stored_type, newer)
        yield from self._runs(rows[~stamped], self._type, newer)

    def _runs(self, rows: npt.NDArray[np.int64], stored: TypeInformation, newer: NewerKeys) -> Iterator[EncodedState]:
        schema = stream_schema(self.schema, stored)
        for first in range(0, len(rows), ENTRIES_PER_RUN):
            taken = pa.array(rows[first : first + ENTRIES_PER_RUN])
            keys = encode_keys(self._objects(self._keys.take(taken)))
            values = self._converted(self._values.take(taken))
            groups = pa.array(self._groups[taken.to_numpy()], pa.uint16())
            has_times = isinstance(stored, StampedType)
            stamps = [] if self._stamps is None or not has_times else [self._stamps.take(taken)]
            batch = pa.RecordBatch.from_arrays([*_columns(values, self._type), *stamps, keys, groups], schema=schema)
            self._check_once(batch, newer)
            yield EncodedState(self.schema.operator, self.schema.name, batch.num_rows, [write_stream(schema, [batch])])

    def _objects(self, keys: pa.Array) -> list[Any]:
        """Return keys as the job has them."""
        return plain_keys(keys) if self._form is None else self._form.keys(keys)

    def _key_groups(self) -> npt.NDArray[np.uint16]:
        keys, kind = self._keys, self._keys.type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        is_itself = self._form is None or is_plain(self._form)
        if is_itself and pa.types.is_signed_integer(kind):
            return key_groups(hash_int64(keys.cast(pa.int64()).to_numpy(zero_copy_only=False)), self._max_parallelism)
        if is_itself and is_text and len(keys):
            distinct = pc.dictionary_encode(keys)
            hashes = hash_strings(distinct.dictionary.to_pylist())
            return key_groups(hashes[distinct.indices.to_numpy()], self._max_parallelism)
        found = np.empty(len(keys), np.uint16)
        for first in range(0, len(keys), ENTRIES_PER_RUN):
            some = self._objects(keys.slice(first, ENTRIES_PER_RUN))
            found[first : first + len(some)] = [key_group(key_hash(key), self._max_parallelism) for key in some]
        return found

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


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return found
