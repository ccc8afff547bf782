"""Tests jobs in BATCH mode. The expected rows are those of PyFlink 2.3, except where its own order is accidental."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from penstock.common import Configuration, Duration, RuntimeExecutionMode, Types, WatermarkStrategy
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    MapStateDescriptor,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TimeDomain,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
)
from penstock.datastream._streams.runtime_modes import options_of, runtime_mode
from penstock.datastream.columnar import count, max_, sum_
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.functions import ProcessAllWindowFunction
from penstock.datastream.window import ProcessingTimeSessionWindows, TumblingProcessingTimeWindows
from penstock.runtime.input import held_rows
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_small_jobs import SMALL, finish

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
ROWS = [("b", 3), ("a", 2), ("b", 1), ("c", 5), ("a", 9), ("b", 2)]
BY_TIME = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row[1])
MIN, MAX = -(2**63), 2**63 - 1
BATCH = {"execution.runtime-mode": "BATCH"}
Build = Callable[[StreamExecutionEnvironment], Any]


def results(
    build: Build, parallelism: int = 1, order: Random | None = None, options: dict[str, str] | None = None
) -> list[Any]:
    """Return the rows of the stream that `build` returns, run in BATCH mode."""

    def program(env: StreamExecutionEnvironment) -> None:
        build(env).sink_to(CommittedRows()).set_parallelism(1)

    job = SmallJob(graph_of(program, parallelism), Configuration({**SMALL, **BATCH, **(options or {})}), order=order)
    try:
        return finish(job, 1)
    finally:
        job.close()


def rows(env: StreamExecutionEnvironment, timed: bool = False, given: Any = ROWS) -> Any:
    stream = env.from_collection(given, PAIR)
    return stream.assign_timestamps_and_watermarks(BY_TIME) if timed else stream


def keyed(env: StreamExecutionEnvironment, timed: bool = False, given: Any = ROWS) -> Any:
    return rows(env, timed, given).key_by(lambda row: row[0], Types.STRING())


def digits(a: Any, b: Any) -> Any:
    return a[0], a[1] * 10 + b[1]


# ---- one result per key --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_reduce_emits_one_result_per_key(backend: str) -> None:
    options = {"state.backend.type": backend}
    assert results(lambda env: keyed(env).reduce(digits), options=options) == [("a", 29), ("b", 312), ("c", 5)]
    timed = results(lambda env: keyed(env, timed=True).reduce(digits), options=options)
    assert timed == [("a", 29), ("b", 123), ("c", 5)], "in the order of their time"


def test_rolling_fields_emit_one_result_per_key() -> None:
    assert results(lambda env: keyed(env).sum(1)) == [("a", 11), ("b", 6), ("c", 5)]
    assert results(lambda env: keyed(env).max_by(1)) == [("a", 9), ("b", 3), ("c", 5)]


def test_a_result_has_the_time_of_its_last_row() -> None:
    class Stamped(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value[0], ctx.timestamp()

    assert results(lambda env: keyed(env, timed=True).sum(1).process(Stamped())) == [("a", 9), ("b", 3), ("c", 5)]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_aggregates_of_columns_come_once_per_key(backend: str) -> None:
    def build(env: StreamExecutionEnvironment) -> Any:
        row_type = Types.ROW_NAMED(["user", "amount"], [Types.STRING(), Types.LONG()])
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("amount")
        given = env.from_collection(ROWS, row_type)
        assert given.key_by("user").sum("amount").get_type().text == "ROW(user STRING, sum_amount LONG)"
        timed = given.assign_timestamps_and_watermarks(strategy)
        made = timed.key_by("user").aggregate(total=sum_("amount"), rows=count(), most=max_("amount"))
        return made.process(Stamped())

    class Stamped(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield (*value.to_tuple(), ctx.timestamp())

    found = results(build, options={"state.backend.type": backend})
    assert sorted(found) == [("a", 11, 2, 9, 9), ("b", 6, 3, 3, 3), ("c", 5, 1, 5, 5)]


# ---- key by key ------------------------------------------------------------------------------------------------------


class Seen(KeyedProcessFunction):
    """Puts out what it sees of state, time and timers."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        timers = ctx.timer_service()
        timers.register_event_time_timer(value[1] + 1)
        if value[1] == 2:
            timers.register_processing_time_timer(10**15)
        yield value, self.count.value(), ctx.timestamp(), timers.current_watermark(), ctx.get_current_key()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield (
            timestamp,
            ctx.time_domain(),
            ctx.get_current_key(),
            ctx.timer_service().current_watermark(),
            (self.count.value()),
        )
        ctx.timer_service().register_processing_time_timer(timestamp + 1)


EVENT, PROCESSING = TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME
SEEN = [
    (("a", 2), 1, 2, MIN, "a"),
    (("a", 9), 2, 9, MIN, "a"),
    (3, EVENT, "a", MAX, 2),
    (10, EVENT, "a", MAX, 2),
    (10**15, PROCESSING, "a", MAX, 2),
    (("b", 1), 1, 1, MIN, "b"),
    (("b", 2), 2, 2, MIN, "b"),
    (("b", 3), 3, 3, MIN, "b"),
    (2, EVENT, "b", MAX, 3),
    (3, EVENT, "b", MAX, 3),
    (4, EVENT, "b", MAX, 3),
    (10**15, PROCESSING, "b", MAX, 3),
    (("c", 5), 1, 5, MIN, "c"),
    (6, EVENT, "c", MAX, 1),
]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("memory", [held_rows.MEMORY_BYTES_MAX, 1], ids=["memory", "disk"])
def test_rows_of_a_key_come_by_time_and_its_timers_at_its_end(
    monkeypatch: pytest.MonkeyPatch, memory: int, backend: str
) -> None:
    monkeypatch.setattr(held_rows.HeldRows.__init__, "__defaults__", (memory,))
    options = {"state.backend.type": backend}
    assert results(lambda env: keyed(env, timed=True).process(Seen()), options=options) == SEEN


class Chases(KeyedProcessFunction):
    """Registers a timer of event time when that of processing time fires."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(10**15)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), ctx.time_domain()
        if ctx.time_domain() is PROCESSING:
            ctx.timer_service().register_event_time_timer(7)


@pytest.mark.parametrize("timed", [False, True])
def test_a_timer_of_processing_time_may_register_one_of_event_time(timed: bool) -> None:
    found = results(lambda env: keyed(env, timed).process(Chases()))
    assert found == [(key, domain) for key in "abc" for domain in (PROCESSING, EVENT)]


def test_rows_without_time_keep_their_order() -> None:
    class Count(MapFunction):
        def open(self, runtime_context: Any) -> None:
            self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

        def map(self, value: Any) -> Any:
            self.count.update((self.count.value() or 0) + 1)
            return value, self.count.value()

    expected = [(("a", 2), 1), (("a", 9), 2), (("b", 3), 1), (("b", 1), 2), (("b", 2), 3), (("c", 5), 1)]
    assert results(lambda env: keyed(env).map(Count())) == expected


def test_no_row_is_late_and_windows_fire_at_the_end_of_their_key() -> None:
    class Window(ProcessWindowFunction[Any, Any, str, Any]):
        def process(self, key: str, context: Any, elements: Any) -> Any:
            yield key, context.window().start, list(elements), context.current_watermark()

    assigner = TumblingEventTimeWindows.of(Duration.of_millis(4))
    assert results(lambda env: keyed(env, timed=True).window(assigner).process(Window())) == [
        ("a", 0, [("a", 2)], MAX),
        ("a", 8, [("a", 9)], MAX),
        ("b", 0, [("b", 1), ("b", 2), ("b", 3)], MAX),
        ("c", 4, [("c", 5)], MAX),
    ]


def test_windows_of_counts_and_over_all_rows() -> None:
    assert results(lambda env: keyed(env).count_window(2).reduce(lambda a, b: (a[0], a[1] + b[1]))) == [
        ("a", 11),
        ("b", 4),
    ], "a window that is not full has no result"

    class All(ProcessAllWindowFunction[Any, Any, Any]):
        def process(self, context: Any, elements: Any) -> Any:
            yield list(elements)

    assigner = TumblingEventTimeWindows.of(Duration.of_millis(4))
    found = results(lambda env: rows(env, timed=True).window_all(assigner).process(All()))
    assert found == [[("b", 1), ("a", 2), ("b", 2), ("b", 3)], [("c", 5)], [("a", 9)]]


def test_rows_without_time_have_the_least_timestamp() -> None:
    class Time(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield ctx.timestamp()

    assert results(lambda env: rows(env).process(Time())) == [MIN] * len(ROWS), "as in PyFlink"


def test_functions_without_keys_see_no_watermark() -> None:
    class Time(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value, ctx.timer_service().current_watermark()

    assert results(lambda env: rows(env, timed=True).process(Time())) == [(row, MIN) for row in ROWS]


# ---- two inputs ------------------------------------------------------------------------------------------------------


class Both(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield 1, value

    def process_element2(self, value: Any, ctx: Any) -> Any:
        yield 2, value


def connected(env: StreamExecutionEnvironment, timed: bool, second: list[tuple[str, int]]) -> Any:
    both = rows(env, timed).connect(rows(env, timed, second))
    return both.key_by(lambda row: row[0], lambda row: row[0], Types.STRING()).process(Both())


def test_two_inputs_are_merged_by_key_and_time() -> None:
    assert results(lambda env: connected(env, True, [("a", 100), ("d", 1), ("b", 4), ("b", 0)])) == [
        (1, ("a", 2)), (1, ("a", 9)), (2, ("a", 100)),
        (2, ("b", 0)), (1, ("b", 1)), (1, ("b", 2)), (1, ("b", 3)), (2, ("b", 4)),
        (1, ("c", 5)), (2, ("d", 1)),
    ]  # fmt: skip
    found = results(lambda env: connected(env, False, [("a", 100), ("d", 1), ("b", 7), ("b", 0)]))
    assert [value[0] for _, value in found] == sorted(value[0] for _, value in found), "key by key"
    assert [value for input, value in found if input == 1] == sorted(ROWS, key=lambda row: row[0])


LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.INT())


def test_a_broadcast_side_comes_first() -> None:
    class Limit(BroadcastProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value, dict(ctx.get_broadcast_state(LIMITS).items())

        def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
            ctx.get_broadcast_state(LIMITS).put(*value)

    class KeyedLimit(KeyedBroadcastProcessFunction):
        process_element = Limit.process_element
        process_broadcast_element = Limit.process_broadcast_element

    given = [("x", 1), ("y", 2)]
    for stream, function, order in ((rows, Limit, ROWS), (keyed, KeyedLimit, sorted(ROWS, key=lambda row: row[0]))):
        found = results(lambda env: stream(env).connect(rows(env, given=given).broadcast(LIMITS)).process(function()))
        assert found == [(row, dict(given)) for row in order]


# ---- any size, any schedule ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_many_rows_in_any_schedule(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Merges runs on the disk, with outputs that are full in the middle of a key."""
    random = Random(seed)
    memory = random.choice([100, 3_000, held_rows.MEMORY_BYTES_MAX])
    monkeypatch.setattr(held_rows.HeldRows.__init__, "__defaults__", (memory,))
    given = [(f"k{random.randrange(20)}", random.randrange(1000)) for _ in range(1500)]

    class Expand(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            ctx.timer_service().register_event_time_timer(10)
            yield from [value] * 3

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            yield ctx.get_current_key(), -1

    found = results(lambda env: keyed(env.set_parallelism(2), True, given).process(Expand(), PAIR), 2, random)
    for key in {key for key, _ in given}:
        times = sorted(time for other, time in given if other == key)
        assert [time for other, time in found if other == key] == [t for time in times for t in [time] * 3] + [-1]
    assert len(found) == 3 * len(given) + 20
    sums = results(lambda env: keyed(env.set_parallelism(2), False, given).sum(1), 2, random)
    assert dict(sums) == {key: sum(n for other, n in given if other == key) for key, _ in given}


# ---- the choice of the mode ------------------------------------------------------------------------------------------


def endless(env: StreamExecutionEnvironment) -> None:
    source = DataGeneratorSource(lambda index: index, None, type_info=Types.LONG())
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").sink_to(DiscardingSink())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_windows_of_the_clock_and_joins_end_with_their_keys(backend: str) -> None:
    options = {"state.backend.type": backend}

    def reduced(windows: Any, env: StreamExecutionEnvironment) -> Any:
        return keyed(env).window(windows).reduce(digits)

    for windows in (TumblingProcessingTimeWindows.of(Duration.of_days(400)), ProcessingTimeSessionWindows(10**9)):
        found = results(partial(reduced, windows), options=options)
        assert found == [("a", 29), ("b", 312), ("c", 5)]

    def near(env: StreamExecutionEnvironment) -> Any:
        joined = keyed(env, timed=True).interval_join(keyed(env, timed=True))
        return joined.between(Duration.of_millis(1), Duration.of_millis(1)).process(lambda m, n: (m[0], m[1], n[1]))

    assert sorted(results(near, parallelism=2, options=options)) == [("b", 1, 2), ("b", 2, 3)]

    def grouped(env: StreamExecutionEnvironment) -> Any:
        pair = (
            rows(env, timed=True).co_group(rows(env, timed=True)).where(lambda row: row[0]).equal_to(lambda row: row[0])
        )
        sized = pair.window(TumblingEventTimeWindows(5))
        return sized.apply(lambda m, n: [(m[0][0], len(m), len(n))])

    found = sorted(results(grouped, parallelism=2, options=options))
    assert found == [("a", 1, 1), ("a", 1, 1), ("b", 3, 3), ("c", 1, 1)]


def environment(mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.set_runtime_mode(mode).enable_checkpointing(100)


def test_batch_refuses_a_source_without_an_end() -> None:
    env = environment(RuntimeExecutionMode.BATCH)
    endless(env)
    with pytest.raises(ValueError, match=r"execution.runtime-mode is BATCH, and 'Source: numbers' has no end"):
        env.get_job_graph()
    with pytest.raises(ValueError, match="has no end"):
        env.execute_async()


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.BATCH, RuntimeExecutionMode.AUTOMATIC])
def test_automatic_is_batch_if_all_sources_end(mode: RuntimeExecutionMode) -> None:
    env = environment(mode)
    rows(env).sink_to(DiscardingSink())
    found = runtime_mode(env._graph, env.get_configuration())
    assert found is RuntimeExecutionMode.BATCH
    options = options_of(found, env.get_configuration())
    assert options.get("execution.checkpointing.interval") is None, "there is nothing to restore"
    assert env.get_checkpoint_interval() == 100, "the program's own options stay"
    env.get_configuration().set("execution.state-recovery.path", "/tmp/savepoint")
    with pytest.raises(ValueError, match="a job in BATCH mode starts from its beginning"):
        options_of(found, env.get_configuration())
    if mode is RuntimeExecutionMode.AUTOMATIC:
        endless(env)
        assert runtime_mode(env._graph, env.get_configuration()) is RuntimeExecutionMode.STREAMING
