"""Offers Parquet in PyFlink's module."""

from penstock.connectors.formats.parquet.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from penstock.connectors.formats.parquet.parquet_timestamps import LossyTimestamps

__all__ = ["ParquetColumnarRowInputFormat", "ParquetBulkWriters", "LossyTimestamps"]
