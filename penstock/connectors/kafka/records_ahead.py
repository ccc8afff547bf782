"""Holds records that were read ahead of the job, and decodes them in batches of a useful size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.typeinfo import TIMESTAMP_COLUMN
from penstock.connectors.messages.decoding import MessageDecoder, decode_all

_NO_ROWS = pa.RecordBatch.from_arrays([], names=[])


@dataclass
class Partition:
    """Holds the position of a partition: the offset behind the last returned row, and the first unread one."""

    topic: str
    number: int
    next: int
    stop: int | None

    @property
    def id(self) -> str:
        """Return the id of the partition's split."""
        return f"{self.topic}/{self.number}"

    def __str__(self) -> str:
        return f"topic {self.topic!r}, partition {self.number}"


@dataclass
class Piece:
    """Holds the rows of some records, and by their indices why others were refused.

    `first` is the record of the first row; `messages`: of each row, its record; None: one row each.
    """

    rows: pa.RecordBatch
    refused: dict[int, str]
    first: int = 0
    messages: npt.NDArray[np.int64] | None = None

    def record_of(self, row: int) -> int:
        """Return the index of the record that a row was decoded from.

        Args:
            row: The index of the row.

        Returns:
            The index of the record.
        """
        return self.first + row if self.messages is None else int(self.messages[row])

    def rows_of(self, record: int) -> range:
        """Return the rows that a record has become.

        Args:
            record: The index of the record.

        Returns:
            The indices of its rows, which follow each other.
        """
        if self.messages is None:
            return range(record - self.first, record - self.first + 1)
        first, behind = np.searchsorted(self.messages, [record, record + 1]).tolist()
        return range(first, behind)


@dataclass
class _Decoded:
    """Holds the rows of the records from `first` to `end`. `messages`: of each row, its record; None: one row each."""

    first: int
    end: int
    rows: pa.RecordBatch
    messages: npt.NDArray[np.int64] | None
    refused: dict[int, str]


@dataclass
class RecordsAhead:
    """Holds records of one partition. `next` is the offset behind them; `ends`: the partition ends there."""

    partition: Partition
    values: Sequence[bytes | None]
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    next: int
    ends: bool = False
    at: int = 0
    """The first record that is not taken yet."""
    _decoded: _Decoded | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether all records are taken."""
        return self.at >= len(self.values)

    def take(self, rows_max: int, decoder: MessageDecoder) -> Piece:
        """Take the next records, at least one.

        Args:
            rows_max: The most rows that they may become.
            decoder: What makes rows of them.

        Returns:
            Their rows, and why others were refused.
        """
        if self.is_empty:
            return Piece(_NO_ROWS, {})
        wanted = max(1, rows_max // decoder.rows_per_message_max)
        if self._decoded is None or self.at >= self._decoded.end:
            self._decoded = self._decode(max(wanted, decoder.messages_at_once), decoder)
        decoded, first = self._decoded, self.at
        self.at = min(first + wanted, decoded.end)
        refused = {index: reason for index, reason in decoded.refused.items() if first <= index < self.at}
        if decoded.messages is None:
            return Piece(decoded.rows.slice(first - decoded.first, self.at - first), refused, first)
        row, behind = np.searchsorted(decoded.messages, [first, self.at]).tolist()
        return Piece(decoded.rows.slice(row, behind - row), refused, first, decoded.messages[row:behind])

    def _decode(self, count: int, decoder: MessageDecoder) -> _Decoded:
        first, end = self.at, min(self.at + count, len(self.values))
        found = decode_all(decoder, self.values[first:end])
        messages, timestamps = None, self.timestamps[first:end]
        if not isinstance(found.taken, range):
            messages = np.asarray(found.taken, np.int64)
            timestamps = timestamps[messages]
            messages = messages + first
        rows = found.rows.append_column(TIMESTAMP_COLUMN, pa.array(timestamps, pa.int64()))
        return _Decoded(first, end, rows, messages, {first + index: why for index, why in found.refused.items()})
