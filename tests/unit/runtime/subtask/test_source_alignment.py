"""A source that is in a group pauses where the group's slowest source has not come yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.base import FixedSplitEnumerator
from penstock.connectors.memory.collection import CollectionSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.base import NotReady, ReaderContext, Source, SourceReader
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.protocol.values.elements import SubtaskId
from penstock.protocol.values.messages import LimitWatermark, WatermarkReport
from penstock.runtime.subtask.source_alignment import SourceAlignment
from tests.unit.jobmaster.manual_ports import ManualClock
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of

ROWS = 2_000
STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, before: row)
OPTIONS = Configuration({"pipeline.auto-watermark-interval": "1 ms", "penstock.slice.target": "1 ms"})


def aligned() -> SmallJob:
    def build(env: StreamExecutionEnvironment) -> None:
        strategy = STRATEGY.with_watermark_alignment("group", 50, 5).with_idleness(40)
        numbers = env.from_source(NumberSequenceSource(0, ROWS - 1), strategy, "numbers")
        numbers.map(lambda row: row, Types.LONG()).sink_to(CommittedRows())

    return SmallJob(graph_of(build), OPTIONS)


def run_for(job: SmallJob, ms: int) -> None:
    for _ in range(ms):
        job.once()
        job.clock.now_ms += 1.0


def test_it_reports_its_watermark_and_reads_up_to_the_limit() -> None:
    job = aligned()
    source = job.subtasks[SubtaskId(0, 0)]
    source.mailbox.post(LimitWatermark(job.generation, 0, 300))
    run_for(job, 500)
    reached = source.event_time.time.current_ms
    assert 300 < reached <= 302, "its slices become short before the limit"
    assert not source.event_time.said_idle, "whoever may not read is not idle"
    reports = [m.watermark_ms for m in job.messages if isinstance(m, WatermarkReport)]
    assert reports[-1] == reached and reports == sorted(reports, key=lambda at: at or 0)
    run_for(job, 200)
    assert source.event_time.time.current_ms == reached
    source.mailbox.post(LimitWatermark(job.generation, 0, 1_000_000))
    run_for(job, 500)
    assert job.all_at_end
    job.close()


class TenRows(Source):
    """Has ten rows in one split, and never says that no more will come."""

    @property
    def produced_type(self) -> Any:
        return Types.LONG()

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> Any:
        return FixedSplitEnumerator([b'"ten"'])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _TenRows()


class _TenRows(SourceReader):
    next: int | None = None

    def add_splits(self, splits: list[bytes]) -> None:
        self.next = 0

    def no_more_splits(self) -> None: ...

    def read(self, rows_max: int) -> Any:
        if self.next is None or self.next == 10:
            return NotReady(None if self.next is None else 3.0)
        self.next += 1
        return pa.RecordBatch.from_arrays([pa.array(np.array([self.next]))], schema=Types.LONG().schema)

    def snapshot(self) -> list[bytes]:
        return []


def test_a_source_that_was_idle_is_not_while_it_may_not_read() -> None:
    """Rows may be there that it would read: those of a source that had been idle before were late."""

    def build(env: StreamExecutionEnvironment) -> None:
        strategy = STRATEGY.with_watermark_alignment("group", 50, 5).with_idleness(20)
        env.from_source(TenRows(), strategy, "ten").sink_to(CommittedRows())

    job = SmallJob(graph_of(build), OPTIONS)
    source = job.subtasks[SubtaskId(0, 0)]
    run_for(job, 60)
    assert source.event_time.generation is not None and source.event_time.generation.idle
    assert [m.watermark_ms for m in job.messages if isinstance(m, WatermarkReport)][-1] is None
    source.mailbox.post(LimitWatermark(job.generation, 0, 4))
    run_for(job, 60)
    assert not source.event_time.generation.idle and not source.event_time.said_idle
    assert [m.watermark_ms for m in job.messages if isinstance(m, WatermarkReport)][-1] == 9
    source.mailbox.post(LimitWatermark(job.generation, 0, 1_000_000))
    run_for(job, 15)
    assert not source.event_time.generation.idle, "it has the whole timeout again"
    run_for(job, 15)
    assert source.event_time.generation.idle
    job.close()


def with_generators(**now: Any) -> tuple[SourceAlignment, Any, ManualClock, list[int | None]]:
    generators: Any = SimpleNamespace(**{"watermark_ms": 0, "asked": 0, "idle": False} | now)
    clock, reports = ManualClock(), list[int | None]()
    return SourceAlignment(generators, clock, reports.append, 5.0), generators, clock, reports


def test_a_watermark_that_stands_still_makes_no_slices_short() -> None:
    """One silent split held it, and the rows of the others were read one by one for as long as that lasted."""
    alignment, generators, _, _ = with_generators()
    alignment.limit(60)
    assert alignment.slice_rows(1000) == 1000
    alignment.on_read(1000)
    generators.watermark_ms, generators.asked = 10, 1
    for asked in range(2, 30):
        for _ in range(4):
            assert alignment.slice_rows(1000) == 1000
            alignment.on_read(1000)
        generators.asked = asked
    for left in (1000, 1000, 1000, 1000, 1000, 1):
        assert alignment.slice_rows(1000) == left, "100 rows are a millisecond, and 50 ms are left"
        alignment.on_read(1000)


def test_a_source_without_rows_is_asked_again_when_its_idleness_is_to_be_reported() -> None:
    """Without watermarks at intervals nothing woke it, and its group waited for it."""
    alignment, generators, clock, reports = with_generators()
    assert alignment.wait_ms() is None and reports == [0]
    assert alignment.at_the_latest(None) is None and alignment.at_the_latest(7.0) == 7.0
    clock.now_ms, generators.idle = 2.0, True
    assert alignment.at_the_latest(None) == 3.0 and alignment.at_the_latest(7.0) == 3.0
    assert alignment.at_the_latest(2.0) == 2.0
    clock.now_ms = 5.0
    assert alignment.wait_ms() is None and reports == [0, None] and alignment.at_the_latest(None) is None


def test_only_sources_with_watermarks_are_aligned() -> None:
    with pytest.raises(ValueError, match="a strategy without watermarks has nothing to align: no_watermarks"):
        WatermarkStrategy.no_watermarks().with_watermark_alignment("group", 50)
    with pytest.raises(ValueError, match="a group has a name, got ''"):
        STRATEGY.with_watermark_alignment("", 50)
    with pytest.raises(ValueError, match="the update interval is more than 0 ms"):
        STRATEGY.with_watermark_alignment("group", 50, 0)
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    rows = env.from_collection([1], Types.LONG())
    with pytest.raises(ValueError, match="only sources can be kept together in event time"):
        rows.assign_timestamps_and_watermarks(STRATEGY.with_watermark_alignment("group", 50))
    assert str(STRATEGY.with_watermark_alignment("group", 50)).endswith("ahead of group 'group'")


def test_a_reader_that_waits_for_others_to_finish_a_source_holds_nobody_back() -> None:
    """Without this: it has read what it may and stays where it is, so the reader that it waits for may not go on."""

    def build(env: StreamExecutionEnvironment) -> None:
        source = HybridSource.builder(CollectionSource([10, 200], Types.LONG())).add_source(
            NumberSequenceSource(300, 309)
        )
        strategy = STRATEGY.with_watermark_alignment("group", 50, 5)
        env.from_source(source.build(), strategy, "both").map(lambda row: row, Types.LONG()).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 2), OPTIONS)

    def reports(subtask: int) -> list[int | None]:
        own = [m for m in job.messages if isinstance(m, WatermarkReport) and m.subtask == SubtaskId(0, subtask)]
        return [m.watermark_ms for m in own]

    reading = job.subtasks[SubtaskId(0, 0)]
    reading.mailbox.post(LimitWatermark(job.generation, 0, 0))
    run_for(job, 100)
    waiting = 1 if reports(0) and reports(0)[-1] is not None else 0
    assert reports(waiting)[-1] is None, "it waits"
    assert reports(1 - waiting)[-1] is not None
    reading.mailbox.post(LimitWatermark(job.generation, 0, 1_000_000))
    run_for(job, 100)
    assert job.all_at_end
    assert any(ms is not None for ms in reports(waiting)), "it counts again when it has splits of the next source"
    job.close()
