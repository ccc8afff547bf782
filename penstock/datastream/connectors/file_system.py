"""Offers files as sources and sinks: what PyFlink has in this module, Parquet's formats, and malformed rows."""

from typing import TYPE_CHECKING

from penstock.common.missing_names import advising_getattr
from penstock.connectors.files.buckets import BucketAssigner
from penstock.connectors.files.file_compaction import FileCompactor, FileCompactStrategy
from penstock.connectors.files.file_listing import ListedFile
from penstock.connectors.files.file_sink import FileSink, OutputFileConfig
from penstock.connectors.files.file_source import FileEnumeratorProvider, FileSource, FileSourceBuilder
from penstock.connectors.files.malformed_rows import MALFORMED_ROW_TYPE, MalformedRows
from penstock.connectors.files.rolling_policy import RollingPolicy
from penstock.connectors.formats.parquet.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from penstock.connectors.formats.text.text_lines import StreamFormat

__all__ = [
    "FileSource", "FileSourceBuilder", "FileEnumeratorProvider", "ListedFile", "StreamFormat", "MalformedRows",
    "MALFORMED_ROW_TYPE", "FileSink", "BucketAssigner", "FileCompactStrategy", "FileCompactor", "OutputFileConfig",
    "RollingPolicy", "ParquetColumnarRowInputFormat", "ParquetBulkWriters",
]  # fmt: skip

if not TYPE_CHECKING:  # a type checker knows the names without it
    __getattr__ = advising_getattr(__name__)
