"""Adds a branch to a random job whose rows wait for rules from a broadcast stream.

Each row waits until every subtask knows the rule of its key, in the state of the key or in operator state: a list that
is dealt out, or one that all get, of which each takes its part. It is emitted once, whatever comes first.
If a subtask misses a rule, or applies one to a part of its keys only, rows are
never emitted; if it gets one twice, it notices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.common.types import Types
from penstock.datastream.functions import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor
from simulation.jobs import simulated_functions as f
from simulation.jobs.branches import branch_of, drawn_from
from simulation.jobs.choices import PlanError, step
from simulation.jobs.streams import Stream
from simulation.world import world_hooks
from simulation.world.world_hooks import Row

if TYPE_CHECKING:
    from simulation.jobs.workload import WorkloadBuilder

RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
LEARNED = MapStateDescriptor("learned", Types.LONG(), Types.LONG())
WAITING = ListStateDescriptor("waiting", f.ROW_TYPE)
WAITING_OF_ALL = ListStateDescriptor("waiting of all", Types.TUPLE([Types.LONG(), Types.LONG(), f.ROW_TYPE]))
"""(the subtask that keeps the row, the number of subtasks, the row)"""


def broadcasts_of(seed: int) -> Random | None:
    """Return the random source of a branch with a broadcast; None for the seeds that have none."""
    return branch_of(seed, "broadcasts")


def add_broadcast_branch(job: WorkloadBuilder, random: Random) -> None:
    """Declare the branch in addition to all others, down to a sink of its own."""
    with drawn_from(job, random):
        rows = job.source(kind=random.choice(("sequence", "ranges")), rows=random.randint(10, 60), timed=None)
        kind = random.choice(("sequence", "ranges"))
        rules = job.source(kind=kind, rows=random.randint(1, 20), parallelism=random.choice((1, 1, 2)), timed=None)
        job.sink(await_rules(job, rows, rules))


@step
def await_rules(
    job: WorkloadBuilder,
    rows: Stream,
    rules: Stream,
    keyed: bool | None = None,
    parallelism: int | None = None,
    cost_ms: float | None = None,
    all_get_all: bool | None = None,
) -> Stream:
    """Declare a function that lets each row pass when the rule with its key's number has come. `keyed`: rows wait in
    the state of their keys, otherwise in operator state: `all_get_all` says in which kind of list."""
    numbers = sorted(row[1] for row in rules.expected.rows)
    if numbers != list(range(len(numbers))):
        raise PlanError("its rules are not numbered from 0, each once")
    keyed = job.choose("keyed", lambda: job.random.random() < 0.7, keyed)
    all_get_all = job.choose("all_get_all", lambda: job.random.random() < 0.5, all_get_all, absent=False)
    parallelism, cost_ms = job.parallelism(parallelism), job.cost_ms(cost_ms)
    name = f"await rules {len(job.words)}"
    row_type, typed = job.row_type()
    broadcast = rules.stream.broadcast(RULES)
    if keyed:
        connected = job.keyed(rows, by_column=False).connect(broadcast)
        after = connected.process(AwaitRules(name, len(numbers), cost_ms), row_type)
    else:
        connected = rows.stream.rebalance().connect(broadcast)
        function = AwaitRulesInCommon if all_get_all else AwaitRulesWithoutKeys
        after = connected.process(function(name, len(numbers), cost_ms), row_type)
    # What waited in operator state is dealt out, and comes when a rule does.
    expected = replace(rows.expected, counts=False, clock=None, patient=False, ordered=rows.expected.ordered and keyed)
    edge = "keyed" if keyed else "rebalance"
    return job.finish(after.uid(name), parallelism, expected, name, typed, [rows], edge)


class _Rules(f.Busy):
    def __init__(self, name: str, rules: int, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.name = name
        self.rules = rules

    def rule_of(self, row: Row) -> int:
        return row[2] % self.rules

    def learn(self, rule: Row, state: Any) -> int:
        """Remember a rule, which must be new."""
        self.work()
        number = rule[1]
        if number in state:
            world_hooks.current().violate(f"{self.name}: rule {number} comes twice")
        state.put(number, number)
        return number


class AwaitRules(_Rules, KeyedBroadcastProcessFunction):
    """Keeps waiting rows in the state of their keys."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._waiting = runtime_context.get_list_state(WAITING)

    def process_element(self, value: Row, ctx: Any) -> Iterator[Row]:
        self.work()
        if self.rule_of(value) in ctx.get_broadcast_state(RULES):
            yield value
        else:
            self._waiting.add(value)

    def process_broadcast_element(self, value: Row, ctx: Any) -> Iterator[Row]:
        number = self.learn(value, ctx.get_broadcast_state(RULES))
        released: list[Row] = []

        def release(key: Any, waiting: Any) -> None:
            rows = list(waiting.get())
            if self.rule_of(rows[0]) == number:
                released.extend(rows)
                waiting.clear()

        ctx.apply_to_keyed_state(WAITING, release)
        yield from released


class AwaitRulesWithoutKeys(_Rules, BroadcastProcessFunction, CheckpointedFunction):
    """Keeps waiting rows in operator state, which is dealt out at another parallelism."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self._learned = store.get_broadcast_state(LEARNED)
        self._state = store.get_list_state(WAITING)
        self._held: list[Row] = list(self._state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._state.update(self._held)

    def process_element(self, value: Row, ctx: Any) -> Iterator[Row]:
        self.work()
        if self.rule_of(value) in ctx.get_broadcast_state(RULES):
            yield value
        else:
            self._held.append(value)

    def process_broadcast_element(self, value: Row, ctx: Any) -> Iterator[Row]:
        number = self.learn(value, ctx.get_broadcast_state(RULES))
        self._learned.put(number, number)
        known = set(ctx.get_broadcast_state(RULES).keys())
        if known != set(self._learned.keys()):
            world_hooks.current().violate(f"{self.name}: {known} are known, and {set(self._learned.keys())} learned")
        released = [row for row in self._held if self.rule_of(row) == number]
        self._held = [row for row in self._held if self.rule_of(row) != number]
        yield from released


class AwaitRulesInCommon(AwaitRulesWithoutKeys):
    """Keeps waiting rows in a list that every subtask gets whole. At another parallelism each takes those that are its
    own by their numbers; at the same one it takes its own, because it may have read other rules than the rest."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self._learned = store.get_broadcast_state(LEARNED)
        self._of_all = store.get_union_list_state(WAITING_OF_ALL)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._place = runtime_context.get_index_of_this_subtask(), runtime_context.get_number_of_parallel_subtasks()
        self._held = [row for subtask, subtasks, row in self._of_all.get() if self._is_own(subtask, subtasks, row)]

    def _is_own(self, subtask: int, subtasks: int, row: Row) -> bool:
        own, number = self._place
        return (subtask if subtasks == number else f.scrambled(row, 0) % number) == own

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._of_all.update([(*self._place, row) for row in self._held])
