"""Tests sessions: rows in any order, late ones too, beside Flink's rules, and whole jobs that come back from any
checkpoint and at other parallelisms.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from random import Random
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.program.failures import OperatorFailure
from penstock.common.time import Duration, Time
from penstock.common.types import Types
from penstock.datastream import AggregateFunction, OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.columnar import count
from penstock.datastream.window import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from penstock.operators.windows.assigners.sessions import Session
from penstock.protocol.values.metadata import WindowsShape
from tests.unit.operators.windows import test_window_semantics as semantics
from tests.unit.operators.windows.test_own_windows import HOUR_MS, KEYS, ROWS, keyed_by_user, time_of, to_sink
from tests.unit.runtime.jobs.small_job import SmallJob, graph_of
from tests.unit.runtime.jobs.test_columnar_jobs import FREQUENT
from tests.unit.runtime.jobs.test_rescaled_jobs import Cascade
from tests.unit.runtime.jobs.test_small_jobs import finish

LONG = Types.LONG()
Event = tuple[int, int, int]


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(Configuration({"parallelism.default": 1}))


# ---- row by row -----------------------------------------------------------------------------------------------------


class Listed(ProcessWindowFunction[Any, Any, int, Any]):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        yield key, context.window().start, context.window().end, sorted(row[1] for row in elements)


class Times(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        return [*accumulator, value[1]]

    def get_result(self, accumulator: list[int]) -> list[int]:
        return sorted(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


class Bounds(ProcessWindowFunction[Any, Any, int, Any]):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        (times,) = elements
        yield key, context.window().start, context.window().end, times


class GapOfKey(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return 4 + 3 * int(element[0])


def sessions_of_flink(rows: list[Event], gap_of: Any, lateness: int) -> tuple[list[Any], list[Event]]:
    """Return the results and the late rows. A row is late if the session that it joins, or begins, is over."""
    watermark = -(2**63)
    open_sessions: dict[int, list[tuple[int, int, list[int]]]] = defaultdict(list)
    results: list[Any] = []
    late: list[Event] = []
    for row in [*rows, None]:
        follows = semantics.END if row is None else row[2]
        if row is not None:
            key, at, _ = row
            start, end, times = at, at + gap_of(row), [at]
            touching = [s for s in open_sessions[key] if s[0] <= end and start <= s[1]]
            start = min([start, *(s[0] for s in touching)])
            end = max([end, *(s[1] for s in touching)])
            if end - 1 + lateness <= watermark:
                late.append(row)
            else:
                times += [time for s in touching for time in s[2]]
                open_sessions[key] = [s for s in open_sessions[key] if s not in touching] + [(start, end, times)]
                if end - 1 <= watermark:
                    results.append((key, start, end, sorted(times)))
        if follows > watermark:
            before, watermark = watermark, follows
            for key, sessions in open_sessions.items():
                due = [s for s in sessions if before < s[1] - 1 <= watermark]
                results += [(key, s[0], s[1], sorted(s[2])) for s in sorted(due)]
                open_sessions[key] = [s for s in sessions if s[1] - 1 + lateness > watermark]
    return results, late


@pytest.mark.parametrize("kind", ["rows", "aggregate", "dynamic gap"])
@pytest.mark.parametrize("lateness", [0, 3, 25, semantics.END])
@pytest.mark.parametrize("seed", range(6))
def test_sessions_fire_as_in_flink(env: StreamExecutionEnvironment, seed: int, lateness: int, kind: str) -> None:
    random = Random(f"{seed} {lateness} {kind}")
    rows: list[Event] = []
    reached = 0
    for _ in range(120):
        at = max(0, reached + random.randrange(-40, 40))
        follows = reached + random.randrange(1, 13) if random.random() < 0.4 else -1
        rows.append((random.randrange(3), at, follows))
        reached = max(reached, follows)
    late = OutputTag("late")
    windows: Any = EventTimeSessionWindows(7)
    if kind == "dynamic gap":
        windows = EventTimeSessionWindows.with_dynamic_gap(GapOfKey())
    windowed = semantics.keyed(env, rows).window(windows).allowed_lateness(lateness).side_output_late_data(late)
    made = windowed.aggregate(Times(), Bounds()) if kind == "aggregate" else windowed.process(Listed())
    found = semantics.run(env, made, made.get_side_output(late))
    results, late_rows = sessions_of_flink(rows, GapOfKey().extract if kind == "dynamic gap" else lambda _: 7, lateness)
    assert len(late_rows) > 3 or lateness > 3, "nothing was late"
    for key in range(3):
        assert [r for r in found if len(r) == 4 and r[0] == key] == [r for r in results if r[0] == key]
    assert [r for r in found if len(r) == 3] == late_rows


class OwnState(ProcessWindowFunction[Any, Any, int, Any]):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        context.window_state()
        yield key


class NoGap(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return 0


@pytest.mark.parametrize(
    ("windows", "function", "says"),
    [
        (EventTimeSessionWindows(5), OwnState(), "windows that are merged have no state of their own"),
        (DynamicEventTimeSessionWindows(NoGap()), Listed(), r"above 0, got 0; the row was \(1, 5, -1\)"),
        (EventTimeSessionWindows(semantics.END - 4), Listed(), "timestamp is 5 ms, of which no window fits in 64 bits"),
    ],
)
def test_what_fails_names_the_operator(env: StreamExecutionEnvironment, windows: Any, function: Any, says: str) -> None:
    with pytest.raises(OperatorFailure, match=rf"(?s)'Window Process'.*{says}"):
        semantics.run(env, semantics.keyed(env, [(1, 5, -1)]).window(windows).process(function))


class WithoutMerge(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator


def test_what_is_declared_is_checked(env: StreamExecutionEnvironment) -> None:
    windows = EventTimeSessionWindows.with_gap(Time.minutes(30))
    assert windows._assigner() == Session(1_800_000) and str(windows) == "EventTimeSessionWindows(30 min)"
    assert windows._assigner().shape() == WindowsShape("session", None, {"gap": 1_800_000})
    with pytest.raises(ValueError, match="the gap is more than 0 ms, got 0 ms"):
        EventTimeSessionWindows.with_gap(Duration.of_millis(0))
    with pytest.raises(TypeError, match=r"with_dynamic_gap\(\) takes a SessionWindowTimeGapExtractor"):
        EventTimeSessionWindows.with_dynamic_gap(lambda row: 5)  # type: ignore[arg-type]
    stream = semantics.events(env, [])
    with pytest.raises(TypeError, match=r"needs WithoutMerge\.merge\(acc_a, acc_b\): a row may join two sessions"):
        stream.key_by(lambda row: row[0]).window(windows).aggregate(WithoutMerge())
    with pytest.raises(TypeError, match="built-in aggregates have no sessions yet"):
        stream.key_by("f0").window(windows).aggregate(rows=count())


# ---- jobs -----------------------------------------------------------------------------------------------------------

GAP_MS = 20 * HOUR_MS
RESULT = Types.TUPLE([LONG] * 5)


class Summed(ProcessWindowFunction[Any, Any, int, Any]):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        window, values = context.window(), [row["value"] for row in elements]
        yield key, window.start, window.end, sum(values), len(values)


def rows(env: StreamExecutionEnvironment, lateness_ms: int) -> None:
    windows = EventTimeSessionWindows(GAP_MS)
    to_sink(keyed_by_user(env, by_column=False).window(windows).allowed_lateness(lateness_ms).process(Summed(), RESULT))


def check(found: list[Any]) -> None:
    wanted: list[tuple[int, int, int, int, int]] = []
    for key in range(KEYS):
        session: list[int] = []
        ordered = sorted((int(time_of(number)), number) for number in range(ROWS) if number % KEYS == key)
        for place, (time, number) in enumerate(ordered):
            session.append(number)
            if place + 1 == len(ordered) or ordered[place + 1][0] > time + GAP_MS:
                start = int(time_of(session[0]))
                wanted.append((key, start, time + GAP_MS, sum(session), len(session)))
                session = []
    assert len(wanted) > 3 * KEYS, "there is hardly a gap"
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("lateness_ms", [0, 25 * HOUR_MS])
@pytest.mark.parametrize("seed", range(5))
def test_they_come_back_from_any_checkpoint_at_any_parallelism(lateness_ms: int, seed: int) -> None:
    cascade = Cascade(partial(rows, lateness_ms=lateness_ms), seed)
    random = Random(seed)
    for _ in range(3):
        cascade.start(random.choice([1, 2, 3, 4]))
        cascade.crash_after(random.randrange(3, 60), random.choice([None, 0, 1]))
    cascade.start(2)
    check(cascade.finish())


def test_a_job_without_failures() -> None:
    job = SmallJob(graph_of(partial(rows, lateness_ms=0), 2), Configuration(FREQUENT))
    check(finish(job, 1))
    job.close()
