"""A test pushes rows, watermarks and time, and sees output, state and timers, over restarts too."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from penstock.common.options import OptionError
from penstock.common.time import Duration, Time
from penstock.common.types import Types
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ReducingStateDescriptor,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
)
from penstock.datastream.functions import CheckpointedFunction
from penstock.datastream.state import StateTtlConfig
from penstock.testing import Harness, OperatorFailure, verify_operator

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
COUNT = ValueStateDescriptor("count", Types.LONG())
WORDS = ListStateDescriptor("words", Types.STRING())
BY_LENGTH = MapStateDescriptor("by length", Types.LONG(), Types.LONG())
LONGEST = ReducingStateDescriptor("longest", max, Types.LONG())
SHORT = OutputTag("short", Types.STRING())
EXPIRING = ValueStateDescriptor("expiring", Types.LONG())
EXPIRING.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(10)).build())


class CountUntil(KeyedProcessFunction):
    """Counts words by their first letter, and emits the count when event time or processing time has passed."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(COUNT)
        self.words = runtime_context.get_list_state(WORDS)
        self.by_length = runtime_context.get_map_state(BY_LENGTH)
        self.longest = runtime_context.get_reducing_state(LONGEST)

    def process_element(self, value: str, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        self.words.add(value)
        self.by_length.put(len(value), (self.by_length.get(len(value)) or 0) + 1)
        self.longest.add(len(value))
        timers = ctx.timer_service()
        timers.register_event_time_timer(ctx.timestamp() + 1_000)
        timers.register_processing_time_timer(timers.current_processing_time() + 60_000)
        if len(value) == 1:
            yield SHORT, value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), self.count.value() or 0
        self.count.clear()


def counting(harness: Harness) -> tuple[Any, Any, Any]:
    words = harness.source(Types.STRING(), "words")
    counted = words.stream.key_by(lambda word: word[0], Types.STRING()).process(CountUntil(), PAIR)
    return words, counted, harness.output(counted)


def test_rows_timers_and_state(penstock_harness: Harness) -> None:
    words, counted, counts = counting(penstock_harness)
    short = penstock_harness.output(counted.get_side_output(SHORT))
    words.push("an", "a", "be", timestamp=5_000)
    assert counts.take() == [] and short.rows == ["a"]
    assert penstock_harness.state(counted, COUNT) == {"a": 2, "b": 1}
    assert penstock_harness.state(counted, WORDS) == {"a": ["an", "a"], "b": ["be"]}
    assert penstock_harness.state(counted, BY_LENGTH) == {"a": {2: 1, 1: 1}, "b": {2: 1}}
    assert penstock_harness.state(counted, LONGEST) == {"a": 2, "b": 2}
    assert sorted(penstock_harness.event_time_timers(counted)) == [(6_000, "a"), (6_000, "b")]
    assert sorted(penstock_harness.processing_time_timers(counted)) == [(60_000, "a"), (60_000, "b")]
    words.watermark(5_999)
    assert counts.take() == []
    words.watermark(6_000)
    assert sorted(counts.take()) == [("a", 2), ("b", 1)]
    assert counts.timed_rows[0][1] == 6_000 and penstock_harness.state(counted, COUNT) == {}


def test_time_passes_from_timer_to_timer() -> None:
    class EverySecond(KeyedProcessFunction):
        def process_element(self, value: int, ctx: Any) -> Any:
            ctx.timer_service().register_processing_time_timer(1_000)

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            now_ms = ctx.timer_service().current_processing_time()
            ctx.timer_service().register_processing_time_timer(timestamp + 1_000)
            yield timestamp, now_ms

    with Harness(start=500) as harness:
        numbers = harness.source(Types.LONG())
        fired = harness.output(numbers.stream.key_by(lambda n: n).process(EverySecond()))
        numbers.push(1)
        harness.advance(Duration.of_seconds(3))
        assert fired.rows == [(1_000, 1_000), (2_000, 2_000), (3_000, 3_000)] and harness.processing_time == 3_500
        harness.set_processing_time(4_000)
        assert fired.rows[3:] == [(4_000, 4_000)]
        with pytest.raises(ValueError, match="time does not run backwards"):
            harness.set_processing_time(3_000)


@pytest.mark.parametrize("unaligned", [False, True])
@pytest.mark.parametrize("parallelism", [None, 3])
def test_a_restart_brings_everything_back(unaligned: bool, parallelism: int | None) -> None:
    with Harness() as harness:
        words, _, counts = counting(harness)
        words.push("an", "be", timestamp=0)
        checkpoint = harness.checkpoint(unaligned)
        words.push("all", timestamp=500)
        words.watermark(1_000)
        assert sorted(counts.rows) == [("a", 2), ("b", 1)]
        harness.restart(checkpoint, parallelism)
        assert sorted(counts.rows) == [("a", 2), ("b", 1)], "rows behind the checkpoint come again, and their output"
        harness.advance(60_000)
        assert sorted(counts.rows) == [("a", 0), ("a", 2), ("b", 0), ("b", 1)]


class Numbered(MapFunction):
    def open(self, runtime_context: Any) -> None:
        context = runtime_context
        self.of = context.get_index_of_this_subtask(), context.get_number_of_parallel_subtasks()

    def map(self, value: Any) -> Any:
        return (value, *self.of)


def test_a_restart_at_another_parallelism_has_as_many_subtasks() -> None:
    with Harness(parallelism=2) as harness:
        numbers = harness.source(Types.LONG())
        copies = numbers.stream.broadcast()
        seen = harness.output(copies.map(Numbered()))
        alone = harness.output(copies.map(Numbered()).set_parallelism(1))
        for parallelism, checkpoint in ((2, None), (3, 1), (1, 2)):
            if checkpoint is not None:
                harness.restart(checkpoint, parallelism)
            numbers.push(parallelism)
            assert sorted(seen.take()) == [(parallelism, subtask, parallelism) for subtask in range(parallelism)]
            assert alone.take() == [(parallelism, 0, 1)]
            harness.checkpoint()
        harness.restart()
        numbers.push(9)
        assert seen.take() == [(9, 0, 1)]
    with Harness() as harness:
        numbers = harness.source(Types.LONG())
        seen = harness.output(numbers.stream.broadcast().map(Numbered()))
        harness.restart(parallelism=2)
        numbers.push(9)
        assert sorted(seen.take()) == [(9, 0, 2), (9, 1, 2)]


def test_without_a_checkpoint_a_restart_begins_again(penstock_harness: Harness) -> None:
    numbers = penstock_harness.source(Types.LONG())
    doubled = penstock_harness.output(numbers.stream.map(lambda n: 2 * n, Types.LONG()))
    numbers.push(1, 2)
    penstock_harness.restart()
    assert doubled.rows == [2, 4]
    with pytest.raises(ValueError, match="there is no checkpoint 1; there are 0"):
        penstock_harness.restart(1)


def test_windows_of_two_inputs_wait_for_both(penstock_harness: Harness) -> None:
    left, right = penstock_harness.source(PAIR), penstock_harness.source(PAIR)
    keyed = left.stream.union(right.stream).key_by(lambda pair: pair[0])
    windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))
    sums = penstock_harness.output(windows.reduce(lambda a, b: (a[0], a[1] + b[1])))
    left.push(("a", 1), timestamp=100)
    right.push(("a", 2), timestamp=200)
    left.watermark(2_000)
    assert sums.take() == []
    right.idle()
    assert sums.take() == [("a", 3)]
    left.push(("a", 5), timestamp=2_500)
    penstock_harness.end()
    assert sums.take() == [("a", 5)]


class Slow(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(value)
        return [value]

    def timeout(self, value: int) -> list[int]:
        return [-value]


def test_calls_take_the_time_of_the_clock(penstock_harness: Harness) -> None:
    numbers = penstock_harness.source(Types.LONG())
    answers = penstock_harness.output(
        AsyncDataStream.unordered_wait(numbers.stream, Slow(), Time.seconds(10), 2, Types.LONG())
    )
    numbers.push(3, 20, 1)
    assert answers.take() == []
    penstock_harness.advance(Duration.of_seconds(4))
    assert answers.take() == [3, 1]
    penstock_harness.checkpoint()
    penstock_harness.restart()
    penstock_harness.advance(Duration.of_seconds(11))
    assert answers.take() == [-20]


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
SEEN = ListStateDescriptor("seen", Types.LONG())


class Ruled(BroadcastProcessFunction, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        self.seen = context.get_operator_state_store().get_list_state(SEEN)

    def snapshot_state(self, context: Any) -> None: ...

    def process_element(self, value: int, ctx: Any) -> Any:
        self.seen.add(value)
        return [value]

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(*value)
        return []


@pytest.mark.parametrize("parallelism", [1, 2])
def test_state_without_keys(parallelism: int) -> None:
    with Harness(parallelism) as harness:
        numbers, rules = harness.source(Types.LONG()), harness.source()
        ruled = numbers.stream.rebalance().connect(rules.stream.broadcast(RULES)).process(Ruled(), Types.LONG())
        harness.output(ruled)
        rules.push(("limit", 3))
        numbers.push(1, 2, 3)
        harness.checkpoint()
        harness.restart()
        assert harness.operator_state(ruled, RULES) == {"limit": 3}
        assert sorted(harness.operator_state(ruled, SEEN)) == [1, 2, 3]


class CountForTenSeconds(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(EXPIRING)

    def process_element(self, value: str, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield self.count.value()


def test_state_expires_by_the_clock(penstock_harness: Harness) -> None:
    words = penstock_harness.source(Types.STRING())
    counted = words.stream.key_by(lambda word: word).process(CountForTenSeconds(), Types.LONG())
    counts = penstock_harness.output(counted)
    words.push("a", "a")
    penstock_harness.advance(9_000)
    words.push("a")
    assert counts.take() == [1, 2, 3] and penstock_harness.state(counted, EXPIRING) == {"a": 3}
    penstock_harness.checkpoint()
    penstock_harness.advance(10_001)
    assert penstock_harness.state(counted, EXPIRING) == {}
    penstock_harness.restart()
    words.push("a")
    assert counts.take() == [1]


def test_an_error_names_the_operator(penstock_harness: Harness) -> None:
    numbers = penstock_harness.source(Types.LONG())
    penstock_harness.output(numbers.stream.map(lambda n: 1 // n, Types.LONG()).name("inverse"))
    with pytest.raises(OperatorFailure, match="operator 'inverse': ZeroDivisionError"):
        numbers.push(0)


def test_a_result_that_does_not_fit_its_type_is_an_error(penstock_harness: Harness) -> None:
    numbers = penstock_harness.source(Types.LONG())
    penstock_harness.output(numbers.stream.map(str, Types.LONG()).name("text"))
    with pytest.raises(OperatorFailure, match="operator 'text'"):
        numbers.push(1)


def test_what_is_not_there_is_refused(penstock_harness: Harness) -> None:
    numbers = penstock_harness.source(Types.LONG())
    mapped = numbers.stream.map(lambda n: n, Types.LONG())
    penstock_harness.output(mapped)
    numbers.push(1)
    with pytest.raises(ValueError, match="has no keyed state"):
        penstock_harness.state(mapped, COUNT)
    with pytest.raises(RuntimeError, match="after the pipeline has begun to run"):
        penstock_harness.source()


def test_late_rows_see_the_watermark(penstock_harness: Harness) -> None:
    class IsLate(ProcessFunction):
        def process_element(self, value: int, ctx: Any) -> Any:
            yield value, ctx.timestamp() <= ctx.timer_service().current_watermark()

    numbers = penstock_harness.source(Types.LONG())
    seen = penstock_harness.output(numbers.stream.process(IsLate()))
    numbers.push(1, timestamp=10)
    numbers.watermark(10)
    numbers.push(2, timestamp=10)
    numbers.push(3, timestamp=11)
    assert seen.rows == [(1, False), (2, True), (3, False)]


def test_neither_spark_nor_java_is_needed() -> None:
    program = "import sys, penstock.testing; sys.exit([m for m in ('pyspark', 'py4j') if m in sys.modules] or 0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_plugin_imports_nothing_before_a_test() -> None:
    program = "import sys, penstock.pytest_plugin; sys.exit([m for m in ('pyarrow', 'numpy') if m in sys.modules] or 0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_rows_come_as_from_a_source_of_their_type(penstock_harness: Harness) -> None:
    orders = penstock_harness.source(Types.ROW_NAMED(["item", "count"], [Types.STRING(), Types.INT()]))
    items = penstock_harness.output(orders.stream.map(lambda order: f"{order.count} {order.item}", Types.STRING()))
    orders.push(("apple", 2), {"item": "pear", "count": 1})
    assert items.take() == ["2 apple", "1 pear"]
    with pytest.raises(TypeError, match=r"push\(\): row 1, field 'count': 'many'"):
        orders.push(("apple", 2), ("pear", "many"))


def test_a_list_of_rows_is_not_a_row(penstock_harness: Harness) -> None:
    words = penstock_harness.source(Types.STRING())
    lengths = penstock_harness.output(words.stream.map(len, Types.INT()))
    with pytest.raises(TypeError, match=r"push\(\*rows\) takes each row as an argument of its own"):
        words.push(["gate", "dam"])
    words.push(*["gate", "dam"])
    assert lengths.take() == [4, 3]


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(OptionError, match="did you mean pipeline.auto-watermark-interval?"):
        Harness(options={"pipeline.auto-watermark-intervall": "1 s"})


def test_verified_rows_have_their_type() -> None:
    order = Types.ROW_NAMED(["item", "count"], [Types.STRING(), Types.INT()])
    verify_operator(lambda orders: orders.map(lambda row: row.count, Types.INT()), [("apple", 2)], types=order)
