"""Defines functions of a stream and a broadcast stream, whose rows every subtask gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Iterable

from penstock.datastream._functions.rows import Function
from penstock.datastream.state import BroadcastState, MapStateDescriptor, ReadOnlyBroadcastState, StateDescriptor
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService


class BaseBroadcastProcessFunction(Function):
    """Defines the common part of functions of a stream and a broadcast stream: their contexts."""

    class BaseContext(ABC):
        """Describes the row being processed. It is valid only during the call that gets it."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event time of the row in ms since the epoch; None if the row has no event time."""

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
