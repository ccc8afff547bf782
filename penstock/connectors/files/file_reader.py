"""Reads files: one split after the other, a bounded portion at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.connectors.base import MalformedRecord, NotReady, SourceReader, decode_split, encode_split
from penstock.connectors.files.file_formats import OpenFile, Portion, Position, Record
from penstock.connectors.files.malformed_rows import MALFORMED_ROW_TYPE, MalformedRows


class FileReader(SourceReader):
    """Reads splits of files, one after the other.

    A split is {id, at, row, end} and what names a file: a position in it, and where the split ends. `open_file` opens
    the file of a split, and raises `SourceError` if it is not the file that was listed. `malformed`: the treatment of
    rows whose event time cannot be read.
    """

    def __init__(self, open_file: Callable[[dict[str, Any]], OpenFile], malformed: MalformedRows | None = None) -> None:
        self._open_file = open_file
        self._malformed = malformed or MalformedRows.fail()
        self._splits: deque[dict[str, Any]] = deque()
        self._file: OpenFile | None = None
        self._portions: Iterator[Portion] | None = None
        self._ahead: Portion | None = None
        self._current = ""
        self._last: tuple[pa.RecordBatch, Position] | None = None
        self._finished: list[str] = []
        self._rejected: list[pa.RecordBatch] = []
        self._no_more = False
        self.skipped_rows = 0

    def add_splits(self, splits: list[bytes]) -> None:
        self._splits.extend(decode_split(split) for split in splits)

    def no_more_splits(self) -> None:
        self._no_more = True

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        while self._splits:
            split = self._splits[0]
            portion = self._ahead or self._next_portion(split)
            if portion is None:
                self._splits.popleft()
                self._finished.append(split["id"])
                self.close()
                continue
            batch = portion.batch.slice(0, rows_max)
            if batch.num_rows < portion.batch.num_rows:
                start = Position(portion.start.at, portion.start.row + batch.num_rows)
                self._ahead = replace(portion, batch=portion.batch.slice(batch.num_rows), start=start)
                split["at"], split["row"] = start
            else:
                self._ahead = None
                split["at"], split["row"] = portion.after
                self.skipped_rows += portion.skipped_rows
                if portion.rejected is not None:
                    self._rejected.append(portion.rejected)
            if not batch.num_rows:
                return NotReady(0)
            self._current = split["id"]
            self._last = batch, portion.start
            return batch
        return None if self._no_more else NotReady(None)

    @property
    def current_split(self) -> str:
        return self._current

    def splits_in_hand(self) -> list[str]:
        return [split["id"] for split in self._splits]

    def queued_splits(self) -> list[str]:
        return self.splits_in_hand()[1:]

    def finished_splits(self) -> list[str]:
        finished, self._finished = self._finished, []
        return finished

    def take_rejected(self) -> pa.RecordBatch | None:
        rejected, self._rejected = self._rejected, []
        return pa.concat_batches(rejected) if rejected else None

    def place_of(self, row: int) -> str:
        return self._record_of(row).place

    def refuse(self, refused: Mapping[int, str]) -> Collection[int]:
        """Treat rows whose time cannot be read as malformed ones.

        Args:
            refused: The reasons, by the index of the row.

        Returns:
            These rows.

        Raises:
            MalformedRecord: `MalformedRows.fail()` is set.
        """
        records = [(self._record_of(row), reason) for row, reason in sorted(refused.items())]
        if self._malformed.fails:
            record, reason = records[0]
            raise MalformedRecord(
                f"{record.place}: {reason}. The record: {record.text[:200]!r}. Correct it, or say what becomes of such "
                "rows: the format's malformed_rows, MalformedRows.skip() or MalformedRows.side_output(tag)"
            )
        if self._malformed.is_side_output:
            columns = zip(*[(record.file, record.line, record.text, reason) for record, reason in records])
            self._rejected.append(
                pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=MALFORMED_ROW_TYPE.schema)
            )
        else:
            self.skipped_rows += len(records)
        return refused.keys()

    def _record_of(self, row: int) -> Record:
        assert self._last is not None and self._file is not None
        batch, first = self._last
        return self._file.record_at(Position(first.at, first.row + row), batch.slice(row, 1))

    def snapshot(self) -> list[bytes]:
        return [encode_split(split) for split in self._splits]

    def close(self) -> None:
        self._portions = self._ahead = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next_portion(self, split: dict[str, Any]) -> Portion | None:
        """Return the next rows of a split; None at its end."""
        if self._portions is None:
            if split["at"] >= split["end"]:
                return None
            self._file = self._open_file(split)
            self._portions = self._file.read(Position(split["at"], split["row"]), split["end"])
        return next(self._portions, None)
