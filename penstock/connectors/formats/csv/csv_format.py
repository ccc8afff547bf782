"""Reads and writes files of CSV."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from penstock.common.row_types.composite_types import ListType, RowType
from penstock.common.row_types.scalar_types import BIG_DEC, BIG_INT
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import MalformedRecord, SinkError
from penstock.connectors.files.file_formats import FileReadFormat, FileShape, FileWriteFormat, OpenFile, PartWriter
from penstock.connectors.files.input_file import InputFile
from penstock.connectors.files.malformed_rows import MalformedRows
from penstock.connectors.files.record_file import Indices, RecordDecoder, RecordFile, RefusedRecords, bounds_of_lines
from penstock.connectors.formats.csv.csv_records import RecordEnds
from penstock.connectors.formats.csv.csv_schema import CsvSchema
from penstock.connectors.formats.text.text_bytes import TextBytes, text_bounds

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEAD_BYTES = 1 << 16
_HEAD_BYTES_MAX = 16 << 20

_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?(?:CSV conversion error to )?(.*)", re.DOTALL)

_SPELLINGS = {
    "int": r"^[ \t]*[-+]?([0-9]+|0[xX][0-9a-fA-F]+)[ \t]*$",
    "float": r"(?i)^[ \t]*[-+]?([0-9]+\.?[0-9]*(e[-+]?[0-9]+)?|\.[0-9]+(e[-+]?[0-9]+)?|inf(inity)?|nan.*)[ \t]*$",
    "temporal": r"^[ \t]*[0-9][-0-9T:. Z+]*[ \t]*$",
    BIG_INT: r"^[-+]?[0-9]+$",
    BIG_DEC: r"(?i)^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?$",
}
"""The pattern of values of each kind: of BIG_INT and BIG_DEC exactly, of others a wider one, so that what does not
match need not be tried."""


class CsvReaderFormat(FileReadFormat):
    """Reads CSV in columns, in UTF-8, compressed or not (.gz, .bz2, .zst).

    A row must have the schema's columns and values of their types; `malformed_rows` chooses what happens to others.
    Values in quotes may contain line breaks, so files are read whole, a split each, unless the schema has no quotes
    (`disable_quote_char()`).

    Example:
        schema = CsvSchema.builder().add_string_column("user").add_number_column("amount", Types.DOUBLE()).build()
        source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), "/data/orders").build()
    """

    def __init__(self, schema: CsvSchema, malformed_rows: MalformedRows | None = None) -> None:
        if not isinstance(schema, CsvSchema):
            hint = "; call build() on it" if hasattr(schema, "build") else ""
            raise TypeError(f"CsvReaderFormat.for_schema() takes a CsvSchema, got {schema!r}{hint}")
        self._schema = schema
        self.malformed_rows = malformed_rows or MalformedRows.fail()
        if schema.quote_char is not None or schema.escape_char is not None:
            self.unsplit_because = (
                "values of this CSV may contain line breaks, in quotes or escaped. Where they do not, and nothing is "
                "quoted, say so with disable_quote_char() and disable_escape_char()."
            )

    @staticmethod
    def for_schema(schema: CsvSchema, malformed_rows: MalformedRows | None = None) -> CsvReaderFormat:
        """Make the format of a schema.

        Args:
            schema: The columns, and the characters between them.
            malformed_rows: `MalformedRows.fail()` (the default), `.skip()` or `.side_output(tag)`.

        Returns:
            The format. Raises TypeError if `schema` is a builder.
        """
        return CsvReaderFormat(schema, malformed_rows)

    def with_ignore_parse_errors(self) -> CsvReaderFormat:
        """Skip rows that cannot be read: Flink's name for `MalformedRows.skip()`."""
        return CsvReaderFormat(self._schema, MalformedRows.skip())

    @property
    def known_type(self) -> TypeInformation:
        return self._schema.row_type

    def inspect(self, file: InputFile) -> FileShape:
        _, first_record = self._layout(file)
        return FileShape(self._schema.row_type, text_bounds(file, first_record, not self.unsplit_because))

    def open(self, file: InputFile, row_type: TypeInformation) -> OpenFile:
        names, first_record = self._layout(file)
        return RecordFile(file, CsvDecoder(self._schema, names), self.malformed_rows, first_record)

    def _layout(self, file: InputFile) -> tuple[list[str], int]:
        """Return the names of the file's columns, in its order, and where its first record begins.

        Raises `SourceError`.
        """
        schema = self._schema
        passed_over = int(schema.use_header) + int(schema.skip_first_data_row)
        text = TextBytes(file)
        try:
            head = text.read(_HEAD_BYTES)
            start = len(_BYTE_ORDER_MARK) if head.startswith(_BYTE_ORDER_MARK) else 0
            while passed_over:
                ends = _record_ends(schema).find(head[start:]) + start
                if len(ends) >= passed_over:
                    break
                more = text.read(len(head)) if len(head) < _HEAD_BYTES_MAX else b""
                if not more:
                    ends = np.append(ends, [len(head)] * (passed_over - len(ends)))
                    break
                head += more
        finally:
            text.close()
        if not passed_over:
            return schema.names, start
        names = schema.names
        if schema.use_header and (schema.strict_headers or schema.reorder_columns):
            names = self._header(file.path, head[start : int(ends[0])])
        return names, int(ends[passed_over - 1])

    def _header(self, path: str, record: bytes) -> list[str]:
        schema = self._schema
        try:
            found: list[str] = pa_csv.read_csv(
                pa.py_buffer(record.rstrip(b"\r\n") + b"\n"), parse_options=_parse_options(schema)
            ).column_names
        except pa.ArrowException as error:
            raise MalformedRecord(f"{path} has no header that can be read: {error}") from error
        missing = [name for name in schema.names if name not in found]
        if missing:
            raise MalformedRecord(
                f"{path}, line 1: the header has no column {', '.join(map(repr, missing))}; it has {', '.join(found)}"
            )
        extra = [name for name in found if name not in schema.names]
        if schema.strict_headers and extra:
            raise MalformedRecord(f"{path}, line 1: the header has columns that the schema has not: {', '.join(extra)}")
        if len(set(found)) != len(found):
            raise MalformedRecord(f"{path}, line 1: names in the header repeat: {', '.join(found)}")
        if not schema.reorder_columns and found != schema.names:
            raise MalformedRecord(
                f"{path}, line 1: the header is {', '.join(found)}, the schema's order {', '.join(schema.names)}. "
                "With set_reorder_columns() columns are found by their names."
            )
        return found


def _record_ends(schema: CsvSchema) -> RecordEnds:
    return RecordEnds(
        schema.column_separator.encode(),
        schema.quote_char.encode() if schema.quote_char else None,
        schema.escape_char.encode() if schema.escape_char else None,
    )


def _parse_options(schema: CsvSchema) -> pa_csv.ParseOptions:
    return pa_csv.ParseOptions(
        delimiter=schema.column_separator,
        quote_char=schema.quote_char or False,
        escape_char=schema.escape_char or False,
        newlines_in_values=True,
    )


class CsvDecoder(RecordDecoder):
    """Decodes records of CSV. `names` are the columns of the file, in its order."""

    way_out = (
        "Correct the file, or say what becomes of such rows: "
        "CsvReaderFormat.for_schema(schema, MalformedRows.skip()) or MalformedRows.side_output(tag)."
    )

    def __init__(self, schema: CsvSchema, names: list[str]) -> None:
        self._csv = schema
        self._names = names
        self._row_type = schema.row_type
        self._ends = _record_ends(schema)
        self.line_breaks_in_records = schema.quote_char is not None or schema.escape_char is not None
        as_text = {name for name, kind in schema.columns if kind in (BIG_INT, BIG_DEC) or isinstance(kind, ListType)}
        types = {f.name: pa.string() if f.name in as_text else f.type for f in self._row_type.schema}
        self._convert = self._convert_options(types)
        self._convert_to_text = self._convert_options(dict.fromkeys(types, pa.binary()))

    @property
    def schema(self) -> pa.Schema:
        return self._row_type.schema

    def end_of_last(self, data: bytes) -> int:
        if not self.line_breaks_in_records:
            return super().end_of_last(data)
        ends = self._ends.find(data)
        return int(ends[-1]) if len(ends) else 0

    def is_whole(self, record: bytes) -> bool:
        closed = record + b"\n"
        return self.end_of_last(closed) == len(closed)

    def bounds(self, data: bytes) -> tuple[Indices, Indices]:
        return bounds_of_lines(data, self._ends.find(data))

    def decode(self, data: bytes) -> pa.RecordBatch:
        read = self._read(data, self._convert, _parse_options(self._csv))
        columns = [self._column(name, read.column(name)) for name in self._csv.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def refusals(self, data: bytes, starts: Indices, ends: Indices) -> dict[int, str]:
        found: dict[int, str] = {}
        options = _parse_options(self._csv)

        def note(row: pa_csv.InvalidRow) -> str:
            found[row.number - 1] = f"it has {row.actual_columns} fields, not {row.expected_columns}"
            return "skip"

        options.invalid_row_handler = note
        try:
            texts = self._read(data, self._convert_to_text, options)
        except RefusedRecords:
            return {}
        if texts.num_rows + len(found) != len(starts):
            return {}  # lone carriage returns end rows, too
        indices = np.delete(np.arange(len(starts)), sorted(found))
        for name, kind in self._csv.columns:
            spelling = _spelling_of(kind, self.schema.field(name).type)
            if spelling is not None:
                column = texts.column(name)
                matches = pc.match_substring_regex(column.cast(pa.large_binary()), spelling)
                is_null = pc.is_in(column, pa.array([self._null_value], pa.string()).cast(pa.binary()))
                for row in np.flatnonzero(~pc.or_(matches, is_null).to_numpy(zero_copy_only=False)).tolist():
                    shown = column[row].as_py().decode(errors="replace")
                    found.setdefault(int(indices[row]), f"field {name!r}: {shown!r} is no {kind}")
        return found

    def reason(self, record: bytes, error: RefusedRecords) -> str:
        text = str(error)
        if count := re.search(r"Expected (\d+) columns, got (\d+)", text):
            return f"it has {count[2]} fields, not {count[1]}"
        if column := _CONVERSION.search(text):
            name = self._names[int(column[1])]
            kind = dict(self._csv.columns).get(name)
            return f"field {name!r} is no {kind} ({column[2]})"
        return text

    @property
    def _null_value(self) -> str:
        return self._csv.null_value or ""

    def _convert_options(self, types: dict[str, pa.DataType]) -> pa_csv.ConvertOptions:
        return pa_csv.ConvertOptions(
            column_types=types,
            include_columns=self._csv.names,
            null_values=[self._null_value],
            strings_can_be_null=self._csv.null_value is not None and set(types.values()) != {pa.binary()},
            quoted_strings_can_be_null=self._csv.null_value is None,
        )

    def _read(self, data: bytes, convert: pa_csv.ConvertOptions, parse: pa_csv.ParseOptions) -> pa.RecordBatch:
        if not data.strip(b"\r\n"):
            return pa.RecordBatch.from_pylist([], schema=pa.schema(convert.column_types.items()))
        options = pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._names)
        try:
            table = pa_csv.read_csv(pa.py_buffer(data), options, parse, convert)
        except pa.ArrowException as error:
            raise RefusedRecords(str(error)) from error
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)

    def _column(self, name: str, column: pa.Array) -> pa.Array:
        kind = self._row_type.field_types[self._row_type.field_names.index(name)]
        if kind in (BIG_INT, BIG_DEC):
            present = pc.if_else(pc.equal(column, self._null_value), pa.scalar(None, pa.string()), column)
            if not pc.all(pc.match_substring_regex(present, _SPELLINGS[kind]), min_count=0).as_py():
                raise RefusedRecords(f"field {name!r} is no {kind}")
            return present
        if isinstance(kind, ListType):
            lists = pc.split_pattern(column, self._csv.array_separator(name))
            lists = pc.if_else(pc.equal(column, ""), pa.scalar([], pa.list_(pa.string())), lists)
            try:
                return lists.cast(kind.arrow_type)
            except pa.ArrowException as error:
                raise RefusedRecords(f"field {name!r} is no {kind}: {error}") from error
        return column


def _spelling_of(kind: object, arrow: pa.DataType) -> str | None:
    if kind in (BIG_INT, BIG_DEC) or pa.types.is_decimal(arrow):
        return _SPELLINGS[BIG_INT if kind == BIG_INT else BIG_DEC]
    if pa.types.is_integer(arrow):
        return _SPELLINGS["int"]
    if pa.types.is_floating(arrow):
        return _SPELLINGS["float"]
    return _SPELLINGS["temporal"] if pa.types.is_temporal(arrow) else None


class CsvBulkWriters:
    """Makes the format that CSV is written in."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvWriteFormat:
        """Make the format of a schema: strings in quotes, null as an empty field, a header if the schema has one.

        Args:
            schema: The columns, and the characters between them.

        Returns:
            The format. Raises ValueError for another quote char than '"', an escape char, or a text for null.
        """
        return CsvWriteFormat(schema)


class CsvWriteFormat(FileWriteFormat):
    """Writes CSV: strings in quotes, null as an empty field."""

    default_suffix = ".csv"

    def __init__(self, schema: CsvSchema) -> None:
        if schema.quote_char != '"' or schema.escape_char is not None or schema.null_value:
            raise ValueError("CSV is written with '\"' as quote char, without escape char, and with null as nothing")
        self._schema = schema
        if schema.use_header:
            self.unconcatenable_because = (
                "each file of this CSV begins with a header, which would be read as a row; write it without one "
                "(set_use_header(False)), or take FileCompactor.identical_file_compactor()"
            )

    def validate(self, input_type: TypeInformation | None) -> None:
        expected = self._schema.row_type
        if input_type is None or [f.type for f in input_type.schema] != [f.type for f in expected.schema]:
            raise SinkError(f"the CSV writer's columns are {expected}, but the stream's rows are {input_type}")

    def start(self, file: BinaryIO, input_type: TypeInformation | None) -> PartWriter:
        schema = self._schema
        if input_type is not None and len(input_type.schema) != len(schema):
            # Columns that make the bucket are not in the file.
            left = [(name, kind) for name, kind in schema.columns if name in input_type.schema.names]
            schema = replace(schema, columns=tuple(left))
        return _CsvPart(file, schema)


class _CsvPart(PartWriter):
    def __init__(self, file: BinaryIO, schema: CsvSchema) -> None:
        super().__init__(file)
        self._schema = schema
        row_type: RowType = schema.row_type
        self._columns = pa.schema(
            [(f.name, pa.string() if pa.types.is_list(f.type) else f.type) for f in row_type.schema]
        )
        options = pa_csv.WriteOptions(
            include_header=schema.use_header, delimiter=schema.column_separator, eol=schema.line_separator
        )
        self._writer = pa_csv.CSVWriter(file, self._columns, write_options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        columns = []
        for index, (name, kind) in enumerate(self._schema.columns):
            column = batch.column(index)
            if isinstance(kind, ListType):
                texts = column.cast(pa.list_(pa.string()))
                column = pc.binary_join(texts, self._schema.array_separator(name))
            columns.append(column)
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._columns))

    def finish(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        with contextlib.suppress(pa.ArrowException, OSError):
            self._writer.close()
