"""Offers formats for files of JSON lines, which PyFlink does not have."""

from penstock.datastream.connectors.files.json_lines import JsonLinesFormat
from penstock.datastream.connectors.files.json_writer import JsonLinesBulkWriters
from penstock.datastream.connectors.files.malformed_rows import MALFORMED_ROW_TYPE, MalformedRows

__all__ = ["JsonLinesFormat", "JsonLinesBulkWriters", "MalformedRows", "MALFORMED_ROW_TYPE"]
