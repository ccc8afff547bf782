"""Tests whole jobs that call a slow service: rows, watermarks and answers, cut by checkpoints anywhere."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any, Callable

import pytest

from penstock.common.configuration import Configuration
from penstock.common.program.failures import OperatorFailure
from penstock.common.time import Duration, Time
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    BlockingFunction,
    KeyedProcessFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.async_retry_predicates import empty_result_predicate, has_exception_predicate
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.graph.states import unclaimed_problems
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.metadata import Metadata
from penstock.runtime.subtask.call_work import CallWork
from penstock.storage.memory import MemoryStore
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_silent_inputs import Silent
from tests.unit.runtime.jobs.test_small_jobs import SMALL, TIMEOUTS, finish, run_with_checkpoint

ROWS = 300
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TRIPLE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
Build = Callable[[StreamExecutionEnvironment], Any]

asked: Counter[int] = Counter()
"""How often each row was asked for, in all generations of a test."""
answered: set[int] = set()
most_at_once: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_was_asked() -> None:
    asked.clear()
    answered.clear()
    most_at_once[:] = [0, 0]


def latency_ms(value: int) -> int:
    """Return times that bring answers out of order."""
    return 3 + value * 7919 % 29


class Square(AsyncFunction[int, tuple[int, int]]):
    async def async_invoke(self, value: int) -> list[tuple[int, int]]:
        asked[value] += 1
        most_at_once[0] += 1
        most_at_once[1] = max(most_at_once)
        await asyncio.sleep(latency_ms(value) / 1000)
        most_at_once[0] -= 1
        answered.add(value)
        return [(value, value * value)] * (value % 3)


class BlockingSquare(BlockingFunction[int, tuple[int, int]]):
    def invoke(self, value: int) -> list[tuple[int, int]]:
        asked[value] += 1
        answered.add(value)
        return [(value, value * value)] * (value % 3)


EXPECTED = [(value, value * value) for value in range(ROWS) for _ in range(value % 3)]


def numbers(env: StreamExecutionEnvironment) -> Any:
    return env.from_source(NumberSequenceSource(0, ROWS - 1), WatermarkStrategy.no_watermarks(), "numbers")


def squared(ordered: bool, function: Any, capacity: int = 60, edge: str = "") -> Build:
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait

    def build(env: StreamExecutionEnvironment) -> None:
        stream = numbers(env)
        if edge == "keyed":
            stream = stream.key_by(lambda x: x % 7, Types.LONG())
        elif edge == "custom":
            stream = stream.partition_custom(lambda key, count: key % count, lambda x: x % 5)
        elif edge:
            stream = getattr(stream, edge)()
        wait(stream, function(), Time.seconds(10), capacity, PAIR).uid("squares").sink_to(CommittedRows())

    return build


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("function", [Square, BlockingSquare])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_every_row_is_answered_once(ordered: bool, function: Any, parallelism: int) -> None:
    job = SmallJob(graph_of(squared(ordered, function), parallelism), Configuration(SMALL))
    rows = finish(job, 1)
    if ordered and parallelism == 1:
        assert rows == EXPECTED
    else:
        assert sorted(rows) == EXPECTED
    assert set(asked.values()) == {1} and len(asked) == ROWS
    job.close()


def test_no_more_calls_are_under_way_than_the_capacity() -> None:
    job = SmallJob(graph_of(squared(False, Square, 7), 1), Configuration(SMALL))
    job.rest(2_000)
    finish(job, 1)
    assert most_at_once[1] == 7
    job.close()


def of_calls(job: SmallJob) -> list[CallWork]:
    return [s.work for s in job.subtasks.values() if isinstance(s.work, CallWork)]


@pytest.mark.parametrize("function", [Square, BlockingSquare])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("mode", TIMEOUTS)
@pytest.mark.parametrize("seed", range(3))
def test_what_was_answered_before_a_checkpoint_is_not_asked_again(
    function: Any, ordered: bool, mode: str, seed: int
) -> None:
    random = Random(seed)
    graph = graph_of(squared(ordered, function, 20), 2)
    first = SmallJob(graph, Configuration(SMALL), order=random)
    first.run(random.randrange(20, 60))
    for _ in range(random.randrange(1, 8)):
        first.clock.now_ms += 4.0
        first.run(random.randrange(1, 30))
    before = set(answered)
    completed = run_with_checkpoint(first, 0, TIMEOUTS[mode])
    held = [call for work in of_calls(first) for call in work.operator.queue.calls()]
    assert held
    first.close()
    asked.clear()
    second = SmallJob(graph, Configuration(SMALL), first.store, restored=completed.metadata, order=random,
                      generation=Generation(1, 1))  # fmt: skip
    rows = completed.committed + finish(second, 2)
    assert sorted(rows) == EXPECTED
    assert not before & set(asked), "an answer is part of the checkpoint after which it came"
    second.close()


def in_order(env: StreamExecutionEnvironment) -> None:
    """Calls behind a forward edge, and the order of each key's rows behind them."""
    made = AsyncDataStream.ordered_wait(
        numbers(env).map(lambda x: x, Types.LONG()).disable_chaining(), Square(), Time.seconds(10), 60, PAIR
    )
    made.uid("squares").key_by(lambda pair: pair[0] % 7, Types.LONG()).process(InOrder(), TRIPLE).sink_to(
        CommittedRows()
    )


class InOrder(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield (ctx.get_current_key(), count, value[0])


@pytest.mark.parametrize("edge", ["", "keyed", "rebalance", "rescale", "shuffle", "global_", "custom"])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_calls_in_flight_are_dealt_out_at_other_parallelisms(edge: str, ordered: bool, seed: int) -> None:
    random = Random(seed)
    build = squared(ordered, Square, edge=edge)
    rows, store, restored = [], MemoryStore(), None
    for attempt, parallelism in enumerate([2, random.choice([1, 3]), random.choice([1, 2, 4])]):
        job = SmallJob(graph_of(build, parallelism), Configuration(SMALL), store, restored=restored, order=random,
                       generation=Generation(1, attempt))  # fmt: skip
        before = set(answered)
        job.run(random.randrange(20, 60))
        job.clock.now_ms += 9.0
        completed = run_with_checkpoint(job, random.randrange(30), random.choice([None, 0]))
        rows += completed.committed
        restored = completed.metadata
        job.close()
    last = SmallJob(graph_of(build, 2), Configuration(SMALL), store, restored=restored, generation=Generation(1, 9))
    rows += finish(last, 9)
    assert sorted(rows) == EXPECTED
    assert before <= answered
    last.close()


@pytest.mark.parametrize("seed", range(8))
def test_rows_of_a_key_keep_their_order_behind_ordered_calls_over_rescales(seed: int) -> None:
    random = Random(seed)
    rows: list[Any] = []
    store, restored = MemoryStore(), None
    for attempt in range(3):
        graph = graph_of(in_order, random.choice([1, 2, 3]))
        job = SmallJob(graph, Configuration(SMALL), store, restored=restored, order=random,
                       generation=Generation(1, attempt))  # fmt: skip
        job.run(random.randrange(20, 80))
        job.clock.now_ms += 9.0
        completed = run_with_checkpoint(job, random.randrange(30), random.choice([None, 0]))
        rows += completed.committed
        restored = completed.metadata
        job.close()
    last = SmallJob(graph_of(in_order, 2), Configuration(SMALL), store, restored=restored, generation=Generation(1, 9))
    rows += finish(last, 9)
    assert sorted(value for _, _, value in rows) == sorted(value for value, _ in EXPECTED)
    last.close()


# ---- time -----------------------------------------------------------------------------------------------------------


class LateRows(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        if ctx.timestamp() <= ctx.timer_service().current_watermark():
            yield (value[0], ctx.timestamp())


def timed(env: StreamExecutionEnvironment) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
    stream = env.from_source(NumberSequenceSource(0, ROWS - 1), strategy, "numbers")
    made = AsyncDataStream.unordered_wait(stream, Square(), Time.seconds(10), 60, PAIR).uid("squares")
    made.rebalance().process(LateRows(), PAIR).sink_to(CommittedRows())


@pytest.mark.parametrize("seed", range(6))
def test_no_row_is_late_behind_calls(seed: int) -> None:
    random = Random(seed)
    options = {**SMALL, "pipeline.auto-watermark-interval": "1 ms"}
    store, restored = MemoryStore(), None
    for attempt in range(3):
        job = SmallJob(graph_of(timed, random.choice([1, 2, 3])), Configuration(options), store, restored=restored,
                       order=random, generation=Generation(1, attempt))  # fmt: skip
        job.run(random.randrange(20, 60))
        job.clock.now_ms += 9.0
        completed = run_with_checkpoint(job, random.randrange(30), random.choice([None, 0]))
        assert completed.committed == []
        restored = completed.metadata
        job.close()
    last = SmallJob(graph_of(timed, 2), Configuration(options), store, restored=restored, generation=Generation(1, 9))
    assert finish(last, 9) == []
    last.close()


# ---- barriers and time pass a slow service --------------------------------------------------------------------------


class Forever(AsyncFunction[int, tuple[int, int]]):
    async def async_invoke(self, value: int) -> list[tuple[int, int]]:
        asked[value] += 1
        if value in answered:
            return [(value, value)]
        await asyncio.get_running_loop().create_future()
        return []

    def timeout(self, value: int) -> list[tuple[int, int]]:
        return [(value, -1)]


def forever(env: StreamExecutionEnvironment) -> None:
    AsyncDataStream.ordered_wait(numbers(env), Forever(), Time.hours(1), 5, PAIR).uid("calls").sink_to(CommittedRows())


@pytest.mark.parametrize("timeout_ms", [1, 0])
def test_a_barrier_passes_a_queue_that_is_full(timeout_ms: int) -> None:
    job = SmallJob(graph_of(forever, 2), Configuration(SMALL))
    job.run()
    assert all(work.is_full for work in of_calls(job))
    before_ms = job.clock.now_ms
    completed = run_with_checkpoint(job, 0, timeout_ms)
    assert job.clock.now_ms - before_ms < 5.0 and completed.committed == []
    job.close()


def test_a_job_that_is_full_continues_once_its_calls_are_over_time() -> None:
    job = SmallJob(graph_of(forever, 1), Configuration(SMALL))
    job.run()
    assert sorted(asked) == [0, 1, 2, 3, 4]
    job.clock.now_ms += 3_600_000.0
    job.run()
    assert sorted(asked) == list(range(10))
    job.close()


class OnProcessingTime(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 50)
        return [value]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        answered.add(-1)
        return []


def test_a_timer_fires_while_a_queue_is_full() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        silent = env.from_source(Silent(), WatermarkStrategy.no_watermarks(), "silent")
        stream = env.from_collection(list(range(6)), Types.LONG()).union(silent)
        rows = stream.key_by(lambda x: 0, Types.LONG()).process(OnProcessingTime(), Types.LONG())
        AsyncDataStream.ordered_wait(rows, Forever(), Time.hours(1), 5, PAIR).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 1), Configuration({**SMALL, "execution.buffer-timeout.interval": "0 ms"}))
    job.run()
    assert of_calls(job)[0].is_full and not answered
    job.rest(100)
    assert answered == {-1}
    job.close()


# ---- further attempts and the end of time ---------------------------------------------------------------------------


class Flaky(AsyncFunction[int, tuple[int, int]]):
    """Fails twice, and has nothing to say once."""

    async def async_invoke(self, value: int) -> list[tuple[int, int]]:
        asked[value] += 1
        await asyncio.sleep(0.001)
        if asked[value] <= 2:
            raise OSError(f"no connection for {value}")
        return [] if asked[value] == 3 else [(value, asked[value])]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("attempts", [3, 2])
def test_calls_are_repeated_as_the_strategy_says(ordered: bool, attempts: int) -> None:
    strategy = AsyncRetryStrategy.exponential_backoff(
        attempts, 10, 25, 2.0, empty_result_predicate, has_exception_predicate
    )
    wait = AsyncDataStream.ordered_wait_with_retry if ordered else AsyncDataStream.unordered_wait_with_retry

    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection([1, 2, 3], Types.LONG())
        wait(stream, Flaky(), Time.seconds(10), strategy, 10, PAIR).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 1), Configuration(SMALL))
    rows = finish(job, 1)
    assert rows == ([(1, 4), (2, 4), (3, 4)] if attempts == 3 else [])
    assert dict(asked) == dict.fromkeys([1, 2, 3], attempts + 1)
    job.close()


def test_the_last_failure_is_reported_with_its_row() -> None:
    strategy = AsyncRetryStrategy.fixed_delay(1, 10, None, has_exception_predicate)

    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection([7], Types.LONG())
        AsyncDataStream.unordered_wait_with_retry(stream, Flaky(), Time.seconds(10), strategy).name("flaky").print()

    job = SmallJob(graph_of(build, 1), Configuration(SMALL))
    with pytest.raises(OperatorFailure) as failure:
        job.rest()
    assert str(failure.value) == "operator 'flaky': OSError: no connection for 7; it was called with the row 7"
    assert "raise OSError" in failure.value.user_traceback() and asked[7] == 2
    job.close()


class Nothing(AsyncFunction[list[int], list[int]]):
    async def async_invoke(self, value: list[int]) -> list[list[int]]:
        asked[value[0]] += 1
        value.append(99)
        return []

    def timeout(self, value: list[int]) -> list[list[int]]:
        return [value]


def test_the_time_of_a_row_is_that_of_all_its_calls() -> None:
    """The answers of `timeout` come in the place of those that never come; the row is as it came."""
    strategy = AsyncRetryStrategy.fixed_delay(1_000_000, 400, empty_result_predicate, None)

    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection([[1], [2]])
        AsyncDataStream.ordered_wait_with_retry(stream, Nothing(), Duration.of_seconds(1), strategy).sink_to(
            CommittedRows()
        )

    job = SmallJob(graph_of(build, 1), Configuration(SMALL))
    job.rest(1_500)
    assert finish(job, 1) == [[1], [2]] and asked == {1: 3, 2: 3}
    job.close()


def test_an_answer_after_its_time_changes_nothing() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        wait = AsyncDataStream.unordered_wait(numbers(env), Late(), Time.milliseconds(20), 10, PAIR)
        wait.sink_to(CommittedRows())

    class Late(Square):
        def timeout(self, value: int) -> list[tuple[int, int]]:
            return [(value, -1)]

    job = SmallJob(graph_of(build, 1), Configuration(SMALL))
    while not job.all_at_end:
        job.run()
        job.clock.now_ms += 3.0
    rows = finish(job, 1)
    late = [value for value, square in rows if square == -1]
    assert 0 < len(late) == len(set(late)) < ROWS
    assert sorted(row for row in rows if row[1] != -1) == [row for row in EXPECTED if row[0] not in late]
    job.close()


# ---- wrong answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "Bad.async_invoke returns a list of rows, [] for none; it returned None; it was called with the row 5"),
        (7, "it returned 7"),
        ("seven", "it returned 'seven'"),
        ({"a": 1}, "it returned {'a': 1}"),
    ],
)
def test_an_answer_that_is_no_list_is_refused(answer: Any, told: str) -> None:
    class Bad(AsyncFunction[int, int]):
        async def async_invoke(self, value: int) -> list[int]:
            return answer  # type: ignore[no-any-return]

    def build(env: StreamExecutionEnvironment) -> None:
        AsyncDataStream.unordered_wait(env.from_collection([5], Types.LONG()), Bad(), Time.seconds(1)).print()

    job = SmallJob(graph_of(build, 1), Configuration(SMALL))
    with pytest.raises(OperatorFailure) as failure:
        job.rest()
    assert told in str(failure.value) and failure.value.user_traceback() == ""
    job.close()


def test_without_a_timeout_of_its_own_a_function_fails_when_the_time_is_over() -> None:
    class Slow(AsyncFunction[int, int]):
        async def async_invoke(self, value: int) -> list[int]:
            await asyncio.sleep(3600)
            return []

    def build(env: StreamExecutionEnvironment) -> None:
        AsyncDataStream.unordered_wait(env.from_collection([5], Types.LONG()), Slow(), Time.seconds(1)).print()

    job = SmallJob(graph_of(build, 1), Configuration(SMALL))
    with pytest.raises(OperatorFailure, match="TimeoutError: Async function call has timed out for input: 5"):
        job.rest(2_000)
    job.close()


def test_calls_have_no_keyed_state() -> None:
    class Keyed(Square):
        def open(self, runtime_context: Any) -> None:
            runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def build(env: StreamExecutionEnvironment) -> None:
        keyed = numbers(env).key_by(lambda x: x % 3, Types.LONG())
        AsyncDataStream.unordered_wait(keyed, Keyed(), Time.seconds(1), output_type=PAIR).sink_to(CommittedRows())

    with pytest.raises(OperatorFailure, match="calls have no keyed state"):
        SmallJob(graph_of(build, 1), Configuration(SMALL))


def test_a_changed_input_type_is_refused_while_calls_are_in_flight() -> None:
    def build(type_info: Any) -> Build:
        def of_type(env: StreamExecutionEnvironment) -> None:
            stream = env.from_collection(list(range(5)), Types.LONG()).map(lambda x: x, type_info).uid("rows")
            AsyncDataStream.unordered_wait(stream, Forever(), Time.hours(1), 5, PAIR).uid("calls").sink_to(
                CommittedRows()
            )

        return of_type

    first = SmallJob(graph_of(build(Types.LONG()), 1), Configuration(SMALL))
    first.run()
    metadata: Metadata = run_with_checkpoint(first, 0, 0).metadata
    first.close()
    with pytest.raises(OperatorFailure, match="rows that wait for an answer in the checkpoint have the columns"):
        SmallJob(graph_of(build(Types.STRING()), 1), Configuration(SMALL), first.store, restored=metadata)


def test_a_program_without_the_operator_is_refused_while_rows_wait() -> None:
    job = SmallJob(graph_of(forever, 1), Configuration(SMALL))
    job.run()
    metadata = run_with_checkpoint(job, 0, 0).metadata
    job.close()
    assert unclaimed_problems(metadata, graph_of(forever, 1)) == []
    (problem,) = unclaimed_problems(metadata, graph_of(lambda env: numbers(env).sink_to(CommittedRows()), 1))
    assert "'calls'" in problem and "holds rows that wait for its answers: put it back, under its uid" in problem
