"""Handles keys that are columns of the rows: their hashes by whole columns, and the keys that row functions see.

A row's key group is the one that the same key by lambda has: of one column its value, of several the tuple of them.
"""

from __future__ import annotations

import math
from typing import Any, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.common.row_types import scalar_types as scalar
from penstock.common.row_types.columns import ColumnType
from penstock.common.typeinfo import TypeInformation
from penstock.protocol.values.keys import Hashes, hash_int64, key_hash
from penstock.runtime.output.string_hashes import hashes_of

_REMEMBERED_MAX = 65_536


class NullKey(ValueError):
    """Signals a null in a key column. `row` is its place in the batch."""

    def __init__(self, column: str, row: int) -> None:
        super().__init__(column)
        self.column = column
        self.row = row


class KeyColumns:
    """Names the key's columns among those of a row type."""

    def __init__(self, type_info: TypeInformation, columns: Sequence[str]) -> None:
        schema = type_info.schema
        self._names = list(columns)
        self._types = [_column_type(type_info, schema.get_field_index(name)) for name in columns]
        self._indices = [schema.get_field_index(name) for name in columns]
        self._hash_of: list[dict[Any, int]] = [{} for _ in columns]

    def hashes(self, batch: pa.RecordBatch) -> Hashes:
        """Return the hash of each row's key. Raises `NullKey`."""
        hashes = [self._column_hashes(at, batch.column(index)) for at, index in enumerate(self._indices)]
        if len(hashes) == 1:
            return hashes[0]
        folded = np.zeros(batch.num_rows, np.uint64)
        for of_column in hashes:
            folded = hash_int64((folded ^ of_column).view(np.int64))
        return folded

    def _column_hashes(self, at: int, array: pa.Array) -> Hashes:
        if array.null_count:
            missing = array.is_null().to_numpy(zero_copy_only=False)
            raise NullKey(self._names[at], int(missing.argmax()))
        if kinds.is_integer(array.type):
            return hash_int64(array.to_numpy())
        if kinds.is_boolean(array.type):
            return hash_int64(array.cast(pa.int8()).to_numpy())
        if self._types[at] in (scalar.STRING, scalar.BYTES):
            return hashes_of(array)
        distinct = array.dictionary_encode()
        remembered = self._hash_of[at]
        if len(remembered) > _REMEMBERED_MAX:
            remembered.clear()
        found = np.empty(len(distinct.dictionary), np.uint64)
        for place, value in enumerate(self._types[at].decode_column(distinct.dictionary)):
            hashed = remembered.get(value)
            if hashed is None:
                hashed = remembered[value] = key_hash(value)
            found[place] = hashed
        hashes: Hashes = found[distinct.indices.to_numpy()]
        return hashes

    def keys(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the keys as row functions see them, hashable; all NaNs are one key."""
        columns = []
        for type_info, index in zip(self._types, self._indices):
            values = type_info.decode_column(batch.column(index))
            if kinds.is_floating(type_info.arrow_type):
                values = [math.nan if v != v else v for v in values]
            columns.append(values)
        return columns[0] if len(columns) == 1 else list(zip(*columns))


def _column_type(type_info: TypeInformation, index: int) -> ColumnType:
    """Return the type of one column: a field's of a tuple or row, a scalar's own."""
    fields: tuple[ColumnType, ...] | None = getattr(type_info, "field_types", None)
    found = fields[index] if fields is not None else type_info
    assert isinstance(found, ColumnType)
    return found
