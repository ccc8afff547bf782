"""Reads and writes messages that are Avro records, with PyFlink's schemas, in columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import RowType, TupleType
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import SinkError
from penstock.connectors.formats.avro.avro_decoding import decode_records
from penstock.connectors.formats.avro.avro_encoding import check_type, encode_records
from penstock.connectors.formats.avro.avro_types import AvroSchema, AvroType
from penstock.connectors.messages.decoding import ColumnarDeserializationSchema, MessageDecoder
from penstock.connectors.messages.encoding import ColumnarSerializationSchema


class AvroRowDeserializationSchema(ColumnarDeserializationSchema):
    """Reads Avro records as rows. They must have been written with this schema, without a header.

    Unions of null and another type are values that may be None; other unions, and records inside of themselves, are
    refused. Dates, times, timestamps (in UTC) and decimals are what their logical types say.

    Example:
        order = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
        AvroRowDeserializationSchema(avro_schema_string=order)

    Args:
        record_class: Refused: it is a class of Java.
        avro_schema_string: The schema, as JSON.

    Raises:
        TypeError: There is no schema, or a record of it cannot be a row. The message names the field.
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        self._schema = _schema_of(record_class, avro_schema_string)

    def get_produced_type(self) -> TypeInformation:
        return self._schema.record.type

    def message_decoder(self) -> MessageDecoder:
        """Return the decoder of whole batches."""
        return _AvroRows(self._schema.record)


def _schema_of(record_class: str | None, text: str | None) -> AvroSchema:
    if text is None:
        if record_class is None:
            raise TypeError("Avro rows need avro_schema_string=...")
        raise TypeError(
            f"record_class={record_class!r} is a class of Java, which Penstock does not run: give its schema, "
            "avro_schema_string=..."
        )
    schema = AvroSchema(text)
    _ = schema.record  # raises if the schema is not that of a record
    return schema


class _AvroRows(MessageDecoder):
    def __init__(self, record: AvroType) -> None:
        self._record = record

    @property
    def produced_type(self) -> ColumnType:
        return self._record.type

    def decode(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        return decode_records(self._record, [value for value in values if value is not None])


class AvroRowSerializationSchema(ColumnarSerializationSchema):
    """Writes rows as Avro records, without a header.

    Fields are taken by their names if those are the schema's, else by position.

    Args:
        record_class: Refused: it is a class of Java.
        avro_schema_string: The schema, as JSON.

    Raises:
        TypeError: There is no schema, or a record of it cannot be a row. The message names the field.
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        self._schema = _schema_of(record_class, avro_schema_string)

    def validate(self, input_type: TypeInformation | None) -> None:
        check_rows(self._schema.record, input_type)

    def written_type(self) -> TypeInformation:
        return self._schema.record.type

    def serialize_batch(self, batch: pa.RecordBatch, row_type: TypeInformation) -> list[bytes]:
        assert isinstance(row_type, (RowType, TupleType))
        return encode_records(self._schema.record, row_type, batch, b"")


def check_rows(record: AvroType, input_type: TypeInformation | None) -> None:
    """Check that rows of a type can be written as records of a type.

    Args:
        record: The type of the record.
        input_type: The type of the stream; None: the rows are pickled.

    Raises:
        SinkError: They cannot. The message names the field.
    """
    if not isinstance(input_type, (RowType, TupleType)):
        raise SinkError(
            "Avro records are written of rows and tuples, but the stream's rows are "
            f"{input_type or 'of no declared type'}: declare the type of the operator before the sink "
            "(output_type=Types.ROW_NAMED([...], [...]))"
        )
    check_type(input_type, record, "a row")
