"""Has Spark's executors write a DataFrame to a store, and read the rows of a stream from one, by our own code: Spark's
own needs Hadoop's libraries for each store, with credentials of their own.

What is written are Arrow messages (`penstock/connectors/files/arrow_messages.py`). The executors' Java makes them,
a Python worker uploads them as they are. Each task's file has a random name, which the task returns, so a task may be
repeated or run twice. What is read is a data source in Python, of PySpark 4.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.connectors.files.arrow_messages import MARKER_BYTES
from penstock.spark.frames.arrow_files import arrow_messages_of, how_to_read
from penstock.storage.opening import open_store
from penstock.storage.store_settings import StoreSettings


@dataclass(frozen=True)
class _TaskUpload:
    """Writes the messages of a partition to an object of `folder`, and returns its name and size."""

    folder: str
    settings: StoreSettings
    marker: bytes

    def __call__(self, partition: int, messages: Iterable[bytes]) -> Iterator[tuple[str, int]]:
        store = open_store(self.folder, self.settings, create_root=True)
        name, size = f"part-{partition:05}-{secrets.token_hex(6)}", 0
        writer = store.writer(name)
        try:
            for message in messages:
                writer.write([message, self.marker])
                size += len(message) + len(self.marker)
            if size:
                writer.finish()
                yield name, size
            else:
                writer.abort()
        except BaseException:
            writer.abort()
            raise


def write_stored(
    frame: DataFrame, folder: str, settings: StoreSettings
) -> tuple[dict[str, str], list[tuple[str, int]]]:
    """Have Spark compute `frame` and write it to `folder`, a URI of a store.

    Returns what `frame_files` needs to read the files, and their names and sizes in the order of the rows. Raises
    `NoArrowWriter`, and as Spark does.
    """
    marker = secrets.token_hex(MARKER_BYTES // 2)
    context = frame.sparkSession.sparkContext
    with arrow_messages_of(frame) as messages:
        rows: RDD[Any] = RDD(messages.toJavaRDD(), context, NoOpSerializer())
        upload = _TaskUpload(folder, settings, marker.encode())
        files = sorted(rows.mapPartitionsWithIndex(upload).collect())
    return how_to_read(frame, marker), files


def read_stored(session: SparkSession, files: Sequence[str], settings: StoreSettings, schema: StructType) -> DataFrame:
    """Return the rows of Parquet files in a store, which are read when the DataFrame is computed.

    `settings` may be secrets: they are in a class that is made for this DataFrame, not in options, which Spark shows.
    """
    from penstock.spark.frames.stored_data_source import StoredFiles

    name = f"penstock-files-{secrets.token_hex(6)}"
    fields = {"short_name": name, "files": list(files), "settings": settings, "row_schema": schema}
    session.dataSource.register(type("StoredFilesOfOneStream", (StoredFiles,), fields))
    return session.read.format(name).load()
