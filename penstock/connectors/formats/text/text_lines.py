"""Reads files of text, a row per line."""

from __future__ import annotations

import codecs

import numpy as np
import pyarrow as pa

from penstock.common.row_types.scalar_types import STRING
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.files.file_formats import FileReadFormat, FileShape, OpenFile
from penstock.connectors.files.input_file import InputFile
from penstock.connectors.files.malformed_rows import MalformedRows
from penstock.connectors.files.record_file import RecordDecoder, RecordFile, RefusedRecords
from penstock.connectors.formats.text.text_bytes import text_bounds


class StreamFormat:
    """Makes formats of text."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> FileReadFormat:
        """Read a STRING per line, without its line end (LF or CR LF).

        Files compressed with gzip, bzip2 or zstd are recognized by their names (.gz, .bz2, .zst).

        Args:
            charset_name: The encoding. Raises ValueError for one that Python does not know, or with a line feed of
                several bytes.

        Returns:
            The format.
        """
        return TextLines(charset_name)


class TextLines(FileReadFormat):
    """Reads a STRING per line."""

    def __init__(self, charset_name: str) -> None:
        try:
            line_feed = "\n".encode(codecs.lookup(charset_name).name)
        except LookupError:
            raise ValueError(f"charset {charset_name!r} is not known; UTF-8 is the usual one")
        if line_feed != b"\n":
            raise ValueError(f"charset {charset_name!r} does not end its lines with one byte; UTF-8 is the usual one")
        self._charset = charset_name

    @property
    def known_type(self) -> TypeInformation:
        return STRING

    def inspect(self, file: InputFile) -> FileShape:
        return FileShape(STRING, text_bounds(file, 0))

    def open(self, file: InputFile, row_type: TypeInformation) -> OpenFile:
        return RecordFile(file, _LineDecoder(self._charset), MalformedRows.fail())


class _LineDecoder(RecordDecoder):
    def __init__(self, charset: str) -> None:
        self._charset = charset

    @property
    def schema(self) -> pa.Schema:
        return STRING.schema

    def decode(self, data: bytes) -> pa.RecordBatch:
        try:
            text = data.decode(self._charset)
        except UnicodeDecodeError as error:
            raise RefusedRecords(f"it is not {self._charset}: {error.reason}") from error
        lines = text.removesuffix("\n").split("\n")
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        return pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], schema=STRING.schema)

    def bounds(self, data: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Find the lines. Blank ones are rows, too.

        Args:
            data: The lines.

        Returns:
            The offset of the beginning of each, and that of its end, without its line end.
        """
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0x0A).astype(np.int64)
        if not data.endswith(b"\n"):
            ends = np.append(ends, len(data))
        starts = np.concatenate(([0], ends[:-1] + 1)).astype(np.int64)
        return starts, np.maximum(starts, ends - [data[end - 1 : end] == b"\r" for end in ends.tolist()])
