"""Encodes a batch of rows as Avro records: each column becomes a column of bytes, and those are joined to records."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, MapType, RowType, TupleType
from penstock.common.row_types.scalar_types import BIG_DEC, INSTANT, DecimalType
from penstock.connectors.base import SinkError
from penstock.connectors.formats.avro.avro_types import AvroType

_NONE = b""


def check_type(found: ColumnType, kind: AvroType, where: str) -> None:
    """Check that values of a type can be written with a schema.

    Args:
        found: The type of the values.
        kind: The type in the schema.
        where: What to call the values in the error.

    Raises:
        SinkError: They cannot.
    """
    if kind.kind == "record" and isinstance(found, (RowType, TupleType)):
        if len(found.field_types) != len(kind.fields):
            raise SinkError(f"{where} has {len(found.field_types)} fields, the Avro record {len(kind.fields)}")
        for index, (name, field) in zip(_order(found, kind), kind.fields):
            check_type(found.field_types[index], field, f"field {name!r}" if where == "a row" else f"{where}.{name}")
        return
    if kind.kind == "array" and isinstance(found, ListType) and kind.element is not None:
        check_type(found.element_type, kind.element, f"an element of {where}")
        return
    if kind.kind == "map" and isinstance(found, MapType) and kind.element is not None:
        check_type(found.value_type, kind.element, f"a value of {where}")
        if pa.types.is_string(found.key_type.arrow_type):
            return
    if not (_is_written_as(found, kind) or _widens(found.arrow_type, kind.type.arrow_type)):
        raise SinkError(f"{where} is {found} in the stream, which Avro's type {kind.logical or kind.kind} cannot be")


def _is_written_as(found: ColumnType, kind: AvroType) -> bool:
    """Return whether a logical type has values of a type that it is not read as. Decimals that do not fit are refused
    when they are written.
    """
    if kind.logical == "decimal":
        return isinstance(found, DecimalType) or found == BIG_DEC
    return found == INSTANT and kind.logical in ("timestamp-millis", "timestamp-micros")


def _widens(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_integer(found) and pa.types.is_integer(wanted):
        return bool(found.bit_width <= wanted.bit_width)
    if pa.types.is_floating(found) and pa.types.is_floating(wanted):
        return bool(found.bit_width <= wanted.bit_width)
    return bool(found == wanted)


def _order(found: RowType | TupleType, kind: AvroType) -> list[int]:
    """Return which field of a row each field of a record is: by name if the names are the same, else by position."""
    names = [name for name, _ in kind.fields]
    if set(found.field_names) == set(names):
        return [found.field_names.index(name) for name in names]
    return list(range(len(names)))


def encode_records(record: AvroType, row_type: RowType | TupleType, batch: pa.RecordBatch, first: bytes) -> list[bytes]:
    """Encode rows.

    Args:
        record: The type of the record.
        row_type: The type of the rows, which `check_type` accepts.
        batch: The rows.
        first: What each message begins with.

    Returns:
        The messages.

    Raises:
        SinkError: A value cannot be written. The message names its field.
    """
    if not batch.num_rows:
        return []
    columns = [batch.column(index) for index in _order(row_type, record)]
    found: list[bytes] = _joined(first, *_fields(record, row_type, columns, "")).to_pylist()
    return found


def _fields(record: AvroType, row_type: ColumnType, columns: list[pa.Array], where: str) -> list[pa.Array]:
    assert isinstance(row_type, (RowType, TupleType))
    kinds = [row_type.field_types[index] for index in _order(row_type, record)]
    return [
        _encoded(kind, found, column, f"{where}.{name}" if where else f"field {name!r}")
        for (name, kind), found, column in zip(record.fields, kinds, columns, strict=True)
    ]


def _encoded(kind: AvroType, found: ColumnType, column: pa.Array, where: str) -> pa.Array:
    if not column.null_count:
        values = _values(kind, found, column, where)
        return values if kind.value_branch is None else _joined(_varint(kind.value_branch), values)
    if kind.null_branch is None or kind.value_branch is None:
        raise SinkError(
            f"{where} is null in a row, but Avro's type {kind.logical or kind.kind} is not a union with null"
        )
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    present = _joined(_varint(kind.value_branch), _values(kind, found, column.drop_null(), where))
    return pc.fill_null(present.take(pa.array(np.cumsum(valid) - 1, mask=~valid)), _varint(kind.null_branch))


def _values(kind: AvroType, found: ColumnType, column: pa.Array, where: str) -> pa.Array:
    """Encode a column without nulls."""
    if kind.logical == "decimal":
        return _decimals(kind, column, where)
    match kind.kind:
        case "boolean":
            return _fixed(column.cast(pa.uint8()).to_numpy(), 1)
        case "int" | "long":
            return _varints(_numbers(kind, column))
        case "float" | "double":
            number = np.dtype("<f4" if kind.kind == "float" else "<f8")
            return _fixed(column.to_numpy().astype(number).view(np.uint8), number.itemsize)
        case "bytes" | "string":
            return _sized(column.cast(pa.binary()))
        case "fixed":
            if not pc.all(pc.equal(pc.binary_length(column), kind.size), min_count=0).as_py():
                raise SinkError(f"{where} is bytes of another length than Avro's fixed, {kind.size}")
            return column.cast(pa.binary())
        case "enum":
            numbers = pc.index_in(column, pa.array(kind.symbols, pa.string()))
            if numbers.null_count:
                unknown = column.filter(numbers.is_null())[0].as_py()
                raise SinkError(f"{where} is {unknown!r}, which is no symbol of Avro's enum: {', '.join(kind.symbols)}")
            return _varints(numbers.to_numpy().astype(np.int64))
        case "record":
            assert isinstance(found, (RowType, TupleType))
            children = column.flatten()
            return _joined(*_fields(kind, found, [children[i] for i in _order(found, kind)], where))
        case _:
            return _blocks(kind, found, column, where)


def _blocks(kind: AvroType, found: ColumnType, column: pa.Array, where: str) -> pa.Array:
    """Encode lists or maps, each as one block, and an empty one behind it."""
    assert kind.element is not None
    offsets = column.offsets.to_numpy()
    start, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    if isinstance(found, MapType):
        items = _encoded(kind.element, found.value_type, column.items.slice(start, length), f"a value of {where}")
        elements = _joined(_sized(column.keys.slice(start, length).cast(pa.binary())), items)
    else:
        assert isinstance(found, ListType)
        elements = _encoded(
            kind.element, found.element_type, column.values.slice(start, length), f"an element of {where}"
        )
    lists = pa.ListArray.from_arrays(pa.array(offsets - start, pa.int32()), elements.cast(pa.binary()))
    counts = np.diff(offsets).astype(np.int64)
    block = _joined(_varints(counts), pc.binary_join(lists, _NONE), b"\0")
    return pc.if_else(pa.array(counts == 0), b"\0", block)


def _numbers(kind: AvroType, column: pa.Array) -> npt.NDArray[np.int64]:
    arrow = column.type
    if pa.types.is_date(arrow):
        column = column.cast(pa.int32())
    elif pa.types.is_temporal(arrow):
        column = column.cast(pa.int64())
    numbers: npt.NDArray[np.int64] = column.to_numpy().astype(np.int64)
    return numbers // 1000 if kind.logical is not None and kind.logical.endswith("-millis") else numbers


def _decimals(kind: AvroType, column: pa.Array, where: str) -> pa.Array:
    found = []
    for text in column.to_pylist():
        try:
            scaled = Decimal(text).scaleb(kind.scale)
            unscaled = int(scaled)
        except (InvalidOperation, ValueError, OverflowError):
            raise SinkError(f"{where} is {text}, which is no decimal of Avro") from None
        if unscaled != scaled:
            raise SinkError(f"{where} is {text}, which has more than the {kind.scale} decimal places of its Avro type")
        size = kind.size or (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        try:
            found.append(unscaled.to_bytes(size, "big", signed=True))
        except OverflowError:
            raise SinkError(f"{where} is {text}, which does not fit the {size} bytes of its Avro type") from None
    encoded = pa.array(found, pa.binary())
    return encoded if kind.kind == "fixed" else _sized(encoded)


def _sized(column: pa.Array) -> pa.Array:
    lengths = pc.binary_length(column).to_numpy().astype(np.int64)
    return _joined(_varints(lengths), column)


def _joined(*columns: pa.Array | bytes) -> pa.Array:
    return pc.binary_join_element_wise(*columns, _NONE)


def _fixed(data: npt.NDArray[np.uint8], size: int) -> pa.Array:
    data = np.ascontiguousarray(data)
    offsets = np.arange(0, len(data) + 1, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _varint(number: int) -> bytes:
    return bytes(_varints(np.array([number]))[0].as_py())


def _varints(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Encode numbers in variable length, seven bits to a byte, with their signs in the lowest bit."""
    bits = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    lengths = np.ones(len(bits), np.int64)
    for shift in range(7, 64, 7):
        longer = bits >= np.uint64(1 << shift)
        if not longer.any():
            break
        lengths += longer
    longest = int(lengths.max(initial=1))
    matrix = np.empty((len(bits), longest), np.uint8)
    for at in range(longest):
        matrix[:, at] = (bits >> np.uint64(7 * at)) & np.uint64(0x7F)
        matrix[:, at] |= np.where(lengths > at + 1, np.uint8(0x80), np.uint8(0))
    data = matrix[np.arange(longest) < lengths[:, None]]
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(bits), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
