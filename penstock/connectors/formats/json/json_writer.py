"""Writes JSON lines in columns: each column becomes a column of JSON texts, and those are joined to lines."""

from __future__ import annotations

import json
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, MapType, RowType, TupleType
from penstock.common.row_types.scalar_types import BIG_DEC, BIG_INT, STRING, BasicType, BytesType
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import SinkError
from penstock.connectors.files.file_formats import FileWriteFormat, PartWriter

_ROWS_AT_ONCE = 16_384
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'
_CONTROL = r"[\x00-\x1f]"


class JsonLinesBulkWriters:
    """Makes the format that JSON lines are written in."""

    @staticmethod
    def for_row_type(row_type: TypeInformation | None = None) -> JsonLinesWriteFormat:
        """Make the format, which writes rows and tuples as an object per line, and other values as they are.

        Fields have their names (f0, f1, ... of tuples). Null fields are written as null, dates and times as ISO 8601,
        BIG_INT and BIG_DEC as numbers, and not-a-number and infinity as NaN, Infinity and -Infinity, which Python and
        Spark read, too.

        Args:
            row_type: The type of the rows. None: that of the stream.

        Returns:
            The format.
        """
        return JsonLinesWriteFormat(row_type)


class JsonLinesWriteFormat(FileWriteFormat):
    """Writes a JSON object per line."""

    default_suffix = ".json"

    def __init__(self, row_type: TypeInformation | None = None) -> None:
        self._row_type = row_type

    def validate(self, input_type: TypeInformation | None) -> None:
        if input_type is None:
            raise SinkError(
                "a stream without a declared type cannot be written as JSON lines: its rows have no fields. "
                "Declare the type of the operator before the sink (output_type=Types.ROW_NAMED([...], [...]))."
            )
        if self._row_type is not None and self._row_type.schema != input_type.schema:
            raise SinkError(f"the JSON writer is declared for {self._row_type}, but the stream's rows are {input_type}")
        assert isinstance(input_type, ColumnType)
        _raise_where_unwritable(input_type, "row")

    def start(self, file: BinaryIO, input_type: TypeInformation | None) -> PartWriter:
        assert isinstance(input_type, ColumnType)
        return _JsonPart(file, input_type)


def _raise_where_unwritable(kind: ColumnType, name: str) -> None:
    if isinstance(kind, (RowType, TupleType)):
        for field, field_type in zip(kind.field_names, kind.field_types, strict=True):
            _raise_where_unwritable(field_type, f"field {field!r}" if name == "row" else f"{name}, field {field!r}")
    elif isinstance(kind, ListType):
        _raise_where_unwritable(kind.element_type, f"{name}, elements")
    elif isinstance(kind, MapType):
        if kind.key_type != STRING:
            raise SinkError(f"{name}: keys of JSON objects are strings, but those of {kind} are not")
        _raise_where_unwritable(kind.value_type, f"{name}, values")
    elif not isinstance(kind, BasicType) or isinstance(kind, BytesType):
        raise SinkError(f"{name}: {kind} cannot be written as JSON; make it a STRING before the sink")


class _JsonPart(PartWriter):
    def __init__(self, file: BinaryIO, row_type: ColumnType) -> None:
        super().__init__(file)
        self._row_type = row_type

    def write(self, batch: pa.RecordBatch) -> None:
        for first in range(0, batch.num_rows, _ROWS_AT_ONCE):
            self._file.write(json_lines(batch.slice(first, _ROWS_AT_ONCE), self._row_type))


def json_lines(batch: pa.RecordBatch, row_type: ColumnType) -> memoryview:
    """Write the rows of a batch as lines of JSON in UTF-8.

    Args:
        batch: The rows.
        row_type: Their type.

    Returns:
        The bytes.
    """
    if isinstance(row_type, (RowType, TupleType)):
        columns = [batch.column(index) for index in range(len(row_type.field_names))]
        texts = _object(row_type.field_names, row_type.field_types, columns)
    else:
        texts = _json(batch.column(0), row_type)
    lines = pc.binary_join_element_wise(texts, "\n", "")
    offsets, data = lines.buffers()[1:]
    first, last = (memoryview(offsets).cast("i")[lines.offset + at] for at in (0, len(lines)))
    return memoryview(data)[first:last]


def _json(column: pa.Array, kind: ColumnType) -> pa.Array:
    """Return a JSON text for each value, "null" for null."""
    return pc.coalesce(_json_or_null(column, kind), "null")


def _json_or_null(column: pa.Array, kind: ColumnType) -> pa.Array:
    if isinstance(kind, (RowType, TupleType)):
        texts = _object(kind.field_names, kind.field_types, column.flatten())
        return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))
    if isinstance(kind, ListType):
        start, end = _range_of(column)
        elements = _json(column.values.slice(start, end - start), kind.element_type)
        return _joined(column, elements, "[", "]")
    if isinstance(kind, MapType):
        start, end = _range_of(column)
        keys = _quoted(column.keys.slice(start, end - start))
        values = _json(column.items.slice(start, end - start), kind.value_type)
        return _joined(column, pc.binary_join_element_wise(keys, values, ":"), "{", "}")
    if kind in (BIG_INT, BIG_DEC):
        return column
    arrow = column.type
    if pa.types.is_string(arrow):
        return _quoted(column)
    texts = column.cast(pa.string())
    if pa.types.is_floating(arrow):
        if not pc.all(pc.is_finite(column), min_count=0).as_py():
            for found, written in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
                texts = pc.if_else(pc.equal(texts, found), written, texts)
        return texts
    if pa.types.is_temporal(arrow):
        return pc.binary_join_element_wise('"', pc.replace_substring(texts, " ", "T"), '"', "")
    return texts


def _object(names: tuple[str, ...], kinds: tuple[ColumnType, ...], columns: list[pa.Array]) -> pa.Array:
    parts = []
    for index, (name, kind, column) in enumerate(zip(names, kinds, columns, strict=True)):
        parts.append(("{" if index == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":")
        parts.append(_json(column, kind))
    return pc.binary_join_element_wise(*parts, "}", "")


def _quoted(column: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(column, _NEEDS_ESCAPE)).as_py():
        column = pc.replace_substring(column, "\\", "\\\\")
        column = pc.replace_substring(column, '"', '\\"')
        if pc.any(pc.match_substring_regex(column, _CONTROL)).as_py():
            for code in range(0x20):
                column = pc.replace_substring(column, chr(code), json.dumps(chr(code))[1:-1])
    return pc.binary_join_element_wise('"', column, '"', "")


def _range_of(column: pa.Array) -> tuple[int, int]:
    offsets = column.offsets
    return offsets[0].as_py(), offsets[-1].as_py()


def _joined(column: pa.Array, elements: pa.Array, opening: str, closing: str) -> pa.Array:
    """Join the elements of each list or map with commas."""
    offsets = pc.subtract(column.offsets, column.offsets[0])
    lists = pa.ListArray.from_arrays(offsets, elements, mask=column.is_null() if column.null_count else None)
    return pc.binary_join_element_wise(opening, pc.binary_join(lists, ","), closing, "")
