"""Files as a stream, in the order in which they are given.

A split is a file (or, where the user asks for it, one of its groups of rows) with the mark that it had when it was
listed (size and time of modification) and a position: the next group, and how many of its rows have been handed out.
A file that no longer has its mark when a reader opens it is refused: a position in other bytes means nothing.
"""

from __future__ import annotations

import glob
import os
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Sequence

import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.base import (
    NotReady,
    ReaderContext,
    Source,
    SourceError,
    SourceReader,
    SplitEnumerator,
)
from penstock.datastream.connectors.file_formats import FileReadFormat, OpenFile, raise_on_difference
from penstock.datastream.connectors.parquet import ParquetColumnarRowInputFormat
from penstock.datastream.connectors.splits import FixedSplitEnumerator, decode_split, encode_split


@dataclass(frozen=True)
class FileEnumeratorProvider:
    """How files become splits."""

    splits_groups: bool

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """A split per file, whose rows keep their order. The default."""
        return FileEnumeratorProvider(False)

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        """A split per group of rows (Parquet's row groups), so that several subtasks read one file; order holds
        within a group."""
        return FileEnumeratorProvider(True)


@dataclass(frozen=True)
class _ListedFile:
    id: str
    path: str
    size: int
    mtime_ns: int
    groups: int


class FileSource(Source):
    """Reads files once, in order. Made by `FileSource.for_parquet(*paths)`, or by a builder:
    `FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), *paths).build()`.

    A path is a file, a directory (all files below it, by name; those whose name or directory begins with "." or "_"
    are left out) or a glob pattern. The rows have the type of the first file's columns, as named rows; all files must
    have the same columns. `validate` reads the ends of all files, before the job starts.
    """

    def __init__(self, format: FileReadFormat, paths: Sequence[str], splits_groups: bool = False) -> None:
        if not paths:
            raise ValueError("FileSource needs at least one path")
        self._format = format
        self._paths = [os.path.abspath(local_path(path)) for path in paths]
        self._splits_groups = splits_groups
        self._row_type: TypeInformation | None = None
        self._listed: list[_ListedFile] | None = None

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
            self._row_type = self._format.inspect(next(self._files())).row_type
        return self._row_type

    def validate(self) -> None:
        self._listed = []
        times: Counter[str] = Counter()
        for path in self._files():
            times[path] += 1
            # A file may be given several times, and is then read as often.
            identity = path if times[path] == 1 else f"{path}@{times[path]}"
            stat = os.stat(path)
            shape = self._format.inspect(path)
            raise_on_difference(path, shape.row_type, self.produced_type)
            self._listed.append(_ListedFile(identity, path, stat.st_size, stat.st_mtime_ns, shape.groups))

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        if restored is not None:
            return FixedSplitEnumerator.restored(restored)
        if self._listed is None:
            self.validate()
        return FixedSplitEnumerator([split for file in self._listed or () for split in self._splits_of(file)])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _FileReader(self._format, self.produced_type)

    def __getstate__(self) -> dict[str, Any]:
        # The list is for the enumerator, in the driver; readers get what they need in their splits.
        return {**self.__dict__, "_row_type": self.produced_type, "_listed": None}

    def _splits_of(self, file: _ListedFile) -> Iterator[bytes]:
        ranges = [(0, file.groups)]
        if self._splits_groups:
            ranges = [(group, group + 1) for group in range(file.groups)]
        for first, end in ranges:
            yield encode_split(
                {
                    "id": f"{file.id}#{first}" if self._splits_groups else file.id,
                    "path": file.path,
                    "size": file.size,
                    "mtime_ns": file.mtime_ns,
                    "group": first,
                    "group_end": end,
                    "row": 0,
                }
            )

    def _files(self) -> Iterator[str]:
        for path in self._paths:
            yield from _files_of(path)


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
        return FileSource(self._format, self._paths, self._enumerator.splits_groups)


def local_path(path: str | os.PathLike[str]) -> str:
    """A path or a `file:` URI as a path. Raises `ValueError` for other file systems."""
    text = os.fspath(path)
    if "://" not in text:
        return text.removeprefix("file:")
    scheme, rest = text.split("://", 1)
    if scheme != "file":
        raise ValueError(f"{text}: only local paths and file: URIs are supported, not {scheme}:")
    return "/" + rest.lstrip("/")


def _files_of(path: str) -> Iterator[str]:
    if os.path.isdir(path):
        files = _files_below(path)
        if not files:
            raise SourceError(f"there are no files in directory {path} (names that begin with . or _ are left out)")
        yield from files
    elif os.path.exists(path) or not glob.has_magic(path):
        if not os.path.exists(path):
            raise SourceError(f"{path} is missing: there is no such file, and it is no directory and no pattern")
        yield path
    else:
        matches = sorted(match for match in glob.glob(path, recursive=True) if not _hidden(os.path.basename(match)))
        if not matches:
            raise SourceError(f"no file matches {path}")
        for match in matches:
            yield from _files_below(match) if os.path.isdir(match) else [match]


def _files_below(directory: str) -> list[str]:
    found = []
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not _hidden(name)]
        found += [os.path.join(parent, name) for name in names if not _hidden(name)]
    return sorted(found)


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


class _FileReader(SourceReader):
    """Reads its splits one after the other."""

    def __init__(self, format: FileReadFormat, row_type: TypeInformation) -> None:
        self._format = format
        self._row_type = row_type
        self._splits: deque[dict[str, Any]] = deque()
        self._file: OpenFile | None = None
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._ahead: pa.RecordBatch | None = None
        self._current = ""
        self._finished: list[str] = []
        self._no_more = False

    def add_splits(self, splits: list[bytes]) -> None:
        self._splits.extend(decode_split(split) for split in splits)

    def no_more_splits(self) -> None:
        self._no_more = True

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        while self._splits:
            split = self._splits[0]
            if self._ahead is None:
                self._ahead = self._next_batch(split)
                if self._ahead is None:
                    continue
            batch = self._ahead.slice(0, rows_max)
            left = self._ahead.slice(batch.num_rows)
            self._ahead = left if left.num_rows else None
            split["row"] += batch.num_rows
            self._current = split["id"]
            return batch
        return None if self._no_more else NotReady(None)

    @property
    def current_split(self) -> str:
        return self._current

    def finished_splits(self) -> list[str]:
        finished, self._finished = self._finished, []
        return finished

    def snapshot(self) -> list[bytes]:
        return [encode_split(split) for split in self._splits]

    def close(self) -> None:
        self._batches = self._ahead = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next_batch(self, split: dict[str, Any]) -> pa.RecordBatch | None:
        """None: this group, or the split, was at its end, and the next one is in its place."""
        if split["group"] >= split["group_end"]:
            self._splits.popleft()
            self._finished.append(split["id"])
            self.close()
            return None
        if self._file is None:
            self._file = self._open(split)
        if self._batches is None:
            self._batches = self._file.batches(split["group"], split["row"])
        batch = next(self._batches, None)
        if batch is None:
            self._batches = None
            split["group"] += 1
            split["row"] = 0
        return batch

    def _open(self, split: dict[str, Any]) -> OpenFile:
        path = split["path"]
        try:
            stat = os.stat(path)
        except OSError as error:
            raise SourceError(
                f"{path} cannot be read: {error.strerror}. It was there when the job started or took its checkpoint; "
                "put it back, or start without the checkpoint."
            ) from error
        changes = []
        if stat.st_size != split["size"]:
            changes.append(f"its size was {split['size']} bytes and is {stat.st_size}")
        if stat.st_mtime_ns != split["mtime_ns"]:
            changes.append(f"its time of modification was {split['mtime_ns']} ns and is {stat.st_mtime_ns}")
        if changes:
            raise SourceError(
                f"{path} has changed since the job started or took its checkpoint: {'; '.join(changes)}. "
                "Put the old file back, or start without the checkpoint."
            )
        return self._format.open(path, self._row_type)
