"""Returns a stream's rows as a DataFrame: exactly-once Parquet, read when the job has ended."""

from __future__ import annotations

import copy
import copyreg
import posixpath
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.common.configuration import Configuration
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import Committer, Sink, SinkError, SinkWriter, WriterContext
from penstock.connectors.files.file_parts import naming
from penstock.connectors.files.file_sink import FileSink
from penstock.connectors.formats.parquet.parquet import ParquetBulkWriters
from penstock.spark.frames.data_types import schema_of
from penstock.spark.frames.stored_frames import read_stored
from penstock.storage.location import is_local, location
from penstock.storage.opening import open_store
from penstock.storage.store_settings import StoreSettings

_COMPRESSION = "snappy"


class DataFrameSink(Sink):
    """Writes the rows for `stream.to_spark()`. `path` None: below the job's directory, which `prepare` gets."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else location(path)
        self._configuration = Configuration()
        self._row_type: TypeInformation | None = None
        self._files: FileSink | None = None

    def configure(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def validate(self, input_type: TypeInformation | None) -> None:
        ParquetBulkWriters.for_row_type(compression=_COMPRESSION).validate(input_type)
        assert input_type is not None
        schema_of(input_type)
        self._row_type = input_type

    def prepare(self, folder: str, uid: str, is_resumed: bool) -> None:
        """Choose the rows' destination: the given path, else a folder below `folder`. `is_resumed`: the job existed
        before, and so may its rows. Raises `SinkError`.
        """
        if self._path is None:
            self._path = posixpath.join(folder, uid)
        elif not is_resumed and (there := next(iter(self._visible()), None)) is not None:
            raise SinkError(
                f"to_spark(path={self._path!r}): there is {there} already, which would be read as if it were "
                "this job's: give another path, or none"
            )
        self._files = FileSink.for_parquet(self._path, _COMPRESSION)
        self._files.configure(self._configuration)
        self._files.validate(self._row_type)

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        assert self._files is not None, "prepare() comes first"
        return self._files.create_writer(context, restored)

    def create_committer(self) -> Committer:
        assert self._files is not None, "prepare() comes first"
        return self._files.create_committer()

    def read(self, session: SparkSession) -> DataFrame:
        """Read the rows that were committed. Call it after the job's end."""
        assert self._path is not None and self._row_type is not None
        schema = schema_of(self._row_type)
        if not is_local(self._path):
            files = [f"{self._path}/{name}" for name in self._visible()]
            return read_stored(session, files, StoreSettings.of(self._configuration), schema)
        # Spark before 4 refuses days before 1582 in files that do not name the calendar of their writer.
        reader = session.read.option("datetimeRebaseMode", "CORRECTED").schema(schema)
        return reader.parquet(Path(self._path).as_uri())

    def _visible(self) -> list[str]:
        """Return the names of the files that are there. Raises `SinkError`."""
        assert self._path is not None
        if is_local(self._path):
            names = [file.name for file in Path(self._path).glob("*")]
        else:
            with naming(self._path, "read"):
                names = open_store(self._path, StoreSettings.of(self._configuration), create_root=True).list("")
        return sorted(name for name in names if not name.startswith((".", "_")))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the sink of the files, so that slots import nothing of Spark's SQL."""
        if self._files is not None:
            return copy.copy, (self._files,)
        return copyreg.__newobj__, (type(self),), self.__dict__  # type: ignore[attr-defined]
