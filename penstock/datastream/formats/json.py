"""JSON lines: a format of PyFlink's kind for files of them, which it does not have."""

from penstock.datastream.connectors.json_lines import JsonLinesFormat
from penstock.datastream.connectors.malformed_rows import MALFORMED_ROW_TYPE, MalformedRows

__all__ = ["JsonLinesFormat", "MalformedRows", "MALFORMED_ROW_TYPE"]
