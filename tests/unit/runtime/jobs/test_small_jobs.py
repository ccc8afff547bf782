"""Tests whole jobs without a JobMaster: checkpoints at any moment, aligned, timed out and unaligned, with rows in
flight at every place where rows can be; and a restore of each goes on as if nothing had happened.
"""

from __future__ import annotations

from random import Random
from typing import Any, Callable

import pytest

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import FlatMapFunction, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.protocol.driver.coverage import verify
from penstock.protocol.values.elements import Generation
from tests.unit.runtime.jobs.small_job import CommittedRows, Completed, SmallJob, graph_of

ROWS = 400
SMALL = {
    "penstock.network.window-bytes": "6 kb",
    "penstock.network.output-queue-bytes": "6 kb",
    "penstock.network.overdraft-bytes-max": "2 kb",
    "penstock.network.bound-bytes-min": "2 kb",
    "penstock.parking.enabled": "false",
}


class RunningSum(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        total = (self.sum.value() or 0) + value
        self.sum.update(total)
        yield (ctx.get_current_key(), value, total)


class Several(FlatMapFunction):
    def flat_map(self, value: int) -> Any:
        for i in range(value % 4):
            yield value * 10 + i


def sums_of(rows: list[int]) -> list[tuple[int, int, int]]:
    totals: dict[int, int] = {}
    made = []
    for row in rows:
        totals[row % 5] = totals.get(row % 5, 0) + row
        made.append((row % 5, row, totals[row % 5]))
    return made


def keyed(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection(list(range(ROWS)), Types.LONG()).flat_map(Several(), Types.LONG()).set_parallelism(1)
    stream.key_by(lambda x: x % 5, Types.LONG()).process(RunningSum()).sink_to(CommittedRows())


def through(edge: str) -> Callable[[StreamExecutionEnvironment], None]:
    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        stream = env.from_source(NumberSequenceSource(0, ROWS - 1), WatermarkStrategy.no_watermarks(), "numbers")
        first = getattr(stream, edge)().map(lambda x: x, Types.LONG())
        getattr(first, edge)().flat_map(Several(), Types.LONG()).sink_to(CommittedRows())

    return build


def expanded() -> list[int]:
    return [row * 10 + i for row in range(ROWS) for i in range(row % 4)]


def finish(job: SmallJob, checkpoint_id: int) -> list[Any]:
    """Runs to the end of data, and takes a last checkpoint, which is what commits."""
    job.rest()
    assert job.all_at_end
    job.trigger(checkpoint_id, None)
    job.rest()
    assert job.is_acknowledged(checkpoint_id), "finished subtasks answer barriers, too"
    return job.complete(checkpoint_id).committed


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_job_runs_to_its_end_and_its_final_checkpoint_is_aligned(parallelism: int) -> None:
    job = SmallJob(graph_of(keyed, parallelism), Configuration(SMALL))
    rows = finish(job, 1)
    assert sorted(rows) == sorted(sums_of(expanded()))
    job.close()


class Pipeline:
    """Does both steps of a job with its methods, as programs do, and counts what it has seen."""

    def __init__(self) -> None:
        self.seen = 0

    def number(self, value: Any) -> Any:
        self.seen += 1
        return self.seen


@pytest.mark.parametrize("chained", [True, False])
def test_operators_share_no_object_that_a_program_gives_to_both(chained: bool) -> None:
    """Both kept their state in what one of them had opened last, and two threads called one object."""
    sums, pipeline = RunningSum(), Pipeline()

    def build(env: StreamExecutionEnvironment) -> None:
        if not chained:
            env.disable_operator_chaining()
        stream = env.from_collection(list(range(20)), Types.LONG())
        for _ in range(2):
            stream.key_by(lambda x: x % 5, Types.LONG()).process(sums).sink_to(CommittedRows())
        stream.map(pipeline.number).map(pipeline.number).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 1), Configuration(SMALL))
    rows = finish(job, 1)
    assert sorted(row for row in rows if isinstance(row, tuple)) == sorted(2 * sums_of(list(range(20))))
    assert [row for row in rows if isinstance(row, int)] == list(range(1, 21))
    job.close()


TIMEOUTS = {"aligned": None, "timeout of 1 ms": 1, "unaligned": 0}


def run_with_checkpoint(job: SmallJob, turns: int, timeout_ms: int | None) -> Completed:
    """Triggers after some turns; the job goes no further than the checkpoint's completion."""
    job.run(turns)
    job.trigger(1, timeout_ms)
    for _ in range(200):
        job.run(40, until=lambda: job.is_acknowledged(1))
        if job.is_acknowledged(1):
            break
        job.clock.now_ms += 1.0
    assert job.is_acknowledged(1), "a checkpoint is never stuck"
    assert not job.declines
    return job.complete(1)


@pytest.mark.parametrize("mode", TIMEOUTS)
@pytest.mark.parametrize("seed", range(6))
def test_keyed_state_and_rows_in_flight_come_back_exactly(mode: str, seed: int) -> None:
    random = Random(seed)
    graph = graph_of(keyed, 2)
    first = SmallJob(graph, Configuration(SMALL), order=random)
    done = run_with_checkpoint(first, random.randrange(5, 60), TIMEOUTS[mode])
    assert verify(graph.edges, done.metadata.subtasks) == []
    first.close()
    after = SmallJob(
        graph_of(keyed, 2),
        Configuration(SMALL),
        store=first.store,
        restored=done.metadata,
        generation=Generation(1, 1),
        order=random,
    )
    rows = done.committed + finish(after, 2)
    for key in range(5):
        assert [r for r in rows if r[0] == key] == [r for r in sums_of(expanded()) if r[0] == key], f"key {key}"
    after.close()


class Bursts(FlatMapFunction):
    """Now and then a row becomes more rows than queue and overdraft hold: a barrier has to wait for its rest."""

    def flat_map(self, value: int) -> Any:
        for i in range(1_500 if value % 10 == 3 else value % 3):
            yield value * 10_000 + i


def bursts(env: StreamExecutionEnvironment) -> None:
    env.disable_operator_chaining()
    numbers = NumberSequenceSource(0, 39)
    one = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "one").flat_map(Bursts(), Types.LONG())
    two = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "two").map(lambda x: -x, Types.LONG())
    one.union(two).rebalance().map(lambda x: x, Types.LONG()).sink_to(CommittedRows())


def burst_rows() -> list[int]:
    return [row for value in range(40) for row in Bursts().flat_map(value)] + [-value for value in range(40)]


@pytest.mark.parametrize("mode", TIMEOUTS)
@pytest.mark.parametrize("seed", range(4))
def test_a_barrier_that_waits_for_a_generator_cuts_between_two_rows(mode: str, seed: int) -> None:
    random = Random(f"bursts {mode} {seed}")
    job = SmallJob(graph_of(bursts, 2), Configuration(SMALL), order=random)
    rows: list[Any] = []
    for nth in range(3):
        done = run_with_checkpoint(job, random.randrange(2, 60), TIMEOUTS[mode])
        rows += done.committed
        job.close()
        job = SmallJob(
            graph_of(bursts, 2),
            Configuration(SMALL),
            store=job.store,
            restored=done.metadata,
            generation=Generation(1, nth + 1),
            order=random,
        )
    rows += finish(job, 9)
    assert sorted(rows) == sorted(burst_rows())
    job.close()


@pytest.mark.parametrize("edge", ["forward", "rebalance", "rescale", "shuffle", "global_", "broadcast"])
@pytest.mark.parametrize("mode", TIMEOUTS)
def test_every_kind_of_edge_comes_back_from_a_chain_of_restores(edge: str, mode: str) -> None:
    """Three restores in a row, each from a checkpoint that was taken a few turns after the one before: recovered
    layers are still unread in it."""
    random = Random(f"{edge} {mode}")
    job = SmallJob(graph_of(through(edge), 2), Configuration(SMALL), order=random)
    rows: list[Any] = []
    for nth in range(3):
        done = run_with_checkpoint(job, random.randrange(3, 30), TIMEOUTS[mode])
        rows += done.committed
        job.close()
        job = SmallJob(
            graph_of(through(edge), 2),
            Configuration(SMALL),
            store=job.store,
            restored=done.metadata,
            generation=Generation(1, nth + 1),
            order=random,
        )
    rows += finish(job, 9)
    copies = 4 if edge == "broadcast" else 1
    assert sorted(rows) == sorted(expanded() * copies)
    job.close()


@pytest.mark.parametrize("seed", range(10))
def test_checkpoints_that_overlap_and_are_given_up_at_any_moment(seed: int) -> None:
    """Ids grow, modes are mixed, several are under way; each is acknowledged by all, declined, or was given up; and
    what is acknowledged is a whole cut (`complete` checks that)."""
    random = Random(f"overlapping {seed}")
    job = SmallJob(graph_of(bursts, 2), Configuration(SMALL), order=random)
    done: dict[int, Completed] = {}
    open_ids: set[int] = set()

    def run_until_idle() -> None:
        declined = {d.checkpoint_id for d in job.declines}
        for checkpoint_id in sorted(open_ids):
            if job.is_acknowledged(checkpoint_id):
                done[checkpoint_id] = job.complete(checkpoint_id)
            elif checkpoint_id in declined:
                job.end(checkpoint_id, aborted=True)
            else:
                continue
            open_ids.discard(checkpoint_id)

    for checkpoint_id in range(1, 9):
        open_ids.add(checkpoint_id)
        job.trigger(checkpoint_id, random.choice([None, 0, 1, 3]))
        job.run(random.randrange(1, 25))
        job.clock.now_ms += random.choice([0.0, 1.0, 5.0])
        if random.random() < 0.3:
            given_up = random.choice(sorted(open_ids))
            open_ids.discard(given_up)
            job.end(given_up, aborted=True)
        run_until_idle()
    job.rest(50.0)
    run_until_idle()
    job.rest(50.0)
    run_until_idle()
    assert not open_ids, "stuck"
    assert job.all_at_end
    declines = [(d.checkpoint_id, tuple(d.subtask)) for d in job.declines]
    assert len(declines) == len(set(declines)), "declined twice by one subtask"
    committed = {row for checkpoint in done.values() for row in checkpoint.committed}
    assert committed | set(finish(job, 9)) == set(burst_rows())
    job.close()
