"""Provides functions of simulated jobs that look at time: timers, windows, two inputs, side outputs.

They see what user code sees, and report what is wrong: a timestamp that is not the row's, time that runs backwards for
a key, a row that is late although nothing is out of order enough, a timer that fires early, twice or never.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator

from penstock.common.types import Types
from penstock.datastream.functions import (
    AggregateFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
)
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from simulation.jobs.clocks import Clock, WindowEnd
from simulation.jobs.simulated_functions import ROW_TYPE, Busy, scrambled, tagged
from simulation.world import world_hooks
from simulation.world.world_hooks import Row

LATE = OutputTag("late", ROW_TYPE)
ASIDE = OutputTag("aside", ROW_TYPE)
DECOY_MS = 1_000_000_000
"""The delay behind a row's timer of another one that is deleted before it fires."""
END_OF_TIMERS_MS = 10**15


class Watching(Busy):
    """Looks at the time of each key. `clock` says what the timestamps of rows are; `patient`: no row may be late."""

    def __init__(self, name: str, clock: Clock, patient: bool, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.name = name
        self.clock = clock
        self.patient = patient

    def open(self, runtime_context: RuntimeContext) -> None:
        self._reached = runtime_context.get_state(ValueStateDescriptor("reached", Types.LONG()))

    def look(self, ctx: Any) -> int:
        """Return the watermark now; no key may see it fall."""
        now_ms: int = ctx.timer_service().current_watermark()
        before_ms = self._reached.value()
        if before_ms is not None and now_ms < before_ms:
            self.complain(f"key {ctx.get_current_key()!r}: the watermark fell from {before_ms} to {now_ms}")
        if now_ms != before_ms:
            self._reached.update(now_ms)
        return now_ms

    def check_row(self, row: Row, ctx: Any) -> int:
        """Check a row; return its event time."""
        now_ms, time_ms = self.look(ctx), self.clock(row)
        if ctx.timestamp() != time_ms:
            self.complain(f"row {row} has timestamp {ctx.timestamp()}, not {time_ms}")
        if self.patient and time_ms <= now_ms:
            self.complain(f"row {row} of time {time_ms} is late: the watermark is {now_ms}")
        return time_ms

    def complain(self, what: str) -> None:
        world_hooks.current().violate(f"{self.name}: {what}")


class Delay(Watching, KeyedProcessFunction):
    """Holds every row back until `delay_ms` after its event time."""

    def __init__(self, name: str, clock: Clock, patient: bool, delay_ms: int, cost_ms: float) -> None:
        super().__init__(name, clock, patient, cost_ms)
        self.delay_ms = delay_ms

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._held = runtime_context.get_map_state(MapStateDescriptor("held", Types.LONG()))
        self._fired = runtime_context.get_state(ValueStateDescriptor("fired", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        self.work()
        at_ms = self.check_row(value, ctx) + self.delay_ms
        self._held.put(at_ms, [*(self._held.get(at_ms) or []), value])
        timers = ctx.timer_service()
        timers.register_event_time_timer(at_ms)
        timers.register_event_time_timer(at_ms + DECOY_MS)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        self.work()
        now_ms = self.look(ctx)
        key = ctx.get_current_key()
        if now_ms < timestamp:
            self.complain(f"key {key!r}: the timer of {timestamp} fired at {now_ms}")
        before_ms = self._fired.value()
        if self.patient and before_ms is not None and before_ms >= timestamp:
            self.complain(f"key {key!r}: the timer of {timestamp} fired after that of {before_ms}")
        self._fired.update(timestamp)
        held = self._held.get(timestamp)
        if held is None:
            self.complain(f"key {key!r}: the timer of {timestamp} fired twice, or was deleted")
            return
        self._held.remove(timestamp)
        ctx.timer_service().delete_event_time_timer(timestamp + DECOY_MS)
        yield from map(tuple, held)


class UntilTheNextWatermark(Watching, KeyedProcessFunction):
    """Holds rows back until their key sees another watermark: their timers are for the time that it is already."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._held = runtime_context.get_map_state(MapStateDescriptor("held", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        self.work()
        now_ms = self.look(ctx)
        self._held.put(now_ms, [*(self._held.get(now_ms) or []), value])
        ctx.timer_service().register_event_time_timer(now_ms)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        self.work()
        now_ms, key = self.look(ctx), ctx.get_current_key()
        if now_ms <= timestamp:
            self.complain(f"key {key!r}: a timer that was registered at {timestamp} fired before the next watermark")
        held = self._held.get(timestamp)
        if held is None:
            self.complain(f"key {key!r}: the timer of {timestamp} fired twice")
            return
        self._held.remove(timestamp)
        yield from map(tuple, held)


class Nap(Busy, KeyedProcessFunction):
    """Holds every row back for `nap_ms` of processing time; what is left at the end of time follows then."""

    def __init__(self, name: str, nap_ms: int, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.name = name
        self.nap_ms = nap_ms

    def open(self, runtime_context: RuntimeContext) -> None:
        self._held = runtime_context.get_map_state(MapStateDescriptor("held", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        self.work()
        timers = ctx.timer_service()
        at_ms = timers.current_processing_time() + self.nap_ms
        self._held.put(at_ms, [*(self._held.get(at_ms) or []), value])
        timers.register_processing_time_timer(at_ms)
        timers.register_event_time_timer(END_OF_TIMERS_MS)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        self.work()
        due = sorted(self._held.keys()) if timestamp == END_OF_TIMERS_MS else [timestamp]
        for at_ms in due:
            held = self._held.get(at_ms)
            if held is None:
                world_hooks.current().violate(f"{self.name}: the timer of {at_ms} fired twice")
                return
            self._held.remove(at_ms)
            ctx.timer_service().delete_processing_time_timer(at_ms)
            yield from map(tuple, held)


class NapOnce(Busy, KeyedProcessFunction):
    """Holds rows with numbers below `below` back for `nap_ms` of processing time. Nothing else ever brings them."""

    def __init__(self, name: str, nap_ms: int, below: int, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.name = name
        self.nap_ms = nap_ms
        self.below = below

    def open(self, runtime_context: RuntimeContext) -> None:
        self._held = runtime_context.get_map_state(MapStateDescriptor("held", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        self.work()
        if value[1] >= self.below:
            yield value
            return
        timers = ctx.timer_service()
        at_ms = timers.current_processing_time() + self.nap_ms
        self._held.put(at_ms, [*(self._held.get(at_ms) or []), value])
        timers.register_processing_time_timer(at_ms)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        world_hooks.current().on_timer(self.name, timestamp)
        held = self._held.get(timestamp)
        if held is None:
            world_hooks.current().violate(f"{self.name}: the timer of {timestamp} fired twice")
            return
        self._held.remove(timestamp)
        yield from map(tuple, held)


class PollsTooOften(Busy, KeyedProcessFunction):
    """Passes rows on. Each timer takes longer than it is until the next one, which it sets, is due."""

    def __init__(self, name: str, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.name = name

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        self.work()
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 1)
        yield value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        self.work()
        world_hooks.current().on_timer(self.name, timestamp)
        ctx.timer_service().register_processing_time_timer(timestamp + 1)
        yield from ()


# ---- windows --------------------------------------------------------------------------------------------------------


class Together(Busy, ProcessWindowFunction[Any, Any, Any, Any]):
    """Emits the rows of a window, as they are, each once however often the window fires."""

    def __init__(self, name: str, ends: WindowEnd, patient: bool, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.name = name
        self.ends = ends
        self.patient = patient

    def open(self, runtime_context: RuntimeContext) -> None:
        self._shown = ValueStateDescriptor("shown", Types.LONG())
        self._fired = MapStateDescriptor("fired", Types.LONG(), Types.BOOLEAN())

    def process(self, key: Any, context: Any, elements: Iterable[Row]) -> Iterator[Row]:
        self.work()
        complain = world_hooks.current().violate
        window = context.window()
        rows: list[Any] = [tuple(row) for row in elements]
        outside = [row for row in rows if self.ends(row) != window.max_timestamp()]
        if outside:
            complain(f"{self.name}: key {key!r}: window {window.start} holds {outside[:3]}")
        if context.current_watermark() < window.max_timestamp():
            complain(f"{self.name}: key {key!r}: window {window.start} fired at {context.current_watermark()}")
        fired = context.global_state().get_map_state(self._fired)
        if self.patient and fired.contains(window.start):
            complain(f"{self.name}: key {key!r}: window {window.start} fired twice")
        fired.put(window.start, True)
        shown = context.window_state().get_state(self._shown)
        already = shown.value() or 0
        shown.update(len(rows))
        yield from rows[already:]

    def clear(self, context: Any) -> None:
        context.window_state().get_state(self._shown).clear()


class First(ReduceFunction):
    """Keeps the smallest name among rows of a key and window, and how many they are (each comes with the count 1)."""

    def reduce(self, value1: Any, value2: Any) -> Row:
        return smaller(tuple(value1), tuple(value2))


class FirstOf(Busy, AggregateFunction):
    """Computes the same as `First`, with an accumulator."""

    def create_accumulator(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        self.work()
        return tuple(value) if accumulator is None else smaller(accumulator, tuple(value))

    def get_result(self, accumulator: Any) -> Row:
        return tuple(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return smaller(acc_a, acc_b)


def smaller(one: Any, other: Any) -> Row:
    return (*min(one[:4], other[:4]), one[4] + other[4])


class TooLate(MapFunction):
    """Passes rows of the side output for late rows. `patient`: there may be none."""

    def __init__(self, name: str, patient: bool) -> None:
        self.name = name
        self.patient = patient

    def map(self, value: Row) -> Row:
        if self.patient:
            world_hooks.current().violate(f"{self.name}: row {value} is late")
        return value


# ---- two inputs, side outputs ---------------------------------------------------------------------------------------


class Divert(Busy, ProcessFunction):
    """Sends every third row to a side output. `clock`: what timestamps are; None: rows have none that is known."""

    def __init__(self, name: str, salt: int, clock: Clock | None, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.name = name
        self.salt = salt
        self.clock = clock

    def process_element(self, value: Row, ctx: ProcessFunction.Context) -> Iterator[Any]:
        self.work()
        if self.clock is not None and ctx.timestamp() != self.clock(value):
            world_hooks.current().violate(f"{self.name}: row {value} has timestamp {ctx.timestamp()}")
        if self.diverts(value):
            yield ASIDE, value
        else:
            yield value

    def diverts(self, row: Row) -> bool:
        return scrambled(row, self.salt) % 3 == 0


class TagBoth(Busy, CoMapFunction):
    def map1(self, value: Row) -> Row:
        self.work()
        return tagged(value, 0)

    def map2(self, value: Row) -> Row:
        self.work()
        return tagged(value, 1)


class TagBothFlat(Busy, CoFlatMapFunction):
    def flat_map1(self, value: Row) -> Iterator[Row]:
        self.work()
        yield tagged(value, 0)

    def flat_map2(self, value: Row) -> Iterator[Row]:
        self.work()
        yield tagged(value, 1)


class TagBothProcess(Busy, CoProcessFunction):
    def process_element1(self, value: Row, ctx: CoProcessFunction.Context) -> Iterator[Row]:
        self.work()
        yield tagged(value, 0)

    def process_element2(self, value: Row, ctx: CoProcessFunction.Context) -> Iterator[Row]:
        self.work()
        yield tagged(value, 1)


class CountBoth(Watching, KeyedCoProcessFunction):
    """Numbers the rows of a key, of both inputs. Timestamps are looked at only where no row may be late."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element1(self, value: Row, ctx: KeyedCoProcessFunction.Context) -> Iterator[Row]:
        yield self._counted(tagged(value, 0), ctx)

    def process_element2(self, value: Row, ctx: KeyedCoProcessFunction.Context) -> Iterator[Row]:
        yield self._counted(tagged(value, 1), ctx)

    def _counted(self, row: Row, ctx: Any) -> Row:
        self.work()
        self.look(ctx)
        if self.patient:
            self.check_row(row, ctx)
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        return (*row[:4], count)
