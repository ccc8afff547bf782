"""Tests whole jobs without a JobMaster, restored at another parallelism with rows in flight on every kind of edge,
several times in a row, and in the middle of draining: every row once, and in order per split and key.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.graph.job_graph import JobGraph
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.metadata import Metadata
from penstock.storage.memory import MemoryStore
from tests.unit.runtime.jobs.small_job import CommittedRows, Completed, SmallJob, graph_of

ROWS = 400
KEYS = 7
SMALL = {
    "penstock.network.window-bytes": "6 kb",
    "penstock.network.output-queue-bytes": "6 kb",
    "penstock.network.bound-bytes-min": "2 kb",
    "penstock.parking.enabled": "false",
    "penstock.slice.target-duration": "1 ms",
}
Build = Callable[[StreamExecutionEnvironment], None]


class InOrderOfArrival(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        position = self.seen.value() or 0
        self.seen.update(position + 1)
        yield (ctx.get_current_key(), position, value)


def numbers(env: StreamExecutionEnvironment, name: str = "numbers") -> Any:
    return env.from_source(NumberSequenceSource(0, ROWS - 1), WatermarkStrategy.no_watermarks(), name)


def keyed(env: StreamExecutionEnvironment) -> None:
    """Two hops to a key, the first of them forward: where rows of a split could be overtaken."""
    env.disable_operator_chaining()
    mapped = numbers(env).map(lambda x: x, Types.LONG())
    mapped.key_by(lambda x: x % KEYS, Types.LONG()).process(InOrderOfArrival()).sink_to(CommittedRows())


def through(edge: str) -> Build:
    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        first = getattr(numbers(env), edge)().map(lambda x: x, Types.LONG())
        getattr(first, edge)().map(lambda x: x, Types.LONG()).sink_to(CommittedRows())

    return build


def custom(env: StreamExecutionEnvironment) -> None:
    stream = numbers(env).partition_custom(lambda key, count: key % count, lambda x: x % 5)
    stream.map(lambda x: x, Types.LONG()).partition_custom(lambda key, count: (key + 1) % count, lambda x: x).sink_to(
        CommittedRows()
    )


EDGES: dict[str, Build] = {
    "keyed": keyed, "custom": custom,
    **{edge: through(edge) for edge in ("forward", "rebalance", "rescale", "shuffle", "global_")},
}  # fmt: skip
TIMEOUTS = {"aligned": None, "timeout of 1 ms": 1, "unaligned": 0}


def checkpointed(job: SmallJob, checkpoint_id: int, timeout_ms: int | None) -> Completed:
    job.trigger(checkpoint_id, timeout_ms)
    for _ in range(400):
        job.run(20, until=lambda: job.is_acknowledged(checkpoint_id))
        if job.is_acknowledged(checkpoint_id):
            return job.complete(checkpoint_id)
        job.clock.now_ms += 1.0
    raise AssertionError(f"checkpoint {checkpoint_id} is stuck; declined: {job.declines}")


def finished(job: SmallJob, checkpoint_id: int) -> list[Any]:
    job.rest()
    assert job.drain.is_over, "draining never ends"
    assert job.all_at_end
    return checkpointed(job, checkpoint_id, None).committed


class Cascade:
    """One job over several generations, each at a parallelism of its own."""

    options = SMALL

    def __init__(self, build: Build, seed: int) -> None:
        self.random = Random(seed)
        self.build = build
        self.rows: list[Any] = []
        self.restored: Metadata | None = None
        self.job: SmallJob | None = None
        self.generations = 0
        self.drained_again = 0
        self.in_flight = 0

    def start(self, parallelism: int) -> SmallJob:
        store = MemoryStore() if self.job is None else self.job.store
        if self.job is not None:
            self.job.close()
        self.generations += 1
        self.job = SmallJob(
            self.graph(parallelism),
            Configuration(self.options),
            restored=self.restored,
            generation=Generation(1, self.generations),
            order=self.random,
            store=store,
        )
        return self.job

    def graph(self, parallelism: int) -> JobGraph:
        return graph_of(self.build, parallelism)

    def crash_after(self, turns: int, timeout_ms: int | None) -> None:
        """A checkpoint after some turns, then some more that are lost."""
        assert self.job is not None
        self.job.run(turns)
        done = checkpointed(self.job, self.generations, timeout_ms)
        self.rows += done.committed
        self.restored = done.metadata
        self.drained_again += done.metadata.draining
        subtasks = done.metadata.subtasks
        captures = [i.captures for s in subtasks for i in s.inputs] + [o.captures for s in subtasks for o in s.outputs]
        self.in_flight += any(captures)
        self.job.run(self.random.randrange(30))

    def finish(self) -> list[Any]:
        assert self.job is not None
        self.rows += finished(self.job, self.generations)
        self.job.close()
        return self.rows


def check_rows(name: str, rows: list[Any], splits: int) -> None:
    if name != "keyed":
        assert sorted(rows) == list(range(ROWS))
        return
    assert sorted(value for _, _, value in rows) == list(range(ROWS))
    for key in range(KEYS):
        arrived = sorted((position, value) for k, position, value in rows if k == key)
        assert [position for position, _ in arrived] == list(range(len(arrived))), f"key {key}: state was lost"
        for split in range(splits):
            inside = range(split * ROWS // splits, (split + 1) * ROWS // splits)
            of_split = [value for _, value in arrived if value in inside]
            assert of_split == sorted(of_split), f"key {key}: rows of split {split} have passed each other"


@pytest.mark.parametrize("mode", TIMEOUTS)
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (1, 4), (4, 1), (2, 2)])
@pytest.mark.parametrize("name", EDGES)
def test_every_row_comes_back_once_at_another_parallelism(name: str, before: int, after: int, mode: str) -> None:
    for seed in range(2):
        cascade = Cascade(EDGES[name], seed)
        cascade.start(before)
        cascade.crash_after(cascade.random.randrange(5, 50), TIMEOUTS[mode])
        cascade.start(after)
        check_rows(name, cascade.finish(), before)


@pytest.mark.parametrize("name", EDGES)
def test_rescaled_again_in_the_middle_of_draining(name: str) -> None:
    drained_again = in_flight = 0
    for seed in range(6):
        cascade = Cascade(EDGES[name], 100 + seed)
        cascade.start(first := cascade.random.randrange(1, 5))
        for _ in range(4):
            cascade.crash_after(cascade.random.randrange(25), cascade.random.choice([0, 0, 0, None, 1]))
            cascade.start(cascade.random.randrange(1, 5))
        check_rows(name, cascade.finish(), first)
        drained_again += cascade.drained_again
        in_flight += cascade.in_flight
    assert in_flight, "rows were in flight"
    assert drained_again, "a checkpoint was taken while the job drained"


class PerVertex(Cascade):
    """Every vertex has a parallelism of its own in every generation; edges are forward where it happens to be equal."""

    def graph(self, parallelism: int) -> JobGraph:
        source, mapped, summed = parallelism, *(self.random.randrange(1, 5) for _ in range(2))

        def build(env: StreamExecutionEnvironment) -> None:
            env.disable_operator_chaining()
            stream = numbers(env).set_parallelism(source).map(lambda x: x, Types.LONG()).set_parallelism(mapped)
            keyed = stream.key_by(lambda x: x % KEYS, Types.LONG())
            keyed.process(InOrderOfArrival()).set_parallelism(summed).sink_to(CommittedRows()).set_parallelism(mapped)

        return graph_of(build, parallelism)


def test_every_vertex_on_its_own() -> None:
    for seed in range(6):
        cascade = PerVertex(keyed, 200 + seed)
        cascade.start(cascade.random.randrange(1, 5))
        for _ in range(3):
            cascade.crash_after(cascade.random.randrange(30), cascade.random.choice([0, 0, None, 1]))
            cascade.start(cascade.random.randrange(1, 5))
        rows = cascade.finish()
        assert sorted(value for _, _, value in rows) == list(range(ROWS))
        for key in range(KEYS):
            arrived = sorted(position for k, position, _ in rows if k == key)
            assert arrived == list(range(len(arrived))), f"key {key}: state was lost"


class BesideABroadcast(Cascade):
    """The ends of the broadcast keep their parallelism, what comes after it does not."""

    def graph(self, parallelism: int) -> JobGraph:
        def build(env: StreamExecutionEnvironment) -> None:
            env.disable_operator_chaining()
            received = numbers(env).set_parallelism(2).broadcast().map(lambda x: x, Types.LONG()).set_parallelism(3)
            received.rebalance().map(lambda x: x, Types.LONG()).sink_to(CommittedRows())

        return graph_of(build, parallelism)


def test_a_broadcast_keeps_what_each_receiver_had_not_read() -> None:
    for seed in range(4):
        cascade = BesideABroadcast(keyed, 300 + seed)
        cascade.start(cascade.random.randrange(1, 5))
        for _ in range(3):
            cascade.crash_after(cascade.random.randrange(30), cascade.random.choice([0, 0, None, 1]))
            cascade.start(cascade.random.randrange(1, 5))
        assert sorted(cascade.finish()) == sorted(3 * list(range(ROWS)))


def test_a_subtasks_status_says_how_many_layers_it_has_left_to_read() -> None:
    def left(job: SmallJob) -> int:
        return sum(subtask.status(0.0, 0.0, 0.0).layers for subtask in job.subtasks.values())

    cascade = Cascade(keyed, 1)
    assert left(cascade.start(2)) == 0
    cascade.crash_after(15, 0)
    job = cascade.start(3)
    assert left(job) == sum(len(subtask.gate.layers) for subtask in job.subtasks.values()) > 0
    cascade.finish()
    assert left(job) == 0
