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
    encode_split,
)
from penstock.connectors.generators.generated_rows import SplitsReader

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


class _NumberReader(SplitsReader):
    def __init__(self, schema: pa.Schema) -> None:
        super().__init__()
        self._schema = schema

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

    def place_of(self, row: int) -> str:
        return f"the number {self._first + row}"
