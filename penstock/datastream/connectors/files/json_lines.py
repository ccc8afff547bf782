"""Reads files of JSON lines, an object per line, in columns."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from penstock.common.columns import ColumnType
from penstock.common.composite_types import ListType, RowType
from penstock.common.scalar_types import BIG_INT, SQL_DATE, SQL_TIME, SQL_TIMESTAMP, BasicType, BigType, BytesType
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.files.file_formats import FileReadFormat, FileShape, OpenFile
from penstock.datastream.connectors.files.input_file import InputFile
from penstock.datastream.connectors.files.malformed_rows import MalformedRows
from penstock.datastream.connectors.files.record_file import (
    Indices,
    RecordDecoder,
    RecordFile,
    RefusedRecords,
    bounds_of_lines,
)
from penstock.datastream.connectors.files.text_bytes import TextBytes, text_bounds

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANK = b" \t\r"
_DIGITS_MAX = 100


class JsonLinesFormat(FileReadFormat):
    """Reads files with a JSON object per line, in UTF-8, compressed or not (.gz, .bz2, .zst).

    Fields are found by name; those that an object does not have are null.

    Example:
        row_type = Types.ROW_NAMED(["user", "amount"], [Types.STRING(), Types.DOUBLE()])
        FileSource.for_record_stream_format(JsonLinesFormat.for_schema(row_type), "/data/orders").build()
    """

    def __init__(
        self,
        row_type: TypeInformation,
        malformed_rows: MalformedRows | None = None,
        *,
        ignore_unknown_fields: bool = True,
    ) -> None:
        if not isinstance(row_type, RowType):
            raise TypeError(f"rows of JSON are declared as Types.ROW_NAMED([names], [types]), not as {row_type}")
        for name, kind in zip(row_type.field_names, row_type.field_types, strict=True):
            _read_type(kind, name, outermost=True)
        self._row_type = row_type
        self._ignores_unknown = ignore_unknown_fields
        self.malformed_rows = malformed_rows or MalformedRows.fail()

    @staticmethod
    def for_schema(
        row_type: TypeInformation,
        malformed_rows: MalformedRows | None = None,
        *,
        ignore_unknown_fields: bool = True,
    ) -> JsonLinesFormat:
        """Make the format of a row type.

        Args:
            row_type: `Types.ROW_NAMED(...)` of numbers, BOOLEAN, STRING, BIG_INT (to 76 digits), SQL_DATE, SQL_TIME and
                SQL_TIMESTAMP (as strings in ISO 8601), lists and rows of them.
            malformed_rows: What happens to lines that are no such object: `MalformedRows.fail()` (the default),
                `.skip()` or `.side_output(tag)`.
            ignore_unknown_fields: False: an object with a field that the type does not have is malformed.

        Returns:
            The format. Raises TypeError for a field whose type JSON cannot represent.
        """
        return JsonLinesFormat(row_type, malformed_rows, ignore_unknown_fields=ignore_unknown_fields)

    def inspect(self, file: InputFile) -> FileShape:
        return FileShape(self._row_type, text_bounds(file, _first_record(file)))

    def open(self, file: InputFile, row_type: TypeInformation) -> OpenFile:
        decoder = JsonDecoder(self._row_type, self._ignores_unknown)
        return RecordFile(file, decoder, self.malformed_rows, _first_record(file))


def _first_record(file: InputFile) -> int:
    text = TextBytes(file)
    try:
        return len(_BYTE_ORDER_MARK) if text.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK else 0
    finally:
        text.close()


def _read_type(kind: ColumnType, name: str, outermost: bool = False) -> pa.DataType:
    """Return the type that a field is read as, before it is cast to its own. Raises TypeError."""
    if isinstance(kind, RowType):
        return pa.struct([(n, _read_type(k, f"{name}.{n}")) for n, k in zip(kind.field_names, kind.field_types)])
    if isinstance(kind, ListType):
        return pa.list_(_read_type(kind.element_type, f"{name}[]"))
    if kind == BIG_INT:
        return pa.decimal256(76, 0)
    if kind == SQL_DATE or (kind == SQL_TIME and outermost):
        return pa.string()
    if not isinstance(kind, BasicType) or isinstance(kind, (BytesType, BigType)) or kind == SQL_TIME:
        raise TypeError(f"field {name!r}: {kind} is not read from JSON. Declare it as STRING or DOUBLE, say")
    return kind.arrow_type


class JsonDecoder(RecordDecoder):
    """Decodes lines of JSON.

    Arrow's reader takes whatever objects follow each other, over line breaks and without any, and takes `null` for an
    object. So each line must begin and end with a brace, and be one row.
    """

    way_out = (
        "Correct the file, or say what becomes of such rows: "
        "JsonLinesFormat.for_schema(row_type, MalformedRows.skip()) or MalformedRows.side_output(tag)."
    )

    def __init__(self, row_type: RowType, ignores_unknown: bool) -> None:
        self._row_type = row_type
        names, kinds = row_type.field_names, row_type.field_types
        self._read_schema = pa.schema(
            [(name, _read_type(kind, name, outermost=True)) for name, kind in zip(names, kinds, strict=True)]
        )
        self._unknown = "ignore" if ignores_unknown else "error"

    @property
    def schema(self) -> pa.Schema:
        return self._row_type.schema

    def bounds(self, data: bytes) -> tuple[Indices, Indices]:
        starts, ends = bounds_of_lines(data)
        present = [index for index, (a, b) in enumerate(zip(starts, ends)) if data[a:b].strip(_BLANK)]
        return starts[present], ends[present]

    def decode(self, data: bytes) -> pa.RecordBatch:
        """Decode whole lines.

        Args:
            data: The lines.

        Returns:
            Their rows.

        Raises:
            RefusedRecords: A line cannot be read; then no row is returned.
        """
        starts, ends = bounds_of_lines(data)
        found = np.frombuffer(data, np.uint8)
        if not ((found[starts] == ord("{")).all() and (found[ends - 1] == ord("}")).all()):
            lines = [line for raw in data.split(b"\n") if (line := raw.strip(_BLANK))]
            if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
                raise RefusedRecords("it is no object: { and } belong to one line")
            data, rows = b"\n".join(lines), len(lines)
        else:
            rows = len(starts)
        if not rows:
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        try:
            if not data.isascii():
                data.decode()
        except UnicodeDecodeError as error:
            raise RefusedRecords(f"it is not UTF-8: {error.reason}") from error
        read = self._read(data, self._read_schema, self._unknown)
        if read.num_rows != rows:
            raise RefusedRecords("it is more than one object")
        columns = [
            _cast(read.column(name), kind, name)
            for name, kind in zip(self._row_type.field_names, self._row_type.field_types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def refusals(self, data: bytes, starts: Indices, ends: Indices) -> dict[int, str]:
        found = {}
        for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist())):
            if reason := self._refusal(data[start:end]):
                found[index] = reason
        return found

    def reason(self, record: bytes, error: RefusedRecords) -> str:
        text = str(error)
        for name in self._read_schema.names:
            index = self._row_type.field_names.index(name)
            kind = self._row_type.field_types[index]
            try:
                column = self._read(record, pa.schema([self._read_schema.field(index)]), "ignore").column(name)
                _cast(column, kind, name)
            except RefusedRecords as refused:
                text = str(refused)
                return text if text.startswith("field ") else f"field {name!r} is no {kind} ({text})"
        if unknown := re.search(r"unexpected field", text):
            extra = [name for name in json.loads(record) if name not in self._row_type.field_names]
            return f"{unknown[0]} {', '.join(map(repr, extra))}; declared are {', '.join(self._row_type.field_names)}"
        return text

    def _refusal(self, line: bytes) -> str | None:
        try:
            row = json.loads(line, parse_int=_whole_number)
        except RecursionError:
            return None
        except ValueError as error:
            # Arrow's reader knows one more number than Python's.
            return None if b"Inf" in line else f"it is no JSON: {error}"
        if not isinstance(row, dict):
            return f"it is no object, but {type(row).__name__}"
        for name, kind in zip(self._row_type.field_names, self._row_type.field_types, strict=True):
            value = row.get(name)
            if value is not None and not _may_be(value, kind):
                return f"field {name!r}: {str(value)[:100]!r} is no {kind}"
        return None

    def _read(self, data: bytes, schema: pa.Schema, unknown: str) -> pa.RecordBatch:
        options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unknown)
        try:
            table = pa_json.read_json(
                pa.py_buffer(data), pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1), options
            )
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise RefusedRecords(str(error)) from error
        return table.combine_chunks().to_batches()[0]


def _whole_number(text: str) -> int | float:
    """Read a number. Python refuses thousands of digits, which matters only if a field is not read."""
    return int(text) if len(text) <= _DIGITS_MAX else float("inf")


def _may_be(value: Any, kind: ColumnType) -> bool:
    """Return False if `decode` certainly refuses the value."""
    if isinstance(kind, RowType):
        return isinstance(value, dict)
    if isinstance(kind, ListType):
        return isinstance(value, list)
    arrow = kind.arrow_type
    if pa.types.is_boolean(arrow):
        return isinstance(value, bool)
    if pa.types.is_integer(arrow):
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**arrow.bit_width
    if pa.types.is_floating(arrow):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == BIG_INT:
        return isinstance(value, (int, str)) and not isinstance(value, bool)
    return isinstance(value, str)


def _cast(column: pa.Array, kind: ColumnType, name: str) -> pa.Array:
    try:
        if kind == SQL_TIME:
            column = pc.binary_join_element_wise("1970-01-01 ", column, "").cast(SQL_TIMESTAMP.arrow_type)
        return column if column.type == kind.arrow_type else column.cast(kind.arrow_type)
    except pa.ArrowException as error:
        raise RefusedRecords(f"field {name!r} is no {kind}: {error}") from error
