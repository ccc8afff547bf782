"""Offers CSV in PyFlink's module."""

from penstock.datastream.connectors.files.csv_format import CsvBulkWriters, CsvReaderFormat
from penstock.datastream.connectors.files.csv_schema import CsvSchema, CsvSchemaBuilder
from penstock.datastream.connectors.files.malformed_rows import MALFORMED_ROW_TYPE, MalformedRows

__all__ = ["CsvSchema", "CsvSchemaBuilder", "CsvReaderFormat", "CsvBulkWriters", "MalformedRows", "MALFORMED_ROW_TYPE"]
