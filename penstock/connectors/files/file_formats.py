"""Defines the interface of file formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import MalformedRecord
from penstock.connectors.files.input_file import InputFile
from penstock.connectors.files.malformed_rows import MalformedRows


class Position(NamedTuple):
    """Identifies a row in a file: the `row`-th from the place `at`.

    A place is one that the format can find again: a row group, or the offset of a record in bytes.
    """

    at: int
    row: int


@dataclass(frozen=True)
class FileShape:
    """Describes a file without its rows.

    `bounds` are places (`Position.at`), ascending: the beginning of the rows, places where the file may be split, the
    end.
    """

    row_type: TypeInformation
    bounds: tuple[int, ...]


@dataclass(frozen=True)
class Portion:
    """Holds rows that follow each other in a file, from `start`; `after` is the position behind the last of them.

    There may be no rows, if all were refused or reading takes long.

    `rejected` are the refused records of this part of the file, for the side output; `skipped_rows` counts those that
    are left out. Both belong to the portion's end: they are read again if a restore continues before `after`.
    """

    batch: pa.RecordBatch
    start: Position
    after: Position
    rejected: pa.RecordBatch | None = None
    skipped_rows: int = 0


class Record(NamedTuple):
    """Describes the record of a row: its place, for errors, and `file`, `line` and `text` of a `MALFORMED_ROW_TYPE`."""

    place: str
    file: str
    line: int
    text: str


class OpenFile(ABC):
    """Reads a file that is open."""

    @abstractmethod
    def read(self, position: Position, end: int) -> Iterator[Portion]:
        """Read rows, in the columns of the type that the file was opened with. Raises `SourceError`.

        Args:
            position: The first row.
            end: The end of the rows to read; a row that begins there is not read.

        Returns:
            Portions, each after a bounded piece of work.
        """

    @abstractmethod
    def record_at(self, position: Position, row: pa.RecordBatch) -> Record:
        """Describe the record of a row of the portion that `read` has yielded last.

        Args:
            position: The row's.
            row: The row.

        Returns:
            Its record.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


class FileReadFormat(ABC):
    """Describes the reading of a kind of file. It is pickled with the source."""

    malformed_rows: MalformedRows = MalformedRows.fail()
    """The treatment of rows that cannot be read, in formats that can tell one from the next, and of rows whose event
    time cannot be read."""

    unsplit_because: str = ""
    """The reason why files of this format are read whole; "" if they are split."""

    @property
    def known_type(self) -> TypeInformation | None:
        """Return the type of rows of all files of this format; None if each file has its own."""
        return None

    @abstractmethod
    def inspect(self, file: InputFile) -> FileShape:
        """Look at a file without reading its rows.

        Raises `SourceError`, which names the file and what is wrong with it.

        Args:
            file: The file.

        Returns:
            The type of its rows, and where it may be split.
        """

    @abstractmethod
    def open(self, file: InputFile, row_type: TypeInformation) -> OpenFile:
        """Open a file for reading.

        Args:
            file: The file.
            row_type: The type of the first file's rows.

        Returns:
            The open file.

        Raises:
            SourceError: Its rows are of another type.
        """


def shown_row(row: pa.RecordBatch) -> str:
    """Return the values of a row of columns as text.

    Args:
        row: The row, a batch of one.

    Returns:
        The text.
    """
    return str(row.to_pylist()[0])


def raise_on_difference(
    path: str, found: TypeInformation, expected: TypeInformation, expected_of: str = "the first file"
) -> None:
    """Compare the columns of two types by name; their order does not matter, and numbers may be of a smaller type.

    Args:
        path: The file, for the error.
        found: The type of its rows.
        expected: The type that they should have.
        expected_of: What has that type, for the error.

    Raises:
        MalformedRecord: They differ. The message lists all differences.
    """
    if found == expected:
        return
    here, there = found.schema, expected.schema
    differences = [f"column {name!r} is missing" for name in there.names if name not in here.names]
    differences += [f"column {name!r} is not expected" for name in here.names if name not in there.names]
    differences += [
        f"column {name!r} is {here.field(name).type}, not {there.field(name).type}"
        for name in here.names
        if name in there.names and not _is_readable_as(here.field(name).type, there.field(name).type)
    ]
    if differences:
        raise MalformedRecord(
            f"{path} has another schema than {expected_of}: {'; '.join(differences)}. "
            "Files of different schemas need a source each."
        )


def _is_readable_as(found: pa.DataType, expected: pa.DataType) -> bool:
    """Return True if every value of a type is one of the other: INT of a file as LONG, FLOAT as DOUBLE."""
    if found == expected:
        return True
    kinds = pa.types
    if kinds.is_decimal(found) and kinds.is_decimal(expected):
        whole, expected_whole = found.precision - found.scale, expected.precision - expected.scale
        return bool(found.scale <= expected.scale and whole <= expected_whole)
    if kinds.is_floating(expected):
        is_whole = kinds.is_signed_integer(found)
        # A float has 24 bits of precision, a double 53.
        return bool((kinds.is_floating(found) or is_whole) and found.bit_width < expected.bit_width)
    if kinds.is_signed_integer(found) and kinds.is_signed_integer(expected):
        return bool(found.bit_width < expected.bit_width)
    return False


class PartWriter(ABC):
    """Writes a file from its start to its end.

    Raises `OSError` or `pyarrow.ArrowException`; the sink names the file.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows.

        Args:
            batch: The rows.
        """

    @property
    def written_bytes(self) -> int:
        """Return the size of the file so far, with what is still buffered (an estimate is enough)."""
        return self._file.tell()

    @property
    def buffered_bytes(self) -> int:
        """Return the number of these bytes that stay in memory until `write_buffered`, or the end."""
        return 0

    def write_buffered(self) -> None:
        """Write the buffered rows: a sink with many open parts has no room for all of it."""

    def finish(self) -> None:
        """Write everything that is buffered, and the end of the file. The caller makes it durable and closes it."""

    def abandon(self) -> None:
        """Discard everything, in place of `finish`. The caller removes the file."""


class FileWriteFormat(ABC):
    """Describes the writing of a kind of file. It is pickled with the sink."""

    default_suffix: str = ""
    unconcatenable_because: str = ""
    """The reason why concatenated files of this format are no file of this format; "" if they are one."""
    is_appended: bool = False
    """True if what has been written to a file never changes, and may end after any row: a part may outlive a
    checkpoint."""

    @abstractmethod
    def validate(self, input_type: TypeInformation | None) -> None:
        """Check that rows of a type can be written.

        Args:
            input_type: The type of the rows, or None.

        Raises:
            SinkError: They cannot.
        """

    @abstractmethod
    def start(self, file: BinaryIO, input_type: TypeInformation | None) -> PartWriter:
        """Begin a file.

        Args:
            file: The file, open for writing.
            input_type: The type of the rows, or None.

        Returns:
            Its writer.
        """
