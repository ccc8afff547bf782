"""Reads files of JSON lines, an object per line, in columns."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, RowType
from penstock.common.row_types.scalar_types import (
    BIG_DEC,
    BIG_INT,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    BasicType,
    BigType,
    BytesType,
)
from penstock.common.typeinfo import RowTypeError, TypeInformation
from penstock.connectors.files.file_formats import FileReadFormat, FileShape, OpenFile
from penstock.connectors.files.input_file import InputFile
from penstock.connectors.files.malformed_rows import MalformedRows
from penstock.connectors.files.record_file import Indices, RecordDecoder, RecordFile, RefusedRecords, bounds_of_lines
from penstock.connectors.formats.json.json_values import Number, UnreadableValue, parsed, reader_of, without_zeros
from penstock.connectors.formats.text.text_bytes import TextBytes, text_bounds

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANK = b" \t\r"
_SCALE = 38
_NOT_FOR_ARROW = re.compile(rb'\.[0-9]*0"|[0-9]{36}|[:,\[]\s*"?[-+]?[0-9.]+[eE]\+?[0-9]+"?\s*[,}\]]')
"""Matches what Arrow's decimals do not show as it was: zeros at the end of a text, and numbers that may have more
digits than they have, which become other numbers without a word."""
_BATCHES_BY_VALUE = 64
"""The number of batches that are read value by value after Arrow has refused one. Then Arrow is tried again."""


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
        reader_of(row_type, "")  # refuses types that JSON cannot represent
        self._row_type = row_type
        self._ignores_unknown = ignore_unknown_fields
        self.malformed_rows = malformed_rows or MalformedRows.fail()

    @staticmethod
    def for_schema(
        row_type: TypeInformation, malformed_rows: MalformedRows | None = None, *, ignore_unknown_fields: bool = True
    ) -> JsonLinesFormat:
        """Make the format of a row type.

        Args:
            row_type: `Types.ROW_NAMED(...)` of numbers, BOOLEAN, STRING, BIG_INT, BIG_DEC (with all digits), SQL_DATE,
                SQL_TIME and SQL_TIMESTAMP (as strings in ISO 8601, in UTC if they name a zone), bytes (as base64),
                lists, maps and rows of them. A number may stand in a string, and a STRING is the text of anything.
            malformed_rows: What happens to lines that are no such object: `MalformedRows.fail()` (the default),
                `.skip()` or `.side_output(tag)`.
            ignore_unknown_fields: False: an object with a field that the type does not have is malformed.

        Returns:
            The format. Raises TypeError for a field whose type JSON cannot represent.
        """
        return JsonLinesFormat(row_type, malformed_rows, ignore_unknown_fields=ignore_unknown_fields)

    @property
    def known_type(self) -> TypeInformation:
        return self._row_type

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


def _read_type(kind: ColumnType, outermost: bool = False) -> pa.DataType | None:
    """Return the type that Arrow reads a field as, before it is cast to its own; None if Arrow cannot read it."""
    if isinstance(kind, RowType):
        fields = [(n, _read_type(k)) for n, k in zip(kind.field_names, kind.field_types)]
        return None if any(found is None for _, found in fields) else pa.struct(fields)
    if isinstance(kind, ListType):
        element = None if _holds(kind, (BIG_DEC,)) else _read_type(kind.element_type)
        return None if element is None else pa.list_(element)
    if kind == BIG_INT:
        return pa.decimal256(76, 0)
    if kind == BIG_DEC:
        return pa.decimal256(76, _SCALE)
    if kind == SQL_DATE or (kind == SQL_TIME and outermost):
        return pa.string()
    if not isinstance(kind, BasicType) or isinstance(kind, (BytesType, BigType)) or kind == SQL_TIME:
        return None
    return kind.arrow_type


def _holds(kind: ColumnType, wanted: tuple[ColumnType, ...]) -> bool:
    """Return whether a type is one of `wanted`, or contains one."""
    if isinstance(kind, RowType):
        return any(_holds(field, wanted) for field in kind.field_types)
    return _holds(kind.element_type, wanted) if isinstance(kind, ListType) else kind in wanted


def _read_schema(row_type: RowType) -> pa.Schema | None:
    """Return the columns that Arrow reads; None if it cannot read one of them."""
    kinds = [_read_type(kind, outermost=True) for kind in row_type.field_types]
    return None if None in kinds else pa.schema(list(zip(row_type.field_names, kinds)))


class JsonDecoder(RecordDecoder):
    """Decodes lines of JSON.

    Arrow's reader takes whatever objects follow each other, over line breaks and without any, and takes `null` for an
    object. So each line must begin and end with a brace, and be one row.
    """

    way_out = (
        "Correct the file, or say what becomes of such rows: "
        "JsonLinesFormat.for_schema(row_type, MalformedRows.skip()) or MalformedRows.side_output(tag)."
    )

    def __init__(self, row_type: RowType, ignores_unknown: bool, unreadable_is_null: bool = False) -> None:
        self._row_type = row_type
        self._read_schema = _read_schema(row_type)
        self._ignores_unknown = ignores_unknown
        self._read_row = reader_of(row_type, "", unreadable_is_null)
        self._passes_arrow_by = 0
        self._has_big_numbers = _holds(row_type, (BIG_INT, BIG_DEC))

    @property
    def schema(self) -> pa.Schema:
        return self._row_type.schema

    def bounds(self, data: bytes) -> tuple[Indices, Indices]:
        starts, ends = bounds_of_lines(data)
        present = [index for index, (a, b) in enumerate(zip(starts, ends)) if data[a:b].strip(_BLANK)]
        return starts[present], ends[present]

    def decode(self, data: bytes) -> pa.RecordBatch:
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
        return self._decoded(data, rows)

    def refusals(self, data: bytes, starts: Indices, ends: Indices) -> dict[int, str]:
        found = {}
        for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist())):
            if reason := self._refusal(data[start:end]):
                found[index] = reason
        return found

    def reason(self, record: bytes, error: RefusedRecords) -> str:
        return self._refusal(record) or str(error)

    def _refusal(self, line: bytes) -> str | None:
        try:
            self._row(line)
        except RecursionError:
            return None
        except RefusedRecords as error:
            # Arrow's reader knows one more number than Python's.
            is_known_to_arrow = self._read_schema is not None and b"Inf" in line and "no JSON" in str(error)
            return None if is_known_to_arrow else str(error)
        return None

    # ---- two ways to read ---------------------------------------------------------------------------------------

    def _decoded(self, data: bytes, rows: int) -> pa.RecordBatch:
        """Read by Arrow, and value by value what Arrow refuses. Where that works, the next batches are tried so, too.

        Without this: a topic whose numbers are texts is read twice.
        """
        is_big = self._has_big_numbers and _NOT_FOR_ARROW.search(data) is not None
        if self._read_schema is not None and not self._passes_arrow_by and not is_big:
            try:
                return self._by_arrow(data, self._read_schema, rows)
            except RefusedRecords:
                batch = self._by_value(data)
                self._passes_arrow_by = _BATCHES_BY_VALUE if rows > 1 else 0
                return batch
        self._passes_arrow_by = max(0, self._passes_arrow_by - 1)
        return self._by_value(data)

    def _by_arrow(self, data: bytes, schema: pa.Schema, rows: int) -> pa.RecordBatch:
        unknown = "ignore" if self._ignores_unknown else "error"
        options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unknown)
        try:
            table = pa_json.read_json(
                pa.py_buffer(data), pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1), options
            )
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise RefusedRecords(str(error)) from error
        read = table.combine_chunks().to_batches()[0]
        if read.num_rows != rows:
            raise RefusedRecords("it is more than one object")
        columns = [
            _cast(read.column(name), kind, name)
            for name, kind in zip(self._row_type.field_names, self._row_type.field_types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _by_value(self, data: bytes) -> pa.RecordBatch:
        rows = [self._row(line) for line in data.split(b"\n") if line.strip(_BLANK)]
        try:
            return pa.RecordBatch.from_arrays(self._row_type.encode(rows), schema=self.schema)
        except (RowTypeError, pa.ArrowException, UnicodeEncodeError) as error:
            raise RefusedRecords(str(error)) from error

    def _row(self, line: bytes) -> tuple[Any, ...]:
        try:
            found = parsed(line.decode())
        except ValueError as error:
            raise RefusedRecords(f"it is no JSON: {error}") from error
        if not isinstance(found, dict):
            kind = "number" if isinstance(found, Number) else type(found).__name__
            raise RefusedRecords(f"it is no object, but {kind}")
        if not self._ignores_unknown:
            declared = self._row_type.field_names
            if extra := [name for name in found if name not in declared]:
                listed = ", ".join(map(repr, extra))
                raise RefusedRecords(f"unexpected field {listed}; declared are {', '.join(declared)}")
        try:
            row: tuple[Any, ...] = self._read_row(found)
        except UnreadableValue as error:
            raise RefusedRecords(str(error)) from error
        return row


def _cast(column: pa.Array, kind: ColumnType, name: str) -> pa.Array:
    try:
        if kind == SQL_TIME:
            column = pc.replace_substring_regex(column, "(Z|[+-]00:?00)$", "")
            column = pc.binary_join_element_wise("1970-01-01 ", column, "").cast(SQL_TIMESTAMP.arrow_type)
        if _holds(kind, (BIG_DEC,)):
            column = _with_decimal_texts(column, kind)
        return column if column.type == kind.arrow_type else column.cast(kind.arrow_type)
    except pa.ArrowException as error:
        raise RefusedRecords(f"field {name!r} is no {kind}: {error}") from error


def _with_decimal_texts(column: pa.Array, kind: ColumnType) -> pa.Array:
    """Return a column, or rows of columns, in which decimals are texts without zeros at their ends."""
    if isinstance(kind, RowType):
        columns = [_with_decimal_texts(c, k) for c, k in zip(column.flatten(), kind.field_types, strict=True)]
        return pa.StructArray.from_arrays(columns, list(kind.field_names), mask=column.is_null())
    if kind != BIG_DEC:
        return column
    texts = column.cast(pa.string())
    has_exponent = pc.fill_null(pc.match_substring(texts, "E"), False)
    plain = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    if not pc.any(has_exponent).as_py():
        return plain
    others = [str(without_zeros(Decimal(text))) for text in texts.filter(has_exponent).to_pylist()]
    return pc.replace_with_mask(plain, has_exponent, pa.array(others, pa.string()))
