"""Implements windows over rows whose evictor removes rows when they fire. They keep all rows with their times."""

from __future__ import annotations

from typing import Any, Iterator

from penstock.common.metrics import MetricGroup
from penstock.datastream.window import Evictor, TimestampedValue
from penstock.graph.job_graph import Operator
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext
from penstock.operators.windows.triggered_merging_windows import TriggeredMergingWindowOperator
from penstock.operators.windows.triggered_windows import NO_TIMESTAMP_MS, Pane, TriggeredWindowOperator


class _Evicting(TriggeredWindowOperator):
    def __init__(self, operator: Operator, context: SubtaskRuntimeContext) -> None:
        super().__init__(operator, context)
        self._evictor: Evictor[Any, Any] = self.spec.evictor
        self._evictor_context = _EvictorContext(context)
        self._merge_kept = lambda kept, other: [*kept, *other]

    def _fold(self, contents_key: Any, row: Any, timestamp_ms: int) -> None:
        kept = self._contents.get(contents_key) or []
        kept.append((timestamp_ms, row))
        self._contents.put(contents_key, kept)

    def _emit(self, pane: Pane, kept: Any) -> Iterator[Any]:
        elements = [
            TimestampedValue(row, None if timestamp_ms == NO_TIMESTAMP_MS else timestamp_ms)
            for timestamp_ms, row in kept
        ]
        self._evictor.evict_before(elements, len(elements), pane.window, self._evictor_context)
        if elements or not self.functions.folds:
            yield from super()._emit(pane, self.functions.folded([element.value for element in elements]))
        self._evictor.evict_after(elements, len(elements), pane.window, self._evictor_context)
        if len(elements) == len(kept):
            return
        if elements:
            left = [(NO_TIMESTAMP_MS if e.timestamp is None else e.timestamp, e.value) for e in elements]
            self._contents.put(pane.contents_key, left)
        else:
            self._contents.remove(pane.contents_key)


class EvictingWindowOperator(_Evicting):
    """Runs windows that are not merged."""


class EvictingMergingWindowOperator(_Evicting, TriggeredMergingWindowOperator):
    """Runs windows that are merged."""


class _EvictorContext(Evictor.EvictorContext):
    def __init__(self, context: SubtaskRuntimeContext) -> None:
        self._context = context

    def get_current_processing_time(self) -> int:
        return self._context.processing_time_ms()

    def get_metric_group(self) -> MetricGroup:
        return self._context.get_metrics_group()

    def get_current_watermark(self) -> int:
        return self._context.current_watermark_ms()
