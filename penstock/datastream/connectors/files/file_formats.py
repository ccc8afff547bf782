"""The seam between files and the formats that their rows are written in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.base import SourceError
from penstock.datastream.connectors.files.malformed_rows import MalformedRows


class Position(NamedTuple):
    """Where in a file reading goes on: `at` a place that the format can find again (a row group, the offset of a
    record in bytes), behind the first `row` rows from there."""

    at: int
    row: int


@dataclass(frozen=True)
class FileShape:
    """What can be known of a file without reading its rows. `bounds` are places (`Position.at`), ascending: the first
    is where its rows begin, the last its end, and those between are where it may be split."""

    row_type: TypeInformation
    bounds: tuple[int, ...]


@dataclass(frozen=True)
class Portion:
    """Rows that follow each other in a file, from `start`; `after` is the position behind the last of them. There may
    be none, where all of them were refused, or where reading takes long.

    `rejected` are the refused records of this part of the file, for the side output, and `skipped_rows` counts those
    that are left out. Both belong to the portion's end: they are read again where a restore goes on before `after`.
    """

    batch: pa.RecordBatch
    start: Position
    after: Position
    rejected: pa.RecordBatch | None = None
    skipped_rows: int = 0


class OpenFile(ABC):
    """A file that is being read."""

    @abstractmethod
    def read(self, position: Position, end: int) -> Iterator[Portion]:
        """From a position to the place `end`, in the columns of the type that it was opened with. Returns to the
        caller after a bounded piece of work. Raises `SourceError`."""

    @abstractmethod
    def close(self) -> None: ...


class FileReadFormat(ABC):
    """How one kind of file is read. Pickled with the source."""

    malformed_rows: MalformedRows = MalformedRows.fail()
    """What becomes of rows that cannot be read, in formats that can tell one from the next."""

    unsplit_because: str = ""
    """Why files of this format are read whole, where they are."""

    @abstractmethod
    def inspect(self, path: str) -> FileShape:
        """Raises `SourceError` that names the file and what is wrong with it."""

    @abstractmethod
    def open(self, path: str, row_type: TypeInformation) -> OpenFile:
        """`row_type` is that of the first file. Raises `SourceError` where this one has another."""


def raise_on_difference(
    path: str, found: TypeInformation, expected: TypeInformation, expected_of: str = "the first file"
) -> None:
    """Columns are compared by name, so that their order does not matter. Raises `SourceError` with all differences."""
    if found == expected:
        return
    here, there = found.schema, expected.schema
    differences = [f"column {name!r} is missing" for name in there.names if name not in here.names]
    differences += [f"column {name!r} is not expected" for name in here.names if name not in there.names]
    differences += [
        f"column {name!r} is {here.field(name).type}, not {there.field(name).type}"
        for name in here.names
        if name in there.names and here.field(name).type != there.field(name).type
    ]
    if differences:
        raise SourceError(
            f"{path} has another schema than {expected_of}: {'; '.join(differences)}. "
            "Files of different schemas need a source each."
        )


class PartWriter(ABC):
    """Writes one file from its start to its end. Raises `OSError` or `pyarrow.ArrowException`; the sink names the
    file."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None: ...

    @property
    @abstractmethod
    def written_bytes(self) -> int:
        """The size of the file so far, what is still buffered included (an estimate will do)."""

    @property
    def buffered_bytes(self) -> int:
        """How much of that is held in memory until `write_buffered`, or the end."""
        return 0

    def write_buffered(self) -> None:
        """Lets go of what is held in memory: a sink with many open parts has no room for all of it."""

    @abstractmethod
    def finish(self) -> None:
        """Writes everything that is buffered and the file's end. The caller makes it durable, and closes it."""

    @abstractmethod
    def abandon(self) -> None:
        """Lets go of everything, in place of `finish`. The caller removes the file."""


class FileWriteFormat(ABC):
    """How one kind of file is written. Pickled with the sink."""

    default_suffix: str = ""
    is_concatenable: bool = True
    """Files of this format, one behind the other, are a file of this format."""
    is_appended: bool = False
    """What has been written to a file never changes, and may end after any row: a part may outlive a checkpoint."""

    @abstractmethod
    def validate(self, input_type: TypeInformation | None) -> None:
        """Raises `SinkError` where rows of this type cannot be written."""

    @abstractmethod
    def start(self, file: BinaryIO, input_type: TypeInformation | None) -> PartWriter:
        """Begins a file in a stream that is open for writing."""
