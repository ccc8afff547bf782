"""Files of text, a row per line."""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from penstock.common.scalar_types import STRING
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.base import SourceError
from penstock.datastream.connectors.file_formats import FileReadFormat, FileShape, OpenFile

_LINES_READ_AHEAD = 4096


class StreamFormat:
    """Names of PyFlink's `StreamFormat`."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> FileReadFormat:
        """A STRING per line, without its line end (LF or CR LF). A file has one group: after a restore its lines are
        read again from the start, and those before the position dropped.

        Raises `ValueError` for a charset that Python does not know, or in which a line feed is more than one byte.
        """
        return TextLines(charset_name)


class TextLines(FileReadFormat):
    def __init__(self, charset_name: str) -> None:
        try:
            line_feed = "\n".encode(codecs.lookup(charset_name).name)
        except LookupError:
            raise ValueError(f"charset {charset_name!r} is not known; UTF-8 is the usual one")
        if line_feed != b"\n":
            raise ValueError(f"charset {charset_name!r} does not end its lines with one byte; UTF-8 is the usual one")
        self._charset = charset_name

    def inspect(self, path: str) -> FileShape:
        _opened(path).close()
        return FileShape(STRING, 1)

    def open(self, path: str, row_type: TypeInformation) -> OpenFile:
        return _OpenLines(path, _opened(path), self._charset)


def _opened(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise SourceError(f"{path} cannot be opened: {error.strerror}") from error


class _OpenLines(OpenFile):
    def __init__(self, path: str, file: BinaryIO, charset: str) -> None:
        self._path = path
        self._file = file
        self._charset = charset

    @property
    def groups(self) -> int:
        return 1

    def batches(self, group: int, skip_rows: int) -> Iterator[pa.RecordBatch]:
        self._file.seek(0)
        number = sum(1 for _ in itertools.islice(self._file, skip_rows))
        while lines := list(itertools.islice(self._file, _LINES_READ_AHEAD)):
            rows = [self._text(line, number + index) for index, line in enumerate(lines, 1)]
            number += len(rows)
            yield pa.RecordBatch.from_arrays(STRING.encode(rows), schema=STRING.schema)

    def _text(self, line: bytes, number: int) -> str:
        try:
            return line.removesuffix(b"\n").removesuffix(b"\r").decode(self._charset)
        except UnicodeDecodeError as error:
            raise SourceError(f"{self._path}, line {number} is not {self._charset}: {error.reason}") from error

    def close(self) -> None:
        self._file.close()
