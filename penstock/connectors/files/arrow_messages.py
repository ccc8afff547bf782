"""Reads files of Arrow record batches, as messages of Arrow's IPC format with a marker behind each:

    <message> <marker> <message> <marker> ...

Schema and marker are not in the file: the program that had it written passes both. A marker is random bytes, made for
each set of files. So reading can begin anywhere, as in Hadoop's sequence files, and a file is split without reading it:
a split has the messages that begin in it. Reading begins a marker's length before the split, to find a message that
begins at its first byte; a message that begins earlier belongs to the split before.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.common.row_types.arrow_types import UnsupportedColumn, conform
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import MalformedRecord, SourceChanged, SourceError
from penstock.connectors.files.file_formats import (
    FileReadFormat,
    FileShape,
    OpenFile,
    Portion,
    Position,
    Record,
    shown_row,
)
from penstock.connectors.files.input_file import InputFile, fault_of

MARKER_BYTES = 32
"""A multiple of 8, so that messages stay aligned."""

# Small enough that readers share a single file, and end together; large enough to be worth a request.
_SPLIT_BYTES = 8 << 20
_SEARCHED_BYTES = 1 << 18


class ArrowMessages(FileReadFormat):
    """Reads files of Arrow record batches with a marker behind each, as rows of `row_type`.

    `schema` is the one that the messages were written in; its columns are those of `row_type` by name. `marker` is
    `MARKER_BYTES` bytes; any other number raises ValueError.
    """

    def __init__(self, row_type: TypeInformation, schema: pa.Schema, marker: bytes) -> None:
        if len(marker) != MARKER_BYTES:
            raise ValueError(f"a marker is {MARKER_BYTES} bytes, got {len(marker)}")
        self._row_type = row_type
        self._schema = schema
        self._marker = marker

    def inspect(self, file: InputFile) -> FileShape:
        """Find the places at which a file may be split.

        Args:
            file: The file.

        Returns:
            The row type, and a place every 8 MiB.

        Raises:
            SourceError: The file cannot be read.
        """
        try:
            size = file.size()
        except OSError as error:
            raise SourceError(f"{file.path} cannot be read: {error.strerror}") from error
        return FileShape(self._row_type, (0, *range(_SPLIT_BYTES, size, _SPLIT_BYTES), size))

    def open(self, file: InputFile, row_type: TypeInformation) -> OpenFile:
        try:
            opened = file.open()
        except OSError as error:
            raise SourceError(f"{file.path} cannot be opened: {error.strerror}") from error
        return _OpenMessages(file.path, opened, self._schema, row_type.schema, self._marker)


class _OpenMessages(OpenFile):
    def __init__(self, path: str, file: pa.NativeFile, written: pa.Schema, schema: pa.Schema, marker: bytes) -> None:
        self._path = path
        self._file = file
        self._written = written
        self._schema = schema
        self._marker = marker

    def read(self, position: Position, end: int) -> Iterator[Portion]:
        at, skip_rows = self._first_message(position.at), position.row
        while at < end:
            batch, behind = self._message(at)
            if batch.num_rows > skip_rows:
                yield Portion(batch.slice(skip_rows), Position(at, skip_rows), Position(behind, 0))
            at, skip_rows = behind, 0

    def _first_message(self, at: int) -> int:
        """Return the start of the first message at or behind `at`: the file's end if the last one began before.

        A whole file ends with a marker, so a search that finds none has met a damaged file, or another file's marker.
        """
        if at == 0:
            return 0
        start, data = max(0, at - MARKER_BYTES), b""
        self._file.seek(start)
        while more := self._file.read(_SEARCHED_BYTES):
            data += bytes(more)
            found = data.find(self._marker)
            if found >= 0:
                return start + found + MARKER_BYTES
            start += max(0, len(data) - MARKER_BYTES + 1)
            data = data[1 - MARKER_BYTES :]
        raise SourceChanged(
            f"{self._path} cannot be read from byte {at} on, the file is damaged: every file of this kind ends with a "
            "marker, and none follows"
        )

    def _message(self, at: int) -> tuple[pa.RecordBatch, int]:
        """Return the batch that begins at `at`, and where the next one does."""
        try:
            self._file.seek(at)
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(self._file), self._written)
            if self._file.read(MARKER_BYTES) != self._marker:
                raise pa.ArrowInvalid("there is no marker behind it")
            return conform(batch, self._schema), int(self._file.tell())
        except UnsupportedColumn as error:
            raise MalformedRecord(f"{self._path}, at byte {at}: {error}") from error
        except (pa.ArrowException, OSError, EOFError) as error:
            text = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise fault_of(error)(f"{self._path} cannot be read at byte {at}, the file is damaged: {text}") from error

    def record_at(self, position: Position, row: pa.RecordBatch) -> Record:
        place = f"{self._path}, at byte {position.at}, row {position.row}"
        return Record(place, self._path, position.row, shown_row(row))

    def close(self) -> None:
        self._file.close()
