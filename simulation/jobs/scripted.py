"""Implements a source whose splits follow a script: rows, pauses in which nothing comes, and gaps in the numbers
between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import Types
from penstock.connectors.base import (
    NotReady,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
    decode_split,
    encode_split,
)
from simulation.jobs.ranges import OwnedSplits
from simulation.world import world_hooks

WAIT_MS = 3.0
_OVER = {"over": True}


@dataclass(frozen=True)
class Script:
    """Scripts a split. `steps`: (first number, rows), or (None, ms) for a pause, which is over when the split is
    restored. Numbers are counted from `base`.
    """

    owner: int
    base: int
    steps: tuple[tuple[int | None, int], ...]

    def numbers(self) -> list[int]:
        return [self.base + first + i for first, count in self.steps if first is not None for i in range(count)]


class ScriptedSource(Source):
    """Gives reader i the splits that it owns; it asks them in turns for a row. `names_splits`: False says nothing of
    them, like a source without splits. `ends_together`: a reader without splits waits for more, like one of an
    unbounded source, until all are without.
    """

    def __init__(self, scripts: tuple[Script, ...], names_splits: bool = True, ends_together: bool = False) -> None:
        self.scripts = scripts
        self._names_splits = names_splits
        self._ends_together = ends_together

    @property
    def produced_type(self) -> TypeInformation:
        return Types.LONG()

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        begin = {"step": 0, "done": 0, "pausing": 0}
        splits = [{"owner": s.owner, "script": i, **begin} for i, s in enumerate(self.scripts)]
        left = splits if restored is None else decode_split(restored)
        is_over = _OVER in left
        encoded = [encode_split(split) for split in left if split != _OVER]
        return _UntilAllHaveRead(encoded, parallelism, is_over) if self._ends_together else OwnedSplits(encoded)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        kind = _Reader if self._names_splits else _ReaderWithoutSplits
        return kind(self, sum(s.owner == context.subtask for s in self.scripts))


class _UntilAllHaveRead(OwnedSplits):
    """Says that there are no splits now, until every reader has asked in vain: then there will be no more. That is
    stored: a reader that has ended by then does not ask again.
    """

    def __init__(self, splits: list[bytes], parallelism: int, is_over: bool) -> None:
        super().__init__(splits)
        self._parallelism = parallelism
        self._is_over = is_over
        self._asked_in_vain: set[int] = set()

    def next_splits(self, subtask: int) -> list[bytes] | None:
        if found := super().next_splits(subtask):
            return found
        self._asked_in_vain.add(subtask)
        self._is_over = self._is_over or len(self._asked_in_vain) == self._parallelism
        return None if self._is_over else []

    def snapshot(self) -> bytes:
        left = decode_split(super().snapshot())
        return encode_split([*left, _OVER] if self._is_over else left)


class _Reader(SourceReader):
    """Reads splits. `wanted`: how many splits there are for it. It begins when it has them all, or no more will
    come.
    """

    def __init__(self, source: ScriptedSource, wanted: int) -> None:
        self._scripts = source.scripts
        self._missing = wanted
        self._splits: list[dict[str, int]] = []
        self._paused_since: dict[int, float] = {}
        self._no_more = False
        self._current = ""
        self._finished: list[str] = []

    def add_splits(self, splits: list[bytes]) -> None:
        given = [decode_split(split) for split in splits]
        self._splits += [s | {"step": s["step"] + 1, "pausing": 0} if s["pausing"] else s for s in given]
        self._missing -= len(splits)

    def no_more_splits(self) -> None:
        self._no_more = True

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        if not self._no_more and (self._missing > 0 or not self._splits):
            return NotReady(None)
        for _ in range(len(self._splits)):
            split = self._splits.pop(0)
            number = self._next_of(split)
            if self._has_more(split):
                self._splits.append(split)
            else:
                self._finished.append(str(split["script"]))
            if number is not None:
                self._current = str(split["script"])
                return pa.RecordBatch.from_arrays([pa.array(np.array([number]))], schema=Types.LONG().schema)
        return NotReady(WAIT_MS) if self._splits or not self._no_more else None

    def _has_more(self, split: dict[str, int]) -> bool:
        return split["step"] < len(self._scripts[split["script"]].steps)

    def _next_of(self, split: dict[str, int]) -> int | None:
        """Return the next number, or None if nothing has come."""
        script = self._scripts[split["script"]]
        first, count = script.steps[split["step"]]
        if first is None:
            now_ms = world_hooks.current().now_ms()
            if now_ms - self._paused_since.setdefault(split["script"], now_ms) >= count:
                del self._paused_since[split["script"]]
                split["step"], split["pausing"] = split["step"] + 1, 0
            else:
                split["pausing"] = 1
            return None
        number = script.base + first + split["done"]
        split["done"] += 1
        if split["done"] == count:
            split["step"], split["done"] = split["step"] + 1, 0
        return number

    @property
    def current_split(self) -> str:
        return self._current

    def splits_in_hand(self) -> list[str]:
        return [str(split["script"]) for split in self._splits]

    def finished_splits(self) -> list[str]:
        finished, self._finished = self._finished, []
        return finished

    def snapshot(self) -> list[bytes]:
        return [encode_split(split) for split in self._splits]


class _ReaderWithoutSplits(_Reader):
    @property
    def current_split(self) -> str:
        return ""

    def splits_in_hand(self) -> list[str]:
        return [""]

    def finished_splits(self) -> list[str]:
        return []


def splits_in(items: Any) -> list[dict[str, int]]:
    """Return the splits of a reader's snapshot."""
    return [decode_split(item) for item in items]
