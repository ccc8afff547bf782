"""Describes windows as a windowed stream declared them, before they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.common.typeinfo import TypeInformation


@dataclass(frozen=True)
class WindowSpec:
    """Describes tumbling windows in event time: [start, start + `size_ms`) with start ≡ `offset_ms` (mod `size_ms`).

    Exactly one of `reduce` (ReduceFunction) and `aggregate` (AggregateFunction) folds rows as they come; with neither,
    the window keeps its rows, in order. `process` (ProcessWindowFunction or WindowFunction) gets the folded value, or
    the rows, when the window fires; None: the folded value is emitted. `element_type` is the type of what a window
    keeps (rows or accumulator; None: pickles). `late_tag`: the id of the side output for late rows; None: they are
    counted and dropped.
    """

    size_ms: int
    offset_ms: int
    allowed_lateness_ms: int
    late_tag: str | None
    reduce: Any
    aggregate: Any
    process: Any
    element_type: TypeInformation | None
