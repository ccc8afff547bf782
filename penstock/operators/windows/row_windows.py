"""Implements windows in event time over rows, whatever kind of window the assigner makes.

A window's contents (its rows, or what they were folded to) are map state of the key, by the window's start. A timer at
its last millisecond fires it; one `allowed_lateness_ms` later discards it. If that is at the end of time or beyond, the
window is kept for ever, as in Flink. The assigner finds the window of a timer by its time (`ending_at`).
"""

from __future__ import annotations

from typing import Any, Iterator

from penstock.common.program.failures import USER_ERRORS, OperatorFailure
from penstock.common.types import Types
from penstock.datastream.window import Window
from penstock.graph.declared_functions import WindowSpec
from penstock.graph.job_graph import Operator
from penstock.graph.states import WINDOW_CONTENTS_STATE, kept_of_window
from penstock.operators.event_time.timers import Timer
from penstock.operators.rows.element import SideRow
from penstock.operators.rows.isolation import isolation
from penstock.operators.rows.row_functions import RowOperator, no_rows, split_side_outputs
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext
from penstock.operators.windows.assigners.assigner import NoWindow
from penstock.operators.windows.window_functions import WindowContext, WindowFunctions
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.elements import WATERMARK_MAX_MS

NO_TIMESTAMP = (
    "a row without event time cannot be in a window: its timestamp is None. Give every row one "
    "(assign_timestamps_and_watermarks with a timestamp assigner)"
)


_Opened = tuple[int, int, int]
"""A window that a row belongs to: its start, its last millisecond, and when it is discarded."""


class WindowOperator(RowOperator):
    def __init__(self, operator: Operator, context: SubtaskRuntimeContext) -> None:
        super().__init__(operator, context)
        self.spec: WindowSpec = operator.function
        self.functions = self.function = WindowFunctions(self.spec)
        self._assigner = self.spec.assigner
        self._element = context.element
        self.late_rows = 0

    def open(self) -> None:
        super().open()
        spec = self.spec
        self._contents = self.context.internal_map_state(WINDOW_CONTENTS_STATE, Types.LONG(), kept_of_window(spec))
        self._timers = self.context.keyed_timers()
        self._window_context = WindowContext(self.context, is_merging=False)
        self._fold, self._first, self._result = self.functions.fold, self.functions.first, self.functions.result

    def _window(self, start: int) -> Window:
        """Return the window as functions get it."""
        window: Window = self.spec.window_class(start, self._assigner.end_of(start))
        return window

    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        spec, element, contents, name = self.spec, self._element, self._contents, self.operator.name
        fold, watermark, lateness_ms = self._fold, self.context.current_watermark_ms, spec.allowed_lateness_ms
        isolate = isolation(None if spec.aggregate is not None else spec.element_type, name)
        pane_start = pane_end = 0
        opened: list[_Opened] = []
        try:
            for row in rows:
                timestamp_ms = element.timestamp_ms
                if timestamp_ms is None:
                    raise OperatorFailure(name, ValueError(f"{NO_TIMESTAMP}; the row was {row!r:.200}"), ours=True)
                if not pane_start <= timestamp_ms < pane_end:
                    opened = self._opened_by(timestamp_ms, row)
                    pane_start, pane_end = self._assigner.pane_of(timestamp_ms)
                is_late = True
                reached_ms = watermark()
                for start, last, forgotten_at in opened:
                    if forgotten_at <= reached_ms:
                        continue
                    # Functions may change a row, which other windows have, too.
                    own = row if isolate is None or start == opened[-1][0] else isolate(row)
                    is_late = False
                    kept = contents.get(start)
                    if kept is None:
                        contents.put(start, self._first(own))
                        if last > reached_ms:
                            self._timers.register_event(last)
                        if lateness_ms and forgotten_at < WATERMARK_MAX_MS:
                            self._timers.register_event(forgotten_at)
                    else:
                        contents.put(start, fold(kept, own))
                        # A drain has fired what is kept for ever, and time begins again behind it.
                        if forgotten_at == WATERMARK_MAX_MS and last > reached_ms:
                            self._timers.register_event(last)
                    if last <= reached_ms:  # the window has fired: within the allowed lateness each row fires it again
                        yield from self._fire_window(start)
                if is_late and (
                    opened or timestamp_ms + lateness_ms <= reached_ms
                ):  # between windows, it may be on time
                    if spec.late_tag is None:
                        self.late_rows += 1
                    elif spec.late_tag in self.operator.side_outputs:
                        yield SideRow(spec.late_tag, row)
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(name, error) from error

    def _opened_by(self, timestamp_ms: int, row: Any) -> list[_Opened]:
        opened = []
        for start in self._assigner.opened_by(timestamp_ms):
            last = self._assigner.end_of(start) - 1
            if start < WATERMARK_MIN_MS or last > WATERMARK_MAX_MS:
                raise OperatorFailure(self.operator.name, NoWindow(timestamp_ms, row), ours=True)
            opened.append((start, last, min(last + self.spec.allowed_lateness_ms, WATERMARK_MAX_MS)))
        return opened

    def fire(self, timers: Iterator[Timer]) -> Iterator[Any]:
        contents, lateness_ms = self._contents, self.spec.allowed_lateness_ms
        ending_at, end_of = self._assigner.ending_at, self._assigner.end_of
        try:
            for timer in timers:
                end_ms = timer.timestamp_ms + 1
                start = ending_at(end_ms)
                if start is not None and contents.contains(start):
                    yield from self._fire_window(start)
                    if not lateness_ms:
                        self._forget(start)
                        if contents.is_empty():
                            continue
                # Windows may have timers of the lateness that the program had before.
                for kept in [*contents.keys()]:
                    if end_of(kept) <= end_ms:
                        self._on_fired(kept, timer.timestamp_ms)
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(self.operator.name, error) from error

    def _on_fired(self, start: int, time_ms: int) -> None:
        """Discard a window that has fired, or register the timer for that."""
        forgotten_at = self._assigner.end_of(start) - 1 + self.spec.allowed_lateness_ms
        if forgotten_at <= time_ms:
            self._forget(start)
        elif forgotten_at < WATERMARK_MAX_MS:
            self._timers.register_event(forgotten_at)

    def _fire_window(self, start: int) -> Iterator[Any]:
        self._element.timestamp_ms = self._assigner.end_of(start) - 1
        yield from self._results(start)

    def _results(self, start: int) -> Iterator[Any]:
        made = self._result(self._contents.get(start), self._window_context.at(start, self._window(start)))
        if (refusal := no_rows(self.operator.name, made)) is not None:
            raise refusal
        if made is not None:
            yield from split_side_outputs(made, self.operator.side_outputs)

    def _forget(self, start: int) -> None:
        self._contents.remove(start)
        self.functions.clear(self._window_context.at(start, self._window(start)))
