"""Declares operators of random jobs that work on columns. A typed stream of rows has the columns f0 (split) to f4
(count).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.time import Duration, Time
from penstock.datastream.columnar import count, max_, sum_
from penstock.datastream.functions import MapFunction
from penstock.datastream.window import TumblingEventTimeWindows
from simulation.jobs import simulated_functions as f
from simulation.jobs import timed_functions as t
from simulation.jobs.choices import Choosing, PlanError, step
from simulation.jobs.clocks import WindowEnd
from simulation.jobs.streams import Expected, Stream
from simulation.jobs.timed_steps import timed
from simulation.world.world_hooks import Row


@dataclass(frozen=True)
class StartedAt:
    """Returns the event time of a window's result, whose number is the window's start."""

    size_ms: int

    def __call__(self, row: Row) -> int:
        return row[1] + self.size_ms - 1


class Passing(f.Busy):
    """Passes batches as they are."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            self.work()
        return batch


class AsTuple(MapFunction):
    def map(self, value: Any) -> Row:
        return tuple(value)


class AsCount(MapFunction):
    """Turns a rolling aggregate (key, rows, largest number) into a row that is named by its key and count."""

    def map(self, value: Any) -> Row:
        key, rows, _ = value
        return (0, rows, key, 0, rows)


class AsWindow(MapFunction):
    """Turns (key, start, end, rows, sum, max of numbers) into a row."""

    def map(self, value: Any) -> Row:
        key, start, _, rows, total, largest = value
        return (largest, start, key, total, rows)


class ColumnarSteps(Choosing):
    """Declares steps that work on columns, as part of a `WorkloadBuilder`."""

    parallelism: Callable[..., int]
    cost_ms: Callable[..., float]
    finish: Callable[..., Stream]
    words: list[str]

    def columnar_choices(self, before: Stream) -> list[Callable[[Stream], Stream]]:
        choices: list[Callable[[Stream], Stream]] = [self.pass_batches, self.keep_columns, self.roll]
        if before.expected.clock is not None and before.expected.patient:
            choices += [self.window_columns, self.window_columns]
        return choices

    def typed(self, before: Stream) -> Stream:
        """Return the stream with columns."""
        if before.typed:
            return before
        rows = before.stream.map(f.Pass(0.01), f.ROW_TYPE)
        return self.finish(rows, before.parallelism, before.expected, "columns", True, [before])

    def _rows(self, before: Stream, stream: Any, function: MapFunction, expected: Expected) -> Stream:
        """Convert back to the rows of other streams."""
        rows = stream.map(function, f.ROW_TYPE)
        return self.finish(rows, before.parallelism, expected, "rows", True, [before])

    @step
    def pass_batches(self, before: Stream, batch_size: int | None = None) -> Stream:
        """Pass batches with and without a batch size, for which rows wait: what follows them must come after them."""
        before = self.typed(before)
        passing = Passing(self.cost_ms())
        # Drawn separately, so that everything else that a seed means stays.
        sizes: tuple[Any, ...] = (None, None, 3, 20)
        apart = Random(f"batch size {passing.cost_ms} {len(self.words)}")
        batch_size = self.choose("batch_size", lambda: apart.choice(sizes), batch_size)
        latency = None
        if batch_size is not None:
            latency = Duration.of_millis(self.choose("latency_ms", lambda: apart.choice((5, 200))))
        after = before.stream.map_batches(passing, f.ROW_TYPE, batch_size, latency)
        return self.finish(after, before.parallelism, before.expected, "batches", True, [before])

    @step
    def keep_columns(self, before: Stream) -> Stream:
        """Filter, then rewrite a column, chained or not."""
        before = self.typed(before)
        kept = before.stream.filter(pc.not_equal(pc.bit_wise_and(pc.field("f1"), pc.scalar(3)), pc.scalar(0)))
        expected = replace(before.expected, rows=tuple(row for row in before.expected.rows if row[1] & 3))
        filtered = self.finish(kept, before.parallelism, expected, "filter", True, [before])
        same = filtered.stream.with_columns(f4=pc.add(pc.field("f4"), pc.scalar(0)))
        columns = self.finish(same, before.parallelism, expected, "with columns", True, [filtered])
        return self._rows(columns, columns.stream, AsTuple(), expected)

    @step
    def roll(self, before: Stream) -> Stream:
        """Aggregate rolling: of each key the counts from 1 to the number of its rows, each once and in order."""
        before = self.typed(before)
        after = before.stream.key_by("f2").aggregate(rows=count(), largest=max_("f1"))
        keys = Counter(row[2] for row in before.expected.rows)
        rows = tuple((0, i, key, 0, i) for key, number in keys.items() for i in range(1, number + 1))
        expected = Expected(rows, ordered=True, exact=True)
        rolled = self.finish(after, self.parallelism(), expected, "roll", True, [before], "keyed")
        return self._rows(rolled, rolled.stream, AsCount(), rolled.expected)

    @step
    def window_columns(self, before: Stream, size_ms: int | None = None, lateness_ms: int | None = None) -> Stream:
        """Aggregate by window; nothing may be late. `lateness_ms`: None draws one. With 0 there is no output of late
        rows, so the window works in two phases, and a late row is noticed by its absence.
        """
        before = self.typed(before)
        clock = timed(before)
        if not self.is_drawing and not before.expected.patient:
            raise PlanError("it needs an input of which nothing is late")
        size_ms = self.choose("size_ms", lambda: self.random.choice((7, 25, 100)), size_ms)
        ends = WindowEnd(clock, size_ms, self.choose("offset_ms", lambda: self.random.choice((0, 3, -2))))
        name = f"window columns {len(self.words)}"
        windows = before.stream.key_by("f2").window(
            TumblingEventTimeWindows.of(Time.milliseconds(size_ms), Time.milliseconds(ends.offset_ms))
        )
        lateness_ms = self.choose("lateness_ms", lambda: self.random.choice((0, 40)), lateness_ms)
        if lateness_ms:
            windows = windows.allowed_lateness(lateness_ms).side_output_late_data(t.LATE)
        after = windows.aggregate(rows=count(), total=sum_("f1"), largest=max_("f1"))
        rows_of_windows = windows_of(before.expected.rows, ends)
        expected = Expected(rows_of_windows, ordered=True, exact=True, clock=StartedAt(size_ms), patient=True)
        fired = self.finish(after, self.parallelism(), expected, name, True, [before], "keyed")
        rows = self._rows(fired, fired.stream, AsWindow(), fired.expected)
        if not lateness_ms:
            return rows
        late = Stream(fired.stream.get_side_output(t.LATE), fired.group, replace(expected, rows=()), True)
        late_rows = late.stream.map(t.TooLate(name, True), f.ROW_TYPE)
        late = self.finish(late_rows, fired.parallelism, late.expected, "late", True, [late])
        both = rows.stream.union(late.stream).map(f.Pass(0.01), f.ROW_TYPE)
        return self.finish(both, fired.parallelism, rows.expected, "all", True, [rows, late])


def windows_of(rows: tuple[Row, ...], ends: WindowEnd) -> tuple[Row, ...]:
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows:
        found[row[2], ends.start(row)].append(row[1])
    return tuple((max(group), start, key, sum(group), len(group)) for (key, start), group in found.items())
