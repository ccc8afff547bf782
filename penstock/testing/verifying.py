"""Runs an operator under the interruptions that it has to survive, and compares its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from typing import Any

from penstock.common.time import Duration, Time
from penstock.common.typeinfo import TypeInformation
from penstock.common.watermark_strategy import Watermark
from penstock.connectors.testing._compared_rows import first_difference
from penstock.datastream.data_stream import DataStream
from penstock.graph.compatibility import IncompatibleGraph
from penstock.testing.fed_source import ROW, WATERMARK, Element
from penstock.testing.harness import Harness, Output

Build = Callable[..., "DataStream | Sequence[DataStream]"]

TINY = {
    "penstock.network.output-queue-bytes": "1 kb",
    "penstock.network.window-bytes": "1 kb",
    "penstock.network.bound-bytes-min": "1 kb",
    "penstock.network.overdraft-bytes-max": "1 bytes",
}
"""Room for a few rows: functions that emit several are interrupted between two of them."""


@dataclass(frozen=True)
class At:
    """Holds a row with its event time.

    Attributes:
        row: The row.
        timestamp: Its time, in milliseconds.
    """

    row: Any
    timestamp: int


@dataclass(frozen=True)
class Advance:
    """Lets time pass among the rows, after all that is due has happened.

    Attributes:
        by: The time, in milliseconds or as a Duration.
    """

    by: int | Duration | Time


@dataclass(frozen=True)
class Way:
    """Describes one way to run the operator. `restarts`: at each pause from a checkpoint that was taken there.
    `unaligned`: its barriers pass rows. None: no checkpoint is taken.
    """

    one_by_one: bool
    tiny: bool
    parallelisms: tuple[int, ...]
    unaligned: bool | None
    restarts: bool

    def __str__(self) -> str:
        told = ["one row at a time" if self.one_by_one else "all rows at once"]
        told += ["tiny output"] if self.tiny else []
        told += [f"parallelism {' then '.join(map(str, self.parallelisms))}"]
        if self.unaligned is not None:
            kind = "unaligned" if self.unaligned else "aligned"
            told.append(f"{kind} checkpoints at each pause{', each restored' if self.restarts else ''}")
        return ", ".join(told)


def ways(parallelisms: Sequence[int]) -> Iterator[Way]:
    """Yield all ways in which an operator is run, the plainest first."""
    first = parallelisms[:1]
    for unaligned, restarts in ((None, False), (True, True)):
        for tiny, one_by_one in product((False, True), repeat=2):
            yield Way(one_by_one, tiny, tuple(first), unaligned, restarts)
    yield Way(True, True, tuple(first), False, False)
    yield Way(False, True, tuple(first), False, True)
    for parallelism in parallelisms[1:]:
        yield Way(False, False, (parallelism,), None, False)
    if len(parallelisms) > 1:
        yield Way(False, True, tuple(parallelisms), True, True)


def verify_operator(
    build: Build,
    *scripts: Sequence[Any],
    types: TypeInformation | Sequence[TypeInformation | None] | None = None,
    expected: Sequence[Any] | None = None,
    in_order: bool = False,
    parallelisms: Sequence[int] = (1, 2),
    options: dict[str, Any] | None = None,
) -> list[Any]:
    """Run an operator under all combinations of interruptions, and check that its results are always the same.

    It gets its rows one by one and all at once, with room for its output and with hardly any, with checkpoints at each
    pause, aligned and not, and with a restart from each of these, at the same parallelism and at another. A pause is
    after each piece of work of any subtask. All inputs end at last, so all timers of event time fire.

    Args:
        build: Gets a stream for each script, and returns the stream of results, or several.
        scripts: The elements of each stream: rows, whose timestamps are their positions; `At(row, timestamp)`;
            `Watermark(timestamp)`; `Advance(by)` for the clock.
        types: The type of all streams, or a sequence of their types; None: rows are pickled.
        expected: The results; None: those of a run without interruptions.
        in_order: True if results must come in this order; a keyed function gives one only within each key.
        parallelisms: The numbers of subtasks to run with.
        options: Options of the job, by key.

    Returns:
        The results of the run without interruptions.

    Raises:
        AssertionError: Results differ; the message says under which interruptions, and which row is the first.
        OperatorFailure: A function raises.

    Example:
        verify_operator(
            lambda words: words.key_by(lambda word: word).process(Count(), Types.LONG()),
            ["a", "b", "a", Watermark(100)],
            types=Types.STRING(),
        )
    """
    if not parallelisms:
        raise ValueError("verify_operator() needs at least one parallelism")
    of_streams = list(types) if isinstance(types, Sequence) else [types] * len(scripts)
    wanted: list[Any] | None = None if expected is None else list(expected)
    first: list[Any] | None = None
    for way in ways(parallelisms):
        found = _Run(build, scripts, of_streams, way, options).results()
        first = found if first is None else first
        wanted = found if wanted is None else wanted
        _compare(wanted, found, in_order and way.parallelisms == (1,), way)
    assert first is not None
    return first


def _compare(wanted: list[Any], found: list[Any], in_order: bool, way: Way) -> None:
    pair = (wanted, found) if in_order else (sorted(wanted, key=repr), sorted(found, key=repr))
    if pair[0] != pair[1]:
        raise AssertionError(f"with {way}: {first_difference(pair[1], pair[0])}")


class _Run:
    """Runs the operator in one way."""

    def __init__(
        self,
        build: Build,
        scripts: Sequence[Sequence[Any]],
        types: Sequence[TypeInformation | None],
        way: Way,
        options: dict[str, Any] | None,
    ) -> None:
        self._way = way
        self._restarts = 0
        self._reached: set[str] = set()
        self._patience = self._left = 0
        """The number of pauses that an attempt has without an interruption: the first, and what is left of them."""
        self._harness = Harness(way.parallelisms[0], options={**(TINY if way.tiny else {}), **(options or {})})
        self._inputs = [self._harness.source(type_info) for type_info in types]
        for given in self._inputs:
            given.feed.at_once = 1 if way.one_by_one else given.feed.at_once
        made = build(*(given.stream for given in self._inputs))
        streams = [made] if isinstance(made, DataStream) else list(made)
        self._outputs: list[Output] = [self._harness.output(stream) for stream in streams]
        self._steps = [step for group in zip_longest(*map(_numbered, scripts)) for step in enumerate(group)]

    def results(self) -> list[Any]:
        harness = self._harness
        try:
            for number, step in self._steps:
                if step is None:
                    continue
                if isinstance(step, Advance):
                    self._pass_time(step)
                    continue
                given = self._inputs[number]
                if step.kind == ROW:
                    step = step._replace(value=given.as_declared([step.value])[0])
                given.feed.elements.append(step)
                if self._way.one_by_one:
                    self._run()
            self._run()
            self._end()
            return [row for output in self._outputs for row in output.rows]
        finally:
            harness.close()

    def _run(self) -> None:
        """Let the job work on all elements that it has been given, with an interruption at each pause."""
        for given in self._inputs:
            given.feed.available = len(given.feed.elements)
        while not self._harness.job.has_ended and self._harness.job.run_to_pause():
            self._interrupt()

    def _interrupt(self) -> None:
        way, harness = self._way, self._harness
        if way.unaligned is None:
            return
        if self._left > 0:
            self._left -= 1
            return
        checkpoint = harness.checkpoint(way.unaligned, may_wait=True)
        if not way.restarts:
            return
        # Without this: attempts that end at each pause never come further than what a restart repeats.
        progress = self._progress()
        self._patience = self._patience + 1 if progress in self._reached else 0
        self._reached.add(progress)
        self._left = self._patience
        harness.job.run_to_pause()  # this work is lost
        self._restarts += 1
        parallelism = way.parallelisms[self._restarts % len(way.parallelisms)]
        try:
            harness.begin_again(checkpoint, parallelism)
        except IncompatibleGraph:
            # Rows are in flight between operators that the other parallelism chains: a job refuses it, too.
            harness.begin_again(checkpoint)

    def _progress(self) -> str:
        """Return a text that changes as the job comes further: positions, times, and what has come out."""
        newest = self._harness.newest_checkpoint
        splits = [part.items for s in newest.subtasks for part in s.parts if part.name == "splits"]
        times = [(s.watermark_ms, s.current_ms, s.finished) for s in newest.subtasks]
        return repr((splits, times, [len(output.seen.rows) for output in self._outputs]))

    def _pass_time(self, step: Advance) -> None:
        self._run()
        clock, by = self._harness.clock, step.by
        by_ms = by.to_millis() if isinstance(by, Duration) else by.to_milliseconds() if isinstance(by, Time) else by
        end_ms = clock.now_ms + by_ms
        while (next_ms := self._harness.job.next_ms()) is not None and next_ms <= end_ms:
            clock.now_ms = max(clock.now_ms, next_ms)
            self._run()
        clock.now_ms = max(clock.now_ms, end_ms)
        self._run()

    def _end(self) -> None:
        for given in self._inputs:
            given.feed.has_ended = True
        self._run()
        while not self._harness.job.has_ended:
            next_ms = self._harness.job.next_ms()
            if next_ms is None:
                raise RuntimeError("the job does not end, and nothing is due")
            self._harness.clock.now_ms = max(self._harness.clock.now_ms, next_ms)
            self._run()


def _numbered(script: Sequence[Any]) -> list[Element | Advance]:
    """Return the elements of a script. The timestamp of a row without one is its position."""
    found: list[Element | Advance] = []
    for position, step in enumerate(script):
        if isinstance(step, Advance):
            found.append(step)
        elif isinstance(step, Watermark):
            found.append(Element(WATERMARK, None, step.timestamp))
        elif isinstance(step, At):
            found.append(Element(ROW, step.row, step.timestamp))
        else:
            found.append(Element(ROW, step, position))
    return found
