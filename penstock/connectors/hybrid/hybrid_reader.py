"""Reads splits of several sources, one source after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pyarrow as pa

from penstock.common.typeinfo import TIMESTAMP_COLUMN
from penstock.connectors.base import NotReady, SourceError, SourceReader
from penstock.connectors.hybrid.numbered import is_last, is_read, take_number, with_number

_ASK_AGAIN_MS = 10.0


class HybridReader(SourceReader):
    """Reads with the reader of one source until that has returned None; then gets splits of the next one.

    `create_reader(number)` makes the reader of a source, from 1. `drops_times`: rows lose the times that only
    some sources know.
    """

    def __init__(self, create_reader: Callable[[int], SourceReader], drops_times: bool) -> None:
        self._create_reader = create_reader
        self._drops_times = drops_times
        self._reader: SourceReader | None = None
        self._number = 0
        self._current = ""
        self._begun: dict[str, None] = {}
        """The splits of the present source that have not been reported as finished."""
        self._finished: list[str] = []
        self._rejected: list[pa.RecordBatch] = []
        self._read: list[bytes] = []
        """The splits that readers of earlier sources keep at their ends, for positions that are reported outside."""
        self._skipped_before = 0
        self._has_all = False
        self._no_more = False
        self.waits_for_others = False

    # ---- splits -------------------------------------------------------------------------------------------------

    def add_splits(self, splits: list[bytes]) -> None:
        """Read splits, too.

        Args:
            splits: Splits of one source, or the mark of its end, or that of the last source.

        Raises:
            SourceError: The splits of an earlier source have not been read.
        """
        added, is_end = [], False
        self._read += [split for split in splits if is_read(split)]
        if any(map(is_last, splits)):
            self.waits_for_others = False
        for number, split in map(take_number, [s for s in splits if not is_read(s) and not is_last(s)]):
            if self._reader is not None and number != self._number:
                raise SourceError(
                    f"splits of source {number} of a HybridSource came while source {self._number} is read: the "
                    "checkpoint is damaged; start from another one"
                )
            if split is None:
                is_end = True
                continue
            if self._reader is None:
                self._reader, self._number, self._has_all = self._create_reader(number), number, False
            added.append(split)
        if self._reader is None:
            self.waits_for_others = self.waits_for_others or is_end
            return
        if added:
            self.waits_for_others = False
            self._reader.add_splits(added)
            self._begun |= dict.fromkeys(self._named(self._reader.splits_in_hand()))
        if is_end:
            self._has_all = True
            self._reader.no_more_splits()

    def no_more_splits(self) -> None:
        self._no_more = True
        if self._reader is not None:
            self._reader.no_more_splits()

    @property
    def current_split(self) -> str:
        return self._current

    def splits_in_hand(self) -> list[str]:
        # Without the condition: a source that names one split, whatever it has, would name it again behind its end.
        in_hand = [] if self._reader is None else self._named(self._reader.splits_in_hand())
        return [split for split in in_hand if split in self._begun]

    def queued_splits(self) -> list[str]:
        return [] if self._reader is None else self._named(self._reader.queued_splits())

    def finished_splits(self) -> list[str]:
        if self._reader is not None:
            self._note_finished(self._named(self._reader.finished_splits()))
        finished, self._finished = self._finished, []
        return finished

    def snapshot(self) -> list[bytes]:
        present = [] if self._reader is None else self._reader.snapshot()
        return [*self._read, *[with_number(self._number, split) for split in present]]

    def _named(self, splits: list[str]) -> list[str]:
        return [f"{self._number}/{split}" for split in splits]

    def _note_finished(self, splits: list[str]) -> None:
        self._finished += splits
        for split in splits:
            self._begun.pop(split, None)

    # ---- reading ------------------------------------------------------------------------------------------------

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        if self._reader is None:
            return None if self._no_more else NotReady(None)
        got = self._reader.read(rows_max)
        if isinstance(got, pa.RecordBatch):
            self._current = f"{self._number}/{self._reader.current_split}"
            self._begun[self._current] = None
            if not self._drops_times:
                return got
            return got.select([name for name in got.schema.names if name != TIMESTAMP_COLUMN])
        if got is None:
            self._end_source(self._reader)
            return None if self._no_more else NotReady(None)
        # A request behind the mark of the end says that all has been read, so it must not be made before.
        return NotReady(_ASK_AGAIN_MS) if got.wait_ms is None and self._has_all else got

    def _end_source(self, reader: SourceReader) -> None:
        self._note_finished(self._named(reader.finished_splits()))
        self._note_finished(list(self._begun))  # those of a source that reports no ends
        if (rejected := reader.take_rejected()) is not None:
            self._rejected.append(rejected)
        self._skipped_before += reader.skipped_rows
        self._read += [with_number(self._number, split, is_read=True) for split in reader.snapshot()]
        self._reader, self.waits_for_others = None, not self._no_more
        reader.close()

    def place_of(self, row: int) -> str:
        assert self._reader is not None
        return self._reader.place_of(row)

    def refuse(self, refused: Mapping[int, str]) -> Collection[int]:
        assert self._reader is not None
        return self._reader.refuse(refused)

    def take_rejected(self) -> pa.RecordBatch | None:
        if self._reader is not None and (rejected := self._reader.take_rejected()) is not None:
            self._rejected.append(rejected)
        rejected_before, self._rejected = self._rejected, []
        return pa.concat_batches(rejected_before) if rejected_before else None

    @property
    def skipped_rows(self) -> int:  # type: ignore[override]
        """Return the number of rows of all sources that this reader has left out."""
        return self._skipped_before + (0 if self._reader is None else self._reader.skipped_rows)

    @property
    def lag_rows(self) -> int | None:  # type: ignore[override]
        """Return the lag in the present source: how many rows the later ones have is not known."""
        reader = self._reader
        return None if reader is None else reader.lag_rows

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
