"""Adds kinds of windows in this file alone: weeks from Monday on, calendar months, which differ in length, and windows
that overlap.

Jobs over rows and over columns, in one phase and in two, come back from any checkpoint, and at other parallelisms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.configuration import Configuration
from penstock.common.time import Duration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream._windows.window_assigners import RegularWindows
from penstock.datastream.columnar import count, max_, mean, sum_
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.datastream.functions import ProcessWindowFunction
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.graph import compatibility
from penstock.graph.job_graph import JobGraph
from penstock.operators.windows import partial_aggregates
from penstock.operators.windows.assigners.assigner import Assigner, TimeT
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.metadata import WindowsShape
from penstock.state.reading.checkpoint import read_checkpoint
from tests.unit.operators.windows.assigner_laws import check_laws
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_columnar_jobs import FREQUENT
from tests.unit.runtime.jobs.test_rescaled_jobs import Cascade, checkpointed, finished
from tests.unit.runtime.jobs.test_small_jobs import TIMEOUTS, finish, run_with_checkpoint
from tests.unit.state.reading.jobs import StoredJob

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS, KEYS = 600, 5
FIRST_MS = int(datetime(2026, 1, 28, tzinfo=UTC).timestamp()) * 1000
EVENTS = Types.ROW_NAMED(["user", "value", "at"], [Types.LONG(), Types.LONG(), Types.LONG()])


# ---- the kinds ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weeks(Assigner):
    """Assigns times to weeks that start on Monday at 00:00 UTC, and `offset_ms` later."""

    offset_ms: int

    @property
    def longest_ms(self) -> int:
        return WEEK_MS

    def start_of(self, time: TimeT) -> TimeT:
        monday_ms = self.offset_ms - 3 * DAY_MS  # the epoch was a Thursday
        return time - (time - monday_ms) % WEEK_MS

    def end_of(self, start: TimeT) -> TimeT:
        return start + WEEK_MS

    def shape(self) -> WindowsShape:
        return WindowsShape("weekly", WEEK_MS, {"offset": self.offset_ms})


@dataclass(frozen=True)
class Months(Assigner):
    """Assigns times to months of UTC."""

    @property
    def longest_ms(self) -> int:
        return 31 * DAY_MS

    def start_of(self, time: TimeT) -> TimeT:
        start: TimeT = self._month(time, 0)
        return start

    def end_of(self, start: TimeT) -> TimeT:
        end: TimeT = self._month(start, 1)
        return end

    def shape(self) -> WindowsShape:
        return WindowsShape("monthly", None, {})

    @staticmethod
    def _month(time: Any, later: int) -> Any:
        months = np.asarray(time, "M8[ms]").astype("M8[M]") + later
        starts = months.astype("M8[ms]").astype(np.int64)
        return int(starts) if isinstance(time, int) else starts


@dataclass(frozen=True)
class ThreeDays(Assigner):
    """Assigns times to windows of three days, of which one starts each day. Only rows can be in several windows yet."""

    @property
    def longest_ms(self) -> int:
        return 3 * DAY_MS

    def start_of(self, time: TimeT) -> TimeT:
        return time - time % DAY_MS

    def end_of(self, start: TimeT) -> TimeT:
        return start + 3 * DAY_MS

    def shape(self) -> WindowsShape:
        return WindowsShape("three days", 3 * DAY_MS, {})

    def opened_by(self, timestamp_ms: int) -> list[int]:
        day = self.start_of(timestamp_ms)
        return [day, day - DAY_MS, day - 2 * DAY_MS]

    def pane_of(self, timestamp_ms: int) -> tuple[int, int]:
        day = self.start_of(timestamp_ms)
        return day, day + DAY_MS

    def ending_at(self, end_ms: int) -> int | None:
        return None if end_ms % DAY_MS else end_ms - 3 * DAY_MS


class MondayWeeks(RegularWindows):
    def __init__(self, offset_ms: int) -> None:
        self.offset_ms = offset_ms

    def _assigner(self) -> Assigner:
        return Weeks(self.offset_ms)


class CalendarMonths(RegularWindows):
    def _assigner(self) -> Assigner:
        return Months()


class AnyThreeDays(RegularWindows):
    def _assigner(self) -> Assigner:
        return ThreeDays()


def week_of(time: datetime) -> datetime:
    """Return the start of the week, by the calendar and not by arithmetic."""
    day = (time - timedelta(hours=6)).replace(hour=0)
    return day - timedelta(days=day.weekday()) + timedelta(hours=6)


KINDS: dict[str, tuple[RegularWindows, Callable[[datetime], datetime]]] = {
    "weeks": (MondayWeeks(6 * HOUR_MS), week_of),
    "months": (CalendarMonths(), lambda time: time.replace(day=1, hour=0)),
}


# ---- the jobs -------------------------------------------------------------------------------------------------------


def time_of(numbers: Any) -> Any:
    """Return event times, every three hours, out of order by less than 20 hours."""
    return FIRST_MS + (numbers * 3 + numbers * 7919 % 19) * HOUR_MS


def events(first: int, rows: int) -> pa.RecordBatch:
    numbers = np.arange(first, first + rows)
    arrays = [pa.array(numbers % KEYS), pa.array(numbers), pa.array(time_of(numbers))]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS.schema)


def windowed(env: StreamExecutionEnvironment, kind: str, *, by_column: bool) -> Any:
    return keyed_by_user(env, by_column=by_column).window(KINDS[kind][0])


def keyed_by_user(env: StreamExecutionEnvironment, *, by_column: bool) -> Any:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_hours(20)).with_timestamp_column("at")
    source = env.from_source(BatchGeneratorSource(events, ROWS, EVENTS), strategy, "events").uid("events")
    return source.key_by("user") if by_column else source.key_by(lambda row: row["user"], Types.LONG())


def to_sink(results: Any) -> None:
    results.uid("windows").sink_to(CommittedRows()).uid("sink")


class Summed(ProcessWindowFunction[Any, Any, int, Any]):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        window, values = context.window(), [row["value"] for row in elements]
        assert context.current_watermark() >= window.max_timestamp() == window.end - 1
        yield key, window.start, window.end, sum(values), len(values)


RESULT = Types.TUPLE([Types.LONG()] * 5)


def rows(env: StreamExecutionEnvironment, kind: str) -> None:
    to_sink(windowed(env, kind, by_column=False).process(Summed(), RESULT))


def rows_with_lateness(env: StreamExecutionEnvironment, kind: str) -> None:
    """Keeps each window for a week and an hour after its end, which is no multiple of its length."""
    kept = windowed(env, kind, by_column=False).allowed_lateness(WEEK_MS + HOUR_MS)
    to_sink(kept.process(Summed(), RESULT))


def two_phases(env: StreamExecutionEnvironment, kind: str) -> None:
    to_sink(windowed(env, kind, by_column=True).aggregate(total=sum_("value"), number=count()))


def columns(env: StreamExecutionEnvironment, kind: str) -> None:
    """Aggregates in one phase: means of rows in any order would not be the same to the last bit."""
    kept = windowed(env, kind, by_column=True).allowed_lateness(WEEK_MS + HOUR_MS)
    made = kept.aggregate(total=sum_("value"), number=count(), middle=mean("value"), most=max_("at")).uid("windows")
    made.select("user", "window_start", "window_end", "total", "number").sink_to(CommittedRows()).uid("sink")


JOBS = {"rows": rows, "rows with lateness": rows_with_lateness, "two phases": two_phases, "columns": columns}
CASES = [partial(job, kind=kind) for kind in KINDS for job in JOBS.values()]
each_case = pytest.mark.parametrize("build", CASES, ids=[f"{kind} {name}" for kind in KINDS for name in JOBS])


def check(build: Any, found: list[Any]) -> None:
    start_of = KINDS[build.keywords["kind"]][1]
    groups: dict[tuple[int, datetime], list[int]] = defaultdict(list)
    for number in range(ROWS):
        groups[number % KEYS, start_of(EPOCH + timedelta(milliseconds=time_of(number)))].append(number)
    wanted = []
    for (key, start), numbers in groups.items():
        end = start_of(start + timedelta(days=8 if build.keywords["kind"] == "weeks" else 32))
        start_ms, end_ms = (int(time.timestamp()) * 1000 for time in (start, end))
        wanted.append((key, start_ms, end_ms, sum(numbers), len(numbers)))
    assert sorted(row if isinstance(row, tuple) else row.to_tuple() for row in found) == sorted(wanted)


@pytest.fixture(autouse=True)
def small_batches_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_aggregates, "GROUPED_ROWS_MIN", 4)
    monkeypatch.setattr(partial_aggregates, "HELD_ROWS_MAX", 40)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kinds_keep_the_laws(kind: str) -> None:
    random = Random(kind)
    times = [FIRST_MS + random.randrange(-50_000, 50_000) * HOUR_MS + random.randrange(2) for _ in range(200)]
    check_laws(KINDS[kind][0]._assigner(), times)
    check_laws(KINDS[kind][0]._assigner(), [0, 1])


@each_case
def test_windows_of_a_kind_of_ones_own_count_every_row_once(build: Any) -> None:
    job = SmallJob(graph_of(build, 2), Configuration(FREQUENT))
    check(build, finish(job, 1))
    job.close()


@pytest.mark.parametrize("kind", KINDS)
def test_only_exact_aggregates_have_two_phases(kind: str) -> None:
    graphs = {name: graph_of(partial(job, kind=kind), 2) for name, job in JOBS.items()}
    assert [n for n, graph in graphs.items() if any(e.partitioner.partial for e in graph.edges)] == ["two phases"]


@each_case
@pytest.mark.parametrize("mode", TIMEOUTS)
def test_they_come_back_from_any_checkpoint(build: Any, mode: str) -> None:
    random = Random(f"{mode} {build}")
    graph, found = graph_of(build, 2), []
    job = SmallJob(graph, Configuration(FREQUENT), order=random)
    for generation in range(1, 4):
        done = run_with_checkpoint(job, random.randrange(3, 60), TIMEOUTS[mode])
        found += done.committed
        job.close()
        job = SmallJob(
            graph,
            Configuration(FREQUENT),
            job.store,
            restored=done.metadata,
            generation=Generation(1, generation),
            order=random,
        )
    check(build, found + finish(job, 9))
    job.close()


@each_case
def test_they_come_back_at_other_parallelisms(build: Any) -> None:
    cascade, random, found = Cascade(build, 1), Random(1), []
    for _ in range(4):
        job = cascade.start(random.choice([1, 2, 3, 4]))
        job.run(random.randrange(3, 60))
        done = checkpointed(job, cascade.generations, random.choice([None, 0, 1]))
        found += done.committed
        cascade.restored = done.metadata
    job = cascade.start(3)
    check(build, found + finished(job, 99))
    job.close()


@pytest.mark.parametrize("lateness_ms", [0, DAY_MS, WEEK_MS + HOUR_MS])
@pytest.mark.parametrize("seed", range(3))
def test_a_row_may_be_in_several_windows(lateness_ms: int, seed: int) -> None:
    def overlapping(env: StreamExecutionEnvironment) -> None:
        windows = keyed_by_user(env, by_column=False).window(AnyThreeDays()).allowed_lateness(lateness_ms)
        to_sink(windows.process(Summed(), RESULT))

    cascade, groups = Cascade(overlapping, seed), defaultdict[tuple[int, int], list[int]](list)
    for parallelism in (2, 3):
        cascade.start(parallelism)
        cascade.crash_after(cascade.random.randrange(3, 60), cascade.random.choice([None, 0, 1]))
    cascade.start(1)
    for number in range(ROWS):
        day = int(time_of(number)) // DAY_MS
        for start in (day, day - 1, day - 2):
            groups[number % KEYS, start * DAY_MS].append(number)
    wanted = [(key, start, start + 3 * DAY_MS, sum(group), len(group)) for (key, start), group in groups.items()]
    assert sorted(cascade.finish()) == sorted(wanted)


# ---- what checkpoints say of them -----------------------------------------------------------------------------------


@each_case
def test_a_reader_of_state_knows_their_bounds(build: Any, tmp_path: Path) -> None:
    kind = build.keywords["kind"]
    job = StoredJob(tmp_path / "job", build)
    for _ in range(12):
        job.run(1)
        job.clock.now_ms += 1.0
    table = read_checkpoint(job.checkpoint(1)).windows("windows").table()
    job.close()
    assert table.num_rows
    for start_ms, end_ms in zip(table.column("window_start").to_pylist(), table.column("window_end").to_pylist()):
        start = EPOCH + timedelta(milliseconds=start_ms)
        assert start == KINDS[kind][1](start)
        assert end_ms == (start_ms + WEEK_MS if kind == "weeks" else None)


def test_other_windows_are_refused_by_their_names() -> None:
    def graph(windows: RegularWindows) -> JobGraph:
        def build(env: StreamExecutionEnvironment) -> None:
            to_sink(keyed_by_user(env, by_column=True).window(windows).aggregate(total=sum_("value")))

        return graph_of(build)

    old = graph(MondayWeeks(6 * HOUR_MS))
    shapes = compatibility.vertex_shapes(old), compatibility.edge_shapes(old)
    compatibility.check(*shapes, graph(MondayWeeks(6 * HOUR_MS)), in_flight=())
    others = {"weekly windows (offset 0 ms)": MondayWeeks(0), "monthly windows": CalendarMonths()}
    others["tumbling windows (size 604800000 ms)"] = TumblingEventTimeWindows(WEEK_MS)
    for described, windows in others.items():
        with pytest.raises(compatibility.IncompatibleGraph) as error:
            compatibility.check(*shapes, graph(windows), in_flight=())
        assert f"had weekly windows (offset 21600000 ms), now {described}, and the checkpoint" in str(error.value)
