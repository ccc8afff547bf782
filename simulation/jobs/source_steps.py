"""Declares sources of random jobs, and the operator behind each that makes rows of numbers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.generators.number_sequence import NumberSequenceSource
from penstock.connectors.hybrid.hybrid_source import HybridSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from simulation.jobs import clocks
from simulation.jobs import simulated_functions as f
from simulation.jobs.choices import Choosing, PlanError, step
from simulation.jobs.drawn_parallelisms import Parallelisms
from simulation.jobs.ranges import RangesSource
from simulation.jobs.stored_rows import StoredRanges
from simulation.jobs.streams import Expected, Stream


class SourceSteps(Choosing):
    """Declares sources, as part of a `WorkloadBuilder`."""

    configuration: Configuration
    environment: StreamExecutionEnvironment
    parallelisms: Parallelisms
    words: list[str]
    rows_max: int
    parallelism: Callable[..., int]
    cost_ms: Callable[..., float]
    row_type: Callable[..., tuple[Any, bool]]
    finish: Callable[..., Stream]

    @step
    def source(
        self,
        number: int | None = None,
        kind: str | None = None,
        rows: int | None = None,
        parallelism: int | None = None,
        cost_ms: float | None = None,
        keys: int | None = None,
        timed: str | None = "",
        drift_ms: int | None = None,
        newest: int | None = None,
        stored: bool | None = None,
    ) -> Stream:
        """Declare a source. `timed`: "patient", "hasty" or (hasty) "idle" watermarks, None for none; "" is drawn.
        `drift_ms`: how far it may be ahead of the other sources in event time; 0 is any. `newest`: its last splits,
        those before which are a backlog; 0: there is none. `stored`: its rows are in a folder of the job's directory,
        as those of a DataFrame; None: drawn, where the kind is drawn. The kind "hybrid" is not drawn: ranges, then a
        sequence."""
        random = self.random
        may_be_stored = kind is None
        number = self.choose("number", lambda: 0, number)
        parallelism = self.parallelism(parallelism)
        rows = self.choose("rows", lambda: random.randint(10, self.rows_max), rows)
        kind = self.choose("kind", lambda: random.choice(("sequence", "owned", "ranges", "collection")), kind)
        timed = self.choose(
            "timed", lambda: random.choice((None, "patient", "patient", "hasty")) if timed == "" else timed
        )
        # If each reader has a split of its own, time may start again in each of them.
        relative = kind == "owned"
        bounds, parallelism = self._splits(kind, rows, parallelism)
        keys = self.choose("keys", lambda: random.choice((1, 3, 8)), keys)
        label = f.Label(number, bounds, keys, self.cost_ms(cost_ms), relative)
        strategy = None if timed is None else self._strategy(timed, label)
        at_source = strategy is not None and self.choose(
            "at_source", lambda: random.random() < 0.6, True if drift_ms else None
        )
        if strategy is not None and at_source and kind != "collection":
            drift_ms = self.choose("drift_ms", lambda: _drift_ms(label), drift_ms, absent=0)
            if drift_ms:
                strategy = strategy.with_watermark_alignment("all sources", drift_ms, 5)
        newest = self.choose("newest", lambda: _newest(label) if kind == "ranges" else 0, newest, absent=0)
        stored = self.choose(
            "stored", lambda: may_be_stored and kind == "ranges" and _is_stored(label), stored, absent=False
        )
        made = self._read(kind, number, rows, bounds, strategy if at_source else None, newest, stored)
        # If a job starts from scratch with another number of readers, a sequence has other splits; then a reader that
        # has finished one gets another of an earlier time.
        is_whole = kind == "sequence" and parallelism == 1 and timed == "patient"
        group = self.parallelisms.new_group(parallelism, pinned=kind == "collection" or relative or is_whole)
        self.parallelisms.add(made.set_parallelism(parallelism), group)
        if strategy is not None and not at_source:
            made = made.assign_timestamps_and_watermarks(strategy).set_parallelism(parallelism)
            self.parallelisms.add(made, group)
        # Another number of readers makes other splits, if the job starts from scratch.
        ordered = kind not in ("sequence", "hybrid")
        # A finished reader may get a split of an earlier time that no reader has asked for.
        patient = kind in ("owned", "collection") or (kind == "ranges" and at_source) or len(bounds) == 1
        expected = Expected(
            tuple(label.label(n) for n in range(rows)),
            ordered,
            clock=None if timed is None else clocks.RowTime(),
            patient=timed == "patient" and patient,
        )
        row_type, typed = self.row_type()
        self.words.append(f"{kind} {rows}/{parallelism}{f' {timed}' if timed else ''}")
        before = Stream(made, group, expected, typed)
        return self.finish(made.map(label, row_type), parallelism, expected, "label", typed, [before], "forward")

    def _splits(self, kind: str, rows: int, parallelism: int) -> tuple[list[int], int]:
        """Return the first row of each split, and the parallelism: a collection is read by one reader."""
        if kind == "collection":
            return [0], self.replace_choice("parallelism", 1)
        if kind != "ranges":
            return [rows * part // parallelism for part in range(parallelism)], parallelism
        bounds: list[int] = self.choose("bounds", lambda: self._bounds(rows, parallelism))
        if bounds[0] != 0 or bounds[-1] >= rows:
            raise PlanError(f"its bounds {bounds} do not begin with 0 and end below its {rows} rows")
        return bounds, parallelism

    def _bounds(self, rows: int, parallelism: int) -> list[int]:
        random = self.random
        return sorted({0, *(random.randrange(rows) for _ in range(random.randint(0, 2 * parallelism)))})

    def _strategy(self, timed: str, label: f.Label) -> WatermarkStrategy:
        kinds = {"patient": clocks.PATIENT, "hasty": clocks.HASTY, "idle": clocks.IDLE}[timed]
        made = clocks.STRATEGIES[self.choose("watermarks", lambda: self.random.choice(kinds))]()
        return made.with_timestamp_assigner(clocks.Assigner(clocks.RowTime(), label.label))

    def _read(
        self,
        kind: str,
        number: int,
        rows: int,
        bounds: list[int],
        strategy: WatermarkStrategy | None,
        newest: int,
        stored: bool,
    ) -> Any:
        strategy = strategy or WatermarkStrategy.no_watermarks()
        if kind in ("ranges", "owned"):
            rest_every = self.choose("rest_every", lambda: self.random.choice((0, 0, 10)))
            made = StoredRanges if stored else RangesSource
            source = made([*bounds, rows], rest_every, 20.0, owned=kind == "owned", newest=newest or None)
            return self.environment.from_source(source, strategy, f"{kind} {number}")
        if kind == "hybrid":
            history = RangesSource([0, rows // 4, rows // 2], self.choose("rest_every", lambda: 0), 20.0)
            both = HybridSource.builder(history).add_source(NumberSequenceSource(rows // 2, rows - 1)).build()
            return self.environment.from_source(both, strategy, f"hybrid {number}")
        if kind == "sequence":
            return self.environment.from_source(NumberSequenceSource(0, rows - 1), strategy, f"numbers {number}")
        collected = self.environment.from_collection(list(range(rows)), Types.LONG())
        if not strategy.generates_watermarks:
            return collected
        return collected.assign_timestamps_and_watermarks(strategy).set_parallelism(1)


def _newest(label: f.Label) -> int:
    """Draw the number of a source's splits that are no backlog, from a random source of its own. 0: none is one."""
    random = Random(f"backlog of {label.source} {label.bounds} {label.keys}")
    return random.randint(1, len(label.bounds)) if random.random() < 0.4 else 0


def _is_stored(label: f.Label) -> bool:
    """Draw whether rows are in a folder of the job's directory, from a random source of its own."""
    return Random(f"folder of {label.source} {label.bounds} {label.keys}").random() < 0.4


def _drift_ms(label: f.Label) -> int:
    """Draw the maximum lead of a source over the others, from a random source of its own. 0: it is in no group."""
    return Random(f"drift of {label.source} {label.bounds} {label.keys}").choice((0, 0, 0, 10, 200))
