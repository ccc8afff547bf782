"""Defines functions that see time, and emit rows to side outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Iterable

from penstock.datastream._functions.rows import Function
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService


class _Context(ABC):
    """Describes the row being processed or the timer that fires. It is valid only during the call that gets it."""

    @abstractmethod
    def timestamp(self) -> int | None:
        """Return the event time of the row, or the time of the timer, in ms since the epoch.

        None if the row has no event time.
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
