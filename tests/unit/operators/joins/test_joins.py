"""Tests joins beside nested loops: window joins, co-groups and interval joins, with late rows, in jobs that come back
from any checkpoint at any parallelism.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from random import Random
from typing import Any

import pytest

from penstock.common import Duration, Row, Time, Types, WatermarkStrategy
from penstock.common.configuration import Configuration
from penstock.connectors.memory.collection import CollectionSource
from penstock.datastream import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    OutputTag,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.unit.operators.windows import test_window_semantics as semantics
from tests.unit.operators.windows.window_harness import WindowHarness
from tests.unit.runtime.jobs.small_job import CommittedRows
from tests.unit.runtime.jobs.test_rescaled_jobs import Cascade
from tests.unit.state.backends import Backends

LONG = Types.LONG()
EVENT = Types.ROW_NAMED(["key", "number", "at"], [LONG, LONG, LONG])
PAIR = Types.TUPLE([LONG, LONG])
KEYS, ROWS = 4, 90
Event = tuple[int, int, int]


def drawn(name: str) -> list[Event]:
    """Return rows whose times are at most 20 out of order."""
    random = Random(name)
    return [(random.randrange(KEYS), number, 5 * number + random.randrange(20)) for number in range(ROWS)]


LEFT, RIGHT = drawn("left"), drawn("right")


def stream(env: StreamExecutionEnvironment, name: str, rows: list[Event] | None = None) -> Any:
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(20)).with_timestamp_column("at")
    given = {"left": LEFT, "right": RIGHT}[name] if rows is None else rows
    return env.from_source(CollectionSource(given, EVENT), bounded, name)


def both(env: StreamExecutionEnvironment) -> tuple[Any, Any]:
    return stream(env, "left"), stream(env, "right")


class Numbers(JoinFunction):
    def join(self, first: Any, second: Any) -> Any:
        assert first.key == second.key
        return first.number, second.number


class Twice(FlatJoinFunction):
    def join(self, first: Any, second: Any) -> Any:
        if first.number % 2:
            return None
        return [(first.number, second.number), (-1 - first.number, second.number)]


class Sizes(CoGroupFunction):
    def co_group(self, first: Any, second: Any) -> Any:
        left, right = sum(row.number for row in first), sum(row.number for row in second)
        yield left, right


class Near(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        assert (ctx.get_left_timestamp(), ctx.get_right_timestamp()) == (left.at, right.at)
        assert ctx.get_timestamp() == max(left.at, right.at) and left.key == right.key
        yield left.number, right.number


def windows_of(row: Event, size: int, slide: int) -> list[int]:
    last = row[2] - row[2] % slide
    return list(range(last, row[2] - size, -slide))


def pairs_in_windows(size: int, slide: int) -> list[tuple[int, int]]:
    return [
        (a[1], b[1])
        for a in LEFT
        for b in RIGHT
        if a[0] == b[0]
        for _ in set(windows_of(a, size, slide)) & set(windows_of(b, size, slide))
    ]


def pairs_near(lower: int, upper: int) -> list[tuple[int, int]]:
    return [(a[1], b[1]) for a in LEFT for b in RIGHT if a[0] == b[0] and a[2] + lower <= b[2] <= a[2] + upper]


def sizes(size: int) -> list[tuple[int, int]]:
    groups: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for side, rows in enumerate((LEFT, RIGHT)):
        for key, number, at in rows:
            groups[key, at // size][side] += number
    return [(left, right) for left, right in groups.values()]


# ---- jobs -----------------------------------------------------------------------------------------------------------


def joined(env: StreamExecutionEnvironment, size: int, slide: int) -> None:
    left, right = both(env)
    windows = SlidingEventTimeWindows.of(Time.milliseconds(size), Time.milliseconds(slide))
    left.join(right).where("key").equal_to("key").window(windows).apply(Numbers(), PAIR).sink_to(CommittedRows())


def grouped(env: StreamExecutionEnvironment) -> None:
    left, right = both(env)
    windows = TumblingEventTimeWindows.of(Time.milliseconds(40))
    steps = left.co_group(right).where(lambda row: row.key, key_type=LONG).equal_to(lambda row: row.key, key_type=LONG)
    steps.window(windows).apply(Sizes(), PAIR).sink_to(CommittedRows())


def near(env: StreamExecutionEnvironment, lower: int, upper: int) -> None:
    left, right = both(env)
    interval = left.key_by("key").interval_join(right.key_by("key"))
    bounds = Time.milliseconds(lower), Time.milliseconds(upper)
    interval.between(*bounds).process(Near(), PAIR).sink_to(CommittedRows())


JOBS: dict[str, tuple[Any, Any]] = {
    "tumbling join": (partial(joined, size=30, slide=30), partial(pairs_in_windows, 30, 30)),
    "sliding join": (partial(joined, size=30, slide=10), partial(pairs_in_windows, 30, 10)),
    "co-group": (grouped, partial(sizes, 40)),
    "before": (partial(near, lower=-25, upper=-5), partial(pairs_near, -25, -5)),
    "around": (partial(near, lower=-10, upper=15), partial(pairs_near, -10, 15)),
    "after": (partial(near, lower=5, upper=25), partial(pairs_near, 5, 25)),
    "at once": (partial(near, lower=-1, upper=1), partial(pairs_near, -1, 1)),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("job", JOBS)
def test_each_pair_is_found_once_from_any_checkpoint_at_any_parallelism(job: str, seed: int) -> None:
    build, expected = JOBS[job]
    cascade, random = Cascade(build, seed), Random(seed)
    for _ in range(3):
        cascade.start(random.choice([1, 2, 3, 4]))
        cascade.crash_after(random.randrange(3, 60), random.choice([None, 0, 1]))
    cascade.start(2)
    found = cascade.finish()
    assert sorted(found) == sorted(expected()) and found


# ---- what differs from the first example ----------------------------------------------------------------------------


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(Configuration({"parallelism.default": 1}))


def test_other_functions_of_window_joins(env: StreamExecutionEnvironment) -> None:
    left, right = both(env)
    windows = TumblingEventTimeWindows(30)
    found = left.join(right).where("key").equal_to("key").window(windows)
    assert sorted(semantics.run(env, found.apply(Twice(), PAIR))) == sorted(
        pair for a, b in pairs_in_windows(30, 30) if a % 2 == 0 for pair in ((a, b), (-1 - a, b))
    )


def test_callables_join_and_group_rows_of_any_types(env: StreamExecutionEnvironment) -> None:
    names = env.from_collection([(0, "ann"), (1, "bob")], Types.TUPLE([LONG, Types.STRING()]))
    amounts = env.from_collection([(0, 5), (0, None), (2, 7)])
    sessions = EventTimeSessionWindows(10)
    timed = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: 3)
    names = names.assign_timestamps_and_watermarks(timed)
    amounts = amounts.assign_timestamps_and_watermarks(timed)

    def outer(first: Any, second: Any) -> Any:
        return [(a[1], b[1]) for a in first or [(None, None)] for b in second or [(None, None)]]

    found = names.co_group(amounts).where(lambda n: n[0]).equal_to(lambda a: a[0]).window(sessions).apply(outer)
    assert sorted(semantics.run(env, found), key=repr) == sorted(
        [("ann", 5), ("ann", None), ("bob", None), (None, 7)], key=repr
    )


def test_a_join_has_a_trigger_and_lateness(env: StreamExecutionEnvironment) -> None:
    left, right = both(env)
    steps = left.join(right).where("key").equal_to("key").window(TumblingEventTimeWindows(10**6))
    steps.trigger(PurgingTrigger.of(CountTrigger.of(1))).allowed_lateness(5)
    assert semantics.run(env, steps.apply(lambda a, b: (a.number, b.number))) == []  # a pane never has two rows


@pytest.fixture(params=["hashmap", "rocksdb-without-cache"])
def backends(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    made = Backends(request.param, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("bounds", [(-10, 0), (0, 10), (-7, 12), (3, 9), (-9, -3)])
def test_late_rows_go_to_the_side_outputs_of_their_sides(
    env: StreamExecutionEnvironment, backends: Backends, bounds: tuple[int, int]
) -> None:
    lower, upper = bounds
    left, right = both(env)
    interval = left.key_by("key").interval_join(right.key_by("key"))
    interval.between(Time.milliseconds(lower), Time.milliseconds(upper))
    tags = OutputTag("left"), OutputTag("right")
    stream = interval.side_output_left_late_data(tags[0]).side_output_right_late_data(tags[1]).process(Near(), PAIR)
    for tag in tags:
        stream.get_side_output(tag).sink_to(CommittedRows())
    harness, random = WindowHarness(stream, backends), Random(repr(bounds))
    found: list[Any] = []
    wanted: list[Any] = []
    seen: tuple[list[Any], list[Any]] = [], []
    reached_ms = 0
    harness.watermark(reached_ms)
    for number in range(200):
        draw = random.random()
        if draw < 0.75:
            side, key, at = random.randrange(2), random.randrange(2), reached_ms + random.randrange(-4, 12)
            row = Row(key=key, number=number, at=at)
            found += harness.add(key, row, at, side)
            if at < reached_ms:
                wanted.append(((tags[side].tag_id, row), at))
                continue
            for other in seen[1 - side]:
                a, b = (row, other) if side == 0 else (other, row)
                if other.key == key and a.at + lower <= b.at <= a.at + upper:
                    wanted.append(((a.number, b.number), max(a.at, b.at)))
            seen[side].append(row)
        elif draw < 0.9:
            reached_ms += random.randrange(1, 6)
            assert harness.watermark(reached_ms) == []
        else:
            harness.restore()
    assert sorted(found, key=repr) == sorted(wanted, key=repr) and len(found) > 40
    assert harness.end() == [] and harness.is_empty()


def test_exclusive_bounds(env: StreamExecutionEnvironment) -> None:
    left, right = both(env)
    interval = left.key_by("key").interval_join(right.key_by("key"))
    interval.between(Time.milliseconds(-10), Duration.of_millis(10)).lower_bound_exclusive().upper_bound_exclusive()
    interval.lower_bound_exclusive()  # twice is as once
    assert sorted(semantics.run(env, interval.process(Near(), PAIR))) == sorted(pairs_near(-9, 9))


# ---- wrong declarations ---------------------------------------------------------------------------------------------


def test_wrong_steps_are_refused_where_they_are_declared(env: StreamExecutionEnvironment) -> None:
    left, right = both(env)
    with pytest.raises(TypeError, match=r"join\(\) takes a stream, got 5"):
        left.join(5)
    with pytest.raises(ValueError, match=r"join\(\): call where\(key\) once, and then equal_to"):
        left.join(right).equal_to("key")
    with pytest.raises(ValueError, match=r"call where\(key\) and equal_to\(key\) before window"):
        left.join(right).where("key").window(TumblingEventTimeWindows(5))
    with pytest.raises(ValueError, match=r"co_group\(\): call where.* before apply\(\)"):
        left.co_group(right).where("key").equal_to("key").apply(Sizes())
    with pytest.raises(ValueError, match=r"where\(\): there is no column 'user'; the columns are key"):
        left.join(right).where("user")
    with pytest.raises(TypeError, match=r"the keys of both streams have one type, got LONG and STRING"):
        left.join(right.map(lambda row: ("a",), Types.ROW_NAMED(["name"], [Types.STRING()]))).where("key").equal_to(
            "name"
        )
    windows = left.join(right).where("key").equal_to("key").window(TumblingEventTimeWindows(5))
    with pytest.raises(TypeError, match=r"apply\(\) takes a JoinFunction or a callable, got a Sizes"):
        windows.apply(Sizes())
    with pytest.raises(TypeError, match=r"apply\(\) calls .*lambda.* with \(first, second\)"):
        windows.apply(lambda a: a)
    keyed = left.key_by("key")
    with pytest.raises(TypeError, match=r"interval_join\(\) takes a keyed stream"):
        keyed.interval_join(right)
    interval = keyed.interval_join(right.key_by("key"))
    with pytest.raises(ValueError, match=r"call between\(lower_bound, upper_bound\) before process\(\)"):
        interval.process(Near())
    with pytest.raises(ValueError, match=r"the lower bound \(5 ms\) is above the upper bound \(-5 ms\)"):
        interval.between(Time.milliseconds(5), Time.milliseconds(-5))
    with pytest.raises(ValueError, match="without its bounds nothing is left"):
        interval.between(Time.milliseconds(0), Time.milliseconds(0)).lower_bound_exclusive()
    plain = env.from_collection([(1, 2, 3)], EVENT).key_by("key")
    with pytest.raises(ValueError, match=r"interval_join\(\): rows of the second stream have no event time"):
        keyed.interval_join(plain)
