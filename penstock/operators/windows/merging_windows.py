"""Implements windows that are merged where they touch, such as sessions, over rows.

Each row opens a window of its own. It is merged with those of its key that overlap it or begin where it ends. A second
map state of the key holds where each window ends. A window whose end has moved keeps the timer that it has: when that
fires, the timer of its end is registered. So a row that makes a session longer costs no timer.
"""

from __future__ import annotations

from typing import Any, Iterator

from penstock.common.program.failures import USER_ERRORS, OperatorFailure
from penstock.common.types import Types
from penstock.datastream.window import Window
from penstock.graph.job_graph import Operator
from penstock.graph.states import WINDOW_ENDS_STATE
from penstock.operators.event_time.timers import Timer
from penstock.operators.rows.element import SideRow
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext
from penstock.operators.windows.assigners.assigner import MergingAssigner, NoWindow
from penstock.operators.windows.row_windows import NO_TIMESTAMP, WindowOperator
from penstock.operators.windows.window_functions import WindowContext
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.elements import WATERMARK_MAX_MS


class MergingWindowOperator(WindowOperator):
    def __init__(self, operator: Operator, context: SubtaskRuntimeContext) -> None:
        super().__init__(operator, context)
        assigner = self.spec.assigner
        assert isinstance(assigner, MergingAssigner)
        self._opened_for = assigner.opened_for
        self._lateness_ms = self.spec.allowed_lateness_ms

    def open(self) -> None:
        super().open()
        self._window_context = WindowContext(self.context, is_merging=True)
        self._ends = self.context.internal_map_state(WINDOW_ENDS_STATE, Types.LONG(), Types.LONG())
        self._merge = self.functions.merge

    def _window(self, start: int) -> Window:
        window: Window = self.spec.window_class(start, self._ends.get(start))
        return window

    # ---- rows ----------------------------------------------------------------------------------------------------

    def pipe(self, rows: Iterator[Any]) -> Iterator[Any]:
        element, name, watermark = self._element, self.operator.name, self.context.current_watermark_ms
        late_tag, is_read = self.spec.late_tag, self.spec.late_tag in self.operator.side_outputs
        try:
            for row in rows:
                timestamp_ms = element.timestamp_ms
                if timestamp_ms is None:
                    raise OperatorFailure(name, ValueError(f"{NO_TIMESTAMP}; the row was {row!r:.200}"), ours=True)
                start = self._add(row, timestamp_ms, watermark())
                if start is None:
                    if late_tag is None:
                        self.late_rows += 1
                    elif is_read:
                        yield SideRow(late_tag, row)
                elif self._ends.get(start) - 1 <= watermark():
                    yield from self._fire_window(start)
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(name, error) from error

    def _add(self, row: Any, timestamp_ms: int, reached_ms: int) -> int | None:
        """Add a row to the window that it opens, merged with those that it touches. Returns its start; None: it is
        late.
        """
        start, end = self._opened_for(row, timestamp_ms)
        if start < WATERMARK_MIN_MS or end > WATERMARK_MAX_MS:  # the end is state, too
            raise OperatorFailure(self.operator.name, NoWindow(timestamp_ms, row), ours=True)
        touching = sorted((s, e) for s, e in self._ends.items() if s <= end and start <= e)
        if touching:
            start = min(start, touching[0][0])
            end = max(end, *(e for _, e in touching))
        if self._forgotten_at(end) <= reached_ms:
            return None
        # A drain has fired what is kept for ever, and time begins again behind it.
        may_have_fired = self._forgotten_at(end) == WATERMARK_MAX_MS
        if touching == [(start, end)]:
            self._contents.put(start, self._fold(self._contents.get(start), row))
            if may_have_fired:
                self._register(end, reached_ms)
            return start
        # 5.11: a merged window has the rows of all that it is made of.
        if touching:
            kept = self._contents.get(touching[0][0])
            for other, _ in touching[1:]:
                kept = self._merge(kept, self._contents.get(other))
            kept = self._fold(kept, row)
        else:
            kept = self._first(row)
        for old, _ in touching:
            if old != start:
                self._contents.remove(old)
                self._ends.remove(old)
        self._contents.put(start, kept)
        self._ends.put(start, end)
        if not touching or may_have_fired or any(e - 1 <= reached_ms for _, e in touching):
            self._register(end, reached_ms)
        return start

    def _forgotten_at(self, end: int) -> int:
        return min(end - 1 + self._lateness_ms, WATERMARK_MAX_MS)

    def _register(self, end: int, reached_ms: int) -> None:
        """Register the next timer of a window: for its end, or for the time at which it is discarded."""
        if end - 1 > reached_ms:
            self._timers.register_event(end - 1)
        elif self._forgotten_at(end) < WATERMARK_MAX_MS:
            self._timers.register_event(self._forgotten_at(end))

    # ---- timers --------------------------------------------------------------------------------------------------

    def fire(self, timers: Iterator[Timer]) -> Iterator[Any]:
        try:
            for timer in timers:
                for start, end in sorted(self._ends.items()):
                    yield from self._on_timer(start, end, timer.timestamp_ms)
        except OperatorFailure:
            raise
        except USER_ERRORS as error:
            raise OperatorFailure(self.operator.name, error) from error

    def _on_timer(self, start: int, end: int, time_ms: int) -> Iterator[Any]:
        last = end - 1
        if last == time_ms:
            yield from self._fire_window(start)
        if self._forgotten_at(end) <= time_ms and last < WATERMARK_MAX_MS:
            self._forget(start)
        elif start <= time_ms <= last:
            self._register(end, time_ms)  # 5.11: the timer was that of an earlier end

    def _fire_window(self, start: int) -> Iterator[Any]:
        self._element.timestamp_ms = self._ends.get(start) - 1
        yield from self._results(start)

    def _forget(self, start: int) -> None:
        self.functions.clear(self._window_context.at(start, self._window(start)))
        self._contents.remove(start)
        self._ends.remove(start)
