"""Files as sources and sinks: what PyFlink has in this module, and Parquet's formats."""

from penstock.datastream.connectors.file_sink import FileSink, OutputFileConfig, RollingPolicy
from penstock.datastream.connectors.file_source import FileEnumeratorProvider, FileSource, FileSourceBuilder
from penstock.datastream.connectors.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from penstock.datastream.connectors.text_lines import StreamFormat

__all__ = [
    "FileSource",
    "FileSourceBuilder",
    "FileEnumeratorProvider",
    "StreamFormat",
    "FileSink",
    "OutputFileConfig",
    "RollingPolicy",
    "ParquetColumnarRowInputFormat",
    "ParquetBulkWriters",
]
