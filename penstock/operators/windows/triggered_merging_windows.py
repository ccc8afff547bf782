"""Implements windows that are merged as their assigner says, and fired by a trigger, as Flink does.

A map state of the key holds its windows, each with the window that names its contents in state: that of the first row.
So a window that grows keeps its contents where they are. Timers and the trigger's state are moved, by the trigger.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.common.program.failures import OperatorFailure
from penstock.datastream.window import MergingWindowAssigner
from penstock.graph.states import WINDOW_SET_STATE
from penstock.operators.windows.trigger_context import END_OF_TIME_MS
from penstock.operators.windows.triggered_windows import Pane, TriggeredWindowOperator


class TriggeredMergingWindowOperator(TriggeredWindowOperator):
    is_merging = True

    def open(self) -> None:
        super().open()
        self._windows = self.context.internal_map_state(WINDOW_SET_STATE, self._form.type, self._form.type)

    def _pane_of(self, window: Any) -> Pane | None:
        form = self._form
        panes = {}
        for key, contents_key in self._windows.items():
            known = form.window_of(key)
            panes[known] = Pane(known, key, contents_key)
        merges = _Merges()
        self._assigner.merge_windows([*panes, window], merges)
        becomes = window
        for members, result in merges.found:
            if window in members:
                becomes = result
            if merged := [panes.pop(known) for known in list(panes) if known in members]:
                panes[result] = self._merge(merged, result)
        pane = panes.get(becomes)
        if self._is_late(becomes):
            if pane is not None:
                self._windows.remove(pane.key)
            return None
        if pane is None:
            key = form.key_of(becomes)
            pane = Pane(becomes, key, key)
            self._windows.put(key, key)
        return pane

    def _merge(self, merged: list[Pane], result: Any) -> Pane:
        """Merge the windows of `merged` to one. Returns its pane."""
        key, contents_key = self._form.key_of(result), merged[0].contents_key
        pane = Pane(result, key, contents_key)
        others = [old for old in merged if old.key != key]
        if not others:
            return pane
        if self._is_late(result):
            told = (
                f"merging windows to {result!r} ended it before the watermark, {self.context.current_watermark_ms()}: "
                "an assigner may not make a window end earlier by merging it"
            )
            raise OperatorFailure(self.operator.name, ValueError(told), ours=True)
        self._trigger.on_merge(result, self._trigger_context.at(key, [old.key for old in others]))
        for old in others:
            self._trigger.clear(old.window, self._trigger_context.at(old.key))
            self._delete_cleanup(old)
            self._windows.remove(old.key)
        self._windows.put(key, contents_key)
        # 5.11: a merged window has the rows of all that it is made of.
        for old in merged[1:]:
            self._merge_contents(contents_key, old.contents_key)
        return pane

    def _merge_contents(self, into: Any, other: Any) -> None:
        kept, more = self._contents.get(into), self._contents.get(other)
        self._contents.remove(other)
        if more is not None:
            self._contents.put(into, more if kept is None else self._merge_kept(kept, more))

    def _delete_cleanup(self, pane: Pane) -> None:
        over_at = self._over_at(pane.window)
        if over_at == END_OF_TIME_MS:
            return
        context = self._trigger_context.at(pane.key)
        if self._is_event_time:
            context.delete_event_time_timer(over_at)
        else:
            context.delete_processing_time_timer(over_at)

    def _pane_named(self, key: Any) -> Pane | None:
        contents_key = self._windows.get(key)
        return None if contents_key is None else Pane(self._form.window_of(key), key, contents_key)

    def _discard(self, pane: Pane) -> None:
        super()._discard(pane)
        self._windows.remove(pane.key)


class _Merges(MergingWindowAssigner.MergeCallback[Any]):
    """Collects which windows are merged."""

    def __init__(self) -> None:
        self.found: list[tuple[set[Any], Any]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.found.append((set(to_be_merged), merge_result))
