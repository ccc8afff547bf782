"""Adds a branch with windows to the random jobs of some seeds: sliding ones, over rows or over columns, sessions,
windows that a trigger fires, or joins of two streams."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.common.time import Time
from penstock.datastream.columnar import count, max_, sum_
from penstock.datastream.functions import AggregateFunction, ProcessWindowFunction
from penstock.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows
from simulation.jobs import clocks
from simulation.jobs import simulated_functions as f
from simulation.jobs import timed_functions as t
from simulation.jobs.branches import branch_of, drawn_from
from simulation.jobs.choices import PlanError, step
from simulation.jobs.columnar_steps import AsWindow, StartedAt
from simulation.jobs.join_steps import join
from simulation.jobs.streams import Expected, Stream
from simulation.jobs.timed_steps import timed
from simulation.jobs.trigger_steps import fire
from simulation.world import world_hooks
from simulation.world.world_hooks import Row

if TYPE_CHECKING:
    from simulation.jobs.workload import WorkloadBuilder


def windows_of_seed(seed: int) -> Random | None:
    """Return the random source of the branch; None for the seeds that have none."""
    return branch_of(seed, "windows")


def add_window_branch(job: WorkloadBuilder, random: Random) -> None:
    """Declare the branch in addition to all others, down to a sink of its own. Nothing is late."""
    with drawn_from(job, random):
        rows = job.source(kind="owned", rows=random.randint(30, 70), timed="patient")
        kind: Any = random.choice((slide, slide, join_sessions, fire, fire, join))
        others = [job.source(kind="owned", rows=random.randint(30, 70), timed="patient")] if kind is join else []
        job.sink(kind(job, rows, *others))


class Summed(f.Busy, ProcessWindowFunction[Any, Any, Any, Any]):
    """Emits the largest number of a window, its start, its key, the sum of the numbers, and how many there are.
    `size_ms` None: windows differ in length.
    """

    def __init__(self, name: str, size_ms: int | None, clock: clocks.Clock, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.name = name
        self.size_ms = size_ms
        self.clock = clock

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        self.work()
        window, rows = context.window(), list(elements)
        outside = [row for row in rows if not window.start <= self.clock(row) < window.end]
        if outside or self.size_ms not in (None, window.end - window.start):
            world_hooks.current().violate(f"{self.name}: window {window} of key {key!r} holds {outside[:3]}")
        numbers = [row[1] for row in rows]
        yield max(numbers), window.start, rows[0][2], sum(numbers), len(numbers)


@step
def slide(
    job: WorkloadBuilder,
    before: Stream,
    by_column: bool | None = None,
    size_ms: int | None = None,
    slide_ms: int | None = None,
    lateness_ms: int | None = None,
) -> Stream:
    """Aggregate by sliding windows. Rows of the side output for late rows are a violation."""
    random = job.random
    by_column = job.choose("by_column", lambda: random.random() < 0.5, by_column)
    size_ms = job.choose("size_ms", lambda: random.choice((20, 50)), size_ms)
    slide_ms = job.choose("slide_ms", lambda: random.choice((5, 10, 15, 60)), slide_ms)
    offset_ms = job.choose("offset_ms", lambda: random.choice((0, 3, -2)))
    lateness_ms = job.choose("lateness_ms", lambda: random.choice((0, 40)), lateness_ms)
    before = _on_time(job, before)
    clock, name = timed(before), f"slide {len(job.words)}"
    given = Time.milliseconds(size_ms), Time.milliseconds(slide_ms), Time.milliseconds(offset_ms)
    keyed: Any = before.stream.key_by("f2") if by_column else before.stream.key_by(f.key_of)
    windows = keyed.window(SlidingEventTimeWindows.of(*given)).allowed_lateness(lateness_ms)
    if not by_column or lateness_ms:  # columns without an output for late rows work in two phases
        windows = windows.side_output_late_data(t.LATE)
    rows = results(before.expected.rows, clock, size_ms, slide_ms, offset_ms)
    expected = Expected(rows, ordered=False, exact=True, clock=StartedAt(size_ms), patient=True)
    if by_column:
        fired = windows.aggregate(rows=count(), total=sum_("f1"), largest=max_("f1"))
    else:
        fired = windows.process(Summed(name, size_ms, clock, job.cost_ms()), f.ROW_TYPE)
    made = job.finish(fired, job.parallelism(), expected, name, True, [before], "keyed")
    out = job._rows(made, made.stream, AsWindow(), expected) if by_column else made
    if by_column and not lateness_ms:
        return out
    late_rows = made.stream.get_side_output(t.LATE).map(t.TooLate(name, True), f.ROW_TYPE)
    nothing = replace(expected, rows=())
    late = job.finish(
        late_rows, made.parallelism, nothing, "late", True, [Stream(made.stream, made.group, nothing, True)]
    )
    both = out.stream.union(late.stream).map(f.Pass(0.01), f.ROW_TYPE)
    return job.finish(both, made.parallelism, expected, "all", True, [out, late])


def _on_time(job: WorkloadBuilder, before: Stream) -> Stream:
    """Return the stream with columns. Raises `PlanError` if its rows may be late."""
    if not job.is_drawing and not before.expected.patient:
        raise PlanError("it needs an input of which nothing is late")
    return job.typed(before)


class Merged(f.Busy, AggregateFunction):
    """Computes the same as `Summed` but the start, with an accumulator."""

    def create_accumulator(self) -> Any:
        return (-1, 0, 0, 0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        self.work()
        largest, _, _, total, rows = accumulator
        return (max(largest, value[1]), 0, value[2], total + value[1], rows + 1)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return (max(acc_a[0], acc_b[0]), 0, max(acc_a[2], acc_b[2]), acc_a[3] + acc_b[3], acc_a[4] + acc_b[4])


class WithStart(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        for largest, _, of_key, total, rows in elements:
            yield largest, context.window().start, of_key, total, rows


@step
def join_sessions(job: WorkloadBuilder, before: Stream, gap_ms: int | None = None, folds: bool | None = None) -> Stream:
    """Aggregate by sessions, which rows out of order join. Rows of the side output for late rows are a violation."""
    random = job.random
    gap_ms = job.choose("gap_ms", lambda: random.choice((9, 17, 17, 34)), gap_ms)
    folds = job.choose("folds", lambda: random.random() < 0.5, folds)
    lateness_ms = job.choose("lateness_ms", lambda: random.choice((0, 40)))
    before = _on_time(job, before)
    clock, name = timed(before), f"sessions {len(job.words)}"
    windows = before.stream.key_by(f.key_of).window(EventTimeSessionWindows(gap_ms)).allowed_lateness(lateness_ms)
    windows = windows.side_output_late_data(t.LATE)
    if folds:
        fired = windows.aggregate(Merged(job.cost_ms()), WithStart(), accumulator_type=None, output_type=f.ROW_TYPE)
    else:
        fired = windows.process(Summed(name, None, clock, job.cost_ms()), f.ROW_TYPE)
    expected = Expected(sessions(before.expected.rows, clock, gap_ms), ordered=False, exact=True)
    made = job.finish(fired, job.parallelism(), expected, name, True, [before], "keyed")
    late_rows = made.stream.get_side_output(t.LATE).map(t.TooLate(name, True), f.ROW_TYPE)
    nothing = replace(expected, rows=())
    aside = Stream(made.stream, made.group, nothing, True)
    late = job.finish(late_rows, made.parallelism, nothing, "late", True, [aside])
    both = made.stream.union(late.stream).map(f.Pass(0.01), f.ROW_TYPE)
    return job.finish(both, made.parallelism, expected, "all", True, [made, late])


def sessions(rows: tuple[Row, ...], clock: clocks.Clock, gap_ms: int) -> tuple[Row, ...]:
    """Return the results of all sessions. A key's session ends where two timestamps are further apart than the gap."""
    of_key: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        of_key[row[2]].append((clock(row), row[1]))
    found: list[Row] = []
    for key, timed_numbers in of_key.items():
        ordered = sorted(timed_numbers)
        cuts = [n for n in range(1, len(ordered)) if ordered[n][0] > ordered[n - 1][0] + gap_ms]
        for begin, end in zip([0, *cuts], [*cuts, len(ordered)]):
            numbers = [number for _, number in ordered[begin:end]]
            found.append((max(numbers), ordered[begin][0], key, sum(numbers), len(numbers)))
    return tuple(found)


def results(rows: tuple[Row, ...], clock: clocks.Clock, size_ms: int, slide_ms: int, offset_ms: int) -> tuple[Row, ...]:
    """Return the results of all windows, by looking at each row and each window that may contain it."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows:
        time_ms = clock(row)
        start = time_ms - (time_ms - offset_ms) % slide_ms
        while start > time_ms - size_ms:
            found[row[2], start].append(row[1])
            start -= slide_ms
    return tuple((max(group), start, key, sum(group), len(group)) for (key, start), group in found.items())
