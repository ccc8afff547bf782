"""Reads and writes messages that are JSON objects, with PyFlink's schemas, in columns."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import RowType
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import SinkError
from penstock.connectors.files.record_file import RefusedRecords
from penstock.connectors.formats.json.json_lines import JsonDecoder, JsonLinesFormat
from penstock.connectors.formats.json.json_writer import JsonLinesWriteFormat, json_lines
from penstock.connectors.messages.decoding import ColumnarDeserializationSchema, MessageDecoder, RefusedMessage
from penstock.connectors.messages.encoding import ColumnarSerializationSchema

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonRowDeserializationSchemaBuilder:
    """Builds a `JsonRowDeserializationSchema`."""

    def __init__(self) -> None:
        self._row_type: TypeInformation | None = None
        self._fails_on_missing_field = self._ignores_parse_errors = False

    def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchemaBuilder:
        """Set the type of the rows.

        Args:
            type_info: `Types.ROW_NAMED([names], [types])` of what `JsonLinesFormat.for_schema` reads.
        """
        self._row_type = type_info
        return self

    def fail_on_missing_field(self) -> JsonRowDeserializationSchemaBuilder:
        """Refuse objects that do not have all fields. The default is that missing fields are null."""
        self._fails_on_missing_field = True
        return self

    def ignore_parse_errors(self) -> JsonRowDeserializationSchemaBuilder:
        """Read fields that cannot be read as null, as Flink does, and leave out messages that are no objects.

        Those are counted. The default is that both fail the job.
        """
        self._ignores_parse_errors = True
        return self

    def build(self) -> JsonRowDeserializationSchema:
        """Return the schema.

        Returns:
            The schema.

        Raises:
            TypeError: The type is not set, is no type of rows with names, or has a field that JSON cannot represent.
            ValueError: `fail_on_missing_field` and `ignore_parse_errors` are both set, as in Flink.
        """
        if not isinstance(self._row_type, RowType):
            raise TypeError(
                "JSON rows need type_info(Types.ROW_NAMED([names], [types])), "
                f"got {'nothing' if self._row_type is None else self._row_type}"
            )
        if self._fails_on_missing_field and self._ignores_parse_errors:
            raise ValueError("fail_on_missing_field() and ignore_parse_errors() exclude each other")
        JsonLinesFormat.for_schema(self._row_type)  # refuses types that JSON cannot represent
        return JsonRowDeserializationSchema(
            self._row_type,
            fails_on_missing_field=self._fails_on_missing_field,
            ignores_parse_errors=self._ignores_parse_errors,
        )


class JsonRowDeserializationSchema(ColumnarDeserializationSchema):
    """Reads JSON objects as rows. Fields are found by name; those that an object does not have are null.

    Make it with `JsonRowDeserializationSchema.builder()`.
    """

    Builder = JsonRowDeserializationSchemaBuilder

    def __init__(self, row_type: RowType, *, fails_on_missing_field: bool, ignores_parse_errors: bool) -> None:
        self._row_type = row_type
        self._fails_on_missing_field = fails_on_missing_field
        self._ignores_parse_errors = ignores_parse_errors

    @staticmethod
    def builder() -> JsonRowDeserializationSchemaBuilder:
        """Return a builder of the schema."""
        return JsonRowDeserializationSchemaBuilder()

    def get_produced_type(self) -> TypeInformation:
        return self._row_type

    def message_decoder(self) -> MessageDecoder:
        """Return the decoder of whole batches."""
        return JsonRows(self._row_type, self._fails_on_missing_field, self._ignores_parse_errors)


class JsonRows(MessageDecoder):
    """Decodes JSON objects, one per message."""

    def __init__(self, row_type: RowType, fails_on_missing_field: bool, skips_refused: bool) -> None:
        self._row_type = row_type
        # As in Flink, errors that are ignored make a field null if they are in a field.
        self._lines = JsonDecoder(row_type, ignores_unknown=True, unreadable_is_null=skips_refused)
        self._fails_on_missing_field = fails_on_missing_field
        self.skips_refused = skips_refused

    @property
    def produced_type(self) -> RowType:
        return self._row_type

    def decode(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        texts = [value.removeprefix(_BYTE_ORDER_MARK) for value in values if value is not None]
        data = b"\n".join(texts)
        if data.count(b"\n") != max(len(texts) - 1, 0):
            # To JSON, both a line feed and a carriage return are white space between fields, and errors in a string.
            data = b"\n".join([text.replace(b"\n", b"\r") for text in texts])
        try:
            rows = self._lines.decode(data)
        except RefusedRecords as error:
            raise RefusedMessage(self._reason(data, error) if len(texts) == 1 else str(error)) from None
        if rows.num_rows != len(texts):
            raise RefusedMessage("it is empty")
        if self._fails_on_missing_field and any(column.null_count for column in rows.columns):
            self._raise_where_missing(texts)
        return rows

    def _reason(self, data: bytes, error: RefusedRecords) -> str:
        try:
            found = self._lines.refusals(data, np.array([0]), np.array([len(data)]))
            return found.get(0) or self._lines.reason(data, error)
        except (ValueError, AttributeError):
            return str(error)

    def _raise_where_missing(self, texts: Sequence[bytes]) -> None:
        for text in texts:
            missing = [name for name in self._row_type.field_names if name not in json.loads(text)]
            if missing:
                raise RefusedMessage(f"it has no field {', '.join(map(repr, missing))}")


class JsonRowSerializationSchemaBuilder:
    """Builds a `JsonRowSerializationSchema`."""

    def __init__(self) -> None:
        self._row_type: TypeInformation | None = None

    def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchemaBuilder:
        """Set the type of the rows.

        Args:
            type_info: `Types.ROW_NAMED([names], [types])`. Without one, it is that of the stream.
        """
        self._row_type = type_info
        return self

    def build(self) -> JsonRowSerializationSchema:
        """Return the schema."""
        return JsonRowSerializationSchema(self._row_type)


class JsonRowSerializationSchema(ColumnarSerializationSchema):
    """Writes rows as JSON objects. Make it with `JsonRowSerializationSchema.builder()`.

    Dates and times are written as ISO 8601, null fields as null.
    """

    Builder = JsonRowSerializationSchemaBuilder

    def __init__(self, row_type: TypeInformation | None) -> None:
        self._row_type = row_type

    @staticmethod
    def builder() -> JsonRowSerializationSchemaBuilder:
        """Return a builder of the schema."""
        return JsonRowSerializationSchemaBuilder()

    def validate(self, input_type: TypeInformation | None) -> None:
        JsonLinesWriteFormat(self._row_type).validate(input_type)

    def written_type(self) -> TypeInformation:
        if self._row_type is None:
            raise TypeError("JSON rows are written by themselves only with_type_info(Types.ROW_NAMED(...))")
        return self._row_type

    def serialize_batch(self, batch: pa.RecordBatch, row_type: TypeInformation) -> list[bytes]:
        assert isinstance(row_type, ColumnType)
        lines = bytes(json_lines(batch, row_type)).split(b"\n")
        lines.pop()  # the empty text behind the last line end
        if len(lines) != batch.num_rows:
            raise SinkError("a row became JSON text of several lines: an error of Penstock's own")
        return lines
