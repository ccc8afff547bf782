"""Defines triggers, which decide when a window emits its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, TypeVar

from penstock.common.metrics import MetricGroup
from penstock.common.time import Duration, Time
from penstock.common.types import Types
from penstock.datastream._windows.lengths import length_ms
from penstock.datastream._windows.window_kinds import MAX_LONG, Window
from penstock.datastream.functions import ReduceFunction
from penstock.datastream.state import ReducingStateDescriptor, StateDescriptor

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TriggerResult(Enum):
    """Tells whether a window emits its result, and whether its rows are removed then."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Return whether the window emits its result."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Return whether the rows of the window are removed."""
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Fires windows: it decides about their results after each row and timer.

    A trigger is pickled, and one object serves all windows of a subtask: keep what differs from window to window in
    `ctx.get_partitioned_state(descriptor)`. For windows that are merged, such as sessions, `can_merge` returns True.

    Example:
        class EveryThirdRow(Trigger):
            count = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())

            def on_element(self, element, timestamp, window, ctx):
                count = ctx.get_partitioned_state(self.count)
                count.add(1)
                return TriggerResult.FIRE if count.get() % 3 == 0 else TriggerResult.CONTINUE

            def on_event_time(self, time, window, ctx):
                return TriggerResult.CONTINUE

            def on_processing_time(self, time, window, ctx):
                return TriggerResult.CONTINUE

            def on_merge(self, window, ctx):
                ctx.merge_partitioned_state(self.count)

            def clear(self, window, ctx):
                ctx.get_partitioned_state(self.count).clear()
    """

    class TriggerContext(ABC):
        """Gives a trigger the clocks, and the timers and state of one window. It is valid only during the call."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the time of the slot's clock, in ms since the epoch."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return the metric group of the operator."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the watermark of the operator, in ms since the epoch."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Call `on_processing_time` for this window at a time of the clock.

            Args:
                time: The time, in ms since the epoch. Registering it twice changes nothing.
            """

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Call `on_event_time` for this window when the watermark passes a time.

            Args:
                time: The time, in ms since the epoch. Registering it twice changes nothing.
            """

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Delete a timer of the clock; a missing one is no error.

            Args:
                time: The time that it was registered for.
            """

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Delete a timer of event time; a missing one is no error.

            Args:
                time: The time that it was registered for.
            """

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """Return state of this key and window.

            Args:
                state_descriptor: Names and describes the state.

            Returns:
                The state, e.g. a `ValueState` of a `ValueStateDescriptor`.
            """

    class OnMergeContext(TriggerContext):
        """Gives a trigger also the state of the windows that are merged to its window."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge the state of the windows that are merged into that of the window that they become.

            Args:
                state_descriptor: Describes the state: reducing, aggregating or list state.
            """

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Decide for a window to which a row was added.

        Args:
            element: The row.
            timestamp: Its event time, in ms since the epoch; -2**63 if it has none.
            window: The window.
            ctx: Gives clocks, timers and state.

        Returns:
            The decision.
        """

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Decide for a window of which a timer of the clock fires.

        Args:
            time: The time that the timer was registered for.
            window: The window.
            ctx: Gives clocks, timers and state.

        Returns:
            The decision.
        """

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Decide for a window of which a timer of event time fires.

        Args:
            time: The time that the timer was registered for.
            window: The window.
            ctx: Gives clocks, timers and state.

        Returns:
            The decision.
        """

    def can_merge(self) -> bool:
        """Return whether the trigger can be used for windows that are merged. Then it needs `on_merge`."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Merge state and register timers for a window that others were merged to.

        Args:
            window: The window that they became.
            ctx: Gives clocks, timers and state.
        """

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """Clear the state and delete the timers of a window that is discarded.

        Args:
            window: The window.
            ctx: Gives clocks, timers and state.
        """


class EventTimeTrigger(Trigger[Any, Window]):
    """Fires windows at their ends in event time, and then for each late row that is allowed."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """Make the trigger."""
        return EventTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        """Return True."""
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(Trigger[Any, Window]):
    """Fires windows at their ends by the clock of the machine."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """Make the trigger."""
        return ProcessingTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        """Return True."""
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class _Least(ReduceFunction):
    def reduce(self, value1: int, value2: int) -> int:
        return min(value1, value2)


class _Sum(ReduceFunction):
    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


class _Continuous(Trigger[Any, Window]):
    """Keeps the time at which a window fires next, a multiple of the interval or the window's end."""

    def __init__(self, interval: int) -> None:
        if interval <= 0:
            raise ValueError(f"{type(self).__name__}: the interval is more than 0 ms, got {interval} ms")
        self.interval = interval
        self.state_desc = ReducingStateDescriptor("fire-time", _Least(), Types.LONG())

    def can_merge(self) -> bool:
        """Return True."""
        return True

    def _next(self, time: int, window: Window, state: Any, now: int | None = None) -> int:
        """Record and return the time of the next firing after `time`. With `now`, firings until then are left out."""
        if now is not None:
            time = max(time, now - now % self.interval)
        next_ms = time + self.interval
        # A window of the other kind of time may end before `time`. Without this: it would fire without a pause.
        if time < window.max_timestamp():
            next_ms = min(next_ms, window.max_timestamp())
        state.add(next_ms)
        return next_ms


class ContinuousEventTimeTrigger(_Continuous):
    """Fires whenever the watermark has passed an interval, and when it passes the end of the window.

    Args:
        interval: The interval in ms.
    """

    @staticmethod
    def of(interval: Time | Duration) -> ContinuousEventTimeTrigger:
        """Make a trigger of an interval.

        Args:
            interval: The interval, a `Time` or `Duration` of whole milliseconds.

        Returns:
            The trigger. Raises TypeError for a value that is no length of time.

        Raises:
            ValueError: The interval is not positive, or no whole number of milliseconds.
        """
        return ContinuousEventTimeTrigger(length_ms(interval, "interval", "ContinuousEventTimeTrigger.of()"))

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        state = ctx.get_partitioned_state(self.state_desc)
        if state.get() is None:
            ctx.register_event_time_timer(self._next(timestamp - timestamp % self.interval, window, state))
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        state = ctx.get_partitioned_state(self.state_desc)
        if state.get() != time:
            return TriggerResult.CONTINUE
        state.clear()
        # Nothing changes between the firings that a jump of time has passed. They take place where there is an end to
        # them, as in Flink.
        now = ctx.get_current_watermark() if window.max_timestamp() == MAX_LONG else None
        if now != MAX_LONG:
            ctx.register_event_time_timer(self._next(time, window, state, now))
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.state_desc)
        next_ms = ctx.get_partitioned_state(self.state_desc).get()
        if next_ms is not None:
            ctx.register_event_time_timer(next_ms)
        # The clearing of the windows that were merged has deleted the timers of their ends.
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        state = ctx.get_partitioned_state(self.state_desc)
        if (next_ms := state.get()) is not None:
            ctx.delete_event_time_timer(next_ms)
            state.clear()
        ctx.delete_event_time_timer(window.max_timestamp())


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires whenever the clock has passed an interval, and when it passes the end of the window.

    Args:
        interval: The interval in ms.
    """

    @staticmethod
    def of(interval: Time | Duration) -> ContinuousProcessingTimeTrigger:
        """Make a trigger of an interval.

        Args:
            interval: The interval, a `Time` or `Duration` of whole milliseconds.

        Returns:
            The trigger. Raises TypeError for a value that is no length of time.

        Raises:
            ValueError: The interval is not positive, or no whole number of milliseconds.
        """
        return ContinuousProcessingTimeTrigger(length_ms(interval, "interval", "ContinuousProcessingTimeTrigger.of()"))

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        state = ctx.get_partitioned_state(self.state_desc)
        if state.get() is None:
            now_ms = ctx.get_current_processing_time()
            ctx.register_processing_time_timer(self._next(now_ms - now_ms % self.interval, window, state))
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        state = ctx.get_partitioned_state(self.state_desc)
        if state.get() != time:
            return TriggerResult.CONTINUE
        state.clear()
        # Without `now`: after an hour without the job, a window would fire once for each interval of that hour.
        now = ctx.get_current_processing_time()
        ctx.register_processing_time_timer(self._next(time, window, state, now))
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.state_desc)
        next_ms = ctx.get_partitioned_state(self.state_desc).get()
        if next_ms is not None:
            ctx.register_processing_time_timer(next_ms)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        state = ctx.get_partitioned_state(self.state_desc)
        if (next_ms := state.get()) is not None:
            ctx.delete_processing_time_timer(next_ms)
            state.clear()


class CountTrigger(Trigger[Any, Window]):
    """Fires whenever a number of rows has been added to the window. The rows stay: see `PurgingTrigger`.

    Args:
        window_size: The number of rows.
    """

    def __init__(self, window_size: int) -> None:
        if not isinstance(window_size, int) or window_size <= 0:
            raise ValueError(f"CountTrigger: the number of rows is a whole number above 0, got {window_size!r}")
        self._window_size = window_size
        self._count_state_descriptor = ReducingStateDescriptor("count", _Sum(), Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """Make a trigger of a number of rows.

        Args:
            window_size: The number of rows.

        Returns:
            The trigger.

        Raises:
            ValueError: The number is no whole number above 0.
        """
        return CountTrigger(window_size)

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        state = ctx.get_partitioned_state(self._count_state_descriptor)
        state.add(1)
        if state.get() < self._window_size:
            return TriggerResult.CONTINUE
        state.clear()
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        """Return True."""
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._count_state_descriptor)

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self._count_state_descriptor).clear()


class PurgingTrigger(Trigger[T, W]):
    """Fires windows as another trigger does, and removes their rows then.

    Args:
        nested_trigger: The other trigger.
    """

    def __init__(self, nested_trigger: Trigger[T, W]) -> None:
        if not isinstance(nested_trigger, Trigger):
            raise TypeError(f"PurgingTrigger takes a Trigger, e.g. CountTrigger.of(10); got {nested_trigger!r}")
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[T, W]) -> PurgingTrigger[T, W]:
        """Make a trigger of another one.

        Args:
            nested_trigger: The other trigger.

        Returns:
            The trigger.

        Raises:
            TypeError: The argument is no `Trigger`.
        """
        return PurgingTrigger(nested_trigger)

    @staticmethod
    def _purging(result: TriggerResult) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE if result is TriggerResult.FIRE else result

    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return self._purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return self._purging(self.nested_trigger.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return self._purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def can_merge(self) -> bool:
        """Return whether the other trigger can."""
        return self.nested_trigger.can_merge()

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)


class NeverTrigger(Trigger[Any, Window]):
    """Fires nothing. It is the default of `GlobalWindows`, which need another one to emit anything."""

    def on_element(self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None: ...

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None: ...
