"""The seam between files and the formats that their rows are written in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.base import SourceError


@dataclass(frozen=True)
class FileShape:
    """What can be known of a file without reading its rows. `groups` counts its parts that can be read alone."""

    row_type: TypeInformation
    groups: int


class OpenFile(ABC):
    """A file that is being read."""

    @property
    @abstractmethod
    def groups(self) -> int: ...

    @abstractmethod
    def batches(self, group: int, skip_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of one group behind its first `skip_rows`, in the columns of the type that it was opened with.
        Raises `SourceError`."""

    @abstractmethod
    def close(self) -> None: ...


class FileReadFormat(ABC):
    """How one kind of file is read. Pickled with the source."""

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

    @abstractmethod
    def finish(self) -> None:
        """Writes everything that is buffered and the file's end. The caller makes it durable, and closes it."""

    @abstractmethod
    def abandon(self) -> None:
        """Lets go of everything, in place of `finish`. The caller removes the file."""


class FileWriteFormat(ABC):
    """How one kind of file is written. Pickled with the sink."""

    default_suffix: str = ""

    @abstractmethod
    def validate(self, input_type: TypeInformation | None) -> None:
        """Raises `SinkError` where rows of this type cannot be written."""

    @abstractmethod
    def start(self, file: BinaryIO, input_type: TypeInformation | None) -> PartWriter:
        """Begins a file in a stream that is open for writing."""
