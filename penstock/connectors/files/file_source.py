"""Reads files as a stream, in the order in which they are given.

A split is a file (or, if the user asks for it, a part of one), identified by its size and time of modification when it
was listed, and a position. A file that differs when a reader opens it is refused.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Sequence, TypeVar

from penstock.common.configuration import Configuration
from penstock.common.missing_names import AdvisesOnMissing
from penstock.common.time import Duration
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import (
    FixedSplitEnumerator,
    ReaderContext,
    Source,
    SourceError,
    SourceReader,
    SplitEnumerator,
    encode_split,
)
from penstock.connectors.files.file_formats import FileReadFormat, FileShape, OpenFile, raise_on_difference
from penstock.connectors.files.file_listing import ListedFile, files_of, place_of
from penstock.connectors.files.file_reader import FileReader
from penstock.connectors.files.input_file import InputFile
from penstock.connectors.files.malformed_rows import MALFORMED_ROW_TYPE
from penstock.connectors.files.stored_listing import NOTHING_AT, NOTHING_IN, NOTHING_MATCHES
from penstock.connectors.files.watched_files import NewFile, WatchedFiles
from penstock.connectors.formats.parquet.parquet import ParquetColumnarRowInputFormat
from penstock.connectors.formats.parquet.parquet_timestamps import LossyTimestamps
from penstock.storage.location import is_local
from penstock.storage.store_settings import DEFAULT_SETTINGS, StoreSettings

T = TypeVar("T")
U = TypeVar("U")
_REQUESTS_MAX = 16


@dataclass(frozen=True)
class FileEnumeratorProvider:
    """Chooses the division of files into splits."""

    splits_files: bool

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Make a split of each file, so that its rows keep their order. The default."""
        return FileEnumeratorProvider(False)

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Make several splits of each file, so that several subtasks read it.

        A split is a row group of Parquet, or some MB of lines. The order holds within a split. Compressed text, and CSV
        whose values may contain line breaks, stay whole.
        """
        return FileEnumeratorProvider(True)


class FileSource(Source):
    """Reads files once, in order.

    A path, or a URI of a store such as s3://bucket/folder, names a file, a directory (all files below it, by name;
    those whose name or directory begins with "." or "_" are skipped) or a glob pattern. The rows have the type of the
    first file's columns, as named rows; all files must have the same columns. All files are
    inspected before the job starts.

    Rows of text that cannot be read fail the job, are skipped, or go to a side output: see the format's
    `malformed_rows`.

    Example:
        FileSource.for_parquet("/data/orders", columns=["user", "amount"])
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/logs/*.txt.gz").build()
    """

    def __init__(
        self,
        format: FileReadFormat,
        paths: Sequence[str],
        splits_files: bool = False,
        *,
        files: Sequence[ListedFile] | None = None,
        discovery_interval: Duration | None = None,
    ) -> None:
        if not paths and files is None:
            raise ValueError("FileSource needs at least one path")
        self._format = format
        self._paths = [place_of(path) for path in paths]
        self._given = None if files is None else list(files)
        self._splits_files = splits_files
        self._discovery_interval = discovery_interval
        self.bounded = discovery_interval is None
        self._settings = DEFAULT_SETTINGS
        self._row_type: TypeInformation | None = None
        self._listed: list[tuple[ListedFile, tuple[int, ...]]] | None = None

    @staticmethod
    def for_listed_files(format: FileReadFormat, files: Sequence[ListedFile], splits_files: bool = False) -> FileSource:
        """Make a source of files that another program has written and listed, in this order.

        Each file is refused if it no longer is what it was when it was listed (`ListedFile.of(path)`).

        Args:
            format: The format of the files.
            files: At least one file.
            splits_files: True: several splits per file, as of `default_splittable_file_enumerator()`.

        Returns:
            The source.

        Raises:
            ValueError: There is no file.
        """
        if not files:
            raise ValueError("FileSource needs at least one file")
        return FileSource(format, (), splits_files, files=files)

    @staticmethod
    def for_parquet(
        *paths: str, columns: Sequence[str] | None = None, lossy_timestamps: LossyTimestamps = LossyTimestamps.REFUSE
    ) -> FileSource:
        """Make a source of Parquet files.

        Args:
            paths: Files, directories or patterns.
            columns: The names of the columns to read. None: all.
            lossy_timestamps: What becomes of timestamps with digits behind the microsecond.

        Returns:
            The source.
        """
        format = ParquetColumnarRowInputFormat(columns=columns, lossy_timestamps=lossy_timestamps)
        return FileSource(format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: FileReadFormat, *paths: str) -> FileSourceBuilder:
        """Make a builder of a source of files that are read in columns.

        Args:
            bulk_format: The format, such as `ParquetColumnarRowInputFormat()`.
            paths: Files, directories or patterns.

        Returns:
            The builder.
        """
        return FileSourceBuilder(bulk_format, paths)

    @staticmethod
    def for_record_stream_format(stream_format: FileReadFormat, *paths: str) -> FileSourceBuilder:
        """Make a builder of a source of files of text.

        Args:
            stream_format: The format: `StreamFormat.text_line_format()`, a `CsvReaderFormat` or a `JsonLinesFormat`.
            paths: Files, directories or patterns.

        Returns:
            The builder.
        """
        return FileSourceBuilder(stream_format, paths)

    def configure(self, configuration: Configuration) -> None:
        self._settings = StoreSettings.of(configuration)

    def describe(self) -> dict[str, str]:
        """Return the paths and the format."""
        listed = f"{len(self._given)} listed files" if self._given is not None else ", ".join(self._paths)
        return {"connector": "files", "paths": listed, "format": type(self._format).__name__}

    @property
    def produced_type(self) -> TypeInformation:
        """Return the type of the rows, from the first file. Raises `SourceError` if it cannot be read."""
        if self._row_type is None:
            first = next(self._new_names(()) if self._discovery_interval else self._names(), None)
            known = self._format.known_type
            if first is None and known is None:
                raise SourceError(
                    f"there is no file in {', '.join(self._paths)} yet, and rows have the type of the first one: put a "
                    "file there before the job starts"
                )
            self._row_type = known if first is None else self._format.inspect(self._input(first)).row_type
        assert self._row_type is not None
        return self._row_type

    @property
    def rejected_tag_id(self) -> str | None:
        return self._format.malformed_rows.tag_id

    @property
    def rejected_type(self) -> TypeInformation | None:
        return None if self.rejected_tag_id is None else MALFORMED_ROW_TYPE

    def validate(self) -> None:
        """Check all files: they must be there and have the same columns. Raises `SourceError`."""
        if self._discovery_interval is not None:
            assert self.produced_type is not None
            return
        self._listed = []
        files = list(self._files())
        for file, shape in zip(files, self._each(self._inspect, files), strict=True):
            raise_on_difference(file.path, shape.row_type, self.produced_type)
            self._listed.append((file, shape.bounds))

    def _inspect(self, file: ListedFile) -> FileShape:
        if self._given is not None:
            file.raise_if_changed(self._settings)
        return self._format.inspect(self._input(file.path))

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        if self._discovery_interval is not None:
            return WatchedFiles(self._new_files, self._discovery_interval.ms, restored)
        if restored is not None:
            return FixedSplitEnumerator.restored(restored)
        if self._listed is None:
            self.validate()
        return FixedSplitEnumerator(list(self._splits()))

    def create_reader(self, context: ReaderContext) -> SourceReader:
        format, row_type, settings = self._format, self.produced_type, self._settings

        def open_file(split: dict[str, Any]) -> OpenFile:
            file = ListedFile(split["path"], split["size"], split["mtime_ns"], split.get("tag", ""))
            file.raise_if_changed(settings)
            return format.open(InputFile(file.path, settings), row_type)

        return FileReader(open_file, format.malformed_rows)

    def __getstate__(self) -> dict[str, Any]:
        # Lists are for the enumerator, in the driver; readers get what they need in their splits.
        given = None if self._given is None else self._given[:1]
        return {**self.__dict__, "_row_type": self.produced_type, "_listed": None, "_given": given}

    def _splits(self) -> Iterator[bytes]:
        times: Counter[str] = Counter()
        for file, bounds in self._listed or ():
            times[file.path] += 1
            # A file may be given several times, and is then read as often.
            identity = file.path if times[file.path] == 1 else f"{file.path}@{times[file.path]}"
            yield from self._splits_of(file, bounds, identity)

    def _splits_of(self, file: ListedFile, bounds: tuple[int, ...], identity: str) -> Iterator[bytes]:
        whole = (bounds[0], bounds[-1])
        for first, end in pairwise(bounds) if self._splits_files else (whole,):
            yield encode_split(
                {
                    "id": identity if (first, end) == whole else f"{identity}#{first}",
                    "path": file.path,
                    "size": file.size,
                    "mtime_ns": file.mtime_ns,
                    "at": first,
                    "end": end,
                    "row": 0,
                    **({"tag": file.tag} if file.tag else {}),
                }
            )

    def _new_files(self, known: Collection[str]) -> list[NewFile]:
        """Return the files that have come, with their splits. Raises `SourceError` if one has other columns."""
        found = []
        # Several places may name one file; its path counts once.
        for path in dict.fromkeys(self._new_names(known)):
            try:
                file = ListedFile.of(path, self._settings)
                shape = self._inspect(file)
            except SourceError:
                if path in self._new_names(known):
                    raise
                continue  # it has been removed or renamed since it was listed, so it was never found
            raise_on_difference(path, shape.row_type, self.produced_type)
            found.append(NewFile(path, list(self._splits_of(file, shape.bounds, path))))
        return found

    def _new_names(self, known: Collection[str]) -> Iterator[str]:
        """Yield the paths of files that are not known. A place may have no file yet."""
        for path in self._paths:
            nothing = {told.format(path) for told in (NOTHING_AT, NOTHING_IN, NOTHING_MATCHES)}
            try:
                yield from (name for name in files_of(path, self._settings) if name not in known)
            except SourceError as error:
                if str(error) not in nothing:
                    raise

    def _names(self) -> Iterator[str]:
        if self._given is not None:
            yield from (file.path for file in self._given)
            return
        for path in self._paths:
            yield from files_of(path, self._settings)

    def _files(self) -> Iterator[ListedFile]:
        if self._given is not None:
            return iter(self._given)
        return self._each(lambda file: ListedFile.of(file, self._settings), self._names())

    def _each(self, ask: Callable[[T], U], files: Iterable[T]) -> Iterator[U]:
        """Ask something of each file, in their order; of a store some at a time, because each answer takes a while."""
        if all(map(is_local, self._paths)):
            yield from map(ask, files)
            return
        with ThreadPoolExecutor(_REQUESTS_MAX, "file source") as pool:
            asked = [pool.submit(ask, file) for file in files]
            try:
                yield from (answer.result() for answer in asked)
            finally:
                for answer in asked:
                    answer.cancel()

    def _input(self, path: str) -> InputFile:
        return InputFile(path, self._settings)


class FileSourceBuilder(AdvisesOnMissing):
    """Builds a `FileSource`. `build()` ends."""

    def __init__(self, format: FileReadFormat, paths: Sequence[str]) -> None:
        self._format = format
        self._paths = paths
        self._enumerator = FileEnumeratorProvider.default_non_splittable_file_enumerator()
        self._discovery_interval: Duration | None = None

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files that are there when the job starts, and end. The default."""
        self._discovery_interval = None
        return self

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Read the files that are there, and those that come later: the source has no end.

        A path is read once; a file that is changed later is refused if it is being read, and else ignored. So files
        must be complete when they appear: write each under a name that begins with "." or "_", and rename it.

        Example:
            source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/logs/")
            source.monitor_continuously(Duration.of_seconds(10)).build()

        Args:
            discovery_interval: The pause between two looks for new files.

        Raises:
            ValueError: The interval is 0.
        """
        interval = Duration.of(discovery_interval)
        if not interval.nanoseconds:
            raise ValueError("monitor_continuously(): the interval is more than 0, e.g. Duration.of_seconds(10)")
        self._discovery_interval = interval
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        """Set the division of files into splits.

        Args:
            file_enumerator: Made by `FileEnumeratorProvider`.
        """
        self._enumerator = file_enumerator
        return self

    def build(self) -> FileSource:
        """Return the source. Warns if files were to be split and their format cannot be."""
        if self._enumerator.splits_files and self._format.unsplit_because:
            warnings.warn(f"files are read whole, a split each: {self._format.unsplit_because}", stacklevel=2)
        return FileSource(
            self._format,
            self._paths,
            self._enumerator.splits_files,
            discovery_interval=self._discovery_interval,
        )
