"""Tests idleness: each split for itself, in time in which it could have been read; and the last watermark at the
end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.configuration import Configuration
from penstock.common.time import Duration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.base import FixedSplitEnumerator
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.base import NotReady, ReaderContext, Source, SourceReader
from penstock.operators.event_time.idleness import NEVER_MS, IdleTimers
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.subtask.drain_gate import DrainGate
from penstock.protocol.values.elements import WATERMARK_MAX_MS
from penstock.runtime.subtask.feeds import SourceFeed
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_event_time_jobs import FREQUENT
from tests.unit.runtime.jobs.test_rescaled_jobs import TIMEOUTS, Cascade
from tests.unit.runtime.jobs.test_small_jobs import finish

TIMEOUT_MS = 20


def bounded(idle_ms: int | None = TIMEOUT_MS) -> WatermarkStrategy:
    made = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(1))
    made = made.with_timestamp_assigner(lambda value, _: value)
    return made if idle_ms is None else made.with_idleness(Duration.of_millis(idle_ms))


class TwoSplits(Source):
    """One reader asks two splits in turns. Split "silent" has its rows, from `resumes_at` on, only when "busy" is
    there; `queued`: the reader says that it waits its turn."""

    def __init__(self, rows: int, resumes_at: int, queued: bool = False) -> None:
        self.rows, self.resumes_at, self.queued = rows, resumes_at, queued

    @property
    def produced_type(self) -> Any:
        return Types.LONG()

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> Any:
        return FixedSplitEnumerator([b'"both"'] if restored is None else [])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _TwoSplits(self)


class _TwoSplits(SourceReader):
    def __init__(self, source: TwoSplits) -> None:
        self.source = source
        self.next = {"busy": 0, "silent": source.resumes_at}
        self.given = False
        self.current = ""

    def add_splits(self, splits: list[bytes]) -> None:
        self.given = self.given or bool(splits)

    def no_more_splits(self) -> None: ...

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        if not self.given:
            return NotReady(None)
        ready = [s for s in ("busy", "silent") if self.next[s] < self.source.rows]
        if not ready:
            return None
        if self.next["busy"] < self.source.resumes_at:
            ready = ["busy"]
        self.current = ready[0] if self.current != ready[0] else ready[-1]
        at = self.next[self.current]
        self.next[self.current] += 1
        return pa.RecordBatch.from_arrays([pa.array(np.array([at]))], schema=Types.LONG().schema)

    @property
    def current_split(self) -> str:
        return self.current

    def splits_in_hand(self) -> list[str]:
        return ["busy", "silent"] if self.given else []

    def queued_splits(self) -> list[str]:
        return ["silent"] if self.source.queued else []

    def snapshot(self) -> list[bytes]:
        return [b'"both"']


def time_of(job: SmallJob) -> int:
    return next(iter(job.subtasks.values())).event_time.time.current_ms


def two_splits(source: TwoSplits, strategy: WatermarkStrategy) -> SmallJob:
    def build(env: StreamExecutionEnvironment) -> None:
        env.from_source(source, strategy, "two splits").sink_to(CommittedRows())

    return SmallJob(graph_of(build), Configuration(FREQUENT))


def run_for(job: SmallJob, ms: int) -> None:
    for _ in range(ms):
        job.once()
        job.clock.now_ms += 1.0


def test_a_silent_split_beside_a_busy_one_does_not_stop_event_time() -> None:
    job = two_splits(TwoSplits(1_000_000, 900_000), bounded())
    run_for(job, TIMEOUT_MS // 2)
    assert time_of(job) == WATERMARK_MIN_MS, "it may still come"
    run_for(job, 2 * TIMEOUT_MS)
    assert time_of(job) > TIMEOUT_MS
    assert not next(iter(job.subtasks.values())).event_time.said_idle, "the busy one is not idle"
    job.close()


def test_a_split_that_comes_back_is_waited_for_again() -> None:
    job = two_splits(TwoSplits(1_000_000, 100), bounded())
    run_for(job, 2)
    feed = next(iter(job.subtasks.values())).feed
    assert isinstance(feed, SourceFeed)
    reader: Any = feed.reader
    while reader.next["busy"] < 99:
        run_for(job, 1)
    assert time_of(job) > TIMEOUT_MS
    while reader.next["silent"] < 110:
        run_for(job, 1)
    generation = next(iter(job.subtasks.values())).event_time.generation
    assert generation is not None
    silent = generation._splits["silent"]
    assert not silent.silent and generation.watermark_ms == min(s.watermark_ms for s in generation._splits.values())
    job.close()


def test_without_a_timeout_and_while_it_waits_its_turn_a_split_holds_time_back() -> None:
    for source, strategy in (
        (TwoSplits(1_000_000, 900_000), bounded(None)),
        (TwoSplits(1_000_000, 900_000, queued=True), bounded()),
    ):
        job = two_splits(source, strategy)
        run_for(job, 10 * TIMEOUT_MS)
        assert time_of(job) == WATERMARK_MIN_MS
        job.close()


class ManualTime:
    def __init__(self) -> None:
        self.now_ms = 100.0

    def __call__(self) -> float:
        return self.now_ms


@pytest.fixture
def at() -> ManualTime:
    return ManualTime()


def timers(at: ManualTime, *splits: str) -> IdleTimers:
    made = IdleTimers(10.0, at)
    for split in splits:
        made.start(split)
    return made


def test_time_before_the_first_look_and_in_a_pause_does_not_count(at: ManualTime) -> None:
    idle = timers(at, "one")
    idle.on_quiet()
    at.now_ms += 1000.0  # held for draining
    assert idle.next_deadline_ms() == NEVER_MS
    idle.advance(at.now_ms, ())
    assert not idle.is_silent("one") and idle.next_deadline_ms() == at.now_ms + 10.0
    at.now_ms += 6.0
    idle.pause()
    at.now_ms += 1000.0  # no room in the outputs
    idle.advance(at.now_ms, ())
    assert not idle.is_silent("one") and idle.next_deadline_ms() == at.now_ms + 4.0
    at.now_ms += 4.0
    idle.advance(at.now_ms, ())
    assert idle.is_silent("one") and idle.next_deadline_ms() == NEVER_MS


@given(st.floats(0.0, 1e9), st.lists(st.floats(0.0, 1e3), min_size=1, max_size=8), st.floats(1.0, 1e6))
def test_the_timeout_has_passed_at_its_deadline_however_sums_are_rounded(
    began_ms: float, looks_ms: list[float], timeout_ms: float
) -> None:
    at = ManualTime()
    at.now_ms = began_ms
    idle = IdleTimers(timeout_ms, at)
    idle.start("one")
    idle.advance(at.now_ms, ())
    idle.on_quiet()
    for look_ms in looks_ms:
        at.now_ms += look_ms
        idle.advance(at.now_ms, ())
    if not idle.is_silent("one"):
        at.now_ms = idle.next_deadline_ms()
        idle.advance(at.now_ms, ())
    assert idle.is_silent("one") and idle.next_deadline_ms() == NEVER_MS


def test_a_long_slice_of_one_split_makes_no_other_silent(at: ManualTime) -> None:
    idle = timers(at, "one", "two")
    idle.advance(at.now_ms, ())
    at.now_ms += 1000.0
    idle.on_rows("one")
    idle.advance(at.now_ms, ())
    assert not idle.is_silent("one") and not idle.is_silent("two")
    idle.on_rows("one")
    idle.advance(at.now_ms, ())
    assert idle.is_silent("two"), "the reader has had its turn there"


def test_a_queued_split_has_the_whole_timeout_when_its_turn_comes(at: ManualTime) -> None:
    idle = timers(at, "one", "two")
    idle.advance(at.now_ms, ("two",))
    for _ in range(5):
        at.now_ms += 30.0
        idle.on_rows("one")
        idle.advance(at.now_ms, ("two",))
    at.now_ms += 30.0
    idle.on_rows("one")
    idle.end("one")
    idle.advance(at.now_ms, ())
    assert not idle.is_silent("two")
    idle.on_quiet()
    at.now_ms += 10.0
    idle.advance(at.now_ms, ())
    assert idle.is_silent("two")


# ---- draining -------------------------------------------------------------------------------------------------------


class NoneIsLate(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield (value, value <= ctx.timer_service().current_watermark())


ROWS = 300


def assigned_in_the_middle(env: StreamExecutionEnvironment) -> None:
    env.disable_operator_chaining()
    numbers = env.from_collection(list(range(ROWS)), Types.LONG())
    passed = numbers.map(lambda x: x, Types.LONG()).set_parallelism(2)
    timed = passed.forward().assign_timestamps_and_watermarks(bounded()).set_parallelism(2)
    timed.key_by(lambda x: x % 7, Types.LONG()).process(NoneIsLate()).sink_to(CommittedRows())


def test_idle_timers_start_when_draining_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """[An assigner in the middle of a graph said idle as soon as draining ended, and the others' time went on.]"""
    cascade = Cascade(assigned_in_the_middle, 3)
    cascade.options = FREQUENT
    cascade.start(2)
    cascade.crash_after(12, TIMEOUTS["unaligned"])
    assert cascade.restored is not None and edges_in_flight(cascade.restored)
    job = cascade.start(3)
    idle_at_release: list[bool] = []
    on_release = DrainGate.on_release

    def released(self: DrainGate, is_last: bool, checkpoints: Any) -> None:
        on_release(self, is_last, checkpoints)
        if is_last:
            idle_at_release.append(True)

    monkeypatch.setattr(DrainGate, "on_release", released)
    while not idle_at_release:
        job.once()
        job.clock.now_ms += 5 * TIMEOUT_MS  # draining is slow
    assigners = [s for s in job.subtasks.values() if s.event_time.generation is not None]
    for subtask in assigners:
        subtask.step(job.clock.now_ms)
        assert not subtask.event_time.said_idle
    job.close()


# ---- the end of input -----------------------------------------------------------------------------------------------


class SeenByTimers(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value)
        ctx.timer_service().register_event_time_timer(value + 1_000)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield (timestamp, ctx.timer_service().current_watermark())


def timers_at_the_end(in_the_middle: bool) -> Any:
    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.from_collection([10, 20, 30], Types.LONG())
        if in_the_middle:
            numbers = numbers.rebalance().map(lambda x: x, Types.LONG())
        timed = numbers.assign_timestamps_and_watermarks(bounded(None)).set_parallelism(1)
        timed.key_by(lambda x: 0, Types.LONG()).process(SeenByTimers()).sink_to(CommittedRows())

    return build


@pytest.mark.parametrize("in_the_middle", [False, True])
def test_the_last_watermark_of_a_generator_comes_before_the_end_of_time(in_the_middle: bool) -> None:
    options = Configuration({"pipeline.auto-watermark-interval": "1 h"})
    job = SmallJob(graph_of(timers_at_the_end(in_the_middle)), options)
    last = 30 - 1 - 1
    expected = [(10, last), (20, last), (30, WATERMARK_MAX_MS)]
    expected += [(at + 1_000, WATERMARK_MAX_MS) for at in (10, 20, 30)]
    assert finish(job, 1) == expected
    job.close()
