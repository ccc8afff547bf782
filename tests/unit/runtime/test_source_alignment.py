"""A source that is in a group pauses where the group's slowest source has not come yet."""

from __future__ import annotations

import pytest

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.connectors.memory.collection import CollectionSource
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.protocol.values.elements import SubtaskId
from penstock.protocol.values.messages import LimitWatermark, WatermarkReport
from tests.unit.runtime.small_job import CommittedRows, SmallJob, graph_of

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
