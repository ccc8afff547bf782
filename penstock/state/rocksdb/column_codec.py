"""Encodes keys and values of columnar state for RocksDB, whole arrays at once.

A key begins with the number of its state and its key group, as all keys do; in a state of windows the window's start is
between them, so that a window is one sorted stretch. Then come the other key columns: numbers as words of 64 bits, the
lengths of strings but the last, and the strings. A value is a record of fixed width.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.columnar.column_table import ValueColumn
from penstock.state.columnar.slot_arrays import Array, Slots
from penstock.state.columnar.table_keys import (
    BytesKeys,
    BytesRows,
    KeyRows,
    WordKeys,
    WordRows,
    common_length,
    key_column,
    strings_at,
    words_at,
)
from penstock.state.rocksdb.database import PREFIX_BYTES

_SIGN = np.uint64(1 << 63)
_KEY_GROUP_SHIFT = np.uint64(48)
_KEY_BITS_LEFT_OUT = np.uint64(16)
_BEHIND_KEY_GROUPS = b"\xff\xff"


class ColumnCodec:
    """Converts between columns and the keys and values of the database. `prefix`: the first bytes of all keys. If
    `windowed`, the last key column is a window's start.
    """

    def __init__(self, prefix: bytes, keys: pa.Schema, values: Sequence[ValueColumn], windowed: bool) -> None:
        self.prefix = prefix
        self._windowed = windowed
        self._keys = [key_column(f.type) for f in keys]
        named = self._keys[:-1] if windowed else self._keys
        self._words = [c for c, key in enumerate(named) if isinstance(key, WordKeys)]
        self._strings = [c for c, key in enumerate(named) if isinstance(key, BytesKeys)]
        fields: list[Any] = [("state", f"V{PREFIX_BYTES}")]
        if windowed:
            fields.append(("start", ">u8"))
        fields.append(("key_group", ">u2"))
        fields += [(f"word{c}", "<i8") for c in self._words]
        fields += [(f"length{c}", "<u4") for c in self._strings[:-1]]
        self._head = np.dtype(fields)
        self._record = np.dtype([(f"value{i}", v.dtype) for i, v in enumerate(values)])

    # ---- keys ---------------------------------------------------------------------------------------------------

    def keys(self, key_groups: npt.NDArray[np.uint16], rows: Sequence[KeyRows]) -> list[bytes]:
        """Return the keys of rows, as the database has them."""
        heads = np.empty(len(key_groups), self._head)
        heads["state"] = np.void(self.prefix)
        heads["key_group"] = key_groups
        if self._windowed:
            starts = rows[-1]
            assert isinstance(starts, WordRows)
            heads["start"] = starts.words.view(np.uint64) ^ _SIGN
        for c in self._words:
            column = rows[c]
            assert isinstance(column, WordRows)
            heads[f"word{c}"] = column.words
        for c in self._strings[:-1]:
            column = rows[c]
            assert isinstance(column, BytesRows)
            heads[f"length{c}"] = column.lengths
        if len(self._strings) == 1:
            column = rows[self._strings[0]]
            assert isinstance(column, BytesRows)
            if length := common_length(column.lengths):
                return _joined(heads, column, length)
        made = _as_bytes(heads)
        for c in self._strings:
            column = rows[c]
            assert isinstance(column, BytesRows)
            data = column.data.data
            ends = column.starts + column.lengths
            made = [head + data[a:b] for head, a, b in zip(made, column.starts.tolist(), ends.tolist())]
        return made

    def order(self, key_groups: npt.NDArray[np.uint16], rows: Sequence[KeyRows]) -> Slots:
        """Return an order of rows that sorts their keys but for the ends: RocksDB writes neighbours in less time."""
        rank = key_groups.astype(np.uint64) << _KEY_GROUP_SHIFT
        if self._words:
            column = rows[self._words[0]]
            assert isinstance(column, WordRows)
            rank |= column.words.view(np.uint64).byteswap() >> _KEY_BITS_LEFT_OUT
        elif len(self._strings) == 1:
            column = rows[self._strings[0]]
            assert isinstance(column, BytesRows)
            rank |= words_at(column.data, column.starts, 0).byteswap() >> _KEY_BITS_LEFT_OUT
        if not self._windowed:
            return np.argsort(rank)
        starts = rows[-1]
        assert isinstance(starts, WordRows)
        return np.lexsort((rank, starts.words.view(np.int64)))

    def columns_of(self, keys: Sequence[bytes]) -> tuple[list[pa.Array], npt.NDArray[np.uint16]]:
        """Return key columns, in Arrow's types, and key groups."""
        width = self._head.itemsize
        heads = np.frombuffer(b"".join([key[:width] for key in keys] if self._strings else keys), self._head)
        columns: list[Any] = [None] * len(self._keys)
        for c in self._words:
            columns[c] = self._keys[c].to_arrow([np.ascontiguousarray(heads[f"word{c}"], np.int64)])
        at = np.full(len(keys), width)
        for c in self._strings[:-1]:
            ends = at + heads[f"length{c}"]
            parts = [key[a:b] for key, a, b in zip(keys, at.tolist(), ends.tolist())]
            columns[c] = _strings(parts, self._keys[c].type)
            at = ends
        if self._strings:
            rest = [key[a:] for key, a in zip(keys, at.tolist())]
            columns[self._strings[-1]] = _strings(rest, self._keys[self._strings[-1]].type)
        if self._windowed:
            starts = heads["start"].astype(np.uint64) ^ _SIGN
            columns[-1] = self._keys[-1].to_arrow([starts.view(np.int64)])
        return columns, heads["key_group"].astype(np.uint16)

    # ---- windows ------------------------------------------------------------------------------------------------

    def window(self, start: int) -> bytes:
        """Return the key prefix of a window."""
        return self.prefix + (start + (1 << 63)).to_bytes(8, "big")

    def behind_window(self, start: int) -> bytes:
        """Return a key that sorts behind all keys of a window, and before all keys of the next one."""
        return self.window(start) + _BEHIND_KEY_GROUPS

    def start_of(self, key: bytes) -> int:
        return int.from_bytes(key[PREFIX_BYTES : PREFIX_BYTES + 8], "big") - (1 << 63)

    # ---- values -------------------------------------------------------------------------------------------------

    def values(self, columns: Sequence[Array]) -> list[bytes]:
        """Return a record for each row of value columns."""
        records = np.empty(len(columns[0]), self._record)
        for name, column in zip(self._record.names or (), columns, strict=True):
            records[name] = column
        return _as_bytes(records)

    def values_of(self, records: Sequence[bytes]) -> list[Array]:
        """Return the value columns of records."""
        found = np.frombuffer(b"".join(records), self._record)
        return [found[name] for name in self._record.names or ()]


def _as_bytes(records: npt.NDArray[Any]) -> list[bytes]:
    made: list[bytes] = records.view(np.dtype((np.void, records.dtype.itemsize))).tolist()
    return made


def _joined(heads: npt.NDArray[Any], column: BytesRows, length: int) -> list[bytes]:
    """Return keys of one string each, all as long: so the bytes of all of them are copied by one call."""
    width = heads.dtype.itemsize
    made = np.empty((len(heads), width + length), np.uint8)
    made[:, :width] = heads.view(np.uint8).reshape(len(heads), width)
    made[:, width:] = strings_at(column.data, column.starts, length)
    return _as_bytes(made.view(np.dtype((np.void, width + length))).ravel())


def _strings(values: list[bytes], type: pa.DataType) -> pa.Array:
    made = pa.array(values, pa.binary())
    return made if type == pa.binary() else made.view(type)
