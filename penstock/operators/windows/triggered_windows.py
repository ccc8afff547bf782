"""Implements windows over rows that an assigner of the API assigns and a trigger fires, as Flink's WindowOperator does.

A window's contents are map state of the key, by what names the window in state (`WindowForm`). Triggers have timers and
state per key and window. Windows that fire at their ends by event time alone have operators of their own, which are
faster (`row_windows.py`, `merging_windows.py`).
"""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple

from penstock.common.program.failures import USER_ERRORS, OperatorFailure
from penstock.common.types import ListType, Types
from penstock.datastream.functions import RuntimeContext
from penstock.datastream.window import TimeWindow, TriggerResult, WindowAssigner
from penstock.graph.declared_functions import TriggeredWindowSpec
from penstock.graph.job_graph import Operator
from penstock.graph.states import (
    WINDOW_CONTENTS_STATE,
    WINDOW_EVENT_TIMERS_STATE,
    WINDOW_PROCESSING_TIMERS_STATE,
    kept_of_window,
)
from penstock.operators.event_time.timers import Timer
from penstock.operators.rows.element import SideRow
from penstock.operators.rows.isolation import isolation
from penstock.operators.rows.row_functions import RowOperator, no_rows, split_side_outputs
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext
from penstock.operators.windows.assigners.assigner import NoWindow
from penstock.operators.windows.row_windows import NO_TIMESTAMP
from penstock.operators.windows.trigger_context import END_OF_TIME_MS, SubtaskTriggerContext
from penstock.operators.windows.window_functions import WindowContext, WindowFunctions
from penstock.operators.windows.window_timers import WindowTimers
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS

NO_TIMESTAMP_MS = -(2**63)
"""The timestamp that assigners and triggers get with a row that has none, as in Flink."""


class Pane(NamedTuple):
    """Names a window of the current key. `key`: what names it in state; `contents_key`: what names its contents."""

    window: Any
    key: Any
    contents_key: Any


class TriggeredWindowOperator(RowOperator):
    is_merging = False

    def __init__(self, operator: Operator, context: SubtaskRuntimeContext) -> None:
        super().__init__(operator, context)
        self.spec: TriggeredWindowSpec = operator.function
        self.functions = self.function = WindowFunctions(self.spec)
        self._assigner, self._trigger, self._form = self.spec.assigner, self.spec.trigger, self.spec.form
        self._is_event_time = self.spec.is_event_time
        self._element = context.element
        self._merge_kept = self.functions.merge
        self.late_rows = 0

    def open(self) -> None:
        super().open()
        context, form = self.context, self._form
        self._contents = context.internal_map_state(WINDOW_CONTENTS_STATE, form.type, kept_of_window(self.spec))
        self._timers = context.keyed_timers()
        windows = ListType(form.type)
        self._event = WindowTimers(
            context.internal_map_state(WINDOW_EVENT_TIMERS_STATE, Types.LONG(), windows),
            self._timers.register_event,
            self._timers.delete_event,
        )
        self._processing = WindowTimers(
            context.internal_map_state(WINDOW_PROCESSING_TIMERS_STATE, Types.LONG(), windows),
            self._timers.register_processing,
            self._timers.delete_processing,
        )
        self._trigger_context = SubtaskTriggerContext(context, self._event, self._processing)
        self._assigner_context = _AssignerContext(context)
        self._window_context = WindowContext(context, self.is_merging)

    # ---- rows ----------------------------------------------------------------------------------------------------

    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        element, name = self._element, self.operator.name
        isolate = isolation(None if self.spec.aggregate is not None else self.spec.element_type, name)
        try:
            for row in rows:
                timestamp_ms = element.timestamp_ms
                if timestamp_ms is None:
                    if self._is_event_time:
                        raise OperatorFailure(name, ValueError(f"{NO_TIMESTAMP}; the row was {row!r:.200}"), ours=True)
                    timestamp_ms = NO_TIMESTAMP_MS
                windows = self._windows_of(row, timestamp_ms)
                is_late = True
                for n, window in enumerate(windows, 1):
                    if (pane := self._pane_of(window)) is None:
                        continue
                    is_late = False
                    # Functions may change a row, which other windows have, too.
                    own = row if isolate is None or n == len(windows) else isolate(row)
                    yield from self._add(own, timestamp_ms, pane)
                if is_late and self._is_event_time:
                    yield from self._late(row, timestamp_ms)
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(name, error) from error

    def _windows_of(self, row: Any, timestamp_ms: int) -> list[Any]:
        windows = list(self._assigner.assign_windows(row, timestamp_ms, self._assigner_context))
        for window in windows:
            start = window.start if isinstance(window, TimeWindow) else WATERMARK_MIN_MS
            if start < WATERMARK_MIN_MS or window.max_timestamp() > END_OF_TIME_MS:
                raise OperatorFailure(self.operator.name, NoWindow(timestamp_ms, row), ours=True)
        return windows

    def _pane_of(self, window: Any) -> Pane | None:
        """Return the pane of a window that the current row belongs to; None: the row is late for it."""
        if self._is_late(window):
            return None
        key = self._form.key_of(window)
        return Pane(window, key, key)

    def _add(self, row: Any, timestamp_ms: int, pane: Pane) -> Iterator[Any]:
        """Add a row to a window, and do as its trigger says."""
        self._fold(pane.contents_key, row, timestamp_ms)
        context = self._trigger_context.at(pane.key)
        result = self._trigger.on_element(row, timestamp_ms, pane.window, context)
        yield from self._act(result, pane, "on_element")
        self._register_cleanup(pane)

    def _fold(self, contents_key: Any, row: Any, timestamp_ms: int) -> None:
        kept = self._contents.get(contents_key)
        functions = self.functions
        self._contents.put(contents_key, functions.first(row) if kept is None else functions.fold(kept, row))

    def _late(self, row: Any, timestamp_ms: int) -> Iterator[Any]:
        """Count or emit a row whose windows are all over. Between windows, it may be on time."""
        if timestamp_ms + self.spec.allowed_lateness_ms > self.context.current_watermark_ms():
            return
        if self.spec.late_tag is None:
            self.late_rows += 1
        elif self.spec.late_tag in self.operator.side_outputs:
            yield SideRow(self.spec.late_tag, row)

    # ---- what a trigger says -------------------------------------------------------------------------------------

    def _act(self, result: Any, pane: Pane, method: str) -> Iterator[Any]:
        if not isinstance(result, TriggerResult):
            told = f"{type(self._trigger).__name__}.{method}() returns a TriggerResult, it returned {result!r:.80}"
            raise OperatorFailure(self.operator.name, TypeError(told), ours=True)
        if result.is_fire() and (kept := self._contents.get(pane.contents_key)) is not None:
            yield from self._emit(pane, kept)
            if self.spec.is_over_once_fired:
                self._discard(pane)
        if result.is_purge():
            self._contents.remove(pane.contents_key)

    def _emit(self, pane: Pane, kept: Any) -> Iterator[Any]:
        last = pane.window.max_timestamp()
        if last < END_OF_TIME_MS:  # else the results have the time of the row or timer
            self._element.timestamp_ms = last
        made = self.functions.result(kept, self._window_context.at(pane.key, pane.window))
        if (refusal := no_rows(self.operator.name, made)) is not None:
            raise refusal
        if made is not None:
            yield from split_side_outputs(made, self.operator.side_outputs)

    def _discard(self, pane: Pane) -> None:
        self._contents.remove(pane.contents_key)
        self._trigger.clear(pane.window, self._trigger_context.at(pane.key))
        self.functions.clear(self._window_context.at(pane.key, pane.window))

    # ---- the end of windows --------------------------------------------------------------------------------------

    def _over_at(self, window: Any) -> int:
        """Return the time at which a window is discarded; the end of time: never."""
        last: int = window.max_timestamp()
        return min(last + self.spec.allowed_lateness_ms, END_OF_TIME_MS) if self._is_event_time else last

    def _is_late(self, window: Any) -> bool:
        return self._is_event_time and self._over_at(window) <= self.context.current_watermark_ms()

    def _register_cleanup(self, pane: Pane) -> None:
        over_at = self._over_at(pane.window)
        if over_at == END_OF_TIME_MS:
            return
        context = self._trigger_context.at(pane.key)
        if self._is_event_time:
            context.register_event_time_timer(over_at)
        else:
            context.register_processing_time_timer(over_at)

    def fire(self, timers: Iterator[Timer]) -> Iterator[Any]:
        try:
            for timer in timers:
                is_event = self._element.event_timer
                yield from self._fire_at(timer.timestamp_ms, is_event)
                if is_event and timer.timestamp_ms == END_OF_TIME_MS:
                    yield from self._end_clock()
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(self.operator.name, error) from error

    def _fire_at(self, time_ms: int, is_event: bool) -> Iterator[Any]:
        timers = self._event if is_event else self._processing
        while (key := timers.take(time_ms)) is not None:
            yield from self._on_timer(time_ms, key, is_event)
        if not is_event:
            self._trigger_context.settle()

    def _end_clock(self) -> Iterator[Any]:
        """Fire all timers of the clock, because the data has ended. Those that this registers do not fire any more."""
        # 5.12: without this, the rows of the last windows of the clock are lost.
        context = self._trigger_context
        context.has_ended = True
        try:
            for time_ms, key in self._processing.all():
                if not self._processing.delete(time_ms, key):
                    continue  # one that fired before has deleted it
                self._element.timestamp_ms = None
                yield from self._on_timer(time_ms, key, is_event=False)
        finally:
            context.has_ended = False

    def _on_timer(self, time_ms: int, key: Any, is_event: bool) -> Iterator[Any]:
        pane = self._pane_named(key)
        if pane is None:
            return
        context = self._trigger_context.at(key)
        if is_event:
            result, method = self._trigger.on_event_time(time_ms, pane.window, context), "on_event_time"
        else:
            result, method = self._trigger.on_processing_time(time_ms, pane.window, context), "on_processing_time"
        yield from self._act(result, pane, method)
        if is_event == self._is_event_time and time_ms == self._over_at(pane.window) < END_OF_TIME_MS:
            self._discard(pane)

    def _pane_named(self, key: Any) -> Pane | None:
        """Return the pane of a window that a timer is for; None: it is over, and the trigger has left the timer."""
        return Pane(self._form.window_of(key), key, key)


class _AssignerContext(WindowAssigner.WindowAssignerContext):
    """Gives an assigner the clock, and the state of the current key."""

    def __init__(self, context: SubtaskRuntimeContext) -> None:
        self._context = context

    def get_current_processing_time(self) -> int:
        return self._context.processing_time_ms()

    def get_runtime_context(self) -> RuntimeContext:
        return self._context
