"""Generates a sequence of numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.common.row_types.scalar_types import LONG
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import (
    FixedSplitEnumerator,
    NotReady,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
    decode_split,
    encode_split,
)

__all__ = ["NumberSequenceSource"]


class NumberSequenceSource(Source):
    """Generates the numbers from `start` to `end`, both included, as LONG.

    Each subtask generates a contiguous range in order, so that a parallelism of 1 gives the whole sequence in order.
    Raises ValueError if `start` is greater than `end`, or either does not fit 64 bits.
    """

    def __init__(self, start: int, end: int) -> None:
        if start > end:
            raise ValueError(f"NumberSequenceSource: start {start} is behind end {end}")
        if start < -(2**63) or end >= 2**63:
            raise ValueError(f"NumberSequenceSource: {start}..{end} does not fit 64 bits")
        self.start = start
        self.end = end

    @property
    def produced_type(self) -> TypeInformation:
        return LONG

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        if restored is not None:
            return FixedSplitEnumerator.restored(restored, owner_field="split")
        count = self.end - self.start + 1
        bounds = [self.start + count * part // parallelism for part in range(parallelism + 1)]
        ranges = [
            encode_split({"split": part, "next": first, "end": after - 1})
            for part, (first, after) in enumerate(pairwise(bounds))
            if first < after
        ]
        return FixedSplitEnumerator(ranges, owner_field="split")

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _NumberReader(self.produced_type.schema)


class _NumberReader(SourceReader):
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._splits: list[dict[str, int]] = []
        self._current = ""
        self._first = 0
        self._finished: list[str] = []
        self._no_more = False

    def add_splits(self, splits: list[bytes]) -> None:
        self._splits.extend(decode_split(split) for split in splits)

    def no_more_splits(self) -> None:
        self._no_more = True

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        if not self._splits:
            return None if self._no_more else NotReady(None)
        split = self._splits[0]
        self._current = str(split["split"])
        first = self._first = split["next"]
        last = min(first + rows_max - 1, split["end"])
        # Counted from `first`: the number after the largest LONG does not exist.
        numbers = np.arange(last - first + 1, dtype=np.int64) + np.int64(first)
        if last == split["end"]:
            self._splits.pop(0)
            self._finished.append(self._current)
        else:
            split["next"] = last + 1
        return pa.RecordBatch.from_arrays([pa.array(numbers)], schema=self._schema)

    @property
    def current_split(self) -> str:
        return self._current

    def place_of(self, row: int) -> str:
        return f"the number {self._first + row}"

    def splits_in_hand(self) -> list[str]:
        return [str(split["split"]) for split in self._splits]

    def queued_splits(self) -> list[str]:
        return self.splits_in_hand()[1:]

    def finished_splits(self) -> list[str]:
        finished, self._finished = self._finished, []
        return finished

    def snapshot(self) -> list[bytes]:
        return [encode_split(split) for split in self._splits]
