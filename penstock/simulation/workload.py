"""A random job, and what has to come out of it.

The expectation is computed while the graph is declared: every stream carries the rows that will have passed on it
when all input has been read, without their counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.data_stream import DataStream
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.job_graph import JobGraph
from penstock.simulation import functions as f
from penstock.simulation.output import Row, WorldSink
from penstock.simulation.ranges import RangesSource

ROWS_MAX = 400
PARTITIONERS = ("rebalance", "rescale", "shuffle", "broadcast", "global", "custom", "forward")


@dataclass(frozen=True)
class Expected:
    """`rows` with count 0. `ordered`: rows of one split and key keep their order. `counts`: the count that rows carry
    is that of one keyed operator, so no two of a key have the same."""

    rows: tuple[Row, ...]
    ordered: bool
    counts: bool = False


@dataclass
class Workload:
    """`sinks` by name; `counted`: keyed operator's name -> rows that reach it."""

    graph: JobGraph
    configuration: Configuration
    sinks: dict[str, Expected]
    counted: dict[str, Expected]
    summary: str


@dataclass
class Stream:
    """A stream while it is declared."""

    stream: DataStream
    parallelism: int
    expected: Expected
    typed: bool


@dataclass(frozen=True)
class WorkloadShape:
    """Bounds of what `random_workload` draws. `steps`: operators between source and sink."""

    rows_max: int = 70
    parallelism_max: int = 4
    sources_max: int = 2
    steps_max: int = 4
    cost_ms_max: float = 8.0


class WorkloadBuilder:
    """Declares operators and what is expected of them. What is not said is drawn."""

    def __init__(self, random: Random, configuration: Configuration, shape: WorkloadShape | None = None) -> None:
        self.random = random
        self.shape = shape or WorkloadShape()
        self.environment = StreamExecutionEnvironment(configuration)
        self.configuration = configuration
        self.counted: dict[str, Expected] = {}
        self.sinks: dict[str, Expected] = {}
        self.words: list[str] = []
        self._names = 0

    # ---- choices ------------------------------------------------------------------------------------------------

    def parallelism(self) -> int:
        return min(self.random.choice((1, 2, 2, 3, 4)), self.shape.parallelism_max)

    def cost_ms(self) -> float:
        """Mostly little, so that one operator holds up the others."""
        return self.random.choice((0.02, 0.1, 1.0, self.shape.cost_ms_max))

    def _finish(self, stream: DataStream, parallelism: int, expected: Expected, word: str, typed: bool) -> Stream:
        self._names += 1
        stream.set_parallelism(parallelism).name(f"{self._names} {word}")
        if self.random.random() < 0.2:
            stream.start_new_chain()
        self.words.append(f"{word}/{parallelism}")
        return Stream(stream, parallelism, expected, typed)

    def _type(self) -> tuple[Any, bool]:
        typed = self.random.random() < 0.7
        return (f.ROW_TYPE if typed else None), typed

    # ---- operators ----------------------------------------------------------------------------------------------

    def source(
        self, number: int = 0, kind: str | None = None, rows: int | None = None, parallelism: int | None = None,
        cost_ms: float | None = None, keys: int | None = None,
    ) -> Stream:  # fmt: skip
        random = self.random
        parallelism = parallelism or self.parallelism()
        rows = rows or random.randint(10, self.shape.rows_max)
        kind = kind or random.choice(("sequence", "ranges", "collection"))
        if kind == "sequence":
            bounds = [rows * part // parallelism for part in range(parallelism)]
            made = self.environment.from_source(
                NumberSequenceSource(0, rows - 1), WatermarkStrategy.no_watermarks(), f"numbers {number}"
            )
        elif kind == "ranges":
            bounds = sorted({0, *(random.randrange(rows) for _ in range(random.randint(0, 2 * parallelism)))})
            source = RangesSource([*bounds, rows], random.choice((0, 0, 10)), 20.0)
            made = self.environment.from_source(source, WatermarkStrategy.no_watermarks(), f"ranges {number}")
        else:
            bounds, parallelism = [0], 1
            made = self.environment.from_collection(list(range(rows)), Types.LONG())
        made.set_parallelism(parallelism)
        label = f.Label(
            number, bounds, keys or random.choice((1, 3, 8)), self.cost_ms() if cost_ms is None else cost_ms
        )
        expected = Expected(tuple(label.label(n) for n in range(rows)), ordered=True)
        row_type, typed = self._type()
        self.words.append(f"{kind} {rows}/{parallelism}")
        return self._finish(made.map(label, row_type), parallelism, expected, "label", typed)

    def step(self, before: Stream) -> Stream:
        choices = [self.repartition, self.repartition, self.count, self.count, self.keep, self.expand, self.reduce]
        return self.random.choice(choices)(before)

    def count(self, before: Stream, parallelism: int | None = None, cost_ms: float | None = None) -> Stream:
        name = f"count {len(self.counted)}"
        self.counted[name] = before.expected
        stalls_every = self.random.choice((0, 0, 0, 30)) if cost_ms is None else 0
        cost_ms = self.cost_ms() if cost_ms is None else cost_ms
        function = f.Count(name, before.expected.ordered, cost_ms, stalls_every)
        row_type, typed = self._type()
        after = self._keyed(before).process(function, row_type).uid(name)
        expected = replace(before.expected, counts=True)
        return self._finish(after, parallelism or self.parallelism(), expected, name, typed)

    def reduce(self, before: Stream) -> Stream:
        row_type, typed = self._type()
        reset = before.stream.map(f.Reset(0.01), row_type).set_parallelism(before.parallelism)
        after = self._keyed(replace(before, stream=reset)).reduce(f.Follow(self.cost_ms()))
        expected = replace(before.expected, counts=True)
        return self._finish(after, self.parallelism(), expected, "reduce", typed)

    def _keyed(self, before: Stream) -> Any:
        selector, key_type = self.random.choice(
            ((f.key_of, Types.LONG()), (f.key_of, None), (f.key_text_of, Types.STRING()), (f.key_text_of, None))
        )
        return before.stream.key_by(selector, key_type)

    def keep(self, before: Stream) -> Stream:
        keep = f.Keep(self.random.randrange(100), self.cost_ms())
        rows = tuple(row for row in before.expected.rows if keep.keeps(row))
        after = before.stream.filter(keep)
        return self._finish(after, before.parallelism, replace(before.expected, rows=rows), "keep", before.typed)

    def expand(self, before: Stream, fan: tuple[int, int] | None = None, cost_ms: float | None = None) -> Stream:
        """`fan`: how many rows for most, and for some."""
        usual, burst = fan or self.random.choice(((2, 3), (3, 60), (1, 40)))
        expand = f.Expand(self.random.randrange(100), usual, burst, self.cost_ms() if cost_ms is None else cost_ms)
        rows = tuple(made for row in before.expected.rows for made in expand.expanded(row))
        if len(rows) > ROWS_MAX:
            return self.keep(before)
        row_type, typed = self._type()
        after = before.stream.flat_map(expand, row_type)
        return self._finish(after, before.parallelism, Expected(rows, before.expected.ordered), "expand", typed)

    def repartition(
        self, before: Stream, kind: str | None = None, parallelism: int | None = None, cost_ms: float | None = None
    ) -> Stream:
        kind = kind or self.random.choice(PARTITIONERS)
        parallelism = parallelism or self.parallelism()
        cost_ms = self.cost_ms() if cost_ms is None else cost_ms
        stream, expected = before.stream, before.expected
        row_type, typed = self._type()
        if kind == "broadcast" and len(expected.rows) * parallelism > ROWS_MAX:
            kind = "custom"
        if kind == "broadcast":
            rows = tuple(f.tagged(row, tag) for tag in range(parallelism) for row in expected.rows)
            after = stream.broadcast().map(f.TagSubtask(cost_ms), row_type)
            return self._finish(after, parallelism, Expected(rows, expected.ordered), kind, typed)
        if kind == "forward":
            parallelism = before.parallelism
        keeps_order = kind in ("forward", "global", "custom") or parallelism == 1
        if kind == "rescale":
            keeps_order = parallelism <= before.parallelism
        partitioned = {
            "rebalance": stream.rebalance, "rescale": stream.rescale, "shuffle": stream.shuffle,
            "global": stream.global_, "forward": stream.forward,
            "custom": lambda: stream.partition_custom(f.modulo, f.key_of),
        }[kind]()  # fmt: skip
        after = partitioned.map(f.Pass(cost_ms), row_type)
        expected = replace(expected, ordered=expected.ordered and keeps_order)
        return self._finish(after, parallelism, expected, kind, typed)

    def union(self, one: Stream, other: Stream) -> Stream:
        """Of streams with a common ancestor, too: each is tagged first."""
        tagged = [self._tag(stream, branch) for branch, stream in enumerate((one, other))]
        rows = tagged[0].expected.rows + tagged[1].expected.rows
        ordered = one.expected.ordered and other.expected.ordered
        union = tagged[0].stream.union(tagged[1].stream)
        row_type, typed = self._type()
        parallelism = self.parallelism()
        # Where a branch has another parallelism, the default edge is a rebalance.
        ordered = ordered and (parallelism == 1 or all(s.parallelism == parallelism for s in tagged))
        after = union.map(f.Pass(self.cost_ms()), row_type)
        return self._finish(after, parallelism, Expected(rows, ordered), "union", typed)

    def _tag(self, before: Stream, branch: int) -> Stream:
        expected = before.expected
        rows = tuple(f.tagged(row, branch) for row in expected.rows)
        after = before.stream.map(f.TagBranch(branch, 0.01), f.ROW_TYPE)
        return self._finish(after, before.parallelism, replace(expected, rows=rows), "tag", True)

    def sink(self, before: Stream, parallelism: int | None = None) -> None:
        name = f"sink {len(self.sinks)}"
        parallelism = parallelism or self.parallelism()
        sink = WorldSink(name, self.random.choice((0, 0, 5)))
        before.stream.sink_to(sink).set_parallelism(parallelism).name(name).uid(name)
        keeps_order = parallelism == before.parallelism or parallelism == 1
        self.sinks[name] = replace(before.expected, ordered=before.expected.ordered and keeps_order)
        self.words.append(f"{name}/{parallelism}")

    def random_steps(self) -> None:
        random = self.random
        streams = [self.source(i) for i in range(random.randint(1, self.shape.sources_max))]
        for _ in range(random.randint(1, self.shape.steps_max)):
            place = random.randrange(len(streams))
            before = streams[place]
            if random.random() < 0.15 and len(streams) < 3:
                # The stream goes two ways from here.
                streams.append(self.step(before))
            elif random.random() < 0.25 and len(streams) > 1:
                other = streams.pop(random.randrange(len(streams)))
                rest = streams.pop(random.randrange(len(streams)))
                if len(other.expected.rows) + len(rest.expected.rows) > ROWS_MAX:
                    streams += [other, rest]
                else:
                    streams.append(self.union(other, rest))
            else:
                streams[place] = self.step(before)
        for stream in streams:
            self.sink(stream)
        if random.random() < 0.1:
            self.environment.disable_operator_chaining()

    def build(self) -> Workload:
        graph = self.environment.get_job_graph("simulated")
        return Workload(graph, self.configuration, self.sinks, self.counted, ", ".join(self.words))


def random_workload(random: Random, configuration: Configuration, shape: WorkloadShape | None = None) -> Workload:
    builder = WorkloadBuilder(random, configuration, shape or WorkloadShape())
    builder.random_steps()
    return builder.build()


__all__ = ["Expected", "Workload", "WorkloadShape", "WorkloadBuilder", "random_workload"]
