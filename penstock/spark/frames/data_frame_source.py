"""Reads a DataFrame as a bounded source.

Spark writes it once, before the job runs. From then on it is files: Arrow record batches if all rows have one size
(`arrow_files.py`), else Parquet; Arrow always where the job's directory is in a store (`stored_frames.py`).
`frame_files.py` reads them. So the source is replayable: a restart, and a resumed
job, read the files again, and the DataFrame is not computed twice. A folder is complete when it holds `_penstock.json`,
which is written last and describes the columns and where the rows come from: a resumed job refuses a DataFrame that has
changed.
"""

from __future__ import annotations

import copy
import copyreg
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.common.configuration import Configuration
from penstock.common.options import PenstockOptions
from penstock.common.row_types.composite_types import RowType
from penstock.connectors.base import ReaderContext, Source, SourceError, SourceReader, SplitEnumerator
from penstock.spark.frames.arrow_files import NoArrowWriter, has_rows_of_fixed_size, write_arrow
from penstock.spark.frames.data_frame_origin import change, origin_of
from penstock.spark.frames.data_types import row_type_of
from penstock.spark.frames.frame_directory import FrameDirectory, new_name
from penstock.spark.frames.frame_files import FrameFiles
from penstock.spark.frames.python_errors import user_traceback
from penstock.spark.frames.stored_frames import write_stored
from penstock.storage.layout import FRAMES_FOLDER
from penstock.storage.store_settings import DEFAULT_SETTINGS, StoreSettings

log = logging.getLogger(__name__)

# A row group is a split: small enough that slots share a DataFrame of one partition, too, large enough to read fast.
_ROW_GROUP_BYTES = 16 << 20
_PARQUET_OPTIONS = {
    "compression": "lz4_raw",
    "parquet.block.size": str(_ROW_GROUP_BYTES),
    "parquet.enable.dictionary": "false",
    # Written once, read once, soon and whole: nothing uses statistics, and checksums (of pages, and in a file for each
    # file) cost a tenth of the time.
    "parquet.column.statistics.enabled": "false",
    "parquet.page.write-checksum.enabled": "false",
}
_WITHOUT_CHECKSUMS = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
# Written as Arrow reads Parquet: no INT96, no calendar of before 1582.
_PARQUET_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
_settings_lock = threading.Lock()


class DataFrameSource(Source):
    """Implements the source of `env.from_spark(df)`. It reads nothing before `write` or `read_again`.

    Raises:
        TypeError, UnsupportedType: It cannot be a source.
    """

    def __init__(self, frame: Any, name: str) -> None:
        if not isinstance(frame, DataFrame) or not hasattr(frame, "_jdf"):
            kind = f"{type(frame).__module__}.{type(frame).__qualname__}"
            hint = "; slots need a classic Spark session" if "connect" in kind else ""
            raise TypeError(f"from_spark() takes a pyspark.sql.DataFrame, got a {kind}{hint}")
        if frame.isStreaming:
            raise TypeError(
                f"from_spark() {name!r}: a streaming DataFrame has no end that could be written before the job starts; "
                "pass the DataFrame of a batch query"
            )
        self._name = name
        self._frame: DataFrame | None = frame
        self._row_type = row_type_of(frame.schema)
        self._files: FrameFiles | None = None
        self._settings = DEFAULT_SETTINGS

    @property
    def name(self) -> str:
        """Return the name that the program gave it."""
        return self._name

    @property
    def produced_type(self) -> RowType:
        return self._row_type

    @property
    def context(self) -> Any:
        """Return the SparkContext that computes the DataFrame."""
        assert self._frame is not None
        return self._frame.sparkSession.sparkContext

    def configure(self, configuration: Configuration) -> None:
        self._settings = StoreSettings.of(configuration)

    def write(self, directory: FrameDirectory, uid: str) -> str:
        """Have Spark write the DataFrame below a job's directory, and read the rows from there.

        Args:
            uid: The operator's.

        Returns:
            The name of the folder, to be removed when no checkpoint needs it.

        Raises:
            SourceError: Its cause is Spark's error where the DataFrame cannot be written.
        """
        name = new_name(uid)
        try:
            self._write(directory, name)
        except BaseException:
            directory.remove(name)
            raise
        self._read(directory, name)
        return name

    def read_again(self, directory: FrameDirectory, name: str, ignore_changes: bool) -> None:
        """Read the rows that an earlier start has written to a folder of a job's directory.

        Args:
            name: The folder's.
            ignore_changes: Read them even if the DataFrame would give other rows now.

        Raises:
            SourceError: The DataFrame has changed, or the folder does not say how to read it.
        """
        self._check_unchanged(directory, name, ignore_changes)
        self._read(directory, name)

    def _read(self, directory: FrameDirectory, name: str) -> None:
        self._files = FrameFiles(directory.place, f"{FRAMES_FOLDER}/{name}", self._row_type, self._settings)

    def _write(self, directory: FrameDirectory, name: str) -> None:
        frame = self._frame
        assert frame is not None
        target, arrow, files = directory.folder(name), None, {}
        try:
            if not directory.is_local:
                arrow, written = write_stored(frame, target, self._settings)
                files = {"files": written}
            else:
                arrow = self._write_locally(frame, Path(target))
        except NoArrowWriter as error:
            raise SourceError(
                f"from_spark() {self._name!r}: rows of DataFrames are written to a store by PySpark 4.0 and later "
                f"({error}): set execution.checkpointing.dir to a path that the driver and all executors share"
            ) from error
        except Exception as error:
            where = f"from_spark() {self._name!r}: the DataFrame could not be written to {target}"
            traceback = user_traceback(str(error))
            if traceback is not None:
                raise SourceError(f"{traceback}\n{where}: {traceback.splitlines()[-1]}") from error
            raise SourceError(f"{where}: {_first_line(error)}") from error
        manifest = {"name": self._name, "columns": self._row_type.text, "origin": origin_of(frame), "arrow": arrow}
        directory.write_manifest(name, {**manifest, **files})

    def _write_locally(self, frame: DataFrame, target: Path) -> dict[str, str] | None:
        target.parent.mkdir(parents=True, exist_ok=True)
        uri = target.as_uri()
        if has_rows_of_fixed_size(frame.schema):
            with suppress(NoArrowWriter):
                return write_arrow(frame, uri, _WITHOUT_CHECKSUMS)
        with _parquet_settings(frame.sparkSession):
            frame.write.options(**_PARQUET_OPTIONS, **_WITHOUT_CHECKSUMS).parquet(uri)
        return None

    def _check_unchanged(self, directory: FrameDirectory, name: str, ignore_changes: bool) -> None:
        before, folder = directory.manifest(name), directory.folder(name)
        columns, origin = before["columns"], before["origin"]
        if columns != self._row_type.text:
            raise SourceError(
                f"from_spark() {self._name!r}: the DataFrame has changed. The resumed job has read {columns}, "
                f"written to {folder}, and the program now passes {self._row_type}. Pass a DataFrame of the "
                "same columns, give the operator another uid, or start without the checkpoint."
            )
        assert self._frame is not None
        if not ignore_changes and (changed := change(origin, origin_of(self._frame))) is not None:
            raise SourceError(
                f"from_spark() {self._name!r}: the DataFrame has changed: {changed}. The resumed job reads the "
                f"rows that were written to {folder}, and would not see it. To continue with those, set "
                f"{PenstockOptions.DATA_FRAMES_IGNORE_CHANGES.key} to true; to read the new ones, start without the "
                "checkpoint, or give the operator another uid."
            )

    def copy_files(self, snapshot: bytes, directory: str, progress: Callable[[], None]) -> list[str]:
        assert self._files is not None
        return self._files.copy_files(snapshot, directory, progress)

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        assert self._files is not None, "write() or read_again() comes first"
        return self._files.create_enumerator(parallelism, restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        assert self._files is not None, "write() or read_again() comes first"
        return self._files.create_reader(context)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the source of the files, so that slots import nothing of Spark's SQL."""
        if self._files is not None:
            return copy.copy, (self._files,)
        return copyreg.__newobj__, (type(self),), {**self.__dict__, "_frame": None}  # type: ignore[attr-defined]


@contextmanager
def _parquet_settings(session: SparkSession) -> Iterator[None]:
    """Set options that only exist for whole sessions; the user's values are restored afterwards."""
    with _settings_lock:
        before = {key: session.conf.get(key, None) for key in _PARQUET_SETTINGS}
        try:
            for key, value in _PARQUET_SETTINGS.items():
                session.conf.set(key, value)
            yield
        finally:
            for key, old in before.items():
                if old is None:
                    session.conf.unset(key)
                else:
                    session.conf.set(key, old)


def _first_line(error: Exception) -> str:
    text = str(error)
    if "Caused by: " in text:
        text = text.rpartition("Caused by: ")[2]  # the outer errors only say that a task failed
    return (text.strip() or type(error).__name__).splitlines()[0]
