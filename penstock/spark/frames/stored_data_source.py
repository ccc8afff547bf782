"""Implements a data source in Python that reads a stream's rows from Parquet files in a store, a file per task."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.connectors.files.input_file import InputFile
from penstock.storage.store_settings import StoreSettings


class StoredFiles(DataSource):
    """Reads the files that a subclass names."""

    short_name: ClassVar[str]
    files: ClassVar[list[str]]
    settings: ClassVar[StoreSettings]
    row_schema: ClassVar[StructType]

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return cls.short_name

    def schema(self) -> StructType:
        """Return the columns."""
        return self.row_schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the partition reader; it runs in Spark tasks."""
        return _FilesReader(self.files, self.settings, schema)


class _FilesReader(DataSourceReader):
    def __init__(self, files: list[str], settings: StoreSettings, schema: StructType) -> None:
        self._files = files
        self._settings = settings
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(max(1, len(self._files)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if self._files:
            yield from _batches(self._files[partition.value], self._settings, _arrow_schema(self._schema))


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of the batches that Spark expects: instants are in UTC, which PySpark 4.0 takes for granted."""
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, timezone="UTC") if takes_zone else to_arrow_schema(schema)


def _batches(path: str, settings: StoreSettings, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read a Parquet file in a store, in the columns of a schema. Raises `SourceError`."""
    with pq.ParquetFile(InputFile(path, settings).open(), pre_buffer=True) as file:
        for batch in file.iter_batches(columns=schema.names):
            yield batch.select(schema.names).cast(schema)
