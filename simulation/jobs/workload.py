"""Declares a random job, and computes what has to come out of it.

The expectation is computed while the graph is declared: every stream carries the rows that will have passed on it when
all input has been read, without their counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.options import JobManagerOptions
from penstock.common.types import Types
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.job_graph import JobGraph
from simulation.jobs import simulated_functions as f
from simulation.jobs.choices import step
from simulation.jobs.columnar_steps import ColumnarSteps
from simulation.jobs.declared_changes import Declarations, DeclaredChanges
from simulation.jobs.drawn_parallelisms import Group, Parallelisms
from simulation.jobs.graph_changes import GraphChanges, GraphState
from simulation.jobs.output import WorldSink
from simulation.jobs.source_steps import SourceSteps
from simulation.jobs.streams import Expected, Stream
from simulation.jobs.timed_steps import TimedSteps

ROWS_MAX = 400
_KEYS: dict[str, tuple[Callable[..., Any], Any]] = {
    "number": (f.key_of, Types.LONG()),
    "untyped number": (f.key_of, None),
    "text": (f.key_text_of, Types.STRING()),
    "untyped text": (f.key_text_of, None),
}
PARTITIONERS = ("rebalance", "rescale", "shuffle", "broadcast", "global", "custom", "forward")


@dataclass(frozen=True)
class _Program:
    """Holds a driver's program: its graph, its parallelisms, and the program's declarations."""

    graph: GraphState | None
    levels: list[int]
    declared: Declarations | None


@dataclass
class Workload:
    """Holds a job. `sinks` by name; `counted`: keyed operator's name -> rows that reach it. `graph`: what the next
    driver runs. `changes`: None if the graph stays the same at every resume; `declared`: None if what functions declare
    does, and where state is kept.
    """

    graph: JobGraph
    configuration: Configuration
    sinks: dict[str, Expected]
    counted: dict[str, Expected]
    summary: str
    environment: StreamExecutionEnvironment
    parallelisms: Parallelisms
    changes: GraphChanges | None = None
    declared: DeclaredChanges | None = None
    _ran: dict[str, _Program] = field(default_factory=dict)
    """Incarnation of a driver -> what it ran. The one that took the newest checkpoint is among them."""
    _declared: dict[str, list[int]] = field(default_factory=dict)
    """Incarnation of a driver -> the parallelisms of its program, which a rescale of the running job leaves alone."""

    @property
    def is_adaptive(self) -> bool:
        """Return whether the job runs in the slots that there are."""
        return self.configuration.get(JobManagerOptions.SCHEDULER) == "adaptive"

    def rescale(self, random: Random, largest: int = 4) -> bool:
        """Let operators run at other parallelisms from the next driver on. Returns whether any changes."""
        changed = self.parallelisms.redraw(random, largest)
        if self.changes is not None:
            changed |= self.changes.draw()
        if self.declared is not None:
            changed |= self.declared.draw()
        self._rebuild()
        return changed

    def redraw(self, random: Random, largest: int = 4) -> bool:
        """Draw other parallelisms for the graph as it is. Returns whether any changes."""
        changed = self.parallelisms.redraw(random, largest)
        self._rebuild()
        return changed

    def change_graphs(self, random: Random) -> None:
        """Let the graph change at every resume; the first driver's is drawn, too."""
        self.changes = GraphChanges(random, self.environment._graph)
        self.changes.draw()
        self.configuration.set("execution.state-recovery.ignore-unclaimed-state", True)
        self._rebuild()

    def change_declarations(self, random: Random, changes_backend: bool) -> None:
        """Let declared types change at every resume. `changes_backend`: also where state is kept."""
        graph = self.environment._graph
        self.declared = DeclaredChanges(random, graph, self.configuration, changes_backend)

    def _rebuild(self) -> None:
        if self.declared is not None:
            self.declared.apply()
        if self.changes is not None:
            self.changes.apply()
        self.graph = self.environment.get_job_graph("simulated")

    def runs(self, incarnation: str, levels: list[int] | None = None) -> None:
        """Record a driver's program. `levels`: its parallelisms; None: those of the workload."""
        graph = self.changes.state if self.changes is not None else None
        declared = self.declared.state if self.declared is not None else None
        program = _Program(graph, self.parallelisms.levels(), declared)
        if levels is not None:
            program = replace(program, levels=levels)
        if (before := self._ran.get(incarnation)) is not None:
            program = replace(before, levels=program.levels)
        self._ran[incarnation] = program
        self._declared.setdefault(incarnation, program.levels)

    def go_back_to(self, incarnation: str) -> None:
        """Return to an older graph: the next driver runs what this one ran, which took the newest checkpoint, because a
        changed graph was refused. If that is what was refused, the driver was rescaled while it ran, and the same
        operators would be chained in a program of these parallelisms: the next driver runs its program.
        """
        ran = self._ran[incarnation]
        levels = ran.levels
        if levels == self.parallelisms.levels() and ran.graph == (None if self.changes is None else self.changes.state):
            levels = self._declared[incarnation]
        self.parallelisms.set_levels(levels)
        if self.changes is not None and ran.graph is not None:
            self.changes.state = ran.graph
        if self.declared is not None and ran.declared is not None:
            self.declared.state = ran.declared
        self._rebuild()


@dataclass(frozen=True)
class WorkloadShape:
    """Holds the bounds of `random_workload`. `steps`: operators between source and sink."""

    rows_max: int = 70
    parallelism_max: int = 4
    sources_max: int = 2
    steps_max: int = 4
    cost_ms_max: float = 8.0


class WorkloadBuilder(SourceSteps, TimedSteps, ColumnarSteps):
    """Declares operators and their expected results. What is not said is drawn."""

    def __init__(self, random: Random, configuration: Configuration, shape: WorkloadShape | None = None) -> None:
        super().__init__()
        self.random = random
        self.shape = shape or WorkloadShape()
        self.rows_max = self.shape.rows_max
        self.environment = StreamExecutionEnvironment(configuration)
        # Drawing a plan declares operators and runs none of them. Without this: the process says so when it ends.
        self.environment._declared.is_used = True
        self.configuration = configuration
        self.counted: dict[str, Expected] = {}
        self.sinks: dict[str, Expected] = {}
        self.words: list[str] = []
        self.parallelisms = Parallelisms()
        self._names = 0

    # ---- choices ------------------------------------------------------------------------------------------------

    def parallelism(self, said: int | None = None) -> int:
        """Return the parallelism of the present step."""
        drawn = (1, 2, 2, 3, 4)
        return self.choose(
            "parallelism", lambda: min(self.random.choice(drawn), self.shape.parallelism_max), said or None
        )

    def cost_ms(self, said: float | None = None) -> float:
        """Return the cost of a row: mostly little, so that one operator holds up the others."""
        return self.choose("cost_ms", lambda: self.random.choice((0.02, 0.1, 1.0, self.shape.cost_ms_max)), said)

    def finish(
        self,
        stream: Any,
        parallelism: int,
        expected: Expected,
        word: str,
        typed: bool,
        before: list[Stream],
        edge: str = "default",
    ) -> Stream:
        """Declares an operator's parallelism and name. `edge`: how rows come to it from the streams before it, which
        decides at which parallelism it may run when the job is resumed, and whether rows keep their order."""
        self._names += 1
        stream.set_parallelism(parallelism).name(f"{self._names} {word}")
        group = self.parallelisms.new_group(parallelism)
        self.parallelisms.add(stream, group)
        equal = all(b.parallelism == parallelism for b in before)
        if self.happens("chain_breaks", 0.2) or (edge == "default" and not equal):
            # Once their parallelisms are equal they would be chained, and a restore refuses other chains.
            stream.start_new_chain()
        keeps_order = self._attach(group, parallelism, before, edge, expected.ordered)
        self.words.append(f"{word}/{parallelism}")
        return Stream(stream, group, replace(expected, ordered=expected.ordered and keeps_order), typed)

    def _attach(self, group: Group, parallelism: int, before: list[Stream], edge: str, ordered: bool) -> bool:
        """Limits an operator's parallelisms in resumed jobs. Returns whether rows keep their order then, too."""
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

    def _salt(self) -> int:
        return self.choose("salt", lambda: self.random.randrange(100))

    def row_type(self, name: str = "typed") -> tuple[Any, bool]:
        """Return the declared type of an operator's rows, if they have one. `name`: what the plan calls it."""
        typed = self.choose(name, lambda: self.random.random() < 0.7)
        return (f.ROW_TYPE if typed else None), typed

    # ---- operators ----------------------------------------------------------------------------------------------

    def draw_step(self, before: Stream) -> Stream:
        choices: list[Callable[[Stream], Stream]] = [
            self.repartition, self.repartition, self.count, self.count, self.keep, self.expand, self.reduce,
        ]  # fmt: skip
        drawn = self.random.random()
        if drawn < 0.4:
            choices = self.timed_choices(before)
        elif drawn < 0.55:
            choices = self.columnar_choices(before)
        return self.random.choice(choices)(before)

    @step
    def count(self, before: Stream, parallelism: int | None = None, cost_ms: float | None = None) -> Stream:
        name = f"count {len(self.counted)}"
        self.counted[name] = before.expected
        stalls_every = self.choose("stalls_every", lambda: self.random.choice((0, 0, 0, 30)) if cost_ms is None else 0)
        function = f.Count(name, before.expected.ordered, self.cost_ms(cost_ms), stalls_every)
        row_type, typed = self.row_type()
        after = self.keyed(before, by_column=False).process(function, row_type).uid(name)
        expected = replace(before.expected, counts=True, exact=False)
        return self.finish(after, self.parallelism(parallelism), expected, name, typed, [before], "keyed")

    @step
    def reduce(self, before: Stream) -> Stream:
        row_type, typed = self.row_type()
        reset = before.stream.map(f.Reset(0.01), row_type)
        ones = self.finish(reset, before.parallelism, before.expected, "ones", typed, [before], "default")
        after = self.keyed(ones).reduce(f.Follow(self.cost_ms()))
        expected = replace(before.expected, counts=True, exact=False)
        return self.finish(after, self.parallelism(), expected, "reduce", typed, [ones], "keyed")

    def keyed(self, before: Stream, by_column: bool = True) -> Any:
        key = self.choose("key", lambda: self._draw_key(by_column and before.typed))
        if key == "column":
            return before.stream.key_by("f2")
        return before.stream.key_by(*_KEYS[key])

    def _draw_key(self, by_column: bool) -> str:
        if by_column and self.random.random() < 0.3:
            return "column"
        return self.random.choice(tuple(_KEYS))

    @step
    def keep(self, before: Stream) -> Stream:
        return self._keep(before)

    def _keep(self, before: Stream) -> Stream:
        keep = f.Keep(self._salt(), self.cost_ms())
        rows = tuple(row for row in before.expected.rows if keep.keeps(row))
        after = before.stream.filter(keep)
        expected = replace(before.expected, rows=rows)
        return self.finish(after, before.parallelism, expected, "keep", before.typed, [before])

    @step
    def expand(self, before: Stream, fan: tuple[int, int] | None = None, cost_ms: float | None = None) -> Stream:
        """Declare a flat map. `fan`: how many rows for most, and for some."""
        usual, burst = self.choose("fan", lambda: self.random.choice(((2, 3), (3, 60), (1, 40))), fan)
        expand = f.Expand(self._salt(), usual, burst, self.cost_ms(cost_ms))
        rows = tuple(made for row in before.expected.rows for made in expand.expanded(row))
        if self.is_drawing and len(rows) > ROWS_MAX:
            self.becomes("keep")
            return self._keep(before)
        row_type, typed = self.row_type()
        after = before.stream.flat_map(expand, row_type)
        expected = replace(before.expected, rows=rows, counts=False)
        return self.finish(after, before.parallelism, expected, "expand", typed, [before])

    @step
    def repartition(
        self, before: Stream, kind: str | None = None, parallelism: int | None = None, cost_ms: float | None = None
    ) -> Stream:
        kind = self.choose("kind", lambda: self.random.choice(PARTITIONERS), kind)
        parallelism, cost_ms = self.parallelism(parallelism), self.cost_ms(cost_ms)
        stream, expected = before.stream, before.expected
        row_type, typed = self.row_type()
        if self.is_drawing and kind == "broadcast" and len(expected.rows) * parallelism > ROWS_MAX:
            kind = self.replace_choice("kind", "custom")
        if kind == "broadcast":
            rows = tuple(f.tagged(row, tag) for tag in range(parallelism) for row in expected.rows)
            after = stream.broadcast().map(f.TagSubtask(cost_ms), row_type)
            expected = replace(expected, rows=rows, counts=False)
            return self.finish(after, parallelism, expected, kind, typed, [before], kind)
        if kind == "forward":
            parallelism = self.replace_choice("parallelism", before.parallelism)
        partitioned = {
            "rebalance": stream.rebalance,
            "rescale": stream.rescale,
            "shuffle": stream.shuffle,
            "global": stream.global_,
            "forward": stream.forward,
            "custom": lambda: stream.partition_custom(f.modulo, f.key_of),
        }[kind]()
        after = partitioned.map(f.Pass(cost_ms), row_type)
        return self.finish(after, parallelism, expected, kind, typed, [before], kind)

    @step
    def union(self, one: Stream, other: Stream) -> Stream:
        """Unite two streams; they are tagged first, because they may have a common ancestor."""
        tagged = [self._tag(stream, branch) for branch, stream in enumerate((one, other))]
        union = tagged[0].stream.union(tagged[1].stream)
        row_type, typed = self.row_type()
        after = union.map(f.Pass(self.cost_ms()), row_type)
        return self.finish(after, self.parallelism(), self.together(*tagged), "union", typed, tagged)

    @staticmethod
    def together(one: Stream, other: Stream) -> Expected:
        """Expect the rows of two streams, which are different."""
        first, second = one.expected, other.expected
        return Expected(
            first.rows + second.rows,
            first.ordered and second.ordered,
            exact=first.exact and second.exact,
            clock=first.clock if first.clock == second.clock else None,
            patient=first.patient and second.patient,
        )

    def _tag(self, before: Stream, branch: int) -> Stream:
        expected = before.expected
        rows = tuple(f.tagged(row, branch) for row in expected.rows)
        after = before.stream.map(f.TagBranch(branch, 0.01), f.ROW_TYPE)
        return self.finish(after, before.parallelism, replace(expected, rows=rows), "tag", True, [before])

    @step
    def sink(
        self,
        before: Stream,
        parallelism: int | None = None,
        held_rows_max: int | None = None,
        is_transactional: bool | None = None,
    ) -> None:
        name = f"sink {len(self.sinks)}"
        parallelism = self.parallelism(parallelism)
        held_rows_max = self.choose("held_rows_max", lambda: self.random.choice((0, 0, 5)), held_rows_max)
        apart = Random(f"transactions of {name} behind {self.words}")
        drawn = not held_rows_max and apart.random() < 0.4
        is_transactional = self.choose("is_transactional", lambda: drawn, is_transactional, absent=False)
        group = self.parallelisms.new_group(parallelism)
        ordered = self._attach(group, parallelism, [before], "default", before.expected.ordered)
        ordered = ordered and before.expected.ordered
        if ordered and held_rows_max:
            # A writer's held rows are redistributed at another parallelism, and may come behind younger rows.
            self.parallelisms.pin(group)
        declared = before.stream.sink_to(WorldSink(name, held_rows_max, is_transactional)).name(name).uid(name)
        self.parallelisms.add(declared.set_parallelism(parallelism), group)
        if parallelism != before.parallelism:
            declared.start_new_chain()
        self.sinks[name] = replace(before.expected, ordered=ordered)
        self.words.append(f"{name}/{parallelism}")

    def build(self) -> Workload:
        graph = self.environment.get_job_graph("simulated")
        return Workload(
            graph,
            self.configuration,
            self.sinks,
            self.counted,
            ", ".join(self.words),
            self.environment,
            self.parallelisms,
        )


__all__ = ["Expected", "Workload", "WorkloadShape", "WorkloadBuilder"]
