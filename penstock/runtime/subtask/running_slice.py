"""Holds a subtask's memory of the slice that is inside the chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.operators.rows.chain import Slice
from penstock.runtime.input.input_gate import OpenBatch


@dataclass(slots=True)
class RunningSlice:
    """Tracks a slice inside a chain of row functions, from its first row until it has finished.

    `origin`: the input batch that it is a slice of; None for rows of the own reader, then of `split`. `busy_ms`: what
    it has cost so far, without waiting for room in the outputs. `left_out`: so many rows were read with it that have no
    time.
    """

    piece: Slice
    origin: OpenBatch | None
    emitted_before: int
    split: str = ""
    finished_splits: Sequence[str] = ()
    timers: bool = False
    busy_ms: float = 0.0
    left_out: int = 0
