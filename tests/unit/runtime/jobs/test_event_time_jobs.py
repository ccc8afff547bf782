"""Tests whole jobs in event time: watermarks, windows, timers, two inputs and side outputs, cut by checkpoints
anywhere.
"""

from __future__ import annotations

import math
from collections import defaultdict
from random import Random
from typing import Any, Callable

import pytest

from penstock.common.configuration import Configuration
from penstock.common.program.failures import OperatorFailure
from penstock.common.time import Duration, Time
from penstock.common.types import Types
from penstock.common.watermark_strategy import Watermark, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.functions import CoProcessFunction, KeyedCoProcessFunction, ProcessWindowFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import ReachedEndOfData
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_small_jobs import SMALL, TIMEOUTS, finish, run_with_checkpoint

ROWS = 600
SIZE_MS = 50
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TRIPLE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
FREQUENT = {**SMALL, "pipeline.auto-watermark-interval": "1 ms"}

Build = Callable[[StreamExecutionEnvironment], None]


def time_of(number: int) -> int:
    """Return times that are out of order by less than 20 ms."""
    return number * 2 + (number * 7919) % 19


def timed(env: StreamExecutionEnvironment) -> Any:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(20))
    strategy = strategy.with_timestamp_assigner(lambda number, _: time_of(number))
    return env.from_source(NumberSequenceSource(0, ROWS - 1), strategy, "numbers")


# ---- windows --------------------------------------------------------------------------------------------------------


class Counts(ProcessWindowFunction[Any, Any, int, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        assert context.current_watermark() >= window.max_timestamp()
        yield (key, window.start, sum(count for _, count in elements))


def counted(env: StreamExecutionEnvironment) -> None:
    pairs = timed(env).map(lambda x: (x % 5, 1), PAIR)
    windows = pairs.key_by(lambda p: p[0], Types.LONG()).window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE_MS)))
    made = windows.reduce(lambda a, b: (a[0], a[1] + b[1]), window_function=Counts(), output_type=TRIPLE)
    made.sink_to(CommittedRows())


def expected_counts() -> list[tuple[int, int, int]]:
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for number in range(ROWS):
        counts[number % 5, time_of(number) // SIZE_MS * SIZE_MS] += 1
    return sorted((key, start, count) for (key, start), count in counts.items())


class Starts(ProcessWindowFunction[Any, Any, int, Any]):
    """Uses the state of the window and of the key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.fired = ValueStateDescriptor("fired", Types.LONG())

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        of_window, of_key = context.window_state().get_state(self.fired), context.global_state().get_state(self.fired)
        of_window.update((of_window.value() or 0) + 1)
        of_key.update((of_key.value() or 0) + 1)
        yield (key, context.window().start, len(list(elements)))

    def clear(self, context: Any) -> None:
        context.window_state().get_state(self.fired).clear()


def listed(env: StreamExecutionEnvironment) -> None:
    keyed = timed(env).key_by(lambda x: x % 5, Types.LONG())
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE_MS)))
    windows.process(Starts(), TRIPLE).sink_to(CommittedRows())


@pytest.mark.parametrize("build", [counted, listed])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_windows_count_every_row_once(build: Build, parallelism: int) -> None:
    job = SmallJob(graph_of(build, parallelism), Configuration(FREQUENT))
    assert sorted(finish(job, 1)) == expected_counts()
    job.close()


@pytest.mark.parametrize("build", [counted, listed])
@pytest.mark.parametrize("mode", TIMEOUTS)
@pytest.mark.parametrize("seed", range(4))
def test_windows_come_back_from_any_checkpoint(build: Build, mode: str, seed: int) -> None:
    random = Random(seed)
    graph = graph_of(build, 2)
    first = SmallJob(graph, Configuration(FREQUENT), order=random)
    done = run_with_checkpoint(first, random.randrange(5, 120), TIMEOUTS[mode])
    first.close()
    after = SmallJob(
        graph, Configuration(FREQUENT), first.store, restored=done.metadata, generation=Generation(1, 1), order=random
    )
    assert sorted(done.committed + finish(after, 2)) == expected_counts()
    after.close()


LATE = OutputTag("late", Types.LONG())


class Eager(WatermarkGenerator):
    """Believes that nothing comes late."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(Watermark(event_timestamp))

    def on_periodic_emit(self, output: WatermarkOutput) -> None: ...


def late(env: StreamExecutionEnvironment) -> None:
    env.disable_operator_chaining()
    strategy = WatermarkStrategy.for_generator(Eager).with_timestamp_assigner(lambda x, _: time_of(x))
    numbers = env.from_source(NumberSequenceSource(0, 9 * ROWS - 1), strategy, "numbers").set_parallelism(1)
    keyed = numbers.key_by(lambda x: x % 5, Types.LONG())
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10))).side_output_late_data(LATE)
    made = windows.process(Starts(), TRIPLE)
    made.map(lambda t: ("window", t[2]), Types.TUPLE([Types.STRING(), Types.LONG()])).sink_to(CommittedRows())
    told = made.get_side_output(LATE).map(lambda x: ("late", x), Types.TUPLE([Types.STRING(), Types.LONG()]))
    told.sink_to(CommittedRows())


def test_late_rows_go_to_the_side_output_and_no_row_is_lost() -> None:
    job = SmallJob(graph_of(late, 2), Configuration(FREQUENT))
    rows = finish(job, 1)
    job.close()
    late_rows = [x for kind, x in rows if kind == "late"]
    assert late_rows, "the watermark is ahead of some rows by construction"
    assert len(late_rows) + sum(x for kind, x in rows if kind == "window") == 9 * ROWS


# ---- timers ---------------------------------------------------------------------------------------------------------


class Timeouts(KeyedProcessFunction):
    """Sets a timer per row, deletes every third again, and tells when it fires."""

    def process_element(self, value: int, ctx: Any) -> Any:
        at = ctx.timestamp() + 30
        ctx.timer_service().register_event_time_timer(at)
        if value % 3 == 0:
            ctx.timer_service().delete_event_time_timer(at)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        assert ctx.timer_service().current_watermark() >= timestamp and ctx.timestamp() == timestamp
        yield (ctx.get_current_key(), timestamp, 0)
        yield (ctx.get_current_key(), timestamp, 1)


def timeouts(env: StreamExecutionEnvironment) -> None:
    keyed = timed(env).key_by(lambda x: x % 5, Types.LONG())
    keyed.process(Timeouts(), TRIPLE).map(lambda t: t, TRIPLE).sink_to(CommittedRows())


def expected_timeouts() -> list[tuple[int, int, int]]:
    return sorted(
        (number % 5, time_of(number) + 30, i) for number in range(ROWS) if number % 3 for i in (0, 1)
    )  # two rows of a key never have one time, so no deletion takes another's timer


@pytest.mark.parametrize("mode", TIMEOUTS)
@pytest.mark.parametrize("seed", range(6))
def test_timers_fire_once_each_whatever_checkpoint_comes_between(mode: str, seed: int) -> None:
    times: defaultdict[int, set[int]] = defaultdict(set)
    for number in range(ROWS):
        assert time_of(number) not in times[number % 5]
        times[number % 5].add(time_of(number))
    random = Random(seed)
    graph = graph_of(timeouts, 2)
    first = SmallJob(graph, Configuration(FREQUENT), order=random)
    done = run_with_checkpoint(first, random.randrange(5, 160), TIMEOUTS[mode])
    first.close()
    after = SmallJob(
        graph, Configuration(FREQUENT), first.store, restored=done.metadata, generation=Generation(1, 1), order=random
    )
    assert sorted(done.committed + finish(after, 2)) == expected_timeouts()
    after.close()


class ProcessingTimeouts(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 5)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        assert ctx.timer_service().current_processing_time() >= timestamp and ctx.timestamp() == timestamp
        yield (ctx.get_current_key(), ctx.time_domain().name)


def test_timers_of_processing_time_fire_when_they_are_due() -> None:
    """The rows are stretched over far more than 5 ms of the test's clock, which goes on a little with every step."""

    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.from_source(NumberSequenceSource(0, 49), WatermarkStrategy.no_watermarks(), "numbers")
        slow = numbers.flat_map(lambda x: iter([x] * 5_000), Types.LONG()).disable_chaining()
        keyed = slow.key_by(lambda x: x, Types.LONG())
        keyed.process(ProcessingTimeouts(), Types.PICKLED_BYTE_ARRAY()).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 1), Configuration(SMALL))
    rows = finish(job, 1)
    job.close()
    assert {kind for _, kind in rows} == {"PROCESSING_TIME"} and len({key for key, _ in rows}) > 5


# ---- generators -----------------------------------------------------------------------------------------------------


class EveryTenth(WatermarkGenerator):
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if event % 10 == 0:
            output.emit_watermark(Watermark(event_timestamp - 21))

    def on_periodic_emit(self, output: WatermarkOutput) -> None: ...


def test_a_generator_of_the_user_is_asked_for_each_row() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        strategy = WatermarkStrategy.for_generator(EveryTenth).with_timestamp_assigner(lambda x, _: time_of(x))
        numbers = env.from_source(NumberSequenceSource(0, ROWS - 1), WatermarkStrategy.no_watermarks(), "numbers")
        stamped = numbers.assign_timestamps_and_watermarks(strategy).key_by(lambda x: x % 5, Types.LONG())
        windows = stamped.window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE_MS)))
        windows.process(Starts(), TRIPLE).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 2), Configuration(SMALL))
    assert sorted(finish(job, 1)) == expected_counts()
    job.close()


@pytest.mark.parametrize("bad", [None, 1.5, "1"])
def test_a_timestamp_that_is_no_int_names_the_row(bad: Any) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
            lambda x, _: x if x != 7 else bad
        )
        numbers = env.from_source(NumberSequenceSource(0, 20), WatermarkStrategy.no_watermarks(), "numbers")
        numbers.assign_timestamps_and_watermarks(strategy).name("clock").sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 1), Configuration(SMALL))
    with pytest.raises(OperatorFailure, match="the number 7: a row's timestamp must be an int"):
        job.rest()
    job.close()


# ---- two inputs -----------------------------------------------------------------------------------------------------

SIDE = OutputTag("from the second", Types.LONG())


class Both(CoProcessFunction):
    def process_element1(self, value: int, ctx: Any) -> Any:
        yield value

    def process_element2(self, value: int, ctx: Any) -> Any:
        yield SIDE, -value


class Totals(KeyedCoProcessFunction):
    """Adds rows of the first input, subtracts those of the second; tells the total at the end of time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element1(self, value: int, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + value)
        ctx.timer_service().register_event_time_timer(10_000_000)

    def process_element2(self, value: int, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) - 2 * value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield (ctx.get_current_key(), self.total.value())


def two_inputs(env: StreamExecutionEnvironment) -> None:
    first, second = timed(env), timed(env)
    both = first.connect(second).process(Both(), Types.LONG())
    keyed = both.connect(both.get_side_output(SIDE)).key_by(lambda x: x % 5, lambda x: -x % 5, Types.LONG())
    keyed.process(Totals(), PAIR).sink_to(CommittedRows())


@pytest.mark.parametrize("mode", TIMEOUTS)
@pytest.mark.parametrize("seed", range(4))
def test_two_inputs_share_their_state_and_come_back(mode: str, seed: int) -> None:
    random = Random(seed)
    graph = graph_of(two_inputs, 2)
    first = SmallJob(graph, Configuration(FREQUENT), order=random)
    done = run_with_checkpoint(first, random.randrange(5, 200), TIMEOUTS[mode])
    first.close()
    after = SmallJob(
        graph, Configuration(FREQUENT), first.store, restored=done.metadata, generation=Generation(1, 1), order=random
    )
    sums = [sum(x for x in range(ROWS) if x % 5 == key) for key in range(5)]
    assert sorted(done.committed + finish(after, 2)) == [(key, sums[key] * 3) for key in range(5)]
    after.close()


# ---- another parallelism --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [counted, listed, two_inputs])
@pytest.mark.parametrize("to", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_no_row_is_late_after_a_change_of_parallelism(build: Build, to: int, seed: int) -> None:
    """Generators of splits move with them, and key groups keep what their owners had reached."""
    random = Random(seed)
    first = SmallJob(graph_of(build, 2), Configuration(FREQUENT), order=random)
    done = run_with_checkpoint(first, random.randrange(5, 120), 0)
    first.close()
    after = SmallJob(
        graph_of(build, to),
        Configuration(FREQUENT),
        first.store,
        restored=done.metadata,
        generation=Generation(1, 1),
        order=random,
    )
    rows = sorted(done.committed + finish(after, 2))
    after.close()
    if build is two_inputs:
        sums = [sum(x for x in range(ROWS) if x % 5 == key) for key in range(5)]
        assert rows == [(key, sums[key] * 3) for key in range(5)]
    else:
        assert rows == expected_counts()


def test_the_end_of_data_brings_the_last_counts_of_late_rows() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        strategy = WatermarkStrategy.for_generator(Eager).with_timestamp_assigner(lambda x, _: time_of(x))
        numbers = env.from_source(NumberSequenceSource(0, 9 * ROWS - 1), strategy, "numbers").set_parallelism(1)
        windows = numbers.key_by(lambda x: x % 5, Types.LONG()).window(
            TumblingEventTimeWindows.of(Time.milliseconds(10))
        )
        windows.process(Starts(), TRIPLE).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 2), Configuration(FREQUENT))
    kept = sum(count for _, _, count in finish(job, 1))
    job.close()
    ends = [m.status for m in job.messages if isinstance(m, ReachedEndOfData)]
    assert None not in ends
    assert 0 < sum(status.late_rows for status in ends if status is not None) == 9 * ROWS - kept


def test_without_periodic_watermarks_nobody_waits_for_an_endless_time() -> None:
    """[A thread cannot wait for infinitely many milliseconds: the subtask fails.]"""
    job = SmallJob(graph_of(counted, 1), Configuration({**SMALL, "pipeline.auto-watermark-interval": "0 ms"}))
    for subtask in job.subtasks.values():
        wait_ms = subtask.step(job.clock.now_ms).wait_ms
        assert wait_ms is None or math.isfinite(wait_ms)
    assert sorted(finish(job, 1)) == expected_counts()
    job.close()
