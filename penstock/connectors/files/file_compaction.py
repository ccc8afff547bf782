"""Joins the finished parts of a file sink to larger files, before they become visible."""

from __future__ import annotations

import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow.parquet as pq

from penstock.connectors.files.file_formats import FileWriteFormat


@dataclass(frozen=True)
class FileCompactStrategy:
    """Chooses the moment to join waiting parts: at a size in bytes, or after a number of checkpoints.

    Rows become visible with the file that they are joined to, so they come later by up to that many checkpoints.
    """

    size_threshold: int | None = None
    checkpoints: int | None = None

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        """Return a builder."""
        return FileCompactStrategy.Builder()

    def is_due(self, size: int, checkpoints: int) -> bool:
        """Return True if waiting parts are to be joined now.

        Args:
            size: How many bytes they have.
            checkpoints: How many checkpoints the oldest has waited for.

        Returns:
            True or False.
        """
        return (self.size_threshold is not None and size >= self.size_threshold) or (
            self.checkpoints is not None and checkpoints >= self.checkpoints
        )

    class Builder:
        """Builds a strategy from a size, a number of checkpoints, or both: the first that is reached counts."""

        def __init__(self) -> None:
            self._size_threshold: int | None = None
            self._checkpoints: int | None = None

        def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy.Builder:
            """Join the parts of a bucket when they have this many bytes.

            Args:
                size_threshold: Bytes, at least 1.

            Raises:
                ValueError: The number is less than 1.
            """
            if size_threshold < 1:
                raise ValueError(f"set_size_threshold() takes a number of bytes of at least 1, got {size_threshold}")
            self._size_threshold = size_threshold
            return self

        def enable_compaction_on_checkpoint(
            self, num_checkpoints_before_compaction: int
        ) -> FileCompactStrategy.Builder:
            """Join the parts of a bucket when the oldest has waited for this many checkpoints.

            Args:
                num_checkpoints_before_compaction: The number, at least 1.

            Raises:
                ValueError: The number is less than 1.
            """
            if num_checkpoints_before_compaction < 1:
                raise ValueError(
                    "enable_compaction_on_checkpoint() takes a number of checkpoints of at least 1, got "
                    f"{num_checkpoints_before_compaction}"
                )
            self._checkpoints = num_checkpoints_before_compaction
            return self

        def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy.Builder:
            """Accept Flink's setting. It has no effect: each writer joins parts to one file at a time.

            Args:
                num_compact_threads: The number, at least 1.

            Raises:
                ValueError: The number is less than 1.
            """
            if num_compact_threads < 1:
                raise ValueError(f"set_num_compact_threads() takes a number of at least 1, got {num_compact_threads}")
            return self

        def build(self) -> FileCompactStrategy:
            """Return the strategy.

            Raises:
                ValueError: Neither a size nor a number of checkpoints was set.
            """
            if self._size_threshold is None and self._checkpoints is None:
                raise ValueError(
                    "a FileCompactStrategy needs set_size_threshold(bytes) or enable_compaction_on_checkpoint(number)"
                )
            return FileCompactStrategy(self._size_threshold, self._checkpoints)


class FileCompactor(ABC):
    """Joins files. Pickled with the sink."""

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """Join files byte by byte. For rows of text, JSON lines and CSV without a header.

        Args:
            file_delimiter: Bytes to write between two files.

        Returns:
            The compactor.
        """
        return _Concatenation(file_delimiter or b"")

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Keep files as they are: they become visible together, when the strategy says so."""
        return _Identity()

    @staticmethod
    def parquet_file_compactor() -> FileCompactor:
        """Join Parquet files, row group by row group. (Flink's Java API: RecordWiseFileCompactor.)"""
        return _ParquetCompactor()

    joins = True

    @abstractmethod
    def compact(self, paths: Sequence[str], file: BinaryIO) -> None:
        """Write the rows of several files to one.

        Args:
            paths: The files, in the order of their rows.
            file: The new file, open for writing.
        """

    def check(self, format: FileWriteFormat) -> None:
        """Check that files of a format can be joined in this way. Raises ValueError if not.

        Args:
            format: The format.
        """


@dataclass(frozen=True)
class _Concatenation(FileCompactor):
    delimiter: bytes

    def compact(self, paths: Sequence[str], file: BinaryIO) -> None:
        for index, path in enumerate(paths):
            if index:
                file.write(self.delimiter)
            with open(path, "rb") as part:
                shutil.copyfileobj(part, file, 1 << 20)

    def check(self, format: FileWriteFormat) -> None:
        if format.unconcatenable_because:
            raise ValueError(f"concat_file_compactor() joins bytes, but {format.unconcatenable_because}")


@dataclass(frozen=True)
class _Identity(FileCompactor):
    joins = False

    def compact(self, paths: Sequence[str], file: BinaryIO) -> None:
        raise AssertionError("files are left as they are")


@dataclass(frozen=True)
class _ParquetCompactor(FileCompactor):
    def compact(self, paths: Sequence[str], file: BinaryIO) -> None:
        with pq.ParquetFile(paths[0]) as first:
            schema = first.schema_arrow
            compression = _compression_of(first)
        with pq.ParquetWriter(file, schema, compression=compression) as writer:
            for path in paths:
                with pq.ParquetFile(path) as part:
                    for group in range(part.num_row_groups):
                        writer.write_table(part.read_row_group(group))

    def check(self, format: FileWriteFormat) -> None:
        if format.default_suffix != ".parquet":
            raise ValueError(
                "parquet_file_compactor() joins Parquet files, and this sink writes others; take "
                "FileCompactor.concat_file_compactor()"
            )


def _compression_of(file: pq.ParquetFile) -> str:
    if not file.metadata.num_row_groups or not file.metadata.num_columns:
        return "snappy"
    codec: str = file.metadata.row_group(0).column(0).compression
    return "none" if codec == "UNCOMPRESSED" else codec


class Compaction:
    """Joins parts in a thread of its own while the stream continues. Only the holder of `turn` works; others wait."""

    def __init__(self, work: Callable[[], int], turn: threading.Lock) -> None:
        self._work = work
        self._turn = turn
        self._size: int | None = None
        self._error: BaseException | None = None
        self._is_abandoned = False
        self._thread = threading.Thread(target=self._run, name="file compaction", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._turn:
                if not self._is_abandoned:
                    self._size = self._work()
        except BaseException as error:
            self._error = error

    @property
    def is_done(self) -> bool:
        """Return True if the work has ended."""
        return not self._thread.is_alive()

    def abandon(self) -> None:
        """Cancel the work if it has not begun. Nobody waits for a file that is being written: its name is removed."""
        self._is_abandoned = True

    def result(self) -> int:
        """Wait for the end; return the size of the file in bytes. Raises what the work raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._size is not None
        return self._size
