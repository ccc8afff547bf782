"""Offers PyFlink's schemas for messages that are JSON objects, and formats for files of JSON lines."""

from penstock.connectors.files.malformed_rows import MALFORMED_ROW_TYPE, MalformedRows
from penstock.connectors.formats.json.debezium_rows import (
    DebeziumJsonDeserializationSchema,
    DebeziumJsonDeserializationSchemaBuilder,
)
from penstock.connectors.formats.json.json_lines import JsonLinesFormat
from penstock.connectors.formats.json.json_rows import (
    JsonRowDeserializationSchema,
    JsonRowDeserializationSchemaBuilder,
    JsonRowSerializationSchema,
    JsonRowSerializationSchemaBuilder,
)
from penstock.connectors.formats.json.json_writer import JsonLinesBulkWriters

__all__ = [
    "JsonRowDeserializationSchema", "JsonRowDeserializationSchemaBuilder", "JsonRowSerializationSchema",
    "JsonRowSerializationSchemaBuilder", "DebeziumJsonDeserializationSchema",
    "DebeziumJsonDeserializationSchemaBuilder", "JsonLinesFormat", "JsonLinesBulkWriters", "MalformedRows",
    "MALFORMED_ROW_TYPE",
]  # fmt: skip
