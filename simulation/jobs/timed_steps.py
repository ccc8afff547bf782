"""Declares operators of random jobs that concern time: timers, windows, two inputs, side outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.common.time import Time
from penstock.common.types import Types
from penstock.datastream.window import TumblingEventTimeWindows
from simulation.jobs import clocks
from simulation.jobs import simulated_functions as f
from simulation.jobs import timed_functions as t
from simulation.jobs.choices import Choosing, PlanError, step
from simulation.jobs.clocks import WindowEnd
from simulation.jobs.streams import Expected, Stream
from simulation.world.world_hooks import Row


class TimedSteps(Choosing):
    """Declares steps that look at time, as part of a `WorkloadBuilder`."""

    parallelism: Callable[..., int]
    cost_ms: Callable[..., float]
    row_type: Callable[..., tuple[Any, bool]]
    finish: Callable[..., Stream]
    keyed: Callable[[Stream], Any]
    together: Callable[[Stream, Stream], Expected]
    words: list[str]

    def timed_choices(self, before: Stream) -> list[Callable[[Stream], Stream]]:
        choices: list[Callable[[Stream], Stream]] = [self.divert, self.divert, self.nap, self.retime]
        if before.expected.clock is not None:
            choices += [self.delay, self.delay, self.window, self.window]
        return choices

    def _name(self, word: str) -> str:
        return f"{word} {len(self.words)}"

    # ---- timers -------------------------------------------------------------------------------------------------

    @step
    def delay(self, before: Stream, delay_ms: int | None = None, cost_ms: float | None = None) -> Stream:
        expected, clock = before.expected, timed(before)
        name = self._name("delay")
        delay_ms = self.choose("delay_ms", lambda: self.random.choice((1, 30, 200)), delay_ms)
        function = t.Delay(name, clock, expected.patient, delay_ms, self.cost_ms(cost_ms))
        row_type, typed = self.row_type()
        after = self.keyed(before).process(function, row_type)
        expected = replace(expected, ordered=False, counts=False, clock=clocks.Later(clock, delay_ms))
        return self.finish(after, self.parallelism(), expected, name, typed, [before], "keyed")

    @step
    def nap(self, before: Stream) -> Stream:
        name = self._name("nap")
        nap_ms = self.choose("nap_ms", lambda: self.random.choice((1, 20, 500)))
        function = t.Nap(name, nap_ms, self.cost_ms())
        row_type, typed = self.row_type()
        after = self.keyed(before).process(function, row_type)
        expected = replace(before.expected, ordered=False, counts=False, clock=None, patient=False)
        return self.finish(after, self.parallelism(), expected, name, typed, [before], "keyed")

    @step
    def retime(self, before: Stream) -> Stream:
        """Assign new timestamps in the middle of a stream, where nobody knows what rows are still to come."""
        kinds = clocks.PATIENT + clocks.HASTY
        strategy = clocks.STRATEGIES[self.choose("watermarks", lambda: self.random.choice(kinds))]()
        strategy = strategy.with_timestamp_assigner(clocks.Assigner(clocks.RowTime()))
        after = before.stream.assign_timestamps_and_watermarks(strategy)
        expected = replace(before.expected, clock=clocks.RowTime(), patient=False)
        return self.finish(after, before.parallelism, expected, "retime", before.typed, [before])

    # ---- windows ------------------------------------------------------------------------------------------------

    @step
    def window(self, before: Stream, kind: str | None = None, size_ms: int | None = None) -> Stream:
        """Aggregate by window. If rows may be late, late ones come out of the side output."""
        expected, clock = before.expected, timed(before)
        random = self.random
        size_ms = self.choose("size_ms", lambda: random.choice((7, 25, 100)), size_ms)
        ends = WindowEnd(clock, size_ms, self.choose("offset_ms", lambda: random.choice((0, 0, 3, -2))))
        lateness_ms = self.choose("lateness_ms", lambda: random.choice((0, 0, 10, 60)))
        kinds = ("rows", "reduce", "aggregate")
        kind = self.choose("kind", lambda: random.choice(kinds) if expected.patient else "rows", kind)
        if not self.is_drawing and kind != "rows" and not expected.patient:
            raise PlanError(f"a window of kind {kind!r} needs an input of which nothing is late")
        name = self._name(f"window {kind}")
        row_type, typed = self.row_type()
        if kind != "rows":
            before = self._ones(before)
        windows = self.keyed(before).window(
            TumblingEventTimeWindows.of(Time.milliseconds(size_ms), Time.milliseconds(ends.offset_ms))
        )
        windows = windows.allowed_lateness(lateness_ms).side_output_late_data(t.LATE)
        if kind == "rows":
            together = t.Together(name, ends, expected.patient, self.cost_ms())
            after, rows = windows.process(together, row_type), expected.rows
        elif kind == "reduce":
            after, rows = windows.reduce(t.First()), folded(expected.rows, ends)
            typed = before.typed
        else:
            after = windows.aggregate(t.FirstOf(self.cost_ms()), accumulator_type=None, output_type=row_type)
            rows = folded(expected.rows, ends)
        made = replace(
            expected,
            rows=rows,
            ordered=False,
            counts=False,
            exact=kind != "rows",
            clock=ends if expected.patient else None,
        )
        fired = self.finish(after, self.parallelism(), made, name, typed, [before], "keyed")
        late = Stream(fired.stream.get_side_output(t.LATE), fired.group, replace(made, rows=()), True)
        late_rows = late.stream.map(t.TooLate(name, expected.patient), f.ROW_TYPE if typed else None)
        late = self.finish(late_rows, fired.parallelism, late.expected, "late", typed, [late])
        row_type, typed = self.row_type("all_typed")
        both = fired.stream.union(late.stream).map(f.Pass(0.01), row_type)
        return self.finish(both, fired.parallelism, made, "all", typed, [fired, late])

    def _ones(self, before: Stream) -> Stream:
        row_type, typed = self.row_type("ones_typed")
        ones = before.stream.map(f.Reset(0.01), row_type)
        return self.finish(ones, before.parallelism, before.expected, "ones", typed, [before])

    # ---- side outputs, two inputs -------------------------------------------------------------------------------

    @step
    def divert(self, before: Stream) -> Stream:
        """Send a third of the rows another way, and join them again."""
        expected, name = before.expected, self._name("divert")
        salt = self.choose("salt", lambda: self.random.randrange(100))
        function = t.Divert(name, salt, expected.clock, self.cost_ms())
        row_type, typed = self.row_type()
        rows = tuple(row for row in expected.rows if not function.diverts(row))
        main = self.finish(
            before.stream.process(function, row_type),
            before.parallelism,
            replace(expected, rows=rows),
            name,
            typed,
            [before],
        )
        rows = tuple(row for row in expected.rows if function.diverts(row))
        aside = Stream(main.stream.get_side_output(t.ASIDE), main.group, replace(expected, rows=rows), True)
        return self.connect(main, aside)

    @step
    def connect(self, one: Stream, other: Stream) -> Stream:
        """Connect two streams; both get another tag, so that branches of one stream have different rows."""
        rows = tuple(f.tagged(row, tag) for tag, s in enumerate((one, other)) for row in s.expected.rows)
        expected = replace(self.together(one, other), rows=rows)
        row_type, typed = self.row_type()
        kind = self.choose("kind", lambda: self.random.choice(("map", "flat_map", "process", "keyed")))
        connected = one.stream.connect(other.stream)
        if kind == "keyed":
            name = self._name("count both")
            clock = expected.clock or clocks.RowTime()
            function = t.CountBoth(name, clock, expected.patient and expected.clock is not None, self.cost_ms())
            after = connected.key_by(f.key_of, f.key_of, Types.LONG()).process(function, row_type)
            expected = replace(expected, counts=True, exact=False)
            return self.finish(after, self.parallelism(), expected, name, typed, [one, other], "keyed")
        after = {
            "map": lambda: connected.map(t.TagBoth(self.cost_ms()), row_type),
            "flat_map": lambda: connected.flat_map(t.TagBothFlat(self.cost_ms()), row_type),
            "process": lambda: connected.process(t.TagBothProcess(self.cost_ms()), row_type),
        }[kind]()
        return self.finish(after, self.parallelism(), expected, f"connect {kind}", typed, [one, other])


def timed(before: Stream) -> clocks.Clock:
    """Return the event time of a stream's rows."""
    if before.expected.clock is None:
        raise PlanError("its input has no event time")
    return before.expected.clock


def folded(rows: tuple[Row, ...], ends: WindowEnd) -> tuple[Row, ...]:
    """Return a window's results for the rows of each key, in a batch."""
    found: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in rows:
        found[row[2], ends.start(row)].append(row)
    return tuple((*min(row[:4] for row in group), len(group)) for group in found.values())
