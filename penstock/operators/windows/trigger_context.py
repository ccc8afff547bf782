"""Gives a trigger the clocks, and the timers and state of one window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.metrics import MetricGroup
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from penstock.datastream.window import Trigger
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext, checked_time
from penstock.operators.windows.window_timers import WindowTimers
from penstock.protocol.values.elements import WATERMARK_MAX_MS

END_OF_TIME_MS = WATERMARK_MAX_MS

_DESCRIPTORS_MAX = 64
"""The number of descriptors whose handles are kept. A trigger may make a new one in each call."""


class SubtaskTriggerContext(Trigger.OnMergeContext):
    """Serves the window that `at` was last called for.

    A key that has timers of processing time has one at the end of event time, too: there the data ends, and what still
    waits for the clock is fired. Triggers may have timers of that time, too, so it stays while one kind needs it.
    """

    def __init__(self, context: SubtaskRuntimeContext, event: WindowTimers, processing: WindowTimers) -> None:
        self._context = context
        self._timers = context.keyed_timers()
        self._event = event
        self._processing = processing
        self._window: Any = None
        self._merged: Sequence[Any] = ()
        self._handles: dict[int, tuple[StateDescriptor, Any]] = {}
        """The handles of descriptors that were used before, by the ids of these, which cannot be used again."""
        self.has_ended = False
        """Whether the data of the current key has ended: no timer of processing time fires any more."""

    def at(self, window: Any, merged: Sequence[Any] = ()) -> SubtaskTriggerContext:
        """Return this context for a window, as state names it. `merged`: the windows that became it just now."""
        self._window = window
        self._merged = merged
        return self

    # ---- time ---------------------------------------------------------------------------------------------------

    def get_current_processing_time(self) -> int:
        return self._context.processing_time_ms()

    def get_current_watermark(self) -> int:
        return self._context.current_watermark_ms()

    def get_metric_group(self) -> MetricGroup:
        return self._context.get_metrics_group()

    def register_processing_time_timer(self, time: int) -> None:
        self._processing.register(checked_time(time), self._window)
        if not self.has_ended:
            self._timers.register_event(END_OF_TIME_MS)

    def register_event_time_timer(self, time: int) -> None:
        self._event.register(checked_time(time), self._window)

    def delete_processing_time_timer(self, time: int) -> None:
        self._processing.delete(checked_time(time), self._window)
        self.settle()

    def delete_event_time_timer(self, time: int) -> None:
        deleted = self._event.delete(checked_time(time), self._window)
        if deleted and time == END_OF_TIME_MS and not self.has_ended and not self._processing.is_empty():
            self._timers.register_event(END_OF_TIME_MS)  # 5.12: what waits for the clock needs it

    def settle(self) -> None:
        """Delete the key's timer of the end of time if nothing of the key waits for it any more."""
        if self._processing.is_empty() and not self._event.has(END_OF_TIME_MS):
            self._timers.delete_event(END_OF_TIME_MS)

    # ---- state --------------------------------------------------------------------------------------------------

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        known = self._handles.get(id(state_descriptor))
        if known is not None:
            self._context.set_current_window(self._window)
            return known[1]
        handle = self._of_window(state_descriptor)
        if len(self._handles) < _DESCRIPTORS_MAX:
            self._handles[id(state_descriptor)] = state_descriptor, handle
        return handle

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        move = _mover(state_descriptor)
        for other in self._merged:
            move(self._context.of_trigger(other).state(state_descriptor), lambda: self._of_window(state_descriptor))
        self._of_window(state_descriptor)  # handles that the trigger has are those of its window again

    def _of_window(self, descriptor: StateDescriptor) -> Any:
        return self._context.of_trigger(self._window).state(descriptor)


def _mover(descriptor: StateDescriptor) -> Callable[[Any, Callable[[], Any]], None]:
    """Return the function that moves the contents of one state to another, which has its own already. A handle is
    valid until the next one is asked for, so the second state is asked for last.
    """

    def reducing(source: Any, target: Callable[[], Any]) -> None:
        value = source.get()
        source.clear()
        if value is not None:
            target().add(value)

    def aggregating(source: Any, target: Callable[[], Any]) -> None:
        accumulator = source.accumulator()
        source.clear()
        if accumulator is not None:
            target().merge(accumulator)

    def listing(source: Any, target: Callable[[], Any]) -> None:
        values = list(source.get())
        source.clear()
        if values:
            target().add_all(values)

    if isinstance(descriptor, ReducingStateDescriptor):
        return reducing
    if isinstance(descriptor, AggregatingStateDescriptor):
        return aggregating
    if isinstance(descriptor, ListStateDescriptor):
        return listing
    raise TypeError(
        f"merge_partitioned_state() merges reducing, aggregating and list state; {descriptor.get_name()!r} is declared "
        f"by a {type(descriptor).__name__}"
    )
