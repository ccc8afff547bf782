"""Reads files of records that end in line feeds, in blocks of whole records.

A position is the offset of a block's first record, and how many of the block's rows have been handed out: the same
bytes give the same rows again. A split of a file has the records that begin in it. It is entered one byte early,
behind the first line feed from there, so that the record in which a split begins belongs to the one before.

A block is decoded at once, in columns. Only when that fails are its records looked at: halves are tried until those
that cannot be read stand alone. What a decoder certainly refuses (`refusals`) is left out first, without trying,
because halving down to every single record of a block would take seconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.connectors.base import MalformedRecord
from penstock.connectors.files.file_formats import OpenFile, Portion, Position, Record
from penstock.connectors.files.input_file import InputFile
from penstock.connectors.files.malformed_rows import MALFORMED_ROW_TYPE, MalformedRows
from penstock.connectors.formats.text.text_bytes import LineNumbers, TextBytes

_BLOCK_BYTES = 1 << 20
_RECORD_BYTES_MAX = 64 << 20
_HALVED_RECORDS_MAX = 512
"""The number of records that are found by halving before what has been read so far is handed out."""
_SHOWN_CHARACTERS = 200

Indices = np.ndarray[Any, np.dtype[np.int64]]


class RefusedRecords(Exception):
    """Reports that some record cannot be read. The message says what is wrong, and names the field."""


class RecordDecoder(ABC):
    """Turns whole records of one file into rows."""

    line_breaks_in_records: bool = False
    """True if a line feed may be part of a record."""

    way_out: str = ""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the schema of the rows."""

    @abstractmethod
    def decode(self, data: bytes) -> pa.RecordBatch:
        """Decode whole records, blank ones among them.

        Args:
            data: The records.

        Returns:
            Their rows.

        Raises:
            RefusedRecords: One cannot be read; then none is returned.
        """

    @abstractmethod
    def bounds(self, data: bytes) -> tuple[Indices, Indices]:
        """Find the records that are not blank.

        Args:
            data: The records.

        Returns:
            The offset of the beginning of each, and that of its end, without its line end.
        """

    def end_of_last(self, data: bytes) -> int:
        """Find the end of the last whole record.

        Args:
            data: Text that begins with a record.

        Returns:
            The offset behind it; 0 if there is none.
        """
        return data.rfind(b"\n") + 1

    def is_whole(self, record: bytes) -> bool:
        """Return True if the last record of a file, which has no line end, is complete.

        Args:
            record: The record.

        Returns:
            True or False.
        """
        return True

    def refusals(self, data: bytes, starts: Indices, ends: Indices) -> dict[int, str]:
        """Find records that `decode` is known to refuse; not necessarily all of them.

        Args:
            data: The records.
            starts: The offsets of their beginnings.
            ends: The offsets of their ends.

        Returns:
            The reason by the index of the record.
        """
        return {}

    def reason(self, record: bytes, error: RefusedRecords) -> str:
        """Explain why a single record was refused; name the field if it is known.

        Args:
            record: The record.
            error: The error of `decode`.

        Returns:
            The reason.
        """
        return str(error)


def bounds_of_lines(data: bytes, line_ends: Indices | None = None) -> tuple[Indices, Indices]:
    """Find the records that are not blank.

    Args:
        data: The records.
        line_ends: The offsets behind the line feeds that end records. None: every line feed ends one.

    Returns:
        The offset of the beginning of each, and that of its end, without its line end.
    """
    found = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(found == 0x0A) + 1 if line_ends is None else line_ends
    if not len(ends) or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    starts = np.concatenate(([0], ends[:-1])).astype(np.int64)
    ends = ends - (found[ends - 1] == 0x0A) if len(data) else ends
    has_return = (ends > starts) & (found[np.maximum(ends, 1) - 1] == 0x0D) if len(data) else np.zeros(1, bool)
    ends = ends - has_return
    present = ends > starts
    return starts[present], ends[present].astype(np.int64)


class RecordFile(OpenFile):
    """Reads a file of records. `first_record` is the offset of the first one, behind a header or a byte order mark."""

    def __init__(
        self, file: InputFile, decoder: RecordDecoder, malformed: MalformedRows, first_record: int = 0
    ) -> None:
        self._path = file.path
        self._decoder = decoder
        self._malformed = malformed
        self._first_record = first_record
        self._text = TextBytes(file)
        self._lines = LineNumbers(file)
        self._block: tuple[bytes, int, frozenset[int]] = b"", 0, frozenset()
        """The block that was decoded last: its bytes, its offset, and where in it records begin that were refused."""
        self._bounds: list[tuple[int, int]] | None = None
        """Of the records of that block that became rows; None: nobody has asked yet."""
        self._nothing = pa.RecordBatch.from_pylist([], schema=decoder.schema)

    def close(self) -> None:
        self._text.close()
        self._lines.close()

    def read(self, position: Position, end: int) -> Iterator[Portion]:
        offset, skip_rows = position
        enters = offset > self._first_record
        at = offset - 1 if enters else self._first_record
        for _ in self._text.go_to(at):
            yield Portion(self._nothing, position, position)
        ahead = b""
        if enters:
            while (found := ahead.find(b"\n")) < 0:
                at += len(ahead)
                ahead = self._text.read(_BLOCK_BYTES)
                if not ahead or at >= end:
                    return
            ahead = ahead[found + 1 :]
            at += found + 1
        while at < end:
            data, ahead, is_whole = self._next_records(at, ahead, end)
            if not data:
                return
            portion = self._portion(data, at, skip_rows, is_whole)
            skip_rows = max(0, skip_rows - (portion.start.row + portion.batch.num_rows))
            ahead = data[portion.after.at - at :] + ahead
            at = portion.after.at
            yield portion

    def _next_records(self, at: int, ahead: bytes, end: int) -> tuple[bytes, bytes, bool]:
        """Return records from `at` on, what has been read behind them, and whether they are whole.

        If not, they are the beginning of a record that is never closed.
        """
        size = _BLOCK_BYTES
        while True:
            if len(ahead) < size:
                ahead += self._text.read(size - len(ahead))
            is_last = len(ahead) < size
            window = ahead[:size]
            cut = self._whole_records(window, at, end, is_last)
            if cut or (is_last and not window):
                return window[:cut], ahead[cut:], True
            if size >= _RECORD_BYTES_MAX and not self._decoder.line_breaks_in_records:
                raise MalformedRecord(
                    f"{self._path}, line {self._lines.line_at(at)} is longer than {_RECORD_BYTES_MAX} bytes. "
                    "Is it a file of lines?"
                )
            if is_last or size >= _RECORD_BYTES_MAX:
                return window, ahead[size:], False
            size *= 2

    def _whole_records(self, window: bytes, at: int, end: int, is_last: bool) -> int:
        """Return the bytes of `window` in whole records that begin before `end`; 0: more must be read to know."""
        decoder = self._decoder
        if decoder.line_breaks_in_records:
            cut = decoder.end_of_last(window)
            return len(window) if is_last and cut < len(window) and decoder.is_whole(window[cut:]) else cut
        ends_inside = at + len(window) >= end
        cut = window.find(b"\n", max(0, end - 1 - at)) + 1 if ends_inside else decoder.end_of_last(window)
        if is_last and (cut == 0 or not ends_inside):
            return len(window)
        return cut

    def _portion(self, data: bytes, at: int, skip_rows: int, is_whole: bool) -> Portion:
        rejected: list[tuple[int, int, str]] = []
        used = len(data)
        if not is_whole:
            batch, used = self._nothing, data.find(b"\n") + 1 or len(data)
            rejected.append((0, used, "an opening quote is never closed"))
            if self._malformed.fails:
                raise self._error(data, at, *rejected[0])
        else:
            try:
                batch = self._decoder.decode(data)
            except RefusedRecords:
                batch, rejected, used = self._separate(data, at)
        self._block = data[:used], at, frozenset(start for start, _, _ in rejected)
        self._bounds = None
        taken = min(skip_rows, batch.num_rows)
        return Portion(
            batch.slice(taken),
            Position(at, taken),
            Position(at + used, 0),
            self._rejected_batch(data, at, rejected) if rejected and self._malformed.is_side_output else None,
            0 if self._malformed.is_side_output else len(rejected),
        )

    def _separate(self, data: bytes, at: int) -> tuple[pa.RecordBatch, list[tuple[int, int, str]], int]:
        """Read record by record.

        Returns the rows of those that can be read, (start, end, reason) of the others, and how many bytes all have.
        """
        decoder = self._decoder
        starts, ends = decoder.bounds(data)
        known = decoder.refusals(data, starts, ends)
        good: list[pa.RecordBatch] = []
        rejected: list[tuple[int, int, str]] = []
        ranges = _ranges_between(sorted(known), len(starts))[::-1]
        halved = 0
        while ranges:
            first, behind = ranges.pop()
            start, end = int(starts[first]), int(ends[behind - 1])
            reason = known.get(first) if behind - first == 1 else None
            if reason is None:
                try:
                    good.append(decoder.decode(data[start:end]))
                    continue
                except RefusedRecords as error:
                    if behind - first > 1:
                        middle = (first + behind) // 2
                        ranges += [(middle, behind), (first, middle)]
                        continue
                    reason = decoder.reason(data[start:end], error)
                    halved += 1
            if self._malformed.fails:
                raise self._error(data, at, start, end, reason)
            rejected.append((start, end, reason))
            if halved >= _HALVED_RECORDS_MAX and ranges:
                return _joined(good, decoder.schema), rejected, int(starts[ranges[-1][0]])
        return _joined(good, decoder.schema), rejected, len(data)

    def record_at(self, position: Position, row: pa.RecordBatch) -> Record:
        data, at, refused = self._block
        assert position.at == at, "the row is of an earlier block"
        if self._bounds is None:
            starts, ends = self._decoder.bounds(data)
            self._bounds = [bound for bound in zip(starts.tolist(), ends.tolist()) if bound[0] not in refused]
        start, end = self._bounds[position.row]
        line = self._lines.line_at(at + start)
        return Record(f"{self._path}, line {line}", self._path, line, _text(data[start:end]))

    def _rejected_batch(self, data: bytes, at: int, rejected: list[tuple[int, int, str]]) -> pa.RecordBatch:
        columns = [
            [self._path] * len(rejected),
            [self._lines.line_at(at + start) for start, _, _ in rejected],
            [_text(data[start:end]) for start, end, _ in rejected],
            [reason for _, _, reason in rejected],
        ]
        return pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=MALFORMED_ROW_TYPE.schema)

    def _error(self, data: bytes, at: int, start: int, end: int, reason: str) -> MalformedRecord:
        shown = _text(data[start:end][: 4 * _SHOWN_CHARACTERS])
        if len(shown) > _SHOWN_CHARACTERS:
            shown = shown[:_SHOWN_CHARACTERS] + "..."
        line = self._lines.line_at(at + start)
        way_out = f" {self._decoder.way_out}" if self._decoder.way_out else ""
        return MalformedRecord(f"{self._path}, line {line} cannot be read: {reason}. The line: {shown!r}.{way_out}")


def _ranges_between(known: list[int], count: int) -> list[tuple[int, int]]:
    """Return a range for each known record, and the ranges between them."""
    ranges = []
    first = 0
    for index in known:
        if index > first:
            ranges.append((first, index))
        ranges.append((index, index + 1))
        first = index + 1
    if first < count:
        ranges.append((first, count))
    return ranges


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=schema)


def _text(data: bytes) -> str:
    return data.rstrip(b"\r\n").decode(errors="replace")
