"""Each kind of operator of the public API gives the same results under every interruption."""

from __future__ import annotations

import asyncio
from typing import Any, Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common.time import Time
from penstock.common.types import Types
from penstock.datastream import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    BlockingFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    EventTimeSessionWindows,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
)
from penstock.datastream.columnar import count, max_, sum_
from penstock.datastream.functions import CheckpointedFunction
from penstock.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeTrigger,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    TumblingProcessingTimeWindows,
)
from penstock.testing import Advance, Watermark, verify_operator
from tests.unit.testing.flaky_service import first_calls_fail

LONG, PAIR = Types.LONG(), Types.TUPLE([Types.LONG(), Types.LONG()])
ROWS = [1, 2, Watermark(1), 3, 4]
NAMED = Types.ROW_NAMED(["k", "v"], [Types.LONG(), Types.LONG()])
NAMED_ROWS = [(n % 2, n) if type(n) is int else n for n in ROWS]
ODD = OutputTag("odd", LONG)


def parity(number: int) -> int:
    return number % 2


def by_parity(stream: Any) -> Any:
    return stream.key_by(parity, LONG)


class Near(ProcessJoinFunction):
    def process_element(self, left: int, right: int, ctx: Any) -> Any:
        yield left, right


class Halves(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        if value % 2:
            yield ODD, value
        else:
            yield value // 2


class Summed(KeyedProcessFunction):
    """Keeps sums and rows, and emits them by timers of both kinds of time."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", LONG))
        self.rows = runtime_context.get_list_state(ListStateDescriptor("rows", LONG))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + value)
        self.rows.add(value)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 2)
        ctx.timer_service().register_processing_time_timer(1_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), timestamp, self.total.value(), sorted(self.rows.get())


class Counted(ProcessFunction, CheckpointedFunction):
    """Numbers the rows of its subtask by operator state; the sum over all subtasks is that of the rows."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen", LONG))
        self.seen = list(self.state.get())

    def snapshot_state(self, context: Any) -> None:
        self.state.update(self.seen)

    def process_element(self, value: int, ctx: Any) -> Any:
        self.seen.append(value)
        yield value


class Largest(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return max(value, accumulator)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return max(acc_a, acc_b)


class Contents(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start, sorted(elements)


class Both(CoMapFunction, CoFlatMapFunction):
    def map1(self, value: int) -> Any:
        return value, 1

    def map2(self, value: int) -> Any:
        return value, 2

    def flat_map1(self, value: int) -> Any:
        return [value] * (value % 3)

    def flat_map2(self, value: int) -> Any:
        yield -value


class Sides(CoProcessFunction):
    def process_element1(self, value: int, ctx: Any) -> Any:
        yield value, ctx.timestamp()

    def process_element2(self, value: int, ctx: Any) -> Any:
        yield -value, ctx.timestamp()


class SumOfBoth(KeyedCoProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", LONG))

    def process_element1(self, value: int, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + value)
        ctx.timer_service().register_event_time_timer(100)

    def process_element2(self, value: int, ctx: Any) -> Any:
        return self.process_element1(10 * value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), self.total.value()


RULES = MapStateDescriptor("rules", LONG, LONG)


class Ruled(BroadcastProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        return [value]

    def process_broadcast_element(self, value: int, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(value, value)
        return [-value]


class KeyedRuled(KeyedBroadcastProcessFunction):
    process_element = Ruled.process_element
    process_broadcast_element = Ruled.process_broadcast_element


class Slow(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(value % 3 / 10)
        return [value] * (value % 3)


class Blocking(BlockingFunction[int, int]):
    def invoke(self, value: int) -> list[int]:
        return [value, -value]


def with_retries(stream: Any) -> Any:
    strategy = AsyncRetryStrategy.fixed_delay(3, 50, None, lambda error: isinstance(error, OSError))
    return AsyncDataStream.ordered_wait_with_retry(stream, first_calls_fail, Time.seconds(60), strategy, 3, LONG)


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "v", pc.multiply(batch.column("v"), 2))


def windowed(assigner: Any) -> Any:
    return lambda stream: by_parity(stream).window(assigner)


PURGED = PurgingTrigger.of(EventTimeTrigger.create())
TUMBLING, SLIDING = TumblingEventTimeWindows.of(Time.milliseconds(3)), SlidingEventTimeWindows(4, 2)
SESSIONS = EventTimeSessionWindows.with_gap(Time.milliseconds(2))
SECOND = Time.seconds(1)
ROW_OPERATORS: dict[str, Callable[[Any], Any]] = {
    "map": lambda s: s.map(lambda n: 2 * n, LONG),
    "flat_map": lambda s: s.flat_map(lambda n: [n] * (n % 4 * 20), LONG),
    "filter": lambda s: s.filter(lambda n: n % 2 == 0),
    "process with a side output": lambda s: (halves := s.process(Halves(), LONG), halves.get_side_output(ODD)),
    "operator state": lambda s: s.process(Counted(), LONG),
    "keyed map": lambda s: by_parity(s).map(lambda n: n, LONG),
    "keyed flat_map": lambda s: by_parity(s).flat_map(lambda n: [n, n], LONG),
    "keyed filter": lambda s: by_parity(s).filter(lambda n: n > 2),
    "keyed process": lambda s: by_parity(s).process(Summed()),
    "reduce": lambda s: by_parity(s).reduce(lambda a, b: a + b),
    "sum": lambda s: s.map(lambda n: (n % 2, n), PAIR).key_by(lambda p: p[0], LONG).sum(1),
    "tumbling reduce": lambda s: windowed(TUMBLING)(s).reduce(lambda a, b: a + b),
    "tumbling aggregate": lambda s: windowed(TUMBLING)(s).aggregate(Largest(), output_type=LONG),
    "tumbling process": lambda s: windowed(TUMBLING)(s).process(Contents()),
    "sliding process": lambda s: windowed(SLIDING)(s).process(Contents()),
    "session process": lambda s: windowed(SESSIONS)(s).process(Contents()),
    "session aggregate": lambda s: windowed(SESSIONS)(s).aggregate(Largest(), output_type=LONG),
    "sliding reduce": lambda s: windowed(SLIDING)(s).reduce(lambda a, b: a + b),
    "session reduce": lambda s: windowed(SESSIONS)(s).reduce(lambda a, b: a + b),
    "tumbling processing time": lambda s: windowed(TumblingProcessingTimeWindows.of(SECOND))(s).process(Contents()),
    "session processing time": lambda s: windowed(ProcessingTimeSessionWindows.with_gap(SECOND))(s).process(Contents()),
    "triggered by counts": lambda s: windowed(TUMBLING)(s).trigger(CountTrigger.of(1)).reduce(lambda a, b: a + b),
    "purged by counts": lambda s: (
        windowed(GlobalWindows.create())(s).trigger(PurgingTrigger.of(CountTrigger.of(2))).reduce(lambda a, b: a + b)
    ),
    "count window": lambda s: by_parity(s).count_window(2).reduce(lambda a, b: a + b),
    "window_all": lambda s: s.window_all(TUMBLING).aggregate(Largest(), output_type=LONG),
    "count_window_all": lambda s: s.map(lambda n: 1, LONG).count_window_all(2).reduce(lambda a, b: a + b),
    "sliding with a trigger": lambda s: windowed(SLIDING)(s).trigger(PURGED).process(Contents()),
    "sessions with a trigger": lambda s: windowed(SESSIONS)(s).trigger(PURGED).process(Contents()),
    "sessions with an evictor": lambda s: windowed(SESSIONS)(s).evictor(CountEvictor.of(9)).process(Contents()),
    "global windows": lambda s: windowed(GlobalWindows())(s).trigger(EventTimeTrigger()).reduce(lambda a, b: a + b),
    "rebalance": lambda s: s.rebalance().map(lambda n: n, LONG),
    "broadcast": lambda s: s.broadcast().map(lambda n: n, LONG).set_parallelism(1),
    "partition_custom": lambda s: s.partition_custom(lambda key, parts: key % parts, lambda n: n).map(
        lambda n: n, LONG
    ),
    "unordered calls": lambda s: AsyncDataStream.unordered_wait(s, Slow(), Time.seconds(60), 2, LONG),
    "ordered calls": lambda s: AsyncDataStream.ordered_wait(by_parity(s), Slow(), Time.seconds(60), 3, LONG),
    "blocking calls": lambda s: AsyncDataStream.ordered_wait(s, Blocking(), Time.seconds(60), 3, LONG),
    "calls with retries": with_retries,
}
COLUMN_OPERATORS: dict[str, Callable[[Any], Any]] = {
    "map_batches": lambda s: s.map_batches(doubled, NAMED.schema),
    "select": lambda s: s.select("v"),
    "with_columns": lambda s: s.with_columns(twice=pc.multiply(pc.field("v"), 2)),
    "filter columns": lambda s: s.filter(pc.field("v") > 2),
    "aggregate columns": lambda s: s.key_by("k").aggregate(total=sum_("v"), rows=count()),
    "tumbling columns": lambda s: s.key_by("k").window(TUMBLING).aggregate(total=sum_("v"), largest=max_("v")),
    "sliding columns": lambda s: s.key_by("k").window(SLIDING).aggregate(rows=count()),
}
TWO_INPUTS: dict[str, Callable[[Any, Any], Any]] = {
    "window join": lambda a, b: (
        a.join(b)
        .where(parity, key_type=LONG)
        .equal_to(parity, key_type=LONG)
        .window(TUMBLING)
        .apply(lambda left, right: (left, right), PAIR)
    ),
    "co-group": lambda a, b: (
        a.co_group(b)
        .where(parity, key_type=LONG)
        .equal_to(parity, key_type=LONG)
        .window(TUMBLING)
        .apply(lambda left, right: [(len(list(left)), len(list(right)))], PAIR)
    ),
    "interval join": lambda a, b: (
        by_parity(a)
        .interval_join(by_parity(b))
        .between(Time.milliseconds(-5), Time.milliseconds(5))
        .process(Near(), PAIR)
    ),
    "union": lambda a, b: a.union(b).map(lambda n: n, LONG),
    "co-map": lambda a, b: a.connect(b).map(Both(), PAIR),
    "co-flat map": lambda a, b: a.connect(b).flat_map(Both(), LONG),
    "co-process": lambda a, b: a.connect(b).process(Sides(), PAIR),
    "keyed co-process": lambda a, b: by_parity(a).connect(by_parity(b)).process(SumOfBoth(), PAIR),
}


@pytest.mark.parametrize("name", ROW_OPERATORS)
def test_an_operator_of_rows(name: str) -> None:
    assert verify_operator(ROW_OPERATORS[name], [*ROWS, Advance(2_000)], types=LONG)


@pytest.mark.parametrize("name", COLUMN_OPERATORS)
def test_an_operator_of_columns(name: str) -> None:
    assert verify_operator(COLUMN_OPERATORS[name], NAMED_ROWS, types=NAMED)


@pytest.mark.parametrize("name", TWO_INPUTS)
def test_an_operator_of_two_inputs(name: str) -> None:
    assert verify_operator(TWO_INPUTS[name], ROWS, [7, Watermark(1), 8], types=LONG)


@pytest.mark.parametrize("keyed", [False, True])
def test_broadcast_state(keyed: bool) -> None:
    """In one subtask: in several, each applies the rules."""
    function = KeyedRuled() if keyed else Ruled()

    def build(rows: Any, rules: Any) -> Any:
        return (by_parity(rows) if keyed else rows).connect(rules.broadcast(RULES)).process(function, LONG)

    assert verify_operator(build, ROWS, [7, 8], types=LONG, parallelisms=[1])
