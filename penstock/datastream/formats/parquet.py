"""Parquet, where PyFlink has it."""

from penstock.datastream.connectors.files.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat

__all__ = ["ParquetColumnarRowInputFormat", "ParquetBulkWriters"]
