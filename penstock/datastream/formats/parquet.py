"""Offers Parquet in PyFlink's module."""

from penstock.datastream.connectors.files.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat

__all__ = ["ParquetColumnarRowInputFormat", "ParquetBulkWriters"]
