"""Reads and writes messages that are records of CSV, with PyFlink's schemas, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import pyarrow as pa

from penstock.common.row_types.composite_types import RowType
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import SinkError
from penstock.connectors.files.record_file import RefusedRecords
from penstock.connectors.formats.csv.csv_format import CsvDecoder
from penstock.connectors.formats.csv.csv_records import RecordEnds
from penstock.connectors.formats.csv.csv_schema import CsvSchema, CsvSchemaBuilder
from penstock.connectors.formats.csv.csv_texts import CsvTexts
from penstock.connectors.messages.decoding import ColumnarDeserializationSchema, MessageDecoder, RefusedMessage
from penstock.connectors.messages.encoding import ColumnarSerializationSchema

_LINE_DELIMITERS = ("", "\n", "\r", "\r\n")


def _schema_of(type_info: TypeInformation) -> CsvSchemaBuilder:
    if not isinstance(type_info, RowType):
        raise TypeError(f"CSV rows need Types.ROW_NAMED([names], [types]), got {type_info}")
    return CsvSchema.builder().add_columns_from(CsvSchema.of(type_info))


class _Builder:
    """Builds a schema of CSV: what reading and writing have in common."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._schema = _schema_of(type_info)

    def set_array_element_delimiter(self, delimiter: str) -> Self:
        """Set the text between two elements of a list. The default is a semicolon.

        Args:
            delimiter: The text.
        """
        self._schema.set_array_element_separator(delimiter)
        return self

    def set_quote_character(self, c: str) -> Self:
        """Set the character around fields that contain others of this format. The default is '"'.

        Args:
            c: An ASCII character.
        """
        self._schema.set_quote_char(c)
        return self

    def set_escape_character(self, c: str) -> Self:
        """Set the character that takes the meaning from the one behind it. By default there is none.

        Args:
            c: An ASCII character.
        """
        self._schema.set_escape_char(c)
        return self


class CsvRowDeserializationSchema(ColumnarDeserializationSchema):
    """Reads records of CSV as rows, one per message. Make it with `CsvRowDeserializationSchema.Builder(type_info)`.

    A line end behind the record is allowed, and line breaks in quotes. Unlike in Flink, an empty field of another type
    than STRING is null, and a message of several records is refused instead of read in part.
    """

    def __init__(self, schema: CsvSchema, *, allows_comments: bool, ignores_parse_errors: bool) -> None:
        self._schema = schema
        self._allows_comments = allows_comments
        self._ignores_parse_errors = ignores_parse_errors

    def get_produced_type(self) -> TypeInformation:
        return self._schema.row_type

    def message_decoder(self) -> MessageDecoder:
        """Return the decoder of whole batches."""
        return _CsvRows(self._schema, self._allows_comments, self._ignores_parse_errors)

    class Builder(_Builder):
        """Builds a `CsvRowDeserializationSchema`.

        Args:
            type_info: `Types.ROW_NAMED([names], [types])` of numbers, BOOLEAN, STRING, dates, times, bytes, and lists
                of them. Fields are read in this order.

        Raises:
            TypeError: It is no type of rows, or has a field that is no text of CSV.
        """

        def __init__(self, type_info: TypeInformation) -> None:
            super().__init__(type_info)
            self._allows_comments = self._ignores_parse_errors = False

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character between two fields. The default is a comma.

            Args:
                delimiter: An ASCII character.
            """
            self._schema.set_column_separator(delimiter)
            return self

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether lines that begin with # may stand before a record. By default they are part of it.

            Args:
                allow_comments: True or False.
            """
            self._allows_comments = allow_comments
            return self

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Set the text that means null, unless it is quoted.

            Args:
                null_literal: The text.
            """
            self._schema.set_null_value(null_literal)
            return self

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> CsvRowDeserializationSchema.Builder:
            """Leave out messages that cannot be read, and count them. The default is that they fail the job.

            Args:
                ignore_parse_errors: True or False.
            """
            self._ignores_parse_errors = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """Return the schema.

            Returns:
                The schema. Raises ValueError if its characters contradict each other.
            """
            return CsvRowDeserializationSchema(
                self._schema.build(),
                allows_comments=self._allows_comments,
                ignores_parse_errors=self._ignores_parse_errors,
            )


class _CsvRows(MessageDecoder):
    def __init__(self, schema: CsvSchema, allows_comments: bool, skips_refused: bool) -> None:
        self._row_type = schema.row_type
        self._records = CsvDecoder(schema, schema.names)
        quote, escape = (None if c is None else c.encode() for c in (schema.quote_char, schema.escape_char))
        self._ends = RecordEnds(schema.column_separator.encode(), quote, escape)
        self._allows_comments = allows_comments
        self.skips_refused = skips_refused

    @property
    def produced_type(self) -> RowType:
        return self._row_type

    def decode(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        data, records, last = self._joined([value for value in values if value is not None])
        try:
            rows = self._records.decode(data)
            # A line is at most one row: as many rows as lines are a row for each. Only the last may be cut off.
            if rows.num_rows != records or not self._records.is_whole(last):
                raise RefusedRecords("it is no single record: it is empty, or has a quote that is never closed")
        except RefusedRecords as error:
            if records == 1:
                raise RefusedMessage(self._reason(data, error)) from None
            raise RefusedMessage(str(error)) from None
        return rows

    def _joined(self, texts: list[bytes]) -> tuple[bytes, int, bytes]:
        """Return the records as one text, in which each message is a record by itself, their number, and the last."""
        if self._allows_comments and any(text.startswith(b"#") for text in texts):
            texts = [_without_comments(text) for text in texts]
        data = b"\n".join(texts)
        if data.count(b"\n") == max(len(texts) - 1, 0) and b"\r" not in data:
            return data, len(texts), texts[-1] if texts else b""
        texts = [text.rstrip(b"\r\n") for text in texts]
        if not all(texts):
            raise RefusedMessage("it is empty")
        data = b"\n".join(texts)
        ends = self._ends.find(data + b"\n")
        if not np.array_equal(ends, np.cumsum([len(text) + 1 for text in texts])):
            raise RefusedMessage("it is no single record: it has a line break outside of quotes, or an open quote")
        return data, len(texts), texts[-1]

    def _reason(self, data: bytes, error: RefusedRecords) -> str:
        reason = self._records.reason(data, error)
        if not reason.startswith("field "):
            return reason
        return self._records.refusals(data, np.array([0]), np.array([len(data)])).get(0, reason)


def _without_comments(text: bytes) -> bytes:
    while text.startswith(b"#"):
        text = text.partition(b"\n")[2]
    return text


class CsvRowSerializationSchema(ColumnarSerializationSchema):
    """Writes rows as records of CSV, one per message. Make it with `CsvRowSerializationSchema.Builder(type_info)`.

    As in Flink, a message ends with a line end, which `set_line_delimiter("")` leaves out. Fields are quoted only if
    they must be.
    """

    def __init__(self, schema: CsvSchema, line_delimiter: str) -> None:
        self._schema = schema
        self._line_delimiter = line_delimiter

    def validate(self, input_type: TypeInformation | None) -> None:
        expected = self._schema.row_type
        if input_type is None or [f.type for f in input_type.schema] != [f.type for f in expected.schema]:
            raise SinkError(f"the CSV rows are declared as {expected}, but the stream's rows are {input_type}")

    def written_type(self) -> TypeInformation:
        return self._schema.row_type

    def serialize_batch(self, batch: pa.RecordBatch, row_type: TypeInformation) -> list[bytes]:
        return CsvTexts(self._schema, self._line_delimiter).of(batch)

    class Builder(_Builder):
        """Builds a `CsvRowSerializationSchema`.

        Args:
            type_info: `Types.ROW_NAMED([names], [types])`, as for `CsvRowDeserializationSchema.Builder`.

        Raises:
            TypeError: It is no type of rows, or has a field that is no text of CSV.
        """

        def __init__(self, type_info: TypeInformation) -> None:
            super().__init__(type_info)
            self._line_delimiter = "\n"

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character between two fields. The default is a comma.

            Args:
                c: An ASCII character.
            """
            self._schema.set_column_separator(c)
            return self

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the line delimiter at the end of each message. The default is a line feed.

            Args:
                delimiter: A line feed, a carriage return, both, or nothing.

            Raises:
                ValueError: It is something else.
            """
            if delimiter not in _LINE_DELIMITERS:
                raise ValueError(f"a line delimiter is '', '\\n', '\\r' or '\\r\\n', not {delimiter!r}")
            self._line_delimiter = delimiter
            return self

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Disable quotes. A field that needs them is escaped, or refused if there is no escape character."""
            self._schema.disable_quote_char()
            return self

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """Set the text that is written for null. The default is none.

            Args:
                s: The text.
            """
            self._schema.set_null_value(s)
            return self

        def build(self) -> CsvRowSerializationSchema:
            """Return the schema.

            Returns:
                The schema. Raises ValueError if its characters contradict each other.
            """
            return CsvRowSerializationSchema(self._schema.build(), self._line_delimiter)
