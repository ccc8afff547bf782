"""A random job, and what has to come out of it.

The expectation is computed while the graph is declared: every stream carries the rows that will have passed on it
when all input has been read, without their counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.job_graph import JobGraph
from penstock.simulation import clocks
from penstock.simulation import functions as f
from penstock.simulation.columnar_steps import ColumnarSteps
from penstock.simulation.graph_changes import GraphChanges, GraphState
from penstock.simulation.idle_branch import add_idle_branch
from penstock.simulation.output import WorldSink
from penstock.simulation.parallelism import Group, Parallelisms
from penstock.simulation.ranges import RangesSource
from penstock.simulation.streams import Expected, Stream
from penstock.simulation.timed_steps import TimedSteps

ROWS_MAX = 400
PARTITIONERS = ("rebalance", "rescale", "shuffle", "broadcast", "global", "custom", "forward")


@dataclass
class Workload:
    """`sinks` by name; `counted`: keyed operator's name -> rows that reach it. `graph`: what the next driver runs.
    `changes`: None where the graph stays the same at every resume."""

    graph: JobGraph
    configuration: Configuration
    sinks: dict[str, Expected]
    counted: dict[str, Expected]
    summary: str
    environment: StreamExecutionEnvironment
    parallelisms: Parallelisms
    changes: GraphChanges | None = None
    _ran: list[tuple[GraphState | None, list[int]]] = field(default_factory=list)
    """What drivers ran, the newest last. One that the newest checkpoint was taken with is among them."""

    def rescale(self, random: Random, largest: int = 4) -> bool:
        """From the next driver on, operators run at other parallelisms. Returns whether any does."""
        changed = self.parallelisms.redraw(random, largest)
        if self.changes is not None:
            changed |= self.changes.draw()
        self._rebuild()
        return changed

    def change_graphs(self, random: Random) -> None:
        """Let the graph change at every resume; the first driver's is drawn, too."""
        self.changes = GraphChanges(random, self.environment._graph)
        self.changes.draw()
        self.configuration.set("execution.state-recovery.ignore-unclaimed-state", True)
        self._rebuild()

    def _rebuild(self) -> None:
        if self.changes is not None:
            self.changes.apply()
        self.graph = self.environment.get_job_graph("simulated")

    def runs(self) -> None:
        """Remember what a driver runs."""
        self._ran.append((self.changes.state if self.changes is not None else None, self.parallelisms.levels()))

    def undo(self) -> None:
        """The newest driver's graph was refused: go back to the one before."""
        self._ran.pop()
        state, levels = self._ran.pop()
        self.parallelisms.set_levels(levels)
        if self.changes is not None and state is not None:
            self.changes.state = state
        self._rebuild()


@dataclass(frozen=True)
class WorkloadShape:
    """Bounds of what `random_workload` draws. `steps`: operators between source and sink."""

    rows_max: int = 70
    parallelism_max: int = 4
    sources_max: int = 2
    steps_max: int = 4
    cost_ms_max: float = 8.0


class WorkloadBuilder(TimedSteps, ColumnarSteps):
    """Declares operators and what is expected of them. What is not said is drawn."""

    def __init__(self, random: Random, configuration: Configuration, shape: WorkloadShape | None = None) -> None:
        self.random = random
        self.shape = shape or WorkloadShape()
        self.environment = StreamExecutionEnvironment(configuration)
        self.configuration = configuration
        self.counted: dict[str, Expected] = {}
        self.sinks: dict[str, Expected] = {}
        self.words: list[str] = []
        self.parallelisms = Parallelisms()
        self._names = 0

    # ---- choices ------------------------------------------------------------------------------------------------

    def parallelism(self) -> int:
        return min(self.random.choice((1, 2, 2, 3, 4)), self.shape.parallelism_max)

    def cost_ms(self) -> float:
        """Mostly little, so that one operator holds up the others."""
        return self.random.choice((0.02, 0.1, 1.0, self.shape.cost_ms_max))

    def finish(
        self, stream: Any, parallelism: int, expected: Expected, word: str, typed: bool, before: list[Stream],
        edge: str = "default",
    ) -> Stream:  # fmt: skip
        """Declares an operator's place. `edge`: how rows come to it from the streams before it, which decides at which
        parallelism it may run when the job is resumed, and whether rows keep their order."""
        self._names += 1
        stream.set_parallelism(parallelism).name(f"{self._names} {word}")
        group = self.parallelisms.new_group(parallelism)
        self.parallelisms.add(stream, group)
        equal = all(b.parallelism == parallelism for b in before)
        if self.random.random() < 0.2 or (edge == "default" and not equal):
            # Once their parallelisms are equal they would be chained, and a restore refuses other chains.
            stream.start_new_chain()
        keeps_order = self._attach(group, parallelism, before, edge, expected.ordered)
        self.words.append(f"{word}/{parallelism}")
        return Stream(stream, group, replace(expected, ordered=expected.ordered and keeps_order), typed)

    def _attach(self, group: Group, parallelism: int, before: list[Stream], edge: str, ordered: bool) -> bool:
        """Says what resumed jobs have to keep to. Returns whether rows keep their order, then too."""
        groups = self.parallelisms
        if edge in ("keyed", "custom", "global"):
            return True
        if edge == "broadcast":
            groups.pin(group, *(b.group for b in before))
            return True
        if edge == "rescale":
            keeps_order = all(parallelism <= b.parallelism for b in before)
            if ordered and keeps_order:
                for b in before:
                    groups.at_most(group, b.group)
            return keeps_order
        if edge == "forward" or (edge == "default" and all(b.parallelism == parallelism for b in before)):
            for b in before:
                groups.join(b.group, group)
            return True
        for b in before:
            if edge == "default" and b.parallelism == parallelism:
                groups.join(b.group, group)
        if parallelism == 1 and ordered:
            groups.pin(group)
        return parallelism == 1

    def row_type(self) -> tuple[Any, bool]:
        typed = self.random.random() < 0.7
        return (f.ROW_TYPE if typed else None), typed

    # ---- operators ----------------------------------------------------------------------------------------------

    def source(
        self, number: int = 0, kind: str | None = None, rows: int | None = None, parallelism: int | None = None,
        cost_ms: float | None = None, keys: int | None = None, timed: str | None = "",
    ) -> Stream:  # fmt: skip
        """`timed`: "patient", "hasty" or (hasty) "idle" watermarks, None for none; "" is drawn."""
        random = self.random
        parallelism = parallelism or self.parallelism()
        rows = rows or random.randint(10, self.shape.rows_max)
        kind = kind or random.choice(("sequence", "owned", "ranges", "collection"))
        timed = random.choice((None, "patient", "patient", "hasty")) if timed == "" else timed
        # Where each reader has a split of its own, time may start anew in each of them.
        relative = kind == "owned"
        if kind == "collection":
            bounds, parallelism = [0], 1
        elif kind != "ranges":
            bounds = [rows * part // parallelism for part in range(parallelism)]
        else:
            bounds = sorted({0, *(random.randrange(rows) for _ in range(random.randint(0, 2 * parallelism)))})
        label = f.Label(
            number, bounds, keys or random.choice((1, 3, 8)), self.cost_ms() if cost_ms is None else cost_ms, relative
        )
        strategy = None if timed is None else self._strategy(timed, label)
        at_source = strategy is not None and random.random() < 0.6
        made = self._read(kind, number, rows, bounds, strategy if at_source else None)
        group = self.parallelisms.new_group(parallelism, pinned=kind == "collection" or relative)
        self.parallelisms.add(made.set_parallelism(parallelism), group)
        if strategy is not None and not at_source:
            made = made.assign_timestamps_and_watermarks(strategy).set_parallelism(parallelism)
            self.parallelisms.add(made, group)
        # Another number of readers makes other splits, if the job starts from scratch.
        ordered = kind != "sequence"
        # A reader that is through may get a split of an earlier time that nobody has asked for.
        patient = kind in ("owned", "collection") or (kind == "ranges" and at_source) or len(bounds) == 1
        expected = Expected(
            tuple(label.label(n) for n in range(rows)), ordered, clock=None if timed is None else clocks.RowTime(),
            patient=timed == "patient" and patient,
        )  # fmt: skip
        row_type, typed = self.row_type()
        self.words.append(f"{kind} {rows}/{parallelism}{f' {timed}' if timed else ''}")
        before = Stream(made, group, expected, typed)
        return self.finish(made.map(label, row_type), parallelism, expected, "label", typed, [before], "forward")

    def _strategy(self, timed: str, label: f.Label) -> WatermarkStrategy:
        made = self.random.choice({"patient": clocks.PATIENT, "hasty": clocks.HASTY, "idle": clocks.IDLE}[timed])()
        return made.with_timestamp_assigner(clocks.Assigner(clocks.RowTime(), label.label))

    def _read(self, kind: str, number: int, rows: int, bounds: list[int], strategy: WatermarkStrategy | None) -> Any:
        strategy = strategy or WatermarkStrategy.no_watermarks()
        if kind in ("ranges", "owned"):
            source = RangesSource([*bounds, rows], self.random.choice((0, 0, 10)), 20.0, owned=kind == "owned")
            return self.environment.from_source(source, strategy, f"{kind} {number}")
        if kind == "sequence":
            return self.environment.from_source(NumberSequenceSource(0, rows - 1), strategy, f"numbers {number}")
        collected = self.environment.from_collection(list(range(rows)), Types.LONG())
        if not strategy.generates_watermarks:
            return collected
        return collected.assign_timestamps_and_watermarks(strategy).set_parallelism(1)

    def step(self, before: Stream) -> Stream:
        choices: list[Callable[[Stream], Stream]] = [
            self.repartition, self.repartition, self.count, self.count, self.keep, self.expand, self.reduce,
        ]  # fmt: skip
        drawn = self.random.random()
        if drawn < 0.4:
            choices = self.timed_choices(before)
        elif drawn < 0.55:
            choices = self.columnar_choices(before)
        return self.random.choice(choices)(before)

    def count(self, before: Stream, parallelism: int | None = None, cost_ms: float | None = None) -> Stream:
        name = f"count {len(self.counted)}"
        self.counted[name] = before.expected
        stalls_every = self.random.choice((0, 0, 0, 30)) if cost_ms is None else 0
        cost_ms = self.cost_ms() if cost_ms is None else cost_ms
        function = f.Count(name, before.expected.ordered, cost_ms, stalls_every)
        row_type, typed = self.row_type()
        after = self.keyed(before, by_column=False).process(function, row_type).uid(name)
        expected = replace(before.expected, counts=True, exact=False)
        return self.finish(after, parallelism or self.parallelism(), expected, name, typed, [before], "keyed")

    def reduce(self, before: Stream) -> Stream:
        row_type, typed = self.row_type()
        reset = before.stream.map(f.Reset(0.01), row_type)
        ones = self.finish(reset, before.parallelism, before.expected, "ones", typed, [before], "default")
        after = self.keyed(ones).reduce(f.Follow(self.cost_ms()))
        expected = replace(before.expected, counts=True, exact=False)
        return self.finish(after, self.parallelism(), expected, "reduce", typed, [ones], "keyed")

    def keyed(self, before: Stream, by_column: bool = True) -> Any:
        if by_column and before.typed and self.random.random() < 0.3:
            return before.stream.key_by("f2")
        selector, key_type = self.random.choice(
            ((f.key_of, Types.LONG()), (f.key_of, None), (f.key_text_of, Types.STRING()), (f.key_text_of, None))
        )
        return before.stream.key_by(selector, key_type)

    def keep(self, before: Stream) -> Stream:
        keep = f.Keep(self.random.randrange(100), self.cost_ms())
        rows = tuple(row for row in before.expected.rows if keep.keeps(row))
        after = before.stream.filter(keep)
        expected = replace(before.expected, rows=rows)
        return self.finish(after, before.parallelism, expected, "keep", before.typed, [before])

    def expand(self, before: Stream, fan: tuple[int, int] | None = None, cost_ms: float | None = None) -> Stream:
        """`fan`: how many rows for most, and for some."""
        usual, burst = fan or self.random.choice(((2, 3), (3, 60), (1, 40)))
        expand = f.Expand(self.random.randrange(100), usual, burst, self.cost_ms() if cost_ms is None else cost_ms)
        rows = tuple(made for row in before.expected.rows for made in expand.expanded(row))
        if len(rows) > ROWS_MAX:
            return self.keep(before)
        row_type, typed = self.row_type()
        after = before.stream.flat_map(expand, row_type)
        expected = replace(before.expected, rows=rows, counts=False)
        return self.finish(after, before.parallelism, expected, "expand", typed, [before])

    def repartition(
        self, before: Stream, kind: str | None = None, parallelism: int | None = None, cost_ms: float | None = None
    ) -> Stream:
        kind = kind or self.random.choice(PARTITIONERS)
        parallelism = parallelism or self.parallelism()
        cost_ms = self.cost_ms() if cost_ms is None else cost_ms
        stream, expected = before.stream, before.expected
        row_type, typed = self.row_type()
        if kind == "broadcast" and len(expected.rows) * parallelism > ROWS_MAX:
            kind = "custom"
        if kind == "broadcast":
            rows = tuple(f.tagged(row, tag) for tag in range(parallelism) for row in expected.rows)
            after = stream.broadcast().map(f.TagSubtask(cost_ms), row_type)
            expected = replace(expected, rows=rows, counts=False)
            return self.finish(after, parallelism, expected, kind, typed, [before], kind)
        if kind == "forward":
            parallelism = before.parallelism
        partitioned = {
            "rebalance": stream.rebalance, "rescale": stream.rescale, "shuffle": stream.shuffle,
            "global": stream.global_, "forward": stream.forward,
            "custom": lambda: stream.partition_custom(f.modulo, f.key_of),
        }[kind]()  # fmt: skip
        after = partitioned.map(f.Pass(cost_ms), row_type)
        return self.finish(after, parallelism, expected, kind, typed, [before], kind)

    def union(self, one: Stream, other: Stream) -> Stream:
        """Of streams with a common ancestor, too: each is tagged first."""
        tagged = [self._tag(stream, branch) for branch, stream in enumerate((one, other))]
        union = tagged[0].stream.union(tagged[1].stream)
        row_type, typed = self.row_type()
        after = union.map(f.Pass(self.cost_ms()), row_type)
        return self.finish(after, self.parallelism(), self.together(*tagged), "union", typed, tagged)

    @staticmethod
    def together(one: Stream, other: Stream) -> Expected:
        """Of two streams whose rows are different."""
        first, second = one.expected, other.expected
        return Expected(
            first.rows + second.rows, first.ordered and second.ordered, exact=first.exact and second.exact,
            clock=first.clock if first.clock == second.clock else None, patient=first.patient and second.patient,
        )  # fmt: skip

    def _tag(self, before: Stream, branch: int) -> Stream:
        expected = before.expected
        rows = tuple(f.tagged(row, branch) for row in expected.rows)
        after = before.stream.map(f.TagBranch(branch, 0.01), f.ROW_TYPE)
        return self.finish(after, before.parallelism, replace(expected, rows=rows), "tag", True, [before])

    def sink(self, before: Stream, parallelism: int | None = None, held_rows_max: int | None = None) -> None:
        name = f"sink {len(self.sinks)}"
        parallelism = parallelism or self.parallelism()
        if held_rows_max is None:
            held_rows_max = self.random.choice((0, 0, 5))
        group = self.parallelisms.new_group(parallelism)
        ordered = self._attach(group, parallelism, [before], "default", before.expected.ordered)
        ordered = ordered and before.expected.ordered
        if ordered and held_rows_max:
            # What a writer holds is dealt out anew at another parallelism, and may come behind younger rows.
            self.parallelisms.pin(group)
        declared = before.stream.sink_to(WorldSink(name, held_rows_max)).name(name).uid(name)
        self.parallelisms.add(declared.set_parallelism(parallelism), group)
        if parallelism != before.parallelism:
            declared.start_new_chain()
        self.sinks[name] = replace(before.expected, ordered=ordered)
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
                    streams.append(self.random.choice((self.union, self.connect))(other, rest))
            else:
                streams[place] = self.step(before)
        for stream in streams:
            self.sink(stream)
        if random.random() < 0.1:
            self.environment.disable_operator_chaining()

    def build(self) -> Workload:
        graph = self.environment.get_job_graph("simulated")
        return Workload(
            graph, self.configuration, self.sinks, self.counted, ", ".join(self.words), self.environment,
            self.parallelisms,
        )  # fmt: skip


def random_workload(
    random: Random, configuration: Configuration, shape: WorkloadShape | None = None, idle: Random | None = None
) -> Workload:
    """`idle`: draws a branch whose splits become idle, besides all others."""
    builder = WorkloadBuilder(random, configuration, shape or WorkloadShape())
    builder.random_steps()
    if idle is not None:
        add_idle_branch(builder, idle)
    return builder.build()


__all__ = ["Expected", "Workload", "WorkloadShape", "WorkloadBuilder", "random_workload"]
