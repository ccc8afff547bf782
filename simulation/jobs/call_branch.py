"""Adds a branch that calls a slow service for each row to the random jobs of some seeds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.common.time import Time
from penstock.datastream.async_data_stream import AsyncDataStream
from penstock.datastream.functions import (
    AsyncFunction,
    AsyncRetryStrategy,
    BlockingFunction,
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from simulation.jobs import simulated_functions as f
from simulation.jobs.branches import branch_of, drawn_from
from simulation.jobs.choices import step
from simulation.jobs.streams import Stream
from simulation.world import world_hooks
from simulation.world.world_hooks import Row

if TYPE_CHECKING:
    from simulation.jobs.workload import WorkloadBuilder


def calls_of_seed(seed: int) -> Random | None:
    """Return the random source of the branch; None for the seeds that have none."""
    return branch_of(seed, "calls")


def add_call_branch(job: WorkloadBuilder, random: Random) -> None:
    """Declare the branch in addition to all others, down to a sink of its own."""
    with drawn_from(job, random):
        timed = random.choice((None, "patient", "patient", "hasty"))
        answered = call(job, job.source(kind="owned", rows=random.randint(30, 70), timed=timed))
        if timed is not None:
            job.sink(job.delay(answered))
        else:
            job.sink(job.count(answered) if random.random() < 0.5 else answered)


class Unavailable(Exception):
    """Signals that the simulated service has no answer now."""


class _Service(f.Busy, CheckpointedFunction):
    """Checks the rows that are asked for: one that was answered before a checkpoint is never asked for again behind it.
    Some rows take long, and some find the service unavailable at first.
    """

    def __init__(self, name: str, latency_ms: float, salt: int, fails: bool, cost_ms: float) -> None:
        super().__init__(cost_ms)
        self.name = name
        self.latency_ms = latency_ms
        self.salt = salt
        self.fails = fails
        self._failed: set[Row] = set()

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        around = world_hooks.current()
        self._incarnation = around.incarnation()
        self._spared = around.calls().answered_before(self.name, around.restored_from())
        self._answered = set(self._spared)
        around.calls().spared += len(self._spared)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        name = (self._incarnation, context.get_checkpoint_id())
        world_hooks.current().calls().on_snapshot(self.name, name, self._answered)

    def ask(self, row: Row) -> None:
        around = world_hooks.current()
        around.calls().calls += 1
        if row in self._spared:
            around.violate(f"{self.name}: {row} is asked for again, though a checkpoint holds its answer")
        self.work()
        if self.fails and row not in self._failed and f.scrambled(row, self.salt) % 5 == 0:
            self._failed.add(row)
            raise Unavailable

    def wait_ms(self, row: Row) -> float:
        drawn = f.scrambled(row, self.salt + 1)
        return self.latency_ms * (20 if drawn % 40 == 0 else drawn % 10 / 5)

    def answer(self, row: Row) -> list[Row]:
        self._answered.add(row)
        return [row]


class Ask(_Service, AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Row]:
        row = tuple(value)
        self.ask(row)
        await asyncio.sleep(self.wait_ms(row) / 1000)
        return self.answer(row)


class AskInThreads(_Service, BlockingFunction[Any, Any]):
    def invoke(self, value: Any) -> list[Row]:
        row = tuple(value)
        self.ask(row)
        return self.answer(row)


EDGES = ("default", "default", "keyed", "custom", "rebalance")


@step
def call(
    job: WorkloadBuilder,
    before: Stream,
    ordered: bool | None = None,
    blocks: bool | None = None,
    capacity: int | None = None,
    latency_ms: float | None = None,
    edge: str | None = None,
    parallelism: int | None = None,
    cost_ms: float | None = None,
) -> Stream:
    """Call a service for each row. Answers are the rows themselves."""
    random = job.random
    ordered = job.choose("ordered", lambda: random.random() < 0.5, ordered)
    blocks = job.choose("blocks", lambda: random.random() < 0.3, blocks)
    capacity = job.choose("capacity", lambda: random.choice((1, 3, 10, 100)), capacity)
    latency_ms = job.choose("latency_ms", lambda: random.choice((0.5, 5.0, 40.0)), latency_ms)
    fails = job.choose("fails", lambda: random.random() < 0.3)
    edge = job.choose("edge", lambda: random.choice(EDGES), edge)
    parallelism, name = job.parallelism(parallelism), f"call {len(job.words)}"
    function = (AskInThreads if blocks else Ask)(name, latency_ms, job._salt(), fails, job.cost_ms(cost_ms))
    retry = AsyncRetryStrategy.fixed_delay(1, 3, None, lambda error: isinstance(error, Unavailable))
    wait = AsyncDataStream.ordered_wait_with_retry if ordered else AsyncDataStream.unordered_wait_with_retry
    row_type, typed = job.row_type()
    stream = before.stream
    if edge == "keyed":
        stream = job.keyed(before)
    elif edge == "custom":
        stream = stream.partition_custom(f.modulo, f.key_of)
    elif edge == "rebalance":
        stream = stream.rebalance()
    after = wait(stream, function, Time.hours(1), retry, capacity, row_type).uid(name)
    expected = replace(before.expected, ordered=before.expected.ordered and ordered)
    return job.finish(after, parallelism, expected, name, typed, [before], edge)
