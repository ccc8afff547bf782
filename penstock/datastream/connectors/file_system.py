"""Files as sources and sinks: everything that PyFlink has in this module, and Parquet's formats."""

from penstock.datastream.connectors.file_source import FileEnumeratorProvider, FileSource, FileSourceBuilder
from penstock.datastream.connectors.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat

__all__ = [
    "FileSource",
    "FileSourceBuilder",
    "FileEnumeratorProvider",
    "ParquetColumnarRowInputFormat",
    "ParquetBulkWriters",
]
