"""JSON lines: formats of PyFlink's kind for files of them, which it does not have."""

from penstock.datastream.connectors.json_lines import JsonLinesFormat
from penstock.datastream.connectors.json_writer import JsonLinesBulkWriters
from penstock.datastream.connectors.malformed_rows import MALFORMED_ROW_TYPE, MalformedRows

__all__ = ["JsonLinesFormat", "JsonLinesBulkWriters", "MalformedRows", "MALFORMED_ROW_TYPE"]
