"""Tests whole columnar jobs, cut by checkpoints anywhere, restored at the same and at other parallelisms."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from random import Random
from typing import Any, Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common.configuration import Configuration
from penstock.common.time import Duration, Time
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.columnar import count, max_, mean, min_, sum_
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.graph import compatibility
from penstock.operators.windows import partial_aggregates
from penstock.protocol.values.elements import Generation
from tests.unit.runtime.jobs.small_job import CommittedRows, Completed, SmallJob, graph_of
from tests.unit.runtime.jobs.test_rescaled_jobs import Cascade, checkpointed, finished
from tests.unit.runtime.jobs.test_small_jobs import SMALL, TIMEOUTS, finish, run_with_checkpoint

ROWS = 900
KEYS = 7
SIZE_MS = 50
FREQUENT = {**SMALL, "pipeline.auto-watermark-interval": "1 ms"}
EVENTS = Types.ROW_NAMED(["user", "value", "at"], [Types.STRING(), Types.LONG(), Types.LONG()])

Build = Callable[[StreamExecutionEnvironment], None]


@pytest.fixture(autouse=True)
def small_batches_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_aggregates, "GROUPED_ROWS_MIN", 4)
    monkeypatch.setattr(partial_aggregates, "HELD_ROWS_MAX", 40)


def events(first: int, rows: int) -> pa.RecordBatch:
    """Return events that are out of order by less than 20 ms; every 11th value is null."""
    numbers = np.arange(first, first + rows)
    users = pa.array([f"user {n}" for n in (numbers * 5 % KEYS).tolist()])
    values = pa.array(numbers, mask=numbers % 11 == 3)
    at = pa.array(numbers * 2 + numbers * 7919 % 19)
    return pa.RecordBatch.from_arrays([users, values, at], schema=EVENTS.schema)


def source(env: StreamExecutionEnvironment, timed: bool) -> Any:
    strategy = WatermarkStrategy.no_watermarks()
    if timed:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(20))
        strategy = strategy.with_timestamp_assigner(lambda row, _: row["at"])
    return env.from_source(BatchGeneratorSource(events, ROWS, EVENTS), strategy, "events")


def all_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = events(0, ROWS).to_pylist()
    return rows


def rolling(env: StreamExecutionEnvironment) -> None:
    stream = source(env, False).with_columns(double=pc.field("value") * 2).filter(pc.field("at") >= 0)
    made = stream.key_by("user").aggregate(total=sum_("double"), rows=count(), values=count("value"), least=min_("at"))
    made.sink_to(CommittedRows())


def check_rolling(rows: list[tuple[Any, ...]]) -> None:
    """The splits of the source meet in any order, so what each row has added is compared."""
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row[1:])
    expected: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in all_rows():
        expected[event["user"]].append(event)
    assert found.keys() == expected.keys()
    for user, given in expected.items():
        made = sorted(found[user], key=lambda row: row[1])
        assert [row[1] for row in made] == list(range(1, len(given) + 1))
        assert [row[0] is None for row in made] == [row[2] == 0 for row in made]
        totals = [0, *(row[0] or 0 for row in made)]
        added = sorted(after - before for before, after in zip(totals, totals[1:]))
        assert added == sorted(2 * (event["value"] or 0) for event in given)
        assert made[-1][2] == sum(event["value"] is not None for event in given)
        assert made[-1][3] == min(event["at"] for event in given)
        assert all(before[3] >= after[3] for before, after in zip(made, made[1:]))


def windows(env: StreamExecutionEnvironment) -> None:
    keyed = source(env, True).key_by("user").window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE_MS)))
    keyed.aggregate(total=sum_("value"), rows=count(), most=max_("at"), middle=mean("at")).sink_to(CommittedRows())


def expected_windows() -> list[tuple[Any, ...]]:
    found: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in all_rows():
        found[row["user"], row["at"] // SIZE_MS * SIZE_MS].append(row)
    made = []
    for (user, start), rows in found.items():
        values = [r["value"] for r in rows if r["value"] is not None]
        at = [r["at"] for r in rows]
        total = sum(values) if values else None
        made.append((user, start, start + SIZE_MS, total, len(rows), max(at), sum(at) / len(at)))
    return made


def check_windows(rows: list[tuple[Any, ...]]) -> None:
    assert sorted(rows, key=repr) == sorted(expected_windows(), key=repr)


def two_phases(env: StreamExecutionEnvironment, late_rows_are_put_out: bool = False) -> None:
    """Aggregate in two phases; in one where late rows are emitted."""
    keyed = source(env, True).uid("events").key_by("user")
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE_MS)))
    if late_rows_are_put_out:
        windows = windows.side_output_late_data(OutputTag("late", EVENTS))
    made = windows.aggregate(total=sum_("value"), rows=count(), values=count("value"), most=max_("at"))
    made.uid("windows").sink_to(CommittedRows()).uid("sink")


def check_two_phases(rows: list[tuple[Any, ...]]) -> None:
    found: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in all_rows():
        found[row["user"], row["at"] // SIZE_MS * SIZE_MS].append(row)
    made = []
    for (user, start), group in found.items():
        values = [r["value"] for r in group if r["value"] is not None]
        total = sum(values) if values else None
        made.append((user, start, start + SIZE_MS, total, len(group), len(values), max(r["at"] for r in group)))
    assert sorted(rows, key=repr) == sorted(made, key=repr)


def in_batches(env: StreamExecutionEnvironment) -> None:
    """Rows wait for batches of 37, which a watermark or a barrier completes before: no row is late or lost."""
    batches = source(env, True).map_batches(lambda b: b, EVENTS, batch_size=37, max_latency=Duration.of_hours(1))
    of_five = batches.map_batches(lambda b: b, EVENTS, batch_size=5, max_latency=Duration.of_hours(1))
    windows = of_five.key_by("user").window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE_MS)))
    windows.aggregate(total=sum_("value"), rows=count(), most=max_("at"), middle=mean("at")).sink_to(CommittedRows())


CHECKS: dict[Build, Callable[[list[tuple[Any, ...]]], None]] = {
    rolling: check_rolling, windows: check_windows, two_phases: check_two_phases, in_batches: check_windows,
}  # fmt: skip


def as_tuples(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [row.to_tuple() for row in rows]


def check(build: Build, rows: list[Any]) -> None:
    CHECKS[build](as_tuples(rows))


@pytest.mark.parametrize("build", CHECKS)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_columnar_job_runs_to_its_end(build: Build, parallelism: int) -> None:
    job = SmallJob(graph_of(build, parallelism), Configuration(FREQUENT))
    check(build, finish(job, 1))
    job.close()


@pytest.mark.parametrize("build", CHECKS)
@pytest.mark.parametrize("mode", TIMEOUTS)
@pytest.mark.parametrize("seed", range(5))
def test_it_comes_back_from_any_checkpoint(build: Build, mode: str, seed: int) -> None:
    random = Random(f"{mode} {seed}")
    graph = graph_of(build, 2)
    job = SmallJob(graph, Configuration(FREQUENT), order=random)
    rows: list[Any] = []
    for generation in range(1, 4):
        done: Completed = run_with_checkpoint(job, random.randrange(3, 90), TIMEOUTS[mode])
        rows += done.committed
        job.close()
        job = SmallJob(
            graph,
            Configuration(FREQUENT),
            job.store,
            restored=done.metadata,
            generation=Generation(1, generation),
            order=random,
        )
    check(build, rows + finish(job, 9))
    job.close()


@pytest.mark.parametrize("build", CHECKS)
@pytest.mark.parametrize("seed", range(6))
def test_it_comes_back_at_other_parallelisms(build: Build, seed: int) -> None:
    cascade = Cascade(build, seed)
    random = Random(seed)
    rows: list[Any] = []
    for _ in range(4):
        job = cascade.start(random.choice([1, 2, 3, 4]))
        job.run(random.randrange(3, 120))
        done = checkpointed(job, cascade.generations, random.choice([None, 0, 1]))
        rows += done.committed
        cascade.restored = done.metadata
    job = cascade.start(random.choice([1, 2, 3]))
    check(build, rows + finished(job, 99))
    job.close()


@pytest.mark.parametrize("seed", range(4))
def test_windows_go_on_in_two_phases_and_in_one(seed: int) -> None:
    """Aligned checkpoints hold no rows, and the state is the same."""
    random, rows = Random(seed), []
    graphs = [graph_of(partial(two_phases, late_rows_are_put_out=late), 2) for late in (False, True)]
    job = SmallJob(graphs[0], Configuration(FREQUENT), order=random)
    for generation in range(1, 5):
        done = run_with_checkpoint(job, random.randrange(3, 60), None)
        rows += done.committed
        job.close()
        job = SmallJob(
            graphs[generation % 2],
            Configuration(FREQUENT),
            job.store,
            restored=done.metadata,
            generation=Generation(1, generation),
            order=random,
        )
    check(two_phases, rows + finish(job, 9))
    job.close()


def test_rows_in_flight_of_one_phase_are_not_taken_for_those_of_two() -> None:
    in_two, in_one = (graph_of(partial(two_phases, late_rows_are_put_out=late), 2) for late in (False, True))
    shapes = compatibility.vertex_shapes(in_one), compatibility.edge_shapes(in_one)
    compatibility.check(*shapes, in_two, in_flight=())
    with pytest.raises(compatibility.IncompatibleGraph, match="partial aggregates"):
        compatibility.check(*shapes, in_two)


# ---- columns and rows on one stream ---------------------------------------------------------------------------------


class Numbered(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        number = (self.seen.value() or 0) + 1
        self.seen.update(number)
        yield (ctx.get_current_key(), number, value["value"])


@pytest.mark.parametrize("columns", [("user",), ("user", "at"), ("at",)])
def test_row_functions_see_the_columns_as_the_key(columns: tuple[str, ...]) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        source(env, False).key_by(*columns).process(Numbered()).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 2), Configuration(SMALL))
    seen: dict[Any, int] = defaultdict(int)
    expected = []
    for row in all_rows():
        key = row[columns[0]] if len(columns) == 1 else tuple(row[c] for c in columns)
        seen[key] += 1
        expected.append((key, seen[key], row["value"]))
    rows = finish(job, 1)
    assert sorted((r[:2] for r in rows), key=repr) == sorted((r[:2] for r in expected), key=repr)
    assert sorted(((r[0], r[2]) for r in rows), key=repr) == sorted(((r[0], r[2]) for r in expected), key=repr)
    job.close()


def test_batches_go_through_functions_between_rows_and_columns() -> None:
    def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.concat_batches([batch, batch])

    def build(env: StreamExecutionEnvironment) -> None:
        small = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
        rows = source(env, False).select("at", who="user").map(lambda r: (r["at"], r["who"]), small)
        rows.map_batches(twice).select("name", number=pc.field("id") + 1).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 2), Configuration(SMALL))
    expected = [(row["user"], row["at"] + 1) for row in all_rows()] * 2
    assert sorted(as_tuples(finish(job, 1))) == sorted(expected)
    job.close()


def test_late_rows_are_counted_or_go_to_their_side_output(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else no queue is ever full, nobody waits, and the job is through before its first watermark is due.
    monkeypatch.setattr(partial_aggregates, "HELD_ROWS_MAX", 1)
    late_tag = OutputTag("late", EVENTS)

    def build(tagged: bool) -> Build:
        def of(env: StreamExecutionEnvironment) -> None:
            strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row["at"])
            stream = env.from_source(BatchGeneratorSource(events, ROWS, EVENTS), strategy, "events")
            window = stream.key_by("user").window(TumblingEventTimeWindows.of(Time.milliseconds(7)))
            if tagged:
                window = window.side_output_late_data(late_tag)
            made = window.count()
            made.sink_to(CommittedRows())
            if tagged:
                made.get_side_output(late_tag).sink_to(CommittedRows())

        return of

    counting = SmallJob(graph_of(build(False), 2), Configuration(FREQUENT))
    rows = as_tuples(finish(counting, 1))
    dropped = sum(s.work.late_rows for s in counting.subtasks.values())
    assert dropped > 0
    assert sum(row[3] for row in rows) + dropped == ROWS
    assert len({row[:2] for row in rows}) == len(rows), "no window fires twice"
    tagged = SmallJob(graph_of(build(True), 2), Configuration(FREQUENT))
    found = finish(tagged, 1)
    late = [row for row in found if "value" in row.get_field_names()]
    assert late and sum(row["count"] for row in found if row not in late) + len(late) == ROWS
    assert sum(s.work.late_rows for s in tagged.subtasks.values()) == 0


class Doubled:
    """Writes its results to the same memory each time."""

    def __init__(self) -> None:
        self.memory = np.empty(2 * ROWS, np.int64)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        doubled = self.memory[: batch.num_rows]
        np.multiply(batch.column("at").to_numpy(), 2, out=doubled)
        return pa.record_batch([pa.array(doubled), batch.column("user")], names=["doubled", "user"])


def test_a_batch_function_may_use_its_memory_again() -> None:
    """[Rows that wait to be sent are those of the function's last call.]"""
    schema = pa.schema([("doubled", pa.int64()), ("user", pa.string())])

    def build(env: StreamExecutionEnvironment) -> None:
        source(env, False).map_batches(Doubled(), schema).rebalance().sink_to(CommittedRows())

    rows = as_tuples(finish(SmallJob(graph_of(build, 2), Configuration(SMALL)), 1))
    assert sorted(rows) == sorted((2 * event["at"], event["user"]) for event in all_rows())
