"""Adds a branch to a random job whose rows wait for rules from a broadcast stream.

Each row waits until every subtask knows the rule of its key, in the state of the key or in operator state. It is
emitted once, whatever comes first. If a subtask misses a rule, or applies one to a part of its keys only, rows are
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
from penstock.simulation import simulated_functions as f
from penstock.simulation import world_hooks
from penstock.simulation.added_branches import branch_of, drawn_from
from penstock.simulation.choices import PlanError, step
from penstock.simulation.streams import Stream
from penstock.simulation.world_hooks import Row

if TYPE_CHECKING:
    from penstock.simulation.workload import WorkloadBuilder

RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
WAITING = ListStateDescriptor("waiting", f.ROW_TYPE)


def broadcasts_of(seed: int) -> Random | None:
    """Return what draws a branch with a broadcast, in some of the seeds, from a random source of its own."""
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
) -> Stream:
    """Declare a function that lets each row pass when the rule with its key's number has come. `keyed`: rows wait in
    the state of their keys, otherwise in operator state."""
    numbers = sorted(row[1] for row in rules.expected.rows)
    if numbers != list(range(len(numbers))):
        raise PlanError("its rules are not numbered from 0, each once")
    keyed = job.choose("keyed", lambda: job.random.random() < 0.7, keyed)
    parallelism, cost_ms = job.parallelism(parallelism), job.cost_ms(cost_ms)
    name = f"await rules {len(job.words)}"
    row_type, typed = job.row_type()
    broadcast = rules.stream.broadcast(RULES)
    if keyed:
        connected = job.keyed(rows, by_column=False).connect(broadcast)
        after = connected.process(AwaitRules(name, len(numbers), cost_ms), row_type)
    else:
        connected = rows.stream.rebalance().connect(broadcast)
        after = connected.process(AwaitRulesWithoutKeys(name, len(numbers), cost_ms), row_type)
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
        self._state = context.get_operator_state_store().get_list_state(WAITING)
        self._held = list(self._state.get())

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
        released = [row for row in self._held if self.rule_of(row) == number]
        self._held = [row for row in self._held if self.rule_of(row) != number]
        yield from released
