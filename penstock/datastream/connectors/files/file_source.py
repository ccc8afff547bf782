"""Files as a stream, in the order in which they are given.

A split is a file (or, where the user asks for it, a part of one) with the mark that it had when it was listed (size
and time of modification) and a position. A file that no longer has its mark when a reader opens it is refused.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Sequence

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.base import ReaderContext, Source, SourceReader, SplitEnumerator
from penstock.datastream.connectors.files.file_formats import FileReadFormat, OpenFile, raise_on_difference
from penstock.datastream.connectors.files.file_listing import ListedFile, files_of, local_path
from penstock.datastream.connectors.files.file_reader import FileReader
from penstock.datastream.connectors.files.malformed_rows import MALFORMED_ROW_TYPE
from penstock.datastream.connectors.files.parquet import ParquetColumnarRowInputFormat
from penstock.datastream.connectors.splits import FixedSplitEnumerator, encode_split


@dataclass(frozen=True)
class FileEnumeratorProvider:
    """How files become splits."""

    splits_files: bool

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """A split per file, whose rows keep their order. The default."""
        return FileEnumeratorProvider(False)

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Several splits per file, so that several subtasks read it: a row group of Parquet each, or some megabytes
        of lines. Order holds within a split. Compressed text, and CSV whose values may contain line breaks, stay
        whole."""
        return FileEnumeratorProvider(True)


class FileSource(Source):
    """Reads files once, in order. Made by `FileSource.for_parquet(*paths)`, or by a builder:
    `FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), *paths).build()`.

    A path is a file, a directory (all files below it, by name; those whose name or directory begins with "." or "_"
    are left out) or a glob pattern. The rows have the type of the first file's columns, as named rows; all files must
    have the same columns. `validate` looks into all files, before the job starts.

    Rows of text that cannot be read fail the job, are left out, or go to a side output, as the format's
    `malformed_rows` says.
    """

    def __init__(
        self,
        format: FileReadFormat,
        paths: Sequence[str],
        splits_files: bool = False,
        *,
        files: Sequence[ListedFile] | None = None,
    ) -> None:
        if not paths and files is None:
            raise ValueError("FileSource needs at least one path")
        self._format = format
        self._paths = [os.path.abspath(local_path(path)) for path in paths]
        self._given = None if files is None else list(files)
        self._splits_files = splits_files
        self._row_type: TypeInformation | None = None
        self._listed: list[tuple[ListedFile, tuple[int, ...]]] | None = None

    @staticmethod
    def for_listed_files(format: FileReadFormat, files: Sequence[ListedFile], splits_files: bool = False) -> FileSource:
        """Exactly these files, in this order, each refused if it no longer is what it was when it was listed
        (`ListedFile.of(path)`): for files that another program wrote and whose names it told.

        :param splits_files: several splits per file, as `default_splittable_file_enumerator()` makes them.
        :raises ValueError: without a file.
        """
        if not files:
            raise ValueError("FileSource needs at least one file")
        return FileSource(format, (), splits_files, files=files)

    @staticmethod
    def for_parquet(*paths: str, columns: Sequence[str] | None = None) -> FileSource:
        """
        :param columns: the names of the columns to read; None reads all.
        """
        return FileSource(ParquetColumnarRowInputFormat(columns=columns), paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: FileReadFormat, *paths: str) -> FileSourceBuilder:
        return FileSourceBuilder(bulk_format, paths)

    @staticmethod
    def for_record_stream_format(stream_format: FileReadFormat, *paths: str) -> FileSourceBuilder:
        return FileSourceBuilder(stream_format, paths)

    @property
    def produced_type(self) -> TypeInformation:
        """Read from the first file. Raises `SourceError`."""
        if self._row_type is None:
            self._row_type = self._format.inspect(next(self._files()).path).row_type
        return self._row_type

    @property
    def rejected_tag_id(self) -> str | None:
        return self._format.malformed_rows.tag_id

    @property
    def rejected_type(self) -> TypeInformation | None:
        return None if self.rejected_tag_id is None else MALFORMED_ROW_TYPE

    def validate(self) -> None:
        self._listed = []
        for file in self._files():
            if self._given is not None:
                file.raise_if_changed()
            shape = self._format.inspect(file.path)
            raise_on_difference(file.path, shape.row_type, self.produced_type)
            self._listed.append((file, shape.bounds))

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        if restored is not None:
            return FixedSplitEnumerator.restored(restored)
        if self._listed is None:
            self.validate()
        return FixedSplitEnumerator(list(self._splits()))

    def create_reader(self, context: ReaderContext) -> SourceReader:
        format, row_type = self._format, self.produced_type

        def open_file(split: dict[str, Any]) -> OpenFile:
            ListedFile(split["path"], split["size"], split["mtime_ns"]).raise_if_changed()
            return format.open(split["path"], row_type)

        return FileReader(open_file)

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
                    }
                )

    def _files(self) -> Iterator[ListedFile]:
        if self._given is not None:
            yield from self._given
            return
        for path in self._paths:
            yield from map(ListedFile.of, files_of(path))


class FileSourceBuilder:
    """PyFlink's `FileSourceBuilder`."""

    def __init__(self, format: FileReadFormat, paths: Sequence[str]) -> None:
        self._format = format
        self._paths = paths
        self._enumerator = FileEnumeratorProvider.default_non_splittable_file_enumerator()

    def process_static_file_set(self) -> FileSourceBuilder:
        """Reads the files that are there when the job starts, and ends. The default, and the only mode."""
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        self._enumerator = file_enumerator
        return self

    def build(self) -> FileSource:
        if self._enumerator.splits_files and self._format.unsplit_because:
            warnings.warn(f"files are read whole, a split each: {self._format.unsplit_because}", stacklevel=2)
        return FileSource(self._format, self._paths, self._enumerator.splits_files)
