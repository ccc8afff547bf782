"""Defines the functions that users implement: of rows, of time, of windows and of broadcast streams.

The contexts that they get in `open()` and in snapshots follow at the end, with operator state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Callable, Generic, Iterable, TypeVar

from penstock.common.cached_files import DistributedCache
from penstock.common.metrics import MetricGroup
from penstock.common.missing_names import AdvisesOnMissing, advising_getattr
from penstock.datastream._streams.retry_strategies import AsyncRetryPredicate, AsyncRetryStrategy
from penstock.datastream._streams.type_variables import In, Out
from penstock.datastream._windows.window_kinds import Window
from penstock.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService

__all__ = [
    "CoGroupFunction", "FlatJoinFunction", "JoinFunction", "ProcessJoinFunction", "AggregateFunction",
    "AllWindowFunction", "AsyncFunction", "AsyncFunctionDescriptor", "AsyncRetryPredicate", "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction", "BlockingFunction", "BroadcastProcessFunction", "CheckpointedFunction",
    "CoFlatMapFunction", "CoMapFunction", "CoProcessFunction", "FilterFunction", "FlatMapFunction", "Function",
    "FunctionInitializationContext", "FunctionSnapshotContext", "KeySelector", "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction", "KeyedProcessFunction", "KeyedStateStore", "MapFunction", "NullByteKeySelector",
    "OperatorStateStore", "Partitioner", "ProcessAllWindowFunction", "ProcessFunction", "ProcessWindowFunction",
    "ReduceFunction", "RuntimeContext", "SinkFunction", "SourceFunction", "WindowFunction",
]  # fmt: skip

IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W", bound=Window)
W2 = TypeVar("W2", bound=Window)


class Function(ABC):  # noqa: B024
    """Defines the common part of all functions. A function is pickled, and every subtask has a copy of its own."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare the function.

        Called in the slot before the first row: the place for state handles, connections and tables.

        Args:
            runtime_context: Describes the subtask, and gives access to keyed state.
        """

    def close(self) -> None:
        """Release the resources that `open` has opened. Called after the last row, and after a failure."""


class MapFunction(Function, Generic[In, Out]):
    """Maps each row to another."""

    @abstractmethod
    def map(self, value: In) -> Out:
        """Return the row to emit.

        Args:
            value: A row of the input.

        Returns:
            The row.
        """


class FlatMapFunction(Function, Generic[In, Out]):
    """Maps each row to any number of rows."""

    @abstractmethod
    def flat_map(self, value: In) -> Iterable[Out] | None:
        """Yield the rows to emit, or return an iterable of them, or None for no rows.

        Args:
            value: A row of the input.

        Returns:
            The rows. They are emitted as the iterable gives them.
        """


class FilterFunction(Function, Generic[In]):
    """Chooses rows."""

    @abstractmethod
    def filter(self, value: In) -> bool:
        """Return True to keep the row.

        Args:
            value: A row of the input.

        Returns:
            True, or False to drop it.
        """


class ReduceFunction(Function, Generic[In]):
    """Combines two values to one of the same type."""

    @abstractmethod
    def reduce(self, value1: In, value2: In) -> In:
        """Combine two values. Must be associative.

        Args:
            value1: The result so far.
            value2: The next row.

        Returns:
            The new result.
        """


class AggregateFunction(Function):
    """Adds values to an accumulator, whose type is its own.

    Example:
        class Mean(AggregateFunction):
            def create_accumulator(self):
                return 0.0, 0

            def add(self, value, accumulator):
                return accumulator[0] + value, accumulator[1] + 1

            def get_result(self, accumulator):
                return accumulator[0] / accumulator[1]
    """

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return the accumulator of no values."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Add a value to an accumulator.

        Args:
            value: The value.
            accumulator: The accumulator, which may be changed.

        Returns:
            The accumulator with the value.
        """

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """Return the result of the values that were added.

        Args:
            accumulator: The accumulator, which stays as it is.

        Returns:
            The result.
        """

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Merge two accumulators. Tumbling windows do not need it.

        Args:
            acc_a: An accumulator.
            acc_b: Another.

        Returns:
            The accumulator of the values of both.

        Raises:
            NotImplementedError: The function does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__}.merge is needed here")


class SourceFunction(Function):
    """Makes the rows of a source, for `StreamExecutionEnvironment.add_source`. One subtask runs it.

    After a failure it runs again from its beginning, so rows may come twice. To continue where a checkpoint was taken,
    make it a `CheckpointedFunction`, too: its state is stored between two rows, so change what it holds before the
    row is yielded. A `Source` has splits besides, so that several subtasks read.

    Example:
        class Countdown(SourceFunction):
            def run(self):
                yield from range(10, 0, -1)

        env.add_source(Countdown(), "countdown", Types.LONG()).print()
    """

    bounded: bool = True
    """Set it to False in a class whose rows have no end."""

    @abstractmethod
    def run(self) -> Iterable[Any]:
        """Yield the rows, or return an iterable of them. The source ends with it.

        It runs in its subtask's thread, and checkpoints wait while it makes a row. Where there is none yet, yield
        None: it is asked again a moment later.

        Returns:
            The rows.
        """


class SinkFunction(Function):
    """Takes the rows of a stream, for `DataStream.add_sink`. Each subtask has a copy of it.

    Rows that came after the newest checkpoint come again after a failure. A `Sink` can commit its output with a
    checkpoint, so that each row counts once.

    Example:
        class Send(SinkFunction):
            def invoke(self, value):
                print("sent", value)

        stream.add_sink(Send())
    """

    @abstractmethod
    def invoke(self, value: Any) -> None:
        """Take a row.

        Args:
            value: The row.
        """


class KeySelector(Function, Generic[In, Out]):
    """Computes the key of a row."""

    @abstractmethod
    def get_key(self, value: In) -> Out:
        """Return the key of a row. The same row must always have the same key.

        Args:
            value: The row.

        Returns:
            The key, never None.
        """


class NullByteKeySelector(KeySelector):
    """Gives all rows the same key."""

    def get_key(self, value: Any) -> Any:
        return 0


class Partitioner(Function):
    """Chooses a subtask by key, for `DataStream.partition_custom`."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Return the subtask that rows with a key go to.

        Args:
            key: The key.
            num_partitions: The number of subtasks.

        Returns:
            The index of the subtask, from 0 to `num_partitions` - 1.
        """


class AsyncFunction(Function, Generic[In, Out]):
    """Calls a slow service for each row, in an event loop, many rows at a time.

    Give it to `AsyncDataStream`. The coroutines of a subtask share one event loop, which has a thread of its own: one
    that blocks holds up the other calls, so use a `BlockingFunction` for libraries without `await`.

    Example:
        class Enrich(AsyncFunction):
            async def async_invoke(self, value):
                return [(value, await price_of(value))]

            def timeout(self, value):
                return [(value, None)]
    """

    @abstractmethod
    async def async_invoke(self, value: In) -> list[Out]:
        """Return the rows to emit for a row.

        Args:
            value: A row of the input.

        Returns:
            A list of rows; [] for none.
        """

    def timeout(self, value: In) -> list[Out]:
        """Return the rows to emit for a row whose call has not ended in time. Called in the subtask's own thread.

        Args:
            value: The row.

        Returns:
            A list of rows; [] for none.

        Raises:
            TimeoutError: Always, unless the function defines it: the job fails.
        """
        raise TimeoutError(f"Async function call has timed out for input: {value}")


class BlockingFunction(Function, Generic[In, Out]):
    """Calls a slow service for each row by a library that blocks, in as many threads as there are calls at once.

    PyFlink has no such function. Give it to `AsyncDataStream` like an `AsyncFunction`. Several threads call `invoke` at
    the same time, so what they share has to allow that.

    Example:
        class Enrich(BlockingFunction):
            def invoke(self, value):
                return [(value, requests.get(f"https://prices/{value}").json())]
    """

    @abstractmethod
    def invoke(self, value: In) -> list[Out]:
        """Return the rows to emit for a row.

        Args:
            value: A row of the input.

        Returns:
            A list of rows; [] for none.
        """

    def timeout(self, value: In) -> list[Out]:
        """Return the rows to emit for a row whose call has not ended in time. Called in the subtask's own thread.

        The thread of the call stays busy until `invoke` returns, so give the library a timeout, too.

        Args:
            value: The row.

        Returns:
            A list of rows; [] for none.

        Raises:
            TimeoutError: Always, unless the function defines it: the job fails.
        """
        raise TimeoutError(f"Blocking function call has timed out for input: {value}")


class AsyncFunctionDescriptor:
    """Holds the arguments of an async function's operator, as in PyFlink.

    Args:
        async_function: The function.
        timeout: The time for all calls of a row.
        capacity: The greatest number of rows under way.
        async_retry_strategy: Tells when to call again.
        output_mode: The order of the output.
    """

    class OutputMode(Enum):
        """Lists the orders of the output."""

        ORDERED = 0
        UNORDERED = 1

    def __init__(
        self,
        async_function: AsyncFunction[Any, Any],
        timeout: Any,
        capacity: int,
        async_retry_strategy: AsyncRetryStrategy[Any],
        output_mode: AsyncFunctionDescriptor.OutputMode,
    ) -> None:
        self.async_function = async_function
        self.timeout = timeout
        self.capacity = capacity
        self.async_retry_strategy = async_retry_strategy
        self.output_mode = output_mode


class CoMapFunction(Function):
    """Maps the rows of two connected streams. None is not emitted, as in PyFlink."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Return the row to emit for a row of the first stream.

        Args:
            value: The row.

        Returns:
            The row to emit, or None.
        """

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Return the row to emit for a row of the second stream.

        Args:
            value: The row.

        Returns:
            The row to emit, or None.
        """


class CoFlatMapFunction(Function):
    """Maps each row of two connected streams to any number of rows."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        """Yield the rows to emit for a row of the first stream, or return an iterable of them, or None for no rows.

        Args:
            value: The row.

        Returns:
            The rows to emit.
        """

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        """Yield the rows to emit for a row of the second stream, or return an iterable of them, or None for no rows.

        Args:
            value: The row.

        Returns:
            The rows to emit.
        """


class _Context(ABC):
    """Describes the row being processed or the timer that fires. It is valid only during the call that gets it."""

    @abstractmethod
    def timestamp(self) -> int:
        """Return the event time of the row, or the time of the timer, in ms since the epoch.

        -2^63 if the row has no event time, as in PyFlink.
        """

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Return the clocks and timers.

        All functions may read the time; only those on keyed streams may register timers.
        """


class _KeyedContext(_Context):
    @abstractmethod
    def get_current_key(self) -> Any:
        """Return the key of the row or timer."""


class _OnTimerContext(_KeyedContext):
    @abstractmethod
    def time_domain(self) -> TimeDomain:
        """Return the clock of the timer that fires."""


class ProcessFunction(Function):
    """Processes each row, with its timestamp and the watermark at hand.

    It yields rows for the main output, and `tag, row` for the side output of an `OutputTag`.
    """

    class Context(_Context):
        """Describes the row being processed. It is valid only during the call that gets it."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any] | None:
        """Process a row: yield the rows to emit, or return an iterable of them, or None for no rows.

        Args:
            value: The row.
            ctx: Gives its timestamp, and the clocks.

        Returns:
            The rows to emit; `tag, row` for a side output.
        """


class KeyedProcessFunction(Function):
    """Processes each row of a keyed stream, with state and timers per key.

    It yields rows for the main output, and `tag, row` for the side output of an `OutputTag`.

    Example:
        class CountPerMinute(KeyedProcessFunction):
            def open(self, runtime_context):
                self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

            def process_element(self, value, ctx):
                self.count.update((self.count.value() or 0) + 1)
                ctx.timer_service().register_event_time_timer(ctx.timestamp() // 60_000 * 60_000 + 59_999)

            def on_timer(self, timestamp, ctx):
                yield ctx.get_current_key(), self.count.value()
                self.count.clear()
    """

    class Context(_KeyedContext):
        """Describes the row being processed and its key. It is valid only during the call that gets it."""

    class OnTimerContext(_OnTimerContext, Context):
        """Describes the timer that fires and its key. It is valid only during the call that gets it."""

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        """Process a row: yield the rows to emit, or return an iterable of them, or None for no rows.

        Args:
            value: The row.
            ctx: Gives its timestamp and key, the clocks, and timers.

        Returns:
            The rows to emit; `tag, row` for a side output.
        """

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """Process a timer. State is that of the key that has registered it.

        Args:
            timestamp: The time that it was registered for, in ms since the epoch.
            ctx: Gives the key, the clock of the timer, and timers.

        Returns:
            The rows to emit; `tag, row` for a side output; None for no rows.
        """
        return None


class CoProcessFunction(Function):
    """Processes the rows of two connected streams.

    It yields rows for the main output, and `tag, row` for the side output of an `OutputTag`.
    """

    class Context(_Context):
        """Describes the row being processed. It is valid only during the call that gets it."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None:
        """Process a row of the first stream.

        Args:
            value: The row.
            ctx: Gives its timestamp, and the clocks.

        Returns:
            A generator or other iterable of the rows to emit, with `tag, row` for a side output; None for no rows.
        """

    @abstractmethod
    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None:
        """Process a row of the second stream.

        Args:
            value: The row.
            ctx: Gives its timestamp, and the clocks.

        Returns:
            A generator or other iterable of the rows to emit, with `tag, row` for a side output; None for no rows.
        """


class KeyedCoProcessFunction(Function):
    """Processes the rows of two connected keyed streams, which share the state and timers of a key.

    It yields rows for the main output, and `tag, row` for the side output of an `OutputTag`.
    """

    class Context(_KeyedContext):
        """Describes the row being processed and its key. It is valid only during the call that gets it."""

    class OnTimerContext(_OnTimerContext, Context):
        """Describes the timer that fires and its key. It is valid only during the call that gets it."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        """Process a row of the first stream.

        Args:
            value: The row.
            ctx: Gives its timestamp and key, the clocks, and timers.

        Returns:
            A generator or other iterable of the rows to emit, with `tag, row` for a side output; None for no rows.
        """

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        """Process a row of the second stream.

        Args:
            value: The row.
            ctx: Gives its timestamp and key, the clocks, and timers.

        Returns:
            A generator or other iterable of the rows to emit, with `tag, row` for a side output; None for no rows.
        """

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """Process a timer. State is that of the key that has registered it.

        Args:
            timestamp: The time that it was registered for, in ms since the epoch.
            ctx: Gives the key, the clock of the timer, and timers.

        Returns:
            The rows to emit; `tag, row` for a side output; None for no rows.
        """
        return None


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Processes the rows of a key and window."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Yield the rows to emit for a window, or return an iterable of them, or None for no rows.

        Called when the window's trigger fires: in event time when the watermark passes its end, and again for every
        late row that is allowed.

        Args:
            key: The key.
            window: The window, e.g. a `TimeWindow`.
            inputs: The rows of the window; after `reduce` or `aggregate`, their one result.

        Returns:
            The rows to emit.
        """


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Processes the rows of a key and window, with state per window.

    It yields rows for the main output, and `tag, row` for the side output of an `OutputTag`.
    """

    class Context(ABC, Generic[W2]):
        """Describes the window, and gives access to its state. It is valid only during the call that gets it."""

        @abstractmethod
        def window(self) -> W2:
            """Return the window, e.g. a `TimeWindow`."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the time of the slot's clock, in ms since the epoch."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark of the operator, in ms since the epoch."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """Return the state of this key and this window. A function that uses it must clear it in `clear()`."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """Return the state of this key, which all its windows share."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """Yield the rows to emit for a window, or return an iterable of them, or None for no rows.

        Called when the window's trigger fires: in event time when the watermark passes its end, and again for every
        late row that is allowed.

        Args:
            key: The key.
            context: Gives the window and its state.
            elements: The rows of the window; after `reduce` or `aggregate`, their one result.

        Returns:
            The rows to emit; `tag, row` for a side output.
        """

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Clear `context.window_state()`. Called when the window is discarded.

        Args:
            context: Gives the window and its state.
        """


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Processes the rows of a window over a whole stream, which is not keyed."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Yield the rows to emit for a window, or return an iterable of them, or None for no rows.

        Args:
            window: The window, e.g. a `TimeWindow`.
            inputs: The rows of the window; after `reduce` or `aggregate`, their one result.

        Returns:
            The rows to emit.
        """


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Processes the rows of a window over a whole stream, which is not keyed, with state per window.

    It yields rows for the main output, and `tag, row` for the side output of an `OutputTag`.
    """

    class Context(ABC, Generic[W2]):
        """Describes the window, and gives access to its state. It is valid only during the call that gets it."""

        @abstractmethod
        def window(self) -> W2:
            """Return the window, e.g. a `TimeWindow`."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """Return the state of this window. A function that uses it must clear it in `clear()`."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """Return the state that all windows share."""

    @abstractmethod
    def process(self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]) -> Iterable[OUT] | None:
        """Yield the rows to emit for a window, or return an iterable of them, or None for no rows.

        Args:
            context: Gives the window and its state.
            elements: The rows of the window; after `reduce` or `aggregate`, their one result.

        Returns:
            The rows to emit; `tag, row` for a side output.
        """

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """Clear `context.window_state()`. Called when the window is discarded.

        Args:
            context: Gives the window and its state.
        """


class JoinFunction(Function):
    """Makes one row of each pair of rows that a window join finds."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """Return the row to emit for a pair.

        Args:
            first: A row of the first stream.
            second: A row of the second stream, with the same key and in the same window.

        Returns:
            The row to emit.
        """


class FlatJoinFunction(Function):
    """Makes any number of rows of each pair of rows that a window join finds."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Iterable[Any] | None:
        """Yield the rows to emit for a pair, or return an iterable of them, or None for no rows.

        Args:
            first: A row of the first stream.
            second: A row of the second stream, with the same key and in the same window.

        Returns:
            The rows to emit.
        """


class CoGroupFunction(Function):
    """Processes all rows that two streams have of a key in a window, also where one of them has none."""

    @abstractmethod
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any] | None:
        """Yield the rows to emit for a window, or return an iterable of them, or None for no rows.

        Args:
            first: The rows of the first stream.
            second: The rows of the second stream.

        Returns:
            The rows to emit.
        """


class ProcessJoinFunction(Function):
    """Processes each pair of rows that an interval join finds.

    It yields rows for the main output, and `tag, row` for the side output of an `OutputTag`. It does not change the two
    rows: others meet them, too.
    """

    class Context(ABC):
        """Describes the pair. It is valid only during the call that gets it."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """Return the event time of the left row, in ms since the epoch."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """Return the event time of the right row, in ms since the epoch."""

        @abstractmethod
        def get_timestamp(self) -> int:
            """Return the later of both, which is the event time of what is emitted."""

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterable[Any] | None:
        """Yield the rows to emit for a pair, or return an iterable of them, or None for no rows.

        Args:
            left: A row of the first stream.
            right: A row of the second stream, with the same key.
            ctx: Gives the times of both.

        Returns:
            The rows to emit; `tag, row` for a side output.
        """


class BaseBroadcastProcessFunction(Function):
    """Defines the common part of functions of a stream and a broadcast stream: their contexts."""

    class BaseContext(ABC):
        """Describes the row being processed. It is valid only during the call that gets it."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the event time of the row in ms since the epoch; -2^63 if the row has no event time."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the time of the machine in ms since the epoch."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the event time that all inputs have reached, in ms since the epoch."""

    class Context(BaseContext):
        """Describes a row of the broadcast stream, and gives access to broadcast state."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
            """Return broadcast state, to read and change it.

            All subtasks get the same rows of the broadcast stream. Changes that depend on these rows and the state only
            keep the state of all subtasks the same. Rows of several producers come in an order of their own to each
            subtask.

            Args:
                state_descriptor: One of the descriptors that `broadcast()` was given.

            Returns:
                The state.

            Raises:
                StateError: `broadcast()` was not given such a descriptor.
            """

    class ReadOnlyContext(BaseContext):
        """Describes a row of the other stream, and lets the function read broadcast state."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
            """Return broadcast state, to read it. A call that would change it raises `StateError`.

            Args:
                state_descriptor: One of the descriptors that `broadcast()` was given.

            Returns:
                The state.

            Raises:
                StateError: `broadcast()` was not given such a descriptor.
            """


class BroadcastProcessFunction(BaseBroadcastProcessFunction):
    """Processes the rows of a stream that is not keyed, and those of a broadcast stream.

    It yields rows for the main output, and `tag, row` for the side output of an `OutputTag`.

    Example:
        limits = MapStateDescriptor("limits", Types.STRING(), Types.DOUBLE())

        class Limit(BroadcastProcessFunction):
            def process_element(self, value, ctx):
                limit = ctx.get_broadcast_state(limits).get(value["currency"])
                if limit is not None and value["amount"] > limit:
                    yield value["user"]

            def process_broadcast_element(self, value, ctx):
                ctx.get_broadcast_state(limits).put(value["currency"], value["rate"])

        orders.connect(rates.broadcast(limits)).process(Limit(), Types.STRING())
    """

    class Context(BaseBroadcastProcessFunction.Context):
        """Describes a row of the broadcast stream, and gives access to broadcast state."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """Describes a row of the other stream, and lets the function read broadcast state."""

    @abstractmethod
    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterable[Any] | None:
        """Process a row of the stream that is not broadcast.

        Args:
            value: The row.
            ctx: Gives its timestamp, the clocks, and broadcast state to read.

        Returns:
            A generator or other iterable of the rows to emit, with `tag, row` for a side output; None for no rows.
        """

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Iterable[Any] | None:
        """Process a row of the broadcast stream. Every subtask gets every row.

        Args:
            value: The row.
            ctx: Gives its timestamp, the clocks, and broadcast state to read and change.

        Returns:
            A generator or other iterable of the rows to emit, with `tag, row` for a side output; None for no rows.
        """


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction):
    """Processes the rows of a keyed stream, with state and timers per key, and those of a broadcast stream.

    It yields rows for the main output, and `tag, row` for the side output of an `OutputTag`.
    """

    class Context(BaseBroadcastProcessFunction.Context):
        """Describes a row of the broadcast stream. It has no key: keyed state is reached by `apply_to_keyed_state`."""

        @abstractmethod
        def apply_to_keyed_state(self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
            """Call a function for the state of each key that has some in this subtask.

            Args:
                state_descriptor: The descriptor of the keyed state, as `open` uses it.
                function: Called with (key, state). It may change and clear the state.
            """

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """Describes a row of the keyed stream and its key, and lets the function read broadcast state."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the clocks, and the timers of the key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the row or timer."""

    class OnTimerContext(ReadOnlyContext):
        """Describes the timer that fires and its key, and lets the function read broadcast state."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return the clock of the timer that fires."""

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterable[Any] | None:
        """Process a row of the keyed stream.

        Args:
            value: The row.
            ctx: Gives its timestamp and key, the clocks, timers, and broadcast state to read.

        Returns:
            A generator or other iterable of the rows to emit, with `tag, row` for a side output; None for no rows.
        """

    @abstractmethod
    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Iterable[Any] | None:
        """Process a row of the broadcast stream. Every subtask gets every row.

        Args:
            value: The row.
            ctx: Gives its timestamp, the clocks, broadcast state to read and change, and the state of all keys.

        Returns:
            A generator or other iterable of the rows to emit, with `tag, row` for a side output; None for no rows.
        """

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """Process a timer. Keyed state is that of the key that has registered it.

        Args:
            timestamp: The time that it was registered for, in ms since the epoch.
            ctx: Gives the key, the clock of the timer, timers, and broadcast state to read.

        Returns:
            The rows to emit; `tag, row` for a side output; None for no rows.
        """
        return None


class KeyedStateStore(ABC):
    """Gives access to keyed state by descriptor. The same descriptor gives the same handle.

    A handle reads and writes the state of the current key. Only functions on keyed streams have keyed state.
    """

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Return the handle of a single value per key.

        Args:
            state_descriptor: Names the state.

        Returns:
            The handle.
        """

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the handle of a list per key.

        Args:
            state_descriptor: Names the state.

        Returns:
            The handle.
        """

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return the handle of a map per key.

        Args:
            state_descriptor: Names the state.

        Returns:
            The handle.
        """

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return the handle of a value per key that added values are reduced to.

        Args:
            state_descriptor: Names the state and the reduce function.

        Returns:
            The handle.
        """

    @abstractmethod
    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Return the handle of an accumulator per key that values are added to.

        Args:
            state_descriptor: Names the state and the aggregate function.

        Returns:
            The handle.
        """


class RuntimeContext(AdvisesOnMissing, KeyedStateStore):
    """Describes the subtask that a function runs in, and gives access to its keyed state. `open()` gets it."""

    @abstractmethod
    def get_task_name(self) -> str:
        """Return the name of the vertex: those of its chained operators."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the operator."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the max parallelism of the operator, the number of key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Return the index of this subtask, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Return the number of the job's restarts, from 0."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Return the name, the number of this subtask from 1, and the parallelism: "Map (3/6)"."""

    def get_distributed_cache(self) -> DistributedCache:
        """Return the files that `env.register_cached_file(path, name)` has registered, as they are on this machine.

        Returns:
            The files, by name.
        """
        return DistributedCache({})

    def get_metrics_group(self) -> MetricGroup:
        """Return the group that makes the metrics of this operator.

        Returns:
            The group. A context that a test has made may have none.

        Raises:
            NotImplementedError: The context has no metrics.
        """
        raise NotImplementedError(f"{type(self).__name__} has no metrics")

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a parameter set by `ExecutionConfig.set_global_job_parameters`.

        Args:
            key: Its name.
            default_value: Returned if there is no such parameter.

        Returns:
            The value, a string.
        """


class OperatorStateStore(ABC):
    """Gives access to the operator state of one operator in one subtask, by descriptor.

    It is stored whole in the metadata of each checkpoint, so it is meant for small state, such as positions, buffers
    and rules. The same descriptor gives the same state. A state keeps the way in which it is distributed for ever.
    """

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list whose elements are dealt out, round robin, if the job is restored at another parallelism.

        Args:
            state_descriptor: Names the state.

        Returns:
            The list of this subtask.

        Raises:
            StateError: The state was declared differently before.
        """

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list that has, after a restore, the elements of all subtasks, in the order of the subtasks.

        Each checkpoint stores the lists of all subtasks. A function that keeps what the others have stored stores it
        again, so the list grows with every restore; `snapshot_state` should replace it by this subtask's own elements.

        Args:
            state_descriptor: Names the state.

        Returns:
            The list of this subtask.

        Raises:
            StateError: The state was declared differently before.
        """

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return a map that is the same in all subtasks. The function must keep it so.

        At another parallelism every subtask gets that of subtask 0.

        Args:
            state_descriptor: Names the state.

        Returns:
            The map of this subtask.

        Raises:
            StateError: The state was declared differently before.
        """

    @abstractmethod
    def get_registered_state_names(self) -> set[str]:
        """Return the names of the lists that have been asked for."""

    @abstractmethod
    def get_registered_broadcast_state_names(self) -> set[str]:
        """Return the names of the broadcast states that have been asked for."""


class FunctionInitializationContext(ABC):
    """Gives access to the operator state of a function, before its `open()`."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Return True if the job was restored from a checkpoint."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """Return the id of the checkpoint that the job was restored from; None at the start of a new job."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the operator state."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """Return the keyed state. Only functions on keyed streams have any; a handle works where there is a key."""


class FunctionSnapshotContext(ABC):
    """Describes the checkpoint that a snapshot is taken for."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Return the id of the checkpoint.

        -1 in the call at the end of the data, whose state all later checkpoints have.
        """


class CheckpointedFunction(ABC):
    """Gives a function state that belongs to no key: lists, union lists and maps of its subtask.

    Any function of rows can have it as a second base class, and so can the `SourceReader` and the `SinkWriter` of a
    connector.

    Example:
        class Buffer(FlatMapFunction, CheckpointedFunction):
            def initialize_state(self, context):
                store = context.get_operator_state_store()
                self.state = store.get_list_state(ListStateDescriptor("rows", Types.LONG()))
                self.rows = list(self.state.get())

            def snapshot_state(self, context):
                self.state.update(self.rows)

            def flat_map(self, value):
                self.rows.append(value)
                if len(self.rows) == 100:
                    yield sum(self.rows)
                    self.rows.clear()
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Ask for state, and take what it holds after a restore. Called once, before `open()`.

        Args:
            context: Gives access to the state.
        """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Bring the state up to date, because a checkpoint is about to store it.

        Called between two rows, and at the end of the data before `close()`. It delays the stream for as long as it
        takes.

        Args:
            context: Describes the checkpoint.
        """


if not TYPE_CHECKING:  # a type checker knows the names without it
    __getattr__ = advising_getattr(__name__)
