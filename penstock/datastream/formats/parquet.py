"""Offers Parquet in PyFlink's module."""

from penstock.datastream.connectors.files.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from penstock.datastream.connectors.files.parquet_timestamps import LossyTimestamps

__all__ = ["ParquetColumnarRowInputFormat", "ParquetBulkWriters", "LossyTimestamps"]
