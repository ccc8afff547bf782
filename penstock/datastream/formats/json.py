"""Offers PyFlink's schemas for messages that are JSON objects, and formats for files of JSON lines."""

from penstock.connectors.files.json_lines import JsonLinesFormat
from penstock.connectors.files.json_writer import JsonLinesBulkWriters
from penstock.connectors.files.malformed_rows import MALFORMED_ROW_TYPE, MalformedRows
from penstock.connectors.messages.debezium_rows import (
    DebeziumJsonDeserializationSchema,
    DebeziumJsonDeserializationSchemaBuilder,
)
from penstock.connectors.messages.json_rows import (
    JsonRowDeserializationSchema,
    JsonRowDeserializationSchemaBuilder,
    JsonRowSerializationSchema,
    JsonRowSerializationSchemaBuilder,
)

__all__ = [
    "JsonRowDeserializationSchema",
    "JsonRowDeserializationSchemaBuilder",
    "JsonRowSerializationSchema",
    "JsonRowSerializationSchemaBuilder",
    "DebeziumJsonDeserializationSchema",
    "DebeziumJsonDeserializationSchemaBuilder",
    "JsonLinesFormat",
    "JsonLinesBulkWriters",
    "MalformedRows",
    "MALFORMED_ROW_TYPE",
]
