"""Describes functions of windows, of broadcast streams and of calls as they were declared, before they run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Callable

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.scalar_types import LONG
from penstock.common.typeinfo import TypeInformation
from penstock.operators.windows.assigners.assigner import Assigner, MergingAssigner
from penstock.protocol.values.metadata import WindowsShape


@dataclass(frozen=True)
class AnyWindowSpec(ABC):
    """Describes the functions of the windows of a stream of rows.

    At most one of `reduce` (ReduceFunction) and `aggregate` (AggregateFunction) folds rows as they come; with neither,
    the window keeps its rows, in order. `process` (ProcessWindowFunction or WindowFunction) gets the folded value, or
    the rows, when the window fires; None: the folded value is emitted. `element_type` is the type of what a window
    keeps (rows or accumulator; None: pickles). `late_tag`: the id of the side output for late rows; None: they are
    counted and dropped.
    """

    assigner: Any
    allowed_lateness_ms: int
    late_tag: str | None
    reduce: Any
    aggregate: Any
    process: Any
    element_type: TypeInformation | None

    @property
    @abstractmethod
    def shape(self) -> WindowsShape:
        """Return the description of the windows for a checkpoint's metadata."""

    @property
    @abstractmethod
    def key_type(self) -> ColumnType:
        """Return the type of the values that name windows in state."""

    @property
    @abstractmethod
    def is_event_time(self) -> bool:
        """Return whether the windows end by event time, so that their rows need it."""


@dataclass(frozen=True)
class WindowSpec(AnyWindowSpec):
    """Describes windows in event time that fire at their ends. `window_class`: makes the window that functions get, of
    its start and end.
    """

    assigner: Assigner | MergingAssigner
    window_class: Callable[[int, int], Any]

    @property
    def shape(self) -> WindowsShape:
        return self.assigner.shape()

    @property
    def key_type(self) -> ColumnType:
        return LONG

    @property
    def is_event_time(self) -> bool:
        return True


@dataclass(frozen=True)
class TriggeredWindowSpec(AnyWindowSpec):
    """Describes windows that an assigner of the API assigns (`assigner`: WindowAssigner) and a trigger fires (Trigger).

    `form` (WindowForm) turns windows into what names them in state. `rule`: that of windows of the API's own which
    have one; `kind`: what messages call other windows, with all that may not change in a restore. With
    `is_over_once_fired` a window gets no row after it has fired, so it is discarded then.
    `evictor` (Evictor) removes rows when the window fires, so it keeps all rows, of `row_type`; None: there is none.
    """

    trigger: Any
    form: Any
    rule: Assigner | MergingAssigner | None
    kind: str
    is_over_once_fired: bool
    evictor: Any = None
    row_type: TypeInformation | None = None

    @property
    def shape(self) -> WindowsShape:
        evicted = "" if self.evictor is None else "evicted "
        if self.rule is None:
            return WindowsShape(f"{evicted}{self.kind}", None, {})
        shape = self.rule.shape()
        # The state is not that of windows without a trigger, nor of those of the other kind of time.
        kind = "triggered" if self.is_event_time else "processing-time"
        return WindowsShape(f"{evicted}{kind} {shape.kind}", shape.length_ms, shape.settings_ms)

    @property
    def key_type(self) -> ColumnType:
        found: ColumnType = self.form.type
        return found

    @property
    def is_event_time(self) -> bool:
        return bool(self.assigner.is_event_time())


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
