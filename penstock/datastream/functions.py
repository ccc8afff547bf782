"""What users implement: map, flat map, filter, reduce and process functions, and what they are given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Iterable, TypeVar

from penstock.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.datastream.window import Window

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W", bound=Window)
W2 = TypeVar("W2", bound=Window)


class KeyedStateStore(ABC):
    """Keyed state by descriptor; only where the stream is keyed. The same descriptor gives the same handle."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]: ...

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]: ...

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]: ...

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]: ...

    @abstractmethod
    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]: ...


class RuntimeContext(KeyedStateStore):
    """What `open()` is given. Every subtask has its own."""

    @abstractmethod
    def get_task_name(self) -> str: ...

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int: ...

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int: ...

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """From 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """From 0; grows with every restart."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """For example "Map (3/6)"."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """One of `ExecutionConfig.set_global_job_parameters`."""


class Function(ABC):  # noqa: B024
    """Base of all functions. They are pickled, and every subtask has a copy of its own."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Before the first row, in the slot: the place for state handles, connections and tables."""

    def close(self) -> None:
        """After the last row, and after a failure."""


class MapFunction(Function):
    @abstractmethod
    def map(self, value: Any) -> Any: ...


class FlatMapFunction(Function):
    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """A generator, any other iterable, or None for no rows."""


class FilterFunction(Function):
    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Whether the row stays."""


class ReduceFunction(Function):
    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """What both values become. Associative."""


class AggregateFunction(Function):
    @abstractmethod
    def create_accumulator(self) -> Any: ...

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with the value in it."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any: ...

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.merge is needed here")


class KeySelector(Function):
    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """The key of a row; never None."""


class NullByteKeySelector(KeySelector):
    """One key for all rows."""

    def get_key(self, value: Any) -> Any:
        return 0


class Partitioner(Function):
    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """From 0 to num_partitions - 1."""


class _Context(ABC):
    """Of the row being processed, or of the timer that fires. It is valid only during the call that it is given to."""

    @abstractmethod
    def timestamp(self) -> int | None:
        """The event time of the row, or the time of the timer, in ms; None where the row has none."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Only functions on keyed streams may register timers; all may ask for the time."""


class _KeyedContext(_Context):
    @abstractmethod
    def get_current_key(self) -> Any: ...


class _OnTimerContext(_KeyedContext):
    @abstractmethod
    def time_domain(self) -> TimeDomain: ...


class ProcessFunction(Function):
    """Yields rows, and `tag, row` for a side output (`OutputTag`)."""

    class Context(_Context):
        pass

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any] | None:
        """A generator, any other iterable, or None for no rows."""


class KeyedProcessFunction(Function):
    """Yields rows, and `tag, row` for a side output (`OutputTag`). May use keyed state and timers."""

    class Context(_KeyedContext):
        pass

    class OnTimerContext(_OnTimerContext, Context):
        pass

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        """A generator, any other iterable, or None for no rows."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """A timer for `timestamp` (ms) fires; state and `ctx` are those of the key that registered it."""
        return None


class CoMapFunction(Function):
    """Of two connected streams. None is not put out, as in PyFlink."""

    @abstractmethod
    def map1(self, value: Any) -> Any: ...

    @abstractmethod
    def map2(self, value: Any) -> Any: ...


class CoFlatMapFunction(Function):
    """Of two connected streams. Both return a generator, any other iterable, or None for no rows."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None: ...

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None: ...


class CoProcessFunction(Function):
    """Of two connected streams. Yields rows, and `tag, row` for a side output (`OutputTag`)."""

    class Context(_Context):
        pass

    @abstractmethod
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None: ...

    @abstractmethod
    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None: ...


class KeyedCoProcessFunction(Function):
    """Of two connected streams with keys of one type: both inputs share the state and the timers of a key."""

    class Context(_KeyedContext):
        pass

    class OnTimerContext(_OnTimerContext, Context):
        pass

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None: ...

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None: ...

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """A timer for `timestamp` (ms) fires; state and `ctx` are those of the key that registered it."""
        return None


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """`inputs`: the rows of the window, or the one value that they have been folded into."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Yields rows, and `tag, row` for a side output (`OutputTag`)."""

    class Context(ABC, Generic[W2]):
        """Valid only during the call that it is given to."""

        @abstractmethod
        def window(self) -> W2: ...

        @abstractmethod
        def current_processing_time(self) -> int:
            """Milliseconds since the epoch."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Milliseconds since the epoch."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """State of this key and this window. Who uses it clears it in `clear()`."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """State of this key, which all its windows share."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """`elements`: the rows of the window, or the one value that they have been folded into. Called when the
        watermark passes the window's end, and again for every late row that is allowed."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """The window is over: the place to clear `context.window_state()`."""
