"""Reads and writes Avro records with the framing of the Confluent Schema Registry, in columns."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import RowType, TupleType
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.formats.avro.avro_decoding import decode_records
from penstock.connectors.formats.avro.avro_encoding import encode_records
from penstock.connectors.formats.avro.avro_rows import check_rows
from penstock.connectors.formats.avro.avro_types import AvroSchema, avro_library, other_unit
from penstock.connectors.formats.avro.schema_registry import RegistrySettings, SchemaRegistry, UnknownSchema
from penstock.connectors.messages.decoding import ColumnarDeserializationSchema, MessageDecoder, RefusedMessage
from penstock.connectors.messages.encoding import ColumnarSerializationSchema

_HEADER = struct.Struct(">bi")


class ConfluentRegistryAvroDeserializationSchema(ColumnarDeserializationSchema):
    """Reads Avro records that begin with the id of their schema in a Confluent Schema Registry.

    Rows are those of the schema that is given here. A record of another one is read by Avro's rules for that, one by
    one: fields by name, defaults for those that it does not have.

    Make it with `ConfluentRegistryAvroDeserializationSchema.for_generic(...)`.
    """

    def __init__(self, schema: AvroSchema, settings: RegistrySettings) -> None:
        self._schema = schema
        self._settings = settings

    @staticmethod
    def for_generic(
        schema: str, url: str, registry_configs: Mapping[str, str] | None = None
    ) -> ConfluentRegistryAvroDeserializationSchema:
        """Make the schema.

        Args:
            schema: The Avro schema of the rows, as JSON.
            url: The registry, `http://host:port`; several addresses of it with commas.
            registry_configs: Properties by Confluent's names: `basic.auth.user.info` (user:password),
                `bearer.auth.token`, `ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`,
                `http.read.timeout.ms` (10000), `max.retries` (3), `retries.wait.ms` (500), `retries.max.wait.ms`
                (5000).

        Returns:
            The schema. Raises ValueError for a property that is not known, TypeError for a schema that is no row.
        """
        found = AvroSchema(schema)
        _ = found.record  # refuses what is no row
        return ConfluentRegistryAvroDeserializationSchema(found, RegistrySettings.of(url, registry_configs))

    def get_produced_type(self) -> TypeInformation:
        return self._schema.record.type

    def message_decoder(self) -> MessageDecoder:
        """Return the decoder of whole batches."""
        return _RegistryRows(self._schema, self._settings)


class _RegistryRows(MessageDecoder):
    def __init__(self, schema: AvroSchema, settings: RegistrySettings) -> None:
        self._schema = schema
        self._registry = SchemaRegistry(settings)
        self._why: dict[int, str | None] = {}

    @property
    def produced_type(self) -> ColumnType:
        return self._schema.record.type

    def check(self) -> None:
        self._registry.check()

    def decode(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        messages = [value for value in values if value is not None]
        by_header: dict[bytes, list[int]] = {}
        for index, message in enumerate(messages):
            by_header.setdefault(message[: _HEADER.size], []).append(index)
        if len(by_header) == 1:
            return self._decode(next(iter(by_header)), messages)
        if not messages:
            return decode_records(self._schema.record, [])
        parts = [self._decode(header, [messages[i] for i in mine]) for header, mine in by_header.items()]
        order = np.concatenate(list(by_header.values()))
        return pa.concat_batches(parts).take(pa.array(np.argsort(order)))

    def _decode(self, header: bytes, messages: list[bytes]) -> pa.RecordBatch:
        if len(header) < _HEADER.size or header[0]:
            raise RefusedMessage("it does not begin with a zero byte and the id of a schema, as of a schema registry")
        schema_id = _HEADER.unpack(header)[1]
        try:
            written = self._registry.schema(schema_id)
            is_ours = written.canonical == self._schema.canonical
        except UnknownSchema as error:
            raise RefusedMessage(str(error)) from None
        except ValueError as error:
            raise RefusedMessage(f"schema {schema_id} of the registry: {error}") from None
        if is_ours and not self._why_other(written, schema_id):
            return decode_records(self._schema.record, messages, _HEADER.size)
        if why := self._why_other(written, schema_id):
            raise RefusedMessage(f"schema {schema_id} of the registry: {why}: its values would be others")
        return decode_records(self._schema.record, self._converted(messages, written, schema_id))

    def _why_other(self, written: AvroSchema, schema_id: int) -> str | None:
        """Return the reason for which values of a schema would be read with another meaning; None if there is none."""
        if schema_id not in self._why:
            try:
                self._why[schema_id] = other_unit(self._schema.record, written.record)
            except TypeError:  # of a schema that no row has; what it has for ours is found field by field
                self._why[schema_id] = None
        return self._why[schema_id]

    def _converted(self, messages: list[bytes], written: AvroSchema, schema_id: int) -> list[bytes]:
        """Return the messages as our own schema would have written them."""
        library, ours, theirs = avro_library(), self._schema.physical, written.physical
        found = []
        for message in messages:
            stream, out = io.BytesIO(message), io.BytesIO()
            stream.seek(_HEADER.size)
            try:
                record = library.schemaless_reader(stream, theirs, ours)
                library.schemaless_writer(out, ours, record)
            except Exception as error:
                what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                raise RefusedMessage(
                    f"it is cut off, or a record of schema {schema_id} of the registry is none of the source's: {what}"
                ) from None
            if stream.tell() != len(message):
                raise RefusedMessage(
                    f"there are bytes behind the last field of its schema, {schema_id} of the registry"
                )
            found.append(out.getvalue())
        return found


class ConfluentRegistryAvroSerializationSchema(ColumnarSerializationSchema):
    """Writes Avro records that begin with the id of their schema in a Confluent Schema Registry.

    Make it with `ConfluentRegistryAvroSerializationSchema.for_generic(...)`.
    """

    def __init__(self, subject: str, schema: AvroSchema, settings: RegistrySettings) -> None:
        self._subject = subject
        self._schema = schema
        self._registry = SchemaRegistry(settings)

    @staticmethod
    def for_generic(
        subject: str, schema: str, url: str, registry_configs: Mapping[str, str] | None = None
    ) -> ConfluentRegistryAvroSerializationSchema:
        """Make the schema.

        Args:
            subject: Under what name the schema is registered: `TOPIC-value` is what other clients expect.
            schema: The Avro schema, as JSON.
            url: The registry, `http://host:port`; several addresses of it with commas.
            registry_configs: As for `ConfluentRegistryAvroDeserializationSchema.for_generic`, and
                `auto.register.schemas` (true): false if the schema must be registered already.

        Returns:
            The schema. Raises ValueError for a property that is not known, TypeError for a schema that is no row.
        """
        found = AvroSchema(schema)
        _ = found.record  # refuses what is no row
        settings = RegistrySettings.of(url, registry_configs)
        return ConfluentRegistryAvroSerializationSchema(subject, found, settings)

    def validate(self, input_type: TypeInformation | None) -> None:
        check_rows(self._schema.record, input_type)
        self._header()

    def written_type(self) -> TypeInformation:
        return self._schema.record.type

    def serialize_batch(self, batch: pa.RecordBatch, row_type: TypeInformation) -> list[bytes]:
        assert isinstance(row_type, (RowType, TupleType))
        return encode_records(self._schema.record, row_type, batch, self._header())

    def _header(self) -> bytes:
        return _HEADER.pack(0, self._registry.id_of(self._subject, self._schema.text))
