"""Tests one step after the other: what a subtask does with its time, and when it wants to be called again."""

from __future__ import annotations

from typing import Any, Iterator

import pyarrow as pa
import pytest

from penstock.common.configuration import Configuration
from penstock.common.time import Duration
from penstock.common.types import Types
from penstock.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.graph.job_graph import JobGraph
from penstock.protocol.subtask.drain_gate import Stage
from penstock.protocol.values.elements import Barrier, Generation, SubtaskId, Watermark
from penstock.protocol.values.frames import AlignedBarrier, Data, Event
from penstock.protocol.values.messages import CheckpointEnded, TriggerCheckpoint
from penstock.runtime.subtask.parking import Unpark
from penstock.runtime.subtask.subtask import Subtask
from tests.unit.runtime.jobs.small_job import CommittedRows, ManualClock, SmallJob, graph_of

GENERATION = Generation(1, 0)
FIXED_BOUNDS = {"penstock.network.bound-target": "0 ms", "penstock.network.bound-bytes-min": "16 kb"}


def pipeline(function: Any, rows: int = 100_000) -> JobGraph:
    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        stream = env.from_source(NumberSequenceSource(0, rows - 1), WatermarkStrategy.no_watermarks(), "numbers")
        stream.flat_map(function, Types.LONG()).sink_to(CommittedRows())

    return graph_of(build)


class SlowClock(ManualClock):
    """Every row takes its time, waits for room take more."""

    def spend(self, ms: float) -> None:
        self.now_ms += ms


def source_of(job: SmallJob) -> Subtask:
    return job.subtasks[SubtaskId(0, 0)]


def step_until_reading(job: SmallJob) -> Subtask:
    source = source_of(job)
    for _ in range(10):
        source.step(job.clock.now_ms)
        job.hand_out_splits()
        if source.rows_in:
            return source
    raise AssertionError("the source does not read")


# ---- waiting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", ["16 kb", "17 kb", "20 kb", "64 kb"])
def test_a_subtask_never_sleeps_while_it_has_input_and_room(queue: str) -> None:
    """Between three quarters of a queue and a full frame nothing left while it worked; what then left when it had
    nothing to do made room, and it slept. `SmallJob` asserts it at every step."""
    graph = pipeline(lambda row: [row] * 3, rows=20_000)
    job = SmallJob(graph, Configuration({**FIXED_BOUNDS, "penstock.network.output-queue-bytes": queue}))
    job.rest()
    assert job.all_at_end


def test_an_aligned_barrier_at_the_head_of_a_queue_needs_no_room() -> None:
    """The outputs are full, and the consumer takes nothing; the barrier goes on to where its timeout can turn it."""
    configuration = Configuration(
        {**FIXED_BOUNDS, "penstock.network.window-bytes": "16 kb", "penstock.network.output-queue-bytes": "16 kb"}
    )
    job = SmallJob(pipeline(lambda row: [row] * 200), configuration)
    middle = job.subtasks[SubtaskId(1, 0)]
    into = middle.gate.channels[0]
    row = pa.RecordBatch.from_arrays(Types.LONG().encode([1]), schema=Types.LONG().schema)
    for _ in range(100):
        if middle.step(job.clock.now_ms).backpressured:
            break
        if middle.output.has_room() and into.head() is None and not middle.mailbox:
            middle.mailbox.post(Data(into.id, into.received, 1, 520, row))
    assert not middle.output.has_room() and into.head() is None
    middle.mailbox.post(AlignedBarrier(into.id, into.received, Barrier(1, 1_000)))
    middle.mailbox.post(Data(into.id, into.received, 1, 520, row))
    assert middle.step(job.clock.now_ms).worked
    assert middle.partitions[0].channels[0].holds_barrier(1)
    assert not middle.step(job.clock.now_ms).worked, "the row behind it waits for room"
    middle.step(job.clock.now_ms + 1_001)
    assert not middle.partitions[0].channels[0].holds_barrier(1)


def test_time_advances_although_barriers_follow_each_other_without_a_pause() -> None:
    """Several checkpoints were in progress, and handling their barriers took as long as they took to come: the
    watermark between two of them was never passed on, and neither draining nor the job came to an end."""
    job = SmallJob(pipeline(lambda row: [row]), Configuration(FIXED_BOUNDS))
    middle = job.subtasks[SubtaskId(1, 0)]
    into, barriers = middle.gate.channels[0], iter(range(1, 100))

    def barrier_comes() -> None:
        middle.mailbox.post(AlignedBarrier(into.id, into.received, Barrier(next(barriers), None)))

    middle.step(job.clock.now_ms)
    middle.mailbox.post(Event(into.id, into.received, Watermark(1_000)))
    middle.step(job.clock.now_ms)
    assert middle.event_time.time.behind
    for _ in range(2):
        barrier_comes()
    steps = 0
    while middle.event_time.time.behind:
        barrier_comes()
        middle.step(job.clock.now_ms)
        steps += 1
        assert steps < 10
    assert steps > 1, "barriers go first"


class WakesItself(KeyedProcessFunction):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 10)
        yield value


CLOCKS: list[ManualClock] = []


class PollsTooOften(KeyedProcessFunction):
    """Sets a timer that is due before this one has ended."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        if not value:
            ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 10)
        yield value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[int]:
        CLOCKS[-1].now_ms += 12
        ctx.timer_service().register_processing_time_timer(timestamp + 10)
        yield -1


def test_rows_and_barriers_are_taken_although_a_timer_is_always_due() -> None:
    """Without this: the job reads nothing more, and no checkpoint is ever complete."""

    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        numbers = env.from_source(NumberSequenceSource(0, 99_999), WatermarkStrategy.no_watermarks(), "numbers")
        keyed = numbers.key_by(lambda row: row, Types.LONG())
        keyed.process(PollsTooOften(), Types.LONG()).sink_to(CommittedRows())

    job = SmallJob(graph_of(build), Configuration(FIXED_BOUNDS))
    CLOCKS.append(job.clock)
    keyed = job.subtasks[SubtaskId(1, 0)]
    job.run(until=lambda: keyed.rows_in > 0)
    job.clock.now_ms += 20
    fired, rows = keyed.output.rows - keyed.rows_in, keyed.rows_in
    job.trigger(1, None)
    job.run(turns=2_000, until=lambda: job.is_acknowledged(1))
    assert job.is_acknowledged(1) and keyed.rows_in > rows
    assert keyed.output.rows - keyed.rows_in > fired, "timers fire, too"


class OwnTimestamps(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


def test_a_subtask_becomes_idle_although_barriers_follow_each_other_without_a_pause() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(OwnTimestamps())

    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        numbers = env.from_source(NumberSequenceSource(0, 99_999), WatermarkStrategy.no_watermarks(), "numbers")
        mapped = numbers.map(lambda row: row, Types.LONG())
        timed = mapped.assign_timestamps_and_watermarks(strategy.with_idleness(Duration.of_millis(100)))
        timed.map(lambda row: row, Types.LONG()).sink_to(CommittedRows())

    job = SmallJob(graph_of(build), Configuration(FIXED_BOUNDS))
    timed = next(s for s in job.subtasks.values() if s.event_time.generation is not None and not s.vertex.is_source)
    into = timed.gate.channels[0]
    timed.step(job.clock.now_ms)
    row = pa.RecordBatch.from_arrays(Types.LONG().encode([1]), schema=Types.LONG().schema)
    timed.mailbox.post(Data(into.id, into.received, 1, 520, row))
    timed.step(job.clock.now_ms)
    for checkpoint_id in range(1, 200):
        timed.mailbox.post(AlignedBarrier(into.id, into.received, Barrier(checkpoint_id, None)))
        timed.step(job.clock.now_ms)
        job.clock.now_ms += 2
    assert timed.event_time.said_idle


def test_timers_that_wait_for_the_end_of_draining_do_not_wake_a_subtask() -> None:
    """Another slot may be suspended: then draining takes long, and nothing can fire before its end."""

    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        keyed = env.from_collection([1], Types.LONG()).key_by(lambda row: row, Types.LONG())
        keyed.process(WakesItself(), Types.LONG()).sink_to(CommittedRows())

    job = SmallJob(graph_of(build))
    keyed = job.subtasks[SubtaskId(1, 0)]
    job.run(until=lambda: keyed.rows_in == 1)
    due_ms = keyed.step(job.clock.now_ms).wait_ms
    assert due_ms is not None and due_ms <= 10
    keyed._draining._enter(Stage.RELEASED)
    job.clock.now_ms += 20
    result = keyed.step(job.clock.now_ms)
    assert not result.worked and result.wait_ms is None


@pytest.mark.parametrize("wanted", [0, 1 << 20])
def test_windows_grow_for_rows_that_a_producer_holds_and_not_for_a_consumer_that_it_starves(wanted: int) -> None:
    """A window every 20 ms, and consumed at once. If the producer waits for another consumer meanwhile, it needs no
    more; if it has rows that wait for credit, it does."""
    job = SmallJob(pipeline(lambda row: []), Configuration({"penstock.network.bound-bytes-min": "16 kb"}))
    middle = job.subtasks[SubtaskId(1, 0)]
    into = middle.gate.channels[0]
    least_bytes = into.window_bytes
    rows = pa.RecordBatch.from_arrays(Types.LONG().encode([1] * 50), schema=Types.LONG().schema)
    for _ in range(50):
        for _ in range(4):
            wanted_bytes = wanted and into.received_bytes + 2_000 + wanted
            middle.mailbox.post(Data(into.id, into.received, 50, 2_000, rows, wanted_bytes))
            while middle.step(job.clock.now_ms).worked:
                job.clock.now_ms += 0.01
        job.clock.now_ms += 20.0
    assert into.window_bytes > 10 * least_bytes if wanted else into.window_bytes == least_bytes


# ---- the cost of a row ----------------------------------------------------------------------------------------------


def test_waiting_for_room_is_not_taken_for_slowness() -> None:
    """A generator that fills the outputs waits for seconds; the rows after it are as fast as before."""
    clock = SlowClock()

    def expand(row: int) -> Iterator[int]:
        clock.spend(0.01)
        for _ in range(20_000 if row == 3_000 else 1):
            yield row

    configuration = Configuration(
        {**FIXED_BOUNDS, "penstock.network.window-bytes": "16 kb", "penstock.network.output-queue-bytes": "16 kb"}
    )
    job = SmallJob(pipeline(expand, rows=4_000), configuration, clock=clock)
    middle = job.subtasks[SubtaskId(1, 0)]
    job.run(until=lambda: middle.output.rows > 4_000 and middle.work.unfinished)
    assert middle.work.unfinished
    for _ in range(3):
        job._step(middle)
    assert middle.work.unfinished, "no room, and nobody makes any"
    clock.spend(5_000.0)
    job.run(until=lambda: not middle.work.unfinished)
    assert middle.work.applied.budget.rows(1 << 30) > 20


def test_a_long_look_at_the_mail_is_not_charged_to_the_rows_after_it() -> None:
    """The slice begins when its rows do: its deadline, too."""
    clock = SlowClock()

    def expand(row: int) -> list[int]:
        clock.spend(0.01)
        return [row]

    job = SmallJob(pipeline(expand), Configuration(FIXED_BOUNDS), clock=clock)
    middle = job.subtasks[SubtaskId(1, 0)]
    job.run(until=lambda: middle.rows_in > 2_000 and middle.gate.channels[0].head() is not None)
    stale_ms, before = clock.now_ms, middle.work.applied.budget.rows(1 << 30)
    clock.spend(500.0)
    rows_before = middle.rows_in
    assert middle.step(stale_ms).worked
    assert middle.rows_in - rows_before > 16, "its deadline has not passed before it begins"
    assert middle.work.applied.budget.rows(1 << 30) > before // 2


# ---- parking --------------------------------------------------------------------------------------------------------


def parked_job() -> tuple[SmallJob, Subtask]:
    job = SmallJob(pipeline(lambda row: [row]), Configuration(FIXED_BOUNDS))
    return job, step_until_reading(job)


def test_a_subtask_rests_after_an_unaligned_snapshot_until_it_is_written() -> None:
    job, source = parked_job()
    before = source.rows_in
    source.mailbox.post(TriggerCheckpoint(GENERATION, Barrier(1, 0)))
    result = source.step(job.clock.now_ms)
    assert not result.worked and result.wait_ms == 20.0
    assert source.step(job.clock.now_ms + 5).wait_ms == 15.0
    assert source.rows_in == before
    source.mailbox.post(Unpark(1))
    assert source.step(job.clock.now_ms + 6).worked


def test_a_subtask_rests_for_its_limit_at_most() -> None:
    job, source = parked_job()
    source.mailbox.post(TriggerCheckpoint(GENERATION, Barrier(1, 0)))
    assert not source.step(job.clock.now_ms).worked
    assert source.step(job.clock.now_ms + 20).worked


def test_rests_in_vain_become_rare() -> None:
    job, source = parked_job()
    rested = []
    for checkpoint_id in range(1, 12):
        source.mailbox.post(TriggerCheckpoint(GENERATION, Barrier(checkpoint_id, 0)))
        source.step(job.clock.now_ms)
        rested.append(source.parking.left_ms(job.clock.now_ms) is not None)
        source.step(job.clock.now_ms + 20)
        source.mailbox.post(CheckpointEnded(GENERATION, checkpoint_id, aborted=True))
        job.clock.now_ms += 100
    assert [i for i, yes in enumerate(rested) if yes] == [0, 2, 5, 10], "one is skipped, then two, then four"


def test_an_aligned_snapshot_rests_nobody() -> None:
    job, source = parked_job()
    source.mailbox.post(TriggerCheckpoint(GENERATION, Barrier(1, None)))
    assert source.step(job.clock.now_ms).worked


@pytest.mark.parametrize("wake_up", [Unpark(1), CheckpointEnded(GENERATION, 1, True)])
def test_what_is_written_before_the_subtask_rests_does_not_make_it_rest(wake_up: Any) -> None:
    """The writer was faster than the rest of the mail."""
    job, source = parked_job()
    source.mailbox.post(TriggerCheckpoint(GENERATION, Barrier(1, 0)))
    source.mailbox.post(wake_up)
    assert source.step(job.clock.now_ms).worked


def test_mail_is_handled_while_the_subtask_rests() -> None:
    job, source = parked_job()
    source.mailbox.post(TriggerCheckpoint(GENERATION, Barrier(1, 0)))
    source.step(job.clock.now_ms)
    source.mailbox.post(TriggerCheckpoint(GENERATION, Barrier(2, 0)))
    assert not source.step(job.clock.now_ms + 1).worked
    job.writers[0].step()
    assert job.subtasks[SubtaskId(1, 0)].mailbox
