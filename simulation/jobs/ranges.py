"""Implements a source of more splits than readers: readers hold several, alternate between them, and sometimes wait."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import Types
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


class RangesSource(Source):
    """Reads numbers: split i is `bounds[i]` to `bounds[i + 1]` (not included).

    After every `rest_every` rows a reader rests for `rest_ms`. `owned`: reader i gets split i, and nobody else ever
    does. `newest`: all splits except this number of last ones are a backlog; None: there is no backlog.
    """

    def __init__(
        self, bounds: list[int], rest_every: int, rest_ms: float, owned: bool = False, newest: int | None = None
    ) -> None:
        self.newest = newest
        self.owned = owned
        self.bounds = bounds
        self.rest_every = rest_every
        self.rest_ms = rest_ms

    @property
    def produced_type(self) -> TypeInformation:
        return Types.LONG()

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        kind = OwnedSplits if self.owned else SplitsWithBacklog
        if restored is not None:
            enumerator = kind([encode_split(split) for split in decode_split(restored)])
            enumerator.newest = self.newest
            return enumerator
        pairs = enumerate(zip(self.bounds, self.bounds[1:]))
        enumerator = kind(
            [encode_split({"owner": i, "next": next, "end": end}) for i, (next, end) in pairs if next < end]
        )
        enumerator.newest = self.newest
        return enumerator

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return RangesReader(self)


class SplitsWithBacklog(FixedSplitEnumerator):
    """Reports a backlog until only the `newest` splits are left; None: never."""

    newest: int | None = None

    @property
    def is_processing_backlog(self) -> bool:  # type: ignore[override]
        return self.newest is not None and len(self._splits) > self.newest


class OwnedSplits(SplitsWithBacklog):
    def next_splits(self, subtask: int) -> list[bytes] | None:
        for place, split in enumerate(self._splits):
            if decode_split(split)["owner"] == subtask:
                return [self._splits.pop(place)]
        return None


class RangesReader(SourceReader):
    """Reads several splits in turns."""

    def __init__(self, source: RangesSource) -> None:
        self._source = source
        self._splits: list[dict[str, int]] = []
        self._no_more = False
        self._asks_for_more = True
        self._rows_until_rest = source.rest_every
        self._current = ""
        self._finished: list[str] = []

    def add_splits(self, splits: list[bytes]) -> None:
        self._splits += map(decode_split, splits)
        self._asks_for_more = len(self._splits) < 2

    def no_more_splits(self) -> None:
        self._no_more = True

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        if not self._splits or (self._asks_for_more and not self._no_more):
            return None if self._no_more else NotReady(None)
        if self._source.rest_every and self._rows_until_rest <= 0:
            self._rows_until_rest = self._source.rest_every
            return NotReady(self._source.rest_ms)
        split = self._splits.pop(0)
        first = split["next"]
        end = min(first + rows_max, split["end"])
        if end < split["end"]:
            self._splits.append(split | {"next": end})
        else:
            self._asks_for_more = len(self._splits) < 2
            self._finished.append(str(end))
        self._current = str(split["end"])
        self._rows_until_rest -= end - first
        return pa.RecordBatch.from_arrays([pa.array(np.arange(first, end))], schema=Types.LONG().schema)

    @property
    def current_split(self) -> str:
        return self._current

    def splits_in_hand(self) -> list[str]:
        return [str(split["end"]) for split in self._splits]

    def queued_splits(self) -> list[str]:
        return self.splits_in_hand()[1:]

    def finished_splits(self) -> list[str]:
        finished, self._finished = self._finished, []
        return finished

    def snapshot(self) -> list[bytes]:
        return [encode_split(split) for split in self._splits]
