"""Decodes a batch of Avro records: field by field, for all records at once.

The position in each record is an element of an array, so reading a field is a few operations on arrays. A record must
end exactly where its message does; a batch in which one does not is refused whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.types import Types
from penstock.connectors.formats.avro.avro_types import AvroType
from penstock.connectors.messages.decoding import RefusedMessage

Rows = npt.NDArray[np.int64]

_PADDING = bytes(16)
"""Lies behind the last record, so that reading over its end by a number reads nothing else."""

_CUT_OFF = "it is cut off, or of another schema"
_UNITS = {"millis": pa.timestamp("ms"), "micros": pa.timestamp("us")}


def decode_records(record: AvroType, values: Sequence[bytes], first_byte: int = 0) -> pa.RecordBatch:
    """Decode records.

    Args:
        record: Their type.
        values: The messages.
        first_byte: Where the record begins in each of them.

    Returns:
        The rows.

    Raises:
        RefusedMessage: One of them is no such record.
    """
    reading = _Reading(values, first_byte)
    columns = [_named(name, reading, kind) for name, kind in record.fields]
    if not np.array_equal(reading.at, reading.ends):
        raise RefusedMessage(f"{_CUT_OFF}: there are bytes behind its last field")
    return pa.RecordBatch.from_arrays(columns, schema=record.type.schema)


def _named(name: str, reading: _Reading, kind: AvroType) -> pa.Array:
    try:
        return reading.column(kind, np.arange(len(reading.at)))
    except RefusedMessage as error:
        raise RefusedMessage(f"field {name!r}: {error}") from None


class _Reading:
    """Reads values of some of the records, given by their numbers, at the positions `at`, which lie before `ends`."""

    def __init__(self, values: Sequence[bytes], first_byte: int) -> None:
        self._data = np.frombuffer(b"".join(values) + _PADDING, np.uint8)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        self.ends: Rows = np.cumsum(lengths)
        self.at: Rows = self.ends - lengths + first_byte

    def column(self, kind: AvroType, rows: Rows) -> pa.Array:
        """Return the next values of records."""
        if kind.value_branch is None:
            return self._values(kind, rows)
        branches = self._longs(rows)
        is_value = branches == kind.value_branch
        if not (is_value | (branches == kind.null_branch)).all():
            raise RefusedMessage(f"{_CUT_OFF}: a union has no branch {int(branches[~is_value][0])}")
        if is_value.all():
            return self._values(kind, rows)
        present = self._values(kind, rows[is_value])
        return present.take(pa.array(np.cumsum(is_value) - 1, mask=~is_value))

    def _values(self, kind: AvroType, rows: Rows) -> pa.Array:
        match kind.kind:
            case "boolean":
                found = self._fixed(rows, 1)
                if (found > 1).any():
                    raise RefusedMessage(f"{_CUT_OFF}: a boolean is neither 0 nor 1")
                return pa.array(found.astype(bool))
            case "int" | "long":
                return self._integers(kind, rows)
            case "float" | "double":
                size, number = (4, "<f4") if kind.kind == "float" else (8, "<f8")
                return pa.array(self._fixed(rows, size).view(number).astype(number[1:]))
            case "bytes" | "string":
                return self._texts(kind, rows)
            case "fixed":
                found = pa.array(list(map(bytes, self._fixed(rows, kind.size).reshape(-1, kind.size))), pa.binary())
                return _decimals(found, kind) if kind.logical == "decimal" else found
            case "enum":
                return self._symbols(kind, rows)
            case "record":
                columns = [self.column(field, rows) for _, field in kind.fields]
                return pa.StructArray.from_arrays(columns, fields=list(kind.type.arrow_type))
            case _:
                return self._blocks(kind, rows)

    def _integers(self, kind: AvroType, rows: Rows) -> pa.Array:
        found = self._longs(rows)
        if kind.kind == "int" and (found != found.astype(np.int32)).any():
            raise RefusedMessage(f"{_CUT_OFF}: an int is longer than 32 bits")
        arrow = kind.type.arrow_type
        if kind.logical is None:
            return pa.array(found, arrow)
        try:
            if kind.logical == "date":
                return pa.array(found.astype(np.int32)).cast(arrow)
            if kind.logical.startswith("time-"):
                unit = 1000 if kind.logical == "time-millis" else 1
                if ((found < 0) | (found >= 86_400_000_000 // unit)).any():
                    raise RefusedMessage(f"a {kind.logical} is not within a day")
                return pa.array(found * unit).cast(arrow)
            return pa.array(found).cast(_UNITS[kind.logical.rpartition("-")[2]]).cast(arrow)
        except pa.ArrowException as error:
            raise RefusedMessage(f"a {kind.logical} is out of range: {error}") from None

    def _texts(self, kind: AvroType, rows: Rows) -> pa.Array:
        lengths = self._longs(rows)
        at = self.at[rows]
        if ((lengths < 0) | (lengths > self.ends[rows] - at)).any():
            raise RefusedMessage(_CUT_OFF)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        self.at[rows] = at + lengths
        data = self._data[np.repeat(at - offsets[:-1], lengths) + np.arange(offsets[-1])]
        found = _binary(offsets, data)
        if kind.logical == "decimal":
            return _decimals(found, kind)
        if kind.kind == "bytes":
            return found
        try:
            return found.cast(pa.string())
        except pa.ArrowException:
            raise RefusedMessage("a string is not UTF-8") from None

    def _symbols(self, kind: AvroType, rows: Rows) -> pa.Array:
        found = self._longs(rows)
        if ((found < 0) | (found >= len(kind.symbols))).any():
            raise RefusedMessage(f"{_CUT_OFF}: an enum has no symbol {int(found.max())}")
        return pa.array(kind.symbols, pa.string()).take(pa.array(found))

    def _blocks(self, kind: AvroType, rows: Rows) -> pa.Array:
        """Read arrays or maps: an element of each that has more, then the next of each, and so on."""
        assert kind.element is not None
        is_map = kind.kind == "map"
        left, counts = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        unfinished: Rows = np.arange(len(rows))
        keys: list[pa.Array] = []
        values: list[pa.Array] = []
        owners: list[Rows] = []
        while len(unfinished):
            if len(at_block := unfinished[left[unfinished] == 0]):
                left[at_block] = self._block_lengths(rows[at_block])
                unfinished = unfinished[left[unfinished] > 0]
                continue
            if is_map:
                keys.append(self._texts(_KEYS, rows[unfinished]))
            values.append(self.column(kind.element, rows[unfinished]))
            owners.append(unfinished)
            left[unfinished] -= 1
            counts[unfinished] += 1
        order = np.argsort(np.concatenate(owners), kind="stable") if owners else np.zeros(0, np.int64)
        offsets = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
        arrow = kind.type.arrow_type
        elements = _concat(values, kind.element.type.arrow_type).take(pa.array(order))
        if not is_map:
            return pa.ListArray.from_arrays(offsets, elements, type=arrow)
        return pa.MapArray.from_arrays(offsets, _concat(keys, pa.string()).take(pa.array(order)), elements).cast(arrow)

    def _block_lengths(self, rows: Rows) -> Rows:
        found = self._longs(rows)
        has_size = found < 0
        if has_size.any():
            self._longs(rows[has_size])
            found = np.abs(found)
        if ((found < 0) | (found > self.ends[rows] - self.at[rows])).any():
            raise RefusedMessage(_CUT_OFF)
        return found

    def _fixed(self, rows: Rows, size: int) -> npt.NDArray[np.uint8]:
        at = self.at[rows]
        if (at + size > self.ends[rows]).any():
            raise RefusedMessage(_CUT_OFF)
        self.at[rows] = at + size
        found: npt.NDArray[np.uint8] = self._data[(at[:, None] + np.arange(size)).ravel()]
        return found

    def _longs(self, rows: Rows) -> Rows:
        """Read numbers of variable length, seven bits to a byte, with their signs in the lowest bit."""
        at, ends = self.at[rows], self.ends[rows]
        if (at >= ends).any():
            raise RefusedMessage(_CUT_OFF)
        byte = self._data[at]
        bits = (byte & 0x7F).astype(np.uint64)
        at = at + 1
        more = np.flatnonzero(byte >= 0x80)
        shift = 7
        while len(more):
            byte = self._data[at[more]]
            if shift > 63 or (shift == 63 and (byte > 1).any()):
                raise RefusedMessage(f"{_CUT_OFF}: a number is longer than 64 bits")
            bits[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[more] += 1
            more = more[byte >= 0x80]
            shift += 7
        if (at > ends).any():
            raise RefusedMessage(_CUT_OFF)
        self.at[rows] = at
        found: Rows = (bits >> np.uint64(1)).astype(np.int64) ^ -(bits & np.uint64(1)).astype(np.int64)
        return found


_KEYS = AvroType("string", Types.STRING())


def _binary(offsets: npt.NDArray[Any], data: npt.NDArray[np.uint8]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _decimals(found: pa.Array, kind: AvroType) -> pa.Array:
    numbers = (int.from_bytes(data, "big", signed=True) for data in found.to_pylist())
    texts = pa.array([_decimal_text(number, kind.scale) for number in numbers], pa.string())
    try:
        return texts.cast(kind.type.arrow_type)
    except pa.ArrowException as error:
        raise RefusedMessage(f"a decimal has more digits than its schema says ({kind.type}): {error}") from None


def _decimal_text(unscaled: int, scale: int) -> str:
    if not scale:
        return str(unscaled)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _concat(parts: list[pa.Array], arrow: pa.DataType) -> pa.Array:
    return pa.concat_arrays(parts) if parts else pa.array([], arrow)
