"""Reads files of text, decompressed if their name says so, from any offset, and numbers their lines.

Offsets count decompressed bytes. To reach one in a compressed file, all before it is decompressed again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa

from penstock.connectors.base import SourceError
from penstock.connectors.files.input_file import InputFile, fault_of

UNKNOWN_END = 2**63 - 1
"""The end of a split of a compressed file, whose length nobody knows before it is read."""

STEP_BYTES = 4 << 20
"""The most bytes that are passed over in one piece of work."""

SPLIT_BYTES = 16 << 20

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def compression_of(path: str) -> str | None:
    """Return the compression of a file by its name: "gzip", "bz2", "zstd", or None.

    Args:
        path: The file.

    Returns:
        The name that Arrow has for it.
    """
    return _COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def text_bounds(file: InputFile, start: int, can_split: bool = True) -> tuple[int, ...]:
    """Find the places of a file of lines (see `FileShape`). Raises `SourceError`.

    Args:
        file: The file.
        start: The offset of the first row.
        can_split: False: it is read whole.

    Returns:
        The places.
    """
    TextBytes(file).close()
    if compression_of(file.path) is not None:
        return (start, UNKNOWN_END)
    size = max(start, file.size())
    cuts = range(start + SPLIT_BYTES, size, SPLIT_BYTES) if can_split else ()
    return (start, *cuts, size)


class TextBytes:
    """Reads the text of a file from its start to its end; if it is not compressed, from any offset.

    Raises `SourceError`, which names the file, if it cannot be opened, or is damaged or cut off.
    """

    def __init__(self, file: InputFile) -> None:
        self._path = path = file.path
        self._compression = compression_of(path)
        self._offset = 0
        self._stream: pa.NativeFile
        try:
            self._stream = file.open()
            if self._compression is not None:
                self._stream = pa.CompressedInputStream(self._stream, self._compression)
        except OSError as error:
            cause = os.strerror(error.errno) if error.errno else str(error)
            raise SourceError(f"{path} cannot be opened: {cause}") from error

    def go_to(self, offset: int) -> Iterator[None]:
        """Move to an offset, or to the end of the file.

        Args:
            offset: Where `read` continues. In a compressed file it is not behind the current one.

        Yields:
            None between pieces of work.
        """
        if self._compression is None:
            self._stream.seek(min(offset, self._stream.size()))
            self._offset = offset
            return
        assert offset >= self._offset, "compressed files are read forwards"
        while self._offset < offset and self.read(min(STEP_BYTES, offset - self._offset)):
            yield

    def read(self, size: int) -> bytes:
        """Read some bytes.

        Args:
            size: How many.

        Returns:
            The bytes; fewer at the end of the file.

        Raises:
            SourceError: The file is damaged or cut off.
        """
        parts = []
        while size:
            try:
                part = self._stream.read(size)
            except (OSError, pa.ArrowException) as error:
                what = f"{self._compression} data" if self._compression else "it"
                raise fault_of(error)(
                    f"{self._path} cannot be read behind {self._offset} bytes of text: {what} is damaged or cut off "
                    f"({error}). Put the whole file in its place."
                ) from error
            if not part:
                break
            parts.append(part)
            size -= len(part)
            self._offset += len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class LineNumbers:
    """Counts lines up to offsets that only grow, by reading the file again. Lines are numbered only if one is bad."""

    def __init__(self, file: InputFile) -> None:
        self._file = file
        self._bytes: TextBytes | None = None
        self._offset = 0
        self._lines = 0

    def line_at(self, offset: int) -> int:
        """Return the number of a line, from 1.

        Args:
            offset: The offset where it begins.

        Returns:
            The number.
        """
        if self._bytes is None or offset < self._offset:
            self.close()
            self._bytes = TextBytes(self._file)
            self._offset = self._lines = 0
        while self._offset < offset:
            part = self._bytes.read(min(STEP_BYTES, offset - self._offset))
            if not part:
                break
            self._offset += len(part)
            self._lines += part.count(b"\n")
        return self._lines + 1

    def close(self) -> None:
        """Close the file."""
        if self._bytes is not None:
            self._bytes.close()
            self._bytes = None
