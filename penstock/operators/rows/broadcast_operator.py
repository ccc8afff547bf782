"""Runs functions of a stream and a broadcast stream, keyed or not."""

from __future__ import annotations

from typing import Any, Callable, Iterator

from penstock.common.watermark_strategy import NO_TIMESTAMP
from penstock.datastream.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from penstock.datastream.state import MapStateDescriptor, StateDescriptor
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.graph.declared_functions import BroadcastSpec
from penstock.graph.job_graph import Operator
from penstock.operators.event_time.timers import Timer
from penstock.operators.rows.element import CurrentElement
from penstock.operators.rows.row_functions import ProcessOperator
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext
from penstock.state.backend import StateError
from penstock.state.operator_state import BroadcastHandle, ReadOnlyBroadcastHandle

_BROADCAST_INPUT = 1


class BroadcastProcessOperator(ProcessOperator):
    """Runs a (Keyed)BroadcastProcessFunction. Rows of the broadcast input have no current key."""

    def __init__(self, operator: Operator, context: SubtaskRuntimeContext) -> None:
        super().__init__(operator, context)
        spec: BroadcastSpec = operator.function
        self.function = spec.process
        states = {d.get_name(): context.broadcast_state(d) for d in spec.descriptors}
        read_only = {name: ReadOnlyBroadcastHandle(state, name, operator.name) for name, state in states.items()}
        parts = (context, context.element, context.timer_service(), operator.name)
        self._element: Any = ReadOnlyContext(*parts, read_only)
        self._firing = OnTimerContext(*parts, read_only)
        self._broadcast = BroadcastContext(*parts, states)

    def pipe_input(self, rows: Iterator[Any], input_index: int) -> Iterator[Any]:
        if input_index != _BROADCAST_INPUT:
            return self.called(self.function.process_element, rows)
        clear_key = self.context.clear_current_key

        def without_key() -> Iterator[Any]:
            for row in rows:
                clear_key()
                yield row

        return self.called(self.function.process_broadcast_element, without_key(), self._broadcast)

    def fire(self, timers: Iterator[Timer]) -> Iterator[Any]:
        return self.fired(timers, self._firing)


class _Context:
    """Gives functions the time of the row, and their broadcast states."""

    def __init__(
        self,
        context: SubtaskRuntimeContext,
        element: CurrentElement,
        timers: TimerService,
        operator: str,
        states: dict[str, Any],
    ) -> None:
        self._context = context
        self._element = element
        self._timers = timers
        self._operator = operator
        self._states = states

    def timestamp(self) -> int:
        time_ms = self._element.timestamp_ms
        return NO_TIMESTAMP if time_ms is None else time_ms

    def current_processing_time(self) -> int:
        return self._context.processing_time_ms()

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> Any:
        name = state_descriptor.get_name()
        try:
            return self._states[name]
        except KeyError:
            raise StateError(
                f"operator '{self._operator}' asks for broadcast state '{name}', but broadcast() was given "
                f"descriptors of {', '.join(map(repr, self._states))} only: add this one there"
            ) from None


class ReadOnlyContext(
    _Context, BroadcastProcessFunction.ReadOnlyContext, KeyedBroadcastProcessFunction.ReadOnlyContext
):
    """Gives functions a row of the stream that is not broadcast."""

    _states: dict[str, ReadOnlyBroadcastHandle[Any, Any]]

    def current_watermark(self) -> int:
        return self._context.current_watermark_ms()

    def timer_service(self) -> TimerService:
        return self._timers

    def get_current_key(self) -> Any:
        return self._context.current_key()


class OnTimerContext(ReadOnlyContext, KeyedBroadcastProcessFunction.OnTimerContext):
    """Gives functions the timer that fires."""

    _timer: Timer | None = None

    def at(self, timer: Timer) -> OnTimerContext:
        self._timer = timer
        return self

    def timestamp(self) -> int:
        """Return the time for which the timer was registered, in both kinds of time."""
        return NO_TIMESTAMP if self._timer is None else self._timer.timestamp_ms

    def time_domain(self) -> TimeDomain:
        return TimeDomain.EVENT_TIME if self._element.event_timer else TimeDomain.PROCESSING_TIME


class BroadcastContext(_Context, BroadcastProcessFunction.Context, KeyedBroadcastProcessFunction.Context):
    """Gives functions a row of the broadcast stream."""

    _states: dict[str, BroadcastHandle[Any, Any]]

    def current_watermark(self) -> int:
        return self._context.subtask_watermark_ms()

    def apply_to_keyed_state(self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        if not callable(function):
            raise TypeError(f"apply_to_keyed_state() takes a callable (key, state), got {function!r}")
        self._context.apply_to_keyed_state(state_descriptor, function)
