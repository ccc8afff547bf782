"""Describes functions of windows, of broadcast streams and of calls as they were declared, before they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

from penstock.common.typeinfo import TypeInformation
from penstock.operators.windows.assigners.assigner import Assigner


@dataclass(frozen=True)
class WindowSpec:
    """Describes the windows of a stream of rows, and the functions of their contents.

    Exactly one of `reduce` (ReduceFunction) and `aggregate` (AggregateFunction) folds rows as they come; with neither,
    the window keeps its rows, in order. `process` (ProcessWindowFunction or WindowFunction) gets the folded value, or
    the rows, when the window fires; None: the folded value is emitted. `element_type` is the type of what a window
    keeps (rows or accumulator; None: pickles). `late_tag`: the id of the side output for late rows; None: they are
    counted and dropped. `window_class`: makes the window that functions get, of its start and end.
    """

    assigner: Assigner
    allowed_lateness_ms: int
    late_tag: str | None
    reduce: Any
    aggregate: Any
    process: Any
    element_type: TypeInformation | None
    window_class: Callable[[int, int], Any]


@dataclass(frozen=True)
class BroadcastSpec:
    """Holds a (Keyed)BroadcastProcessFunction, and the descriptors of the broadcast states that it may ask for."""

    process: Any
    descriptors: tuple[Any, ...]


@dataclass(frozen=True)
class AsyncSpec:
    """Describes the calls of a service for the rows of a stream.

    `function`: an AsyncFunction or a BlockingFunction. `timeout_ms`: for all attempts of a row; None: no limit.
    `capacity`: the number of rows that one subtask may hold whose answers have not left it.
    `retry`: the AsyncRetryStrategy. `ordered`: answers leave in the order of their rows.
    """

    function: Any
    timeout_ms: int | None
    capacity: int
    retry: Any
    ordered: bool

    @property
    def is_blocking(self) -> bool:
        """Return whether calls run in threads of their own, because they block."""
        return not hasattr(self.function, "async_invoke")
