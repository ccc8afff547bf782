"""Implements the runtime context of rich functions."""

from __future__ import annotations

import copy
from typing import Any, Callable

from penstock.common.cached_files import DistributedCache, local_copies
from penstock.common.metrics import MetricGroup
from penstock.common.options import PipelineOptions
from penstock.common.typeinfo import TypeInformation
from penstock.common.watermark_strategy import NO_TIMESTAMP
from penstock.datastream.functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStateStore,
    ProcessFunction,
    RuntimeContext,
)
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.graph.deployment import DeploymentPlan
from penstock.graph.job_graph import Operator, Vertex
from penstock.graph.logical import OperatorKind
from penstock.operators.event_time.progress import EventTime
from penstock.operators.event_time.timers import Timer, Timers
from penstock.operators.rows.element import CurrentElement
from penstock.operators.user_metrics import UserMetrics
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.elements import WATERMARK_MAX_MS
from penstock.state.backend import KeyedStateBackend
from penstock.state.operator_state import BroadcastHandle, OperatorStateBackend
from penstock.state.stored_keys import OF_TRIGGER, OF_WINDOW


class SubtaskRuntimeContext(RuntimeContext):
    """Gives one operator of a subtask its context. Keyed state belongs to the operator, and only a keyed head has
    any.
    """

    def __init__(
        self,
        vertex: Vertex,
        subtask: int,
        plan: DeploymentPlan,
        backend: KeyedStateBackend | None,
        attempt: int,
        time: EventTime,
        element: CurrentElement,
        wall_ms: Callable[[], int],
        timers: Timers | None = None,
        operator: Operator | None = None,
        operator_state: OperatorStateBackend | None = None,
        metrics: UserMetrics | None = None,
    ) -> None:
        self._vertex = vertex
        self._subtask = subtask
        self._plan = plan
        self._backend = backend
        self._attempt = attempt
        self._time = time
        self._element = element
        self._wall_ms = wall_ms
        self._timers = timers
        self._operator = operator or vertex.operators[0]
        self._operator_state = operator_state
        self._metrics = metrics

    def for_operator(self, operator: Operator) -> SubtaskRuntimeContext:
        return SubtaskRuntimeContext(
            self._vertex,
            self._subtask,
            self._plan,
            self._backend,
            self._attempt,
            self._time,
            self._element,
            self._wall_ms,
            self._timers,
            operator,
            self._operator_state,
            self._metrics,
        )

    def get_task_name(self) -> str:
        return self._vertex.name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._vertex.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._vertex.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._subtask

    def get_attempt_number(self) -> int:
        return self._attempt

    def get_task_name_with_subtasks(self) -> str:
        return f"{self._vertex.name} ({self._subtask + 1}/{self._vertex.parallelism})"

    def get_distributed_cache(self) -> DistributedCache:
        registered = self._plan.configuration.get(PipelineOptions.CACHED_FILES)
        return DistributedCache({file.name: local_copies.get(file.name, file.path) for file in registered})

    def get_metrics_group(self) -> MetricGroup:
        return super().get_metrics_group() if self._metrics is None else self._metrics.group(self._operator.name)

    def get_job_parameter(self, key: str, default_value: str) -> str:
        parameters = self._plan.configuration.get(PipelineOptions.GLOBAL_JOB_PARAMETERS)
        return dict(parameters or {}).get(key, default_value)

    def current_key(self) -> Any:
        return self._keyed_backend("the current key").current_key()

    def get_state(self, state_descriptor: ValueStateDescriptor) -> Any:
        return self._state(state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> Any:
        return self._state(state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> Any:
        return self._state(state_descriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> Any:
        return self._state(state_descriptor)

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> Any:
        return self._state(state_descriptor)

    def internal_value_state(self, name: str, type_info: TypeInformation | None) -> Any:
        """Return state of our own operators, under a name that no user's state has."""
        return self._state(ValueStateDescriptor(name, type_info))

    def _state(self, descriptor: StateDescriptor) -> Any:
        what = f"state '{descriptor.get_name()}'"
        return self._keyed_backend(what).state(self._operator.uid, descriptor)

    def _keyed_backend(self, what: str) -> KeyedStateBackend:
        if self._operator.kind is OperatorKind.ASYNC_WAIT:
            raise RuntimeError(
                f"operator '{self._operator.name}' asks for {what}, but calls have no keyed state, because many rows "
                "are under way at once: keep state in a process function before or behind it"
            )
        if self._backend is None or self._operator is not self._vertex.operators[0]:
            raise RuntimeError(
                f"operator '{self._operator.name}' asks for {what}, but its stream is not keyed: "
                "put key_by(...) right before it"
            )
        return self._backend

    # ---- for our own operators -------------------------------------------------------------------------------------

    @property
    def element(self) -> CurrentElement:
        return self._element

    def internal_map_state(self, name: str, key_type: TypeInformation, value_type: TypeInformation) -> Any:
        return self._state(MapStateDescriptor(name, key_type, value_type))

    def of_window(self, window: Any) -> KeyedStateStore:
        """Return the state of the current key and a window, which state names by its start, or as its form says."""
        backend = self._keyed_backend("the state of a window")
        return WindowStateStore(backend, self._operator.uid, window, OF_WINDOW)

    def of_trigger(self, window: Any) -> WindowStateStore:
        """Return the state that a trigger has of the current key and a window."""
        backend = self._keyed_backend("the state of a window")
        return WindowStateStore(backend, self._operator.uid, window, OF_TRIGGER)

    def set_current_window(self, window: Any) -> None:
        """Let all handles of states of windows be those of the current key and this window."""
        self._keyed_backend("the state of a window").set_current_window(window)

    def element_context(self) -> ElementContext:
        return ElementContext(self, self._element, self.timer_service())

    def timer_context(self) -> FiringContext:
        return FiringContext(self, self._element, self.timer_service())

    def keyed_timers(self) -> Timers:
        if self._timers is None or self._operator is not self._vertex.operators[0]:
            raise RuntimeError(
                f"operator '{self._operator.name}' asks for a timer, but its stream is not keyed: "
                "put key_by(...) right before it"
            )
        return self._timers

    def current_watermark_ms(self) -> int:
        """Return the watermark that the current key sees, or the subtask's without a key."""
        timers = self._timers if self._operator is self._vertex.operators[0] else None
        return self._time.current_ms if timers is None else timers.current_watermark_ms()

    def subtask_watermark_ms(self) -> int:
        """Return the watermark of the subtask, whatever the current key is."""
        return self._time.current_ms

    def clear_current_key(self) -> None:
        """Let there be no current key, for rows without one."""
        if self._backend is not None:
            self._backend.clear_current_key()

    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        """Call `function(key, state)` for each key that has an entry of the state in this subtask."""
        state = self._state(descriptor)
        backend = self._keyed_backend(f"state '{descriptor.get_name()}'")
        try:
            for key, key_group in backend.keys_of(self._operator.uid, descriptor.get_name()):
                backend.set_current_key(key, key_group)
                function(key, state)
                backend.slices.settle()
        finally:
            backend.clear_current_key()

    def broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastHandle[Any, Any]:
        assert self._operator_state is not None
        return self._operator_state.broadcast_state(self._operator.uid, descriptor)

    def processing_time_ms(self) -> int:
        return self._wall_ms()

    def timer_service(self) -> KeyedTimerService:
        return KeyedTimerService(self)


class WindowStateStore(KeyedStateStore):
    """Hands out state handles whose key is (key, window), under names that begin with `prefix`."""

    def __init__(self, backend: KeyedStateBackend, operator: str, window: Any, prefix: str) -> None:
        self._backend = backend
        self._operator = operator
        self._window = window
        self._prefix = prefix

    def state(self, descriptor: Any) -> Any:
        of_window = copy.copy(descriptor)
        of_window.name = f"{self._prefix}{descriptor.get_name()}"
        return self._backend.state_of_window(self._operator, of_window, self._window)

    get_state = get_list_state = get_map_state = state  # type: ignore[assignment]
    get_reducing_state = get_aggregating_state = state  # type: ignore[assignment]


class KeyedTimerService(TimerService):
    """Registers and deletes timers of the current key."""

    def __init__(self, context: SubtaskRuntimeContext) -> None:
        self._context = context

    def current_processing_time(self) -> int:
        return self._context.processing_time_ms()

    def current_watermark(self) -> int:
        return self._context.current_watermark_ms()

    def register_event_time_timer(self, timestamp: int) -> None:
        self._context.keyed_timers().register_event(checked_time(timestamp))

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._context.keyed_timers().register_processing(checked_time(timestamp))

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._context.keyed_timers().delete_event(checked_time(timestamp))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._context.keyed_timers().delete_processing(checked_time(timestamp))


def checked_time(timestamp: Any) -> int:
    """Check the time of a timer, in ms. Raises TypeError or ValueError."""
    if isinstance(timestamp, int):
        if WATERMARK_MIN_MS <= timestamp <= WATERMARK_MAX_MS:
            return timestamp
        raise ValueError(f"a timer's time (milliseconds) must fit in 64 bits, got {timestamp}")
    raise TypeError(f"a timer's time is an int (milliseconds), got {timestamp!r:.80}")


class ElementContext(
    ProcessFunction.Context, KeyedProcessFunction.Context, CoProcessFunction.Context, KeyedCoProcessFunction.Context
):
    """Gives functions the row being processed."""

    def __init__(self, context: SubtaskRuntimeContext, element: CurrentElement, timers: TimerService) -> None:
        self._context = context
        self._element = element
        self._timers = timers

    def get_current_key(self) -> Any:
        return self._context.current_key()

    def timestamp(self) -> int:
        time_ms = self._element.timestamp_ms
        return NO_TIMESTAMP if time_ms is None else time_ms

    def timer_service(self) -> TimerService:
        return self._timers


class FiringContext(KeyedProcessFunction.OnTimerContext, KeyedCoProcessFunction.OnTimerContext):
    """Gives functions the timer that fires."""

    def __init__(self, context: SubtaskRuntimeContext, element: CurrentElement, timers: TimerService) -> None:
        self._context = context
        self._element = element
        self._timers = timers
        self._timer: Timer | None = None

    def at(self, timer: Timer) -> FiringContext:
        self._timer = timer
        return self

    def get_current_key(self) -> Any:
        return self._context.current_key()

    def timestamp(self) -> int:
        """Return the time for which the timer was registered, in both kinds of time."""
        return NO_TIMESTAMP if self._timer is None else self._timer.timestamp_ms

    def time_domain(self) -> TimeDomain:
        return TimeDomain.EVENT_TIME if self._element.event_timer else TimeDomain.PROCESSING_TIME

    def timer_service(self) -> TimerService:
        return self._timers
