"""Offers Parquet in PyFlink's module."""

from penstock.connectors.files.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from penstock.connectors.files.parquet_timestamps import LossyTimestamps

__all__ = ["ParquetColumnarRowInputFormat", "ParquetBulkWriters", "LossyTimestamps"]
