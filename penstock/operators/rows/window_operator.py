"""Implements tumbling windows in event time over rows.

A window's contents (its rows, or what they were folded to) are map state of the key, by the window's start. A timer at
its last millisecond fires it; one `allowed_lateness_ms` later discards it. If that is at the end of time or beyond, the
window is kept for ever, as in Flink. A timer's window follows from its time, because windows of one size do not
overlap.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator

from penstock.common.failures import USER_ERRORS, OperatorFailure
from penstock.common.named_rows import reducing
from penstock.common.types import Types
from penstock.datastream.functions import KeyedStateStore, ProcessWindowFunction
from penstock.datastream.window import TimeWindow
from penstock.graph.declared_windows import WindowSpec
from penstock.graph.job_graph import Operator
from penstock.graph.states import WINDOW_CONTENTS_STATE, kept_of_window
from penstock.operators.event_time.timers import Timer
from penstock.operators.event_time.tumbling import NoWindow
from penstock.operators.rows.element import SideRow
from penstock.operators.rows.row_functions import RowOperator, no_rows, split_side_outputs
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.elements import WATERMARK_MAX_MS

_NO_TIMESTAMP = (
    "a row without event time cannot be in a window: its timestamp is None. Give every row one "
    "(assign_timestamps_and_watermarks with a timestamp assigner)"
)


class WindowOperator(RowOperator):
    def __init__(self, operator: Operator, context: SubtaskRuntimeContext) -> None:
        super().__init__(operator, context)
        self.spec: WindowSpec = operator.function
        self.function = _UserFunctions(self.spec)
        self._element = context.element
        self.late_rows = 0

    def open(self) -> None:
        super().open()
        spec = self.spec
        self._contents = self.context.internal_map_state(WINDOW_CONTENTS_STATE, Types.LONG(), kept_of_window(spec))
        self._timers = self.context.keyed_timers()
        self._window_context = _WindowContext(self.context)
        self._fold = self._folding()
        self._result = self._firing()

    def _folding(self) -> Callable[[Any, Any], Any]:
        """Return the function (kept, row) -> kept."""
        reduce, aggregate = self.spec.reduce, self.spec.aggregate
        if reduce is not None:
            return reducing(reduce.reduce, self.spec.element_type)
        if aggregate is not None:
            add = aggregate.add
            return lambda kept, row: add(row, kept)

        def append(kept: list[Any], row: Any) -> list[Any]:
            kept.append(row)
            return kept

        return append

    def _first(self, row: Any) -> Any:
        """Return what a window keeps after its first row."""
        if self.spec.reduce is not None:
            return row
        if self.spec.aggregate is not None:
            return self.spec.aggregate.add(row, self.spec.aggregate.create_accumulator())
        return [row]

    def _firing(self) -> Callable[[Any, int], Any]:
        """Return the function (kept, start) -> rows."""
        spec, context = self.spec, self._window_context
        aggregate, function = spec.aggregate, spec.process

        def elements(kept: Any) -> list[Any]:
            if aggregate is not None:
                return [aggregate.get_result(kept)]
            return [kept] if spec.reduce is not None else list(kept)

        if function is None:
            return lambda kept, start: elements(kept)
        if isinstance(function, ProcessWindowFunction):
            return lambda kept, start: function.process(
                self.context.current_key(), context.at(start, spec.size_ms), elements(kept)
            )
        return lambda kept, start: function.apply(
            self.context.current_key(), TimeWindow(start, start + spec.size_ms), elements(kept)
        )

    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        spec, element, contents, name = self.spec, self._element, self._contents, self.operator.name
        size_ms, offset_ms, lateness_ms = spec.size_ms, spec.offset_ms, spec.allowed_lateness_ms
        fold, watermark = self._fold, self.context.current_watermark_ms
        latest_start = WATERMARK_MAX_MS + 1 - size_ms
        try:
            for row in rows:
                timestamp_ms = element.timestamp_ms
                if timestamp_ms is None:
                    raise OperatorFailure(name, ValueError(f"{_NO_TIMESTAMP}; the row was {row!r:.200}"), ours=True)
                start = timestamp_ms - (timestamp_ms - offset_ms) % size_ms
                if not WATERMARK_MIN_MS <= start <= latest_start:
                    raise OperatorFailure(name, NoWindow(timestamp_ms, row), ours=True)
                last = start + size_ms - 1
                forgotten_at = min(last + lateness_ms, WATERMARK_MAX_MS)
                reached_ms = watermark()
                if forgotten_at <= reached_ms:
                    if spec.late_tag is None:
                        self.late_rows += 1
                    elif spec.late_tag in self.operator.side_outputs:
                        yield SideRow(spec.late_tag, row)
                    continue
                kept = contents.get(start)
                if kept is None:
                    contents.put(start, self._first(row))
                    if last > reached_ms:
                        self._timers.register_event(last)
                    if lateness_ms and forgotten_at < WATERMARK_MAX_MS:
                        self._timers.register_event(forgotten_at)
                else:
                    contents.put(start, fold(kept, row))
                if last <= reached_ms:  # late, but within the allowed lateness: each such row fires the window again
                    yield from self._fire_window(start)
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(name, error) from error

    def fire(self, timers: Iterator[Timer]) -> Iterator[Any]:
        spec, contents = self.spec, self._contents
        try:
            for timer in timers:
                ends = timer.timestamp_ms + 1 - spec.offset_ms
                if not ends % spec.size_ms:
                    start = timer.timestamp_ms + 1 - spec.size_ms
                    if contents.contains(start):
                        yield from self._fire_window(start)
                        if not spec.allowed_lateness_ms:
                            self._forget(start)
                if spec.allowed_lateness_ms and not (ends - spec.allowed_lateness_ms) % spec.size_ms:
                    self._forget(timer.timestamp_ms + 1 - spec.allowed_lateness_ms - spec.size_ms)
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(self.operator.name, error) from error

    def _fire_window(self, start: int) -> Iterator[Any]:
        self._element.timestamp_ms = start + self.spec.size_ms - 1
        made = self._result(self._contents.get(start), start)
        if (refusal := no_rows(self.operator.name, made)) is not None:
            raise refusal
        if made is not None:
            yield from split_side_outputs(made, self.operator.side_outputs)

    def _forget(self, start: int) -> None:
        if not self._contents.contains(start):
            return
        self._contents.remove(start)
        if isinstance(self.spec.process, ProcessWindowFunction):
            self.spec.process.clear(self._window_context.at(start, self.spec.size_ms))


class _UserFunctions:
    """Opens and closes all functions of a window as one."""

    def __init__(self, spec: WindowSpec) -> None:
        self._functions = [f for f in (spec.reduce, spec.aggregate, spec.process) if f is not None]

    def open(self, context: SubtaskRuntimeContext) -> None:
        for function in self._functions:
            function.open(context)

    def close(self) -> None:
        for function in self._functions:
            function.close()


class _WindowContext(ProcessWindowFunction.Context[TimeWindow]):
    """Gives functions the window that fires, or is discarded."""

    def __init__(self, context: SubtaskRuntimeContext) -> None:
        self._context = context
        self._window = TimeWindow(0, 0)

    def at(self, start: int, size_ms: int) -> _WindowContext:
        self._window = TimeWindow(start, start + size_ms)
        return self

    def window(self) -> TimeWindow:
        return self._window

    def current_watermark(self) -> int:
        return self._context.current_watermark_ms()

    def current_processing_time(self) -> int:
        return self._context.processing_time_ms()

    def global_state(self) -> KeyedStateStore:
        """Return the state of the key, over all its windows."""
        return self._context

    def window_state(self) -> KeyedStateStore:
        """Return the state of the key and this window; clear it in `clear`."""
        return self._context.of_window(self._window.start)
