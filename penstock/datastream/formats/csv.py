"""Offers PyFlink's formats for files of CSV, and its schemas for messages that are records of CSV."""

from penstock.connectors.files.malformed_rows import MALFORMED_ROW_TYPE, MalformedRows
from penstock.connectors.formats.csv.csv_format import CsvBulkWriters, CsvReaderFormat
from penstock.connectors.formats.csv.csv_rows import CsvRowDeserializationSchema, CsvRowSerializationSchema
from penstock.connectors.formats.csv.csv_schema import CsvSchema, CsvSchemaBuilder

__all__ = [
    "CsvSchema", "CsvSchemaBuilder", "CsvReaderFormat", "CsvBulkWriters", "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema", "MalformedRows", "MALFORMED_ROW_TYPE",
]  # fmt: skip
