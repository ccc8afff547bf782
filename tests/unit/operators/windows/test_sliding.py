"""Tests sliding windows: their arithmetic, and whole jobs over rows and over columns, in one phase and in two, that
come back from any checkpoint and at other parallelisms.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.configuration import Configuration
from penstock.common.time import Duration, Time
from penstock.common.types import Types
from penstock.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.columnar import count, max_, mean, sum_
from penstock.datastream.window import SlidingEventTimeWindows
from penstock.operators.windows import column_windows, partial_aggregates
from penstock.operators.windows.assigners.assigner import NoWindow
from penstock.operators.windows.assigners.sliding import Sliding
from penstock.protocol.values.metadata import WindowsShape
from tests.unit.operators.windows import test_window_semantics as semantics
from tests.unit.operators.windows.test_own_windows import (
    DAY_MS,
    HOUR_MS,
    KEYS,
    RESULT,
    ROWS,
    Summed,
    keyed_by_user,
    time_of,
    to_sink,
)
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_columnar_jobs import FREQUENT
from tests.unit.runtime.jobs.test_rescaled_jobs import Cascade
from tests.unit.runtime.jobs.test_small_jobs import finish

# ---- arithmetic -----------------------------------------------------------------------------------------------------


@given(size_ms=st.integers(1, 60), slide_ms=st.integers(1, 60), offset=st.floats(-0.999, 0.999), data=st.data())
def test_each_time_is_in_the_windows_that_contain_it(
    size_ms: int, slide_ms: int, offset: float, data: st.DataObject
) -> None:
    assigner = Sliding(size_ms, slide_ms, int(offset * slide_ms))
    times = data.draw(st.lists(st.integers(-200, 200), min_size=1, max_size=20))
    candidates = [assigner.offset_ms + n * slide_ms for n in range(-400, 401)]
    wanted = [[s for s in candidates if s <= time < s + size_ms] for time in times]
    assert [sorted(assigner.opened_by(time)) for time in times] == wanted
    rows, starts = assigner.windows_of(np.array(times, np.int64))
    assert sorted(zip(rows.tolist(), starts.tolist())) == [(n, s) for n, found in enumerate(wanted) for s in found]
    for time, found in zip(times, wanted):
        first, end = assigner.pane_of(time)
        assert first <= time < end
        for other in (first, end - 1):
            assert sorted(assigner.opened_by(other)) == found, "a pane lies in the same windows as a whole"
        slice_start = assigner.slices.start_of(time)
        for other in (slice_start, assigner.slices.end_of(slice_start) - 1):
            assert sorted(assigner.opened_by(other)) == found, "a slice lies in the same windows as a whole"
        for start in found:
            assert assigner.ending_at(assigner.end_of(start)) == start
        assert assigner.ending_at(time) in (None, time - size_ms)


def test_a_time_that_no_window_holds_in_64_bits_is_refused() -> None:
    for time in (2**63 - 1, -(2**63)):
        with pytest.raises(NoWindow, match=f"timestamp is {time} ms"):
            Sliding(10, 5).windows_of(np.array([0, time]))


def test_what_is_declared_is_checked() -> None:
    of = SlidingEventTimeWindows.of
    assert of(Duration.of_minutes(10), Time.minutes(1))._assigner() == Sliding(600_000, 60_000)
    assert str(of(Duration.of_minutes(10), Time.minutes(1))) == "SlidingEventTimeWindows(10 min, 1 min)"
    assert of(Time.days(1), Time.hours(1), Time.minutes(-5)).offset == -300_000
    with pytest.raises(ValueError, match="size and slide are more than 0 ms, got 10 ms and 0 ms"):
        of(Duration.of_millis(10), Duration.of_millis(0))
    with pytest.raises(ValueError, match=r"the offset is less than the slide \(5 ms\), got 5 ms"):
        of(Duration.of_millis(10), Duration.of_millis(5), Duration.of_millis(5))
    with pytest.raises(TypeError, match=r"SlidingEventTimeWindows\.of\(\): the slide is a Duration or a Time"):
        of(Duration.of_millis(10), "often")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"each row would be in 31,536,000,000 windows, which is the size"):
        of(Time.days(365), Time.milliseconds(1))
    shape = Sliding(10, 5, 1).shape()
    assert shape == WindowsShape("sliding", 10, {"size": 10, "slide": 5, "offset": 1})


# ---- jobs -----------------------------------------------------------------------------------------------------------

SHAPES = {
    "three days each day": (3 * DAY_MS, DAY_MS, 0),
    "no multiple": (50 * HOUR_MS, 20 * HOUR_MS, HOUR_MS),
    "with gaps": (10 * HOUR_MS, DAY_MS, 0),
}


def windows(shape: str) -> SlidingEventTimeWindows:
    return SlidingEventTimeWindows(*SHAPES[shape])


def rows(env: StreamExecutionEnvironment, shape: str) -> None:
    to_sink(keyed_by_user(env, by_column=False).window(windows(shape)).process(Summed(), RESULT))


def rows_with_lateness(env: StreamExecutionEnvironment, shape: str) -> None:
    kept = keyed_by_user(env, by_column=False).window(windows(shape)).allowed_lateness(DAY_MS + HOUR_MS)
    to_sink(kept.process(Summed(), RESULT))


def two_phases(env: StreamExecutionEnvironment, shape: str) -> None:
    made = keyed_by_user(env, by_column=True).window(windows(shape)).aggregate(total=sum_("value"), number=count())
    to_sink(made)


def columns(env: StreamExecutionEnvironment, shape: str) -> None:
    kept = keyed_by_user(env, by_column=True).window(windows(shape)).allowed_lateness(DAY_MS + HOUR_MS)
    made = kept.aggregate(total=sum_("value"), number=count(), middle=mean("value"), most=max_("at")).uid("windows")
    made.select("user", "window_start", "window_end", "total", "number").sink_to(CommittedRows()).uid("sink")


JOBS = (rows, rows_with_lateness, two_phases, columns)
CASES = [partial(job, shape=shape) for shape in SHAPES for job in JOBS]
each_case = pytest.mark.parametrize(
    "build", CASES, ids=[f"{job.__name__}, {shape}" for shape in SHAPES for job in JOBS]
)


def check(build: Any, found: list[Any]) -> None:
    size_ms, slide_ms, offset_ms = SHAPES[build.keywords["shape"]]
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number in range(ROWS):
        time = int(time_of(number))
        start = time - (time - offset_ms) % slide_ms
        while start > time - size_ms:
            groups[number % KEYS, start].append(number)
            start -= slide_ms
    wanted = [(key, start, start + size_ms, sum(group), len(group)) for (key, start), group in groups.items()]
    assert sorted(row if isinstance(row, tuple) else row.to_tuple() for row in found) == sorted(wanted)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_aggregates, "GROUPED_ROWS_MIN", 4)
    monkeypatch.setattr(partial_aggregates, "HELD_ROWS_MAX", 40)
    monkeypatch.setattr(column_windows, "_PAIRS_MAX", 16)


@each_case
def test_every_row_counts_once_in_each_of_its_windows(build: Any) -> None:
    job = SmallJob(graph_of(build, 2), Configuration(FREQUENT))
    check(build, finish(job, 1))
    job.close()


@each_case
@pytest.mark.parametrize("seed", range(3))
def test_they_come_back_from_any_checkpoint_at_any_parallelism(build: Any, seed: int) -> None:
    cascade = Cascade(build, seed)
    random = Random(f"{seed} {build}")
    for _ in range(3):
        cascade.start(random.choice([1, 2, 3, 4]))
        cascade.crash_after(random.randrange(3, 60), random.choice([None, 0, 1]))
    cascade.start(2)
    check(build, cascade.finish())


# ---- late rows ------------------------------------------------------------------------------------------------------


class Counted(ProcessWindowFunction[Any, Any, int, Any]):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        yield key, context.window().start, context.window().end, len(list(elements))


def results_of_flink(
    rows: list[tuple[int, int, int]], assigner: Sliding, lateness: int
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the results and the late rows. A row is late if it has windows, and all are over; without a window, if its
    own time is over."""
    watermark = -(2**63)
    contents: dict[tuple[int, int], int] = defaultdict(int)
    results: list[tuple[int, ...]] = []
    late: list[tuple[int, ...]] = []

    def fire(key: int, start: int) -> None:
        results.append((key, start, start + assigner.size_ms, contents[key, start]))

    for row in [*rows, None]:
        follows = semantics.END if row is None else row[2]
        if row is not None:
            key, at, _ = row
            opened = assigner.opened_by(at)
            kept = [s for s in opened if s + assigner.size_ms - 1 + lateness > watermark]
            if not kept and (opened or at + lateness <= watermark):
                late.append(row)
            for start in kept:
                contents[key, start] += 1
                if start + assigner.size_ms - 1 <= watermark:
                    fire(key, start)
        if follows > watermark:
            before, watermark = watermark, follows
            for key, start in sorted(contents, key=lambda window: window[1]):
                if before < start + assigner.size_ms - 1 <= watermark:
                    fire(key, start)
    return results, late


@pytest.mark.parametrize("by_column", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("lateness", [0, 6])
@pytest.mark.parametrize("size, slide", [(20, 5), (7, 3), (4, 10)])
def test_a_row_counts_in_those_of_its_windows_that_are_not_over(
    size: int, slide: int, lateness: int, by_column: bool
) -> None:
    random = Random(f"{size} {lateness} {by_column}")
    events: list[tuple[int, int, int]] = []
    reached = 0
    for _ in range(150):
        at = max(0, reached + random.randrange(-35, 30))
        follows = reached + random.randrange(1, 13) if random.random() < 0.5 else -1
        events.append((random.randrange(3), at, follows))
        reached = max(reached, follows)
    env = StreamExecutionEnvironment.get_execution_environment(Configuration({"parallelism.default": 1}))
    late, stream = OutputTag("late", semantics.EVENT), semantics.events(env, events)
    keyed: Any = stream.key_by("f0") if by_column else stream.key_by(lambda row: row[0], semantics.LONG)
    kept = keyed.window(SlidingEventTimeWindows(size, slide)).allowed_lateness(lateness).side_output_late_data(late)
    counts = kept.aggregate(number=count()) if by_column else kept.process(Counted(), Types.TUPLE([Types.LONG()] * 4))
    found = [tuple(row) for row in semantics.run(env, counts, counts.get_side_output(late))]
    results, late_rows = results_of_flink(events, Sliding(size, slide), lateness)
    assert len(late_rows) > 3, "nothing was late"
    for window in {r[:2] for r in results}:
        fired = [r for r in found if len(r) == 4 and r[:2] == window]
        wanted = [r for r in results if r[:2] == window]
        # Columns fire a window again once for each slice of rows.
        assert fired == wanted or (by_column and set(fired) <= set(wanted) and fired[-1] == wanted[-1])
    assert [r for r in found if len(r) == 3] == late_rows


# ---- rows that functions change -------------------------------------------------------------------------------------


def into_first(kept: dict[str, int], row: dict[str, int]) -> dict[str, int]:
    kept["rows"] += row["rows"]
    return kept


def into_second(kept: dict[str, int], row: dict[str, int]) -> dict[str, int]:
    row["rows"] += kept["rows"]
    return row


class Counting(ProcessWindowFunction[Any, Any, int, Any]):
    """Changes the rows that it has counted."""

    def process(self, key: int, context: Any, elements: Any) -> Any:
        yield context.window().start, sum(row["rows"] for row in elements)
        for row in elements:
            row["rows"] = 100


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("reduce", [into_first, into_second, None])
def test_what_a_function_changes_in_a_row_of_one_window_no_other_window_sees(backend: str, reduce: Any) -> None:
    config = Configuration({"parallelism.default": 1, "state.backend.type": backend})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    dicts = semantics.events(env, [(1, 7, -1), (1, 8, -1), (1, 12, 13)]).map(lambda row: {"rows": 1})
    windowed = dicts.key_by(lambda row: 1, Types.LONG()).window(SlidingEventTimeWindows(10, 5))
    made = windowed.process(Counting()) if reduce is None else windowed.reduce(reduce, Counting())
    assert semantics.run(env, made) == [(0, 2), (5, 3), (10, 1)]
