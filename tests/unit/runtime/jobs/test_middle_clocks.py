"""Tests clocks in the middle of a graph: they have no splits, and a generator that is there before any row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.time import Duration
from penstock.common.types import Types
from penstock.common.watermark_strategy import Watermark, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.operators.event_time.progress import EventTime
from penstock.operators.event_time.subtask_clock import SubtaskClock
from penstock.operators.event_time.watermark_generators import WHOLE_INPUT, OldClock, WatermarkGenerators
from penstock.protocol.channel.watermark_valve import WatermarkValve
from penstock.protocol.values.elements import Idle, Pauses
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_event_time_jobs import FREQUENT
from tests.unit.runtime.jobs.test_idleness import run_for

BOUNDED = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(10))
LONG_AGO_MS = -(2**63)


def clock(strategy: WatermarkStrategy = BOUNDED, interval_ms: float = 200) -> WatermarkGenerators:
    operator: Any = SimpleNamespace(watermark_strategy=strategy, name="clock")
    made = WatermarkGenerators(operator, Types.LONG(), interval_ms, lambda: 0.0, tuple)
    made.wait_for([WHOLE_INPUT])
    return made


def after(timestamps: list[int], emitted_ms: int = LONG_AGO_MS, **settings: Any) -> OldClock:
    """Return what a checkpoint has of a clock that has seen rows, and not been asked since."""
    made = clock(**settings)
    if timestamps:
        made.on_rows(WHOLE_INPUT, lambda: timestamps, timestamps)
    return OldClock(emitted_ms, made.snapshot())


class Asked(WatermarkGenerator):
    """Says how often it has been asked, in its lifetime."""

    def __init__(self) -> None:
        self.asked = 0

    def on_event(self, event: object, event_timestamp: int, output: WatermarkOutput) -> None: ...

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self.asked += 1
        output.emit_watermark(Watermark(self.asked))

    def snapshot(self) -> bytes:
        return bytes([self.asked])

    def restore(self, state: bytes) -> None:
        self.asked = state[0]


@pytest.mark.parametrize(
    ("old", "reached_ms"),
    [
        ([after([600, 500]), after([700])], 600 - 10 - 1),
        ([after([600], 400), after([], 300)], 300),
        ([after([600], 400), after([300], 320)], 320),
        ([after([600], 400, interval_ms=0)], 400),
        ([], LONG_AGO_MS),
    ],
    ids=["not asked", "no rows", "has said more", "never asked", "all is new"],
)
def test_new_subtasks_begin_where_all_old_ones_would_be(old: list[OldClock], reached_ms: int) -> None:
    """A checkpoint came between the last row and the next time that its generator was asked. At another parallelism
    nobody said any more how far time was, before the next row.
    """
    made = clock(interval_ms=0 if old and reached_ms == 400 else 200)
    made.restore([], min((c.emitted_ms for c in old), default=LONG_AGO_MS), ())
    made.continue_from(old)
    made.advance(0.0)
    assert made.watermark_ms == reached_ms
    made.on_rows(WHOLE_INPUT, lambda: [100], [100])
    made.advance(1000.0)
    assert made.watermark_ms == reached_ms or reached_ms == LONG_AGO_MS, "an older row changes nothing"


def test_checkpoints_ask_no_generator_that_is_in_use() -> None:
    made = clock(WatermarkStrategy.for_generator(Asked))
    made.snapshot()
    made.advance(200.0)
    assert made.watermark_ms == 1
    new = clock(WatermarkStrategy.for_generator(Asked))
    new.continue_from([OldClock(LONG_AGO_MS, made.snapshot()), OldClock(LONG_AGO_MS, made.snapshot())])
    new.advance(0.0)
    assert new.watermark_ms == 2


class IdleAtLast(Asked):
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self.asked += 1
        if self.asked > 2:
            output.mark_idle()
        else:
            output.emit_watermark(Watermark(100))


def test_what_says_that_it_is_idle_is_left_out_unless_all_do() -> None:
    strategy = WatermarkStrategy.for_generator(IdleAtLast)
    about_to_say = OldClock(LONG_AGO_MS, after_asking(strategy, 2))
    new = clock(strategy)
    new.continue_from([about_to_say, OldClock(LONG_AGO_MS, after_asking(strategy, 1))])
    new.advance(0.0)
    assert new.watermark_ms == 100
    alone = clock(strategy)
    alone.continue_from([about_to_say._replace(emitted_ms=60), about_to_say._replace(emitted_ms=50)])
    alone.advance(0.0)
    assert alone.watermark_ms == 50


def after_asking(strategy: WatermarkStrategy, times: int) -> list[bytes]:
    made = clock(strategy)
    for time in range(1, times + 1):
        made.advance(200.0 * time)
    return made.snapshot()


class IdleFromTheStart(Asked):
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self.asked += 1
        if self.asked > 2:
            output.mark_idle()


def test_a_generator_is_asked_before_the_first_row() -> None:
    """It was made with the first row. A subtask that never got one was never idle, and event time stood still."""

    def build(env: StreamExecutionEnvironment) -> None:
        env.disable_operator_chaining()
        numbers = env.from_source(NumberSequenceSource(0, 9_999), WatermarkStrategy.no_watermarks(), "numbers")
        moved = numbers.partition_custom(lambda key, count: 0, lambda x: x)
        strategy = WatermarkStrategy.for_generator(IdleFromTheStart).with_timestamp_assigner(lambda value, _: value)
        moved.assign_timestamps_and_watermarks(strategy).set_parallelism(2).sink_to(CommittedRows())

    job = SmallJob(graph_of(build), Configuration(FREQUENT))
    clocks = [subtask for subtask in job.subtasks.values() if subtask.event_time.generation is not None]
    run_for(job, 1)
    assert len(clocks) == 2 and not any(subtask.event_time.said_idle for subtask in clocks)
    while not job.all_at_end and not clocks[1].event_time.said_idle:
        run_for(job, 1)
    assert clocks[1].event_time.said_idle and clocks[1].rows_in == 0
    job.close()


def test_a_restored_clock_never_emits_a_lower_count_of_its_own_pauses() -> None:
    """It took the count that it had emitted before the restore for news of its inputs. Its consumers then took the
    channel for one that had not heard of a pause, and event time stood still while all were idle.
    """
    emitted: list[Any] = []
    own, other = 7, 8
    valve, before = WatermarkValve(1), {own: 4, other: 2}
    valve.restore(valve.times(), pauses=before)
    made = SubtaskClock(valve, EventTime(), clock(), True, True, emitted.append, lambda: 0.0, own, before)
    made.emit_idleness(False)
    made.on_inputs(valve.on_event(0, Pauses(other, 3)))
    assert [e for e in emitted if isinstance(e, Pauses)] == [Pauses(own, 5), Pauses(other, 3)]


def test_a_subtask_that_waits_for_the_next_of_several_sources_stays_at_its_time() -> None:
    """Its next split continues where the former one ended; the time of others would make its rows late."""
    generation = clock(interval_ms=10)
    emitted: list[Any] = []
    time = EventTime()
    subtask = SubtaskClock(WatermarkValve(0), time, generation, True, False, emitted.append, lambda: 0.0)
    generation.on_rows(WHOLE_INPUT, lambda: [600], [600])
    generation.on_finished([WHOLE_INPUT])
    subtask.has_no_split(has_gaps=True)
    subtask.tick()
    assert not emitted and generation.watermark_ms == 600 - 10 - 1
    subtask.has_no_split(has_gaps=False)
    subtask.tick()
    assert emitted == [Pauses(0, 0), Idle()]
