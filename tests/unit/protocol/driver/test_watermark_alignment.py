"""Tests how far the sources of a group may read ahead of each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.driver.watermark_alignment import AlignedSource, LimitWatermarks, WatermarkAlignment
from penstock.protocol.values.elements import WATERMARK_MAX_MS, SubtaskId

FAST, SLOW, OTHER = AlignedSource(0, "orders", 100), AlignedSource(3, "orders", 10), AlignedSource(5, "clicks", 1)


def test_the_slowest_subtask_of_a_group_limits_all_its_sources_each_by_its_own_drift() -> None:
    alignment = WatermarkAlignment([FAST, SLOW, OTHER])
    assert alignment.on_report(SubtaskId(0, 0), 5_000) == [LimitWatermarks(0, 5_100), LimitWatermarks(3, 5_010)]
    assert alignment.on_report(SubtaskId(3, 0), 70) == [LimitWatermarks(0, 170), LimitWatermarks(3, 80)]
    assert alignment.on_report(SubtaskId(3, 1), 90) == [], "it is not the slowest"
    assert alignment.on_report(SubtaskId(5, 0), 1) == [LimitWatermarks(5, 2)], "another group"
    assert alignment.on_report(SubtaskId(3, 0), 80) == [LimitWatermarks(0, 180), LimitWatermarks(3, 90)]


def test_idle_and_finished_subtasks_hold_nobody_back() -> None:
    alignment = WatermarkAlignment([FAST, SLOW])
    alignment.on_report(SubtaskId(0, 0), 500)
    alignment.on_report(SubtaskId(3, 0), 0)
    assert alignment.on_report(SubtaskId(3, 0), None) == [LimitWatermarks(0, 600), LimitWatermarks(3, 510)]
    assert alignment.on_report(SubtaskId(3, 0), 20) == [LimitWatermarks(0, 120), LimitWatermarks(3, 30)]
    alignment.on_end_of_data(SubtaskId(3, 0))
    everything = [LimitWatermarks(0, WATERMARK_MAX_MS), LimitWatermarks(3, WATERMARK_MAX_MS)]
    assert alignment.on_end_of_data(SubtaskId(0, 0)) == everything
    assert alignment.on_report(SubtaskId(9, 0), 1) == [], "a source that is in no group"


@given(st.lists(st.tuples(st.sampled_from([0, 3]), st.integers(0, 2), st.none() | st.integers(-50, 50)), max_size=40))
def test_the_slowest_subtask_may_always_read(reports: list[tuple[int, int, int | None]]) -> None:
    alignment = WatermarkAlignment([FAST, SLOW])
    limits = {0: WATERMARK_MAX_MS, 3: WATERMARK_MAX_MS}
    newest: dict[SubtaskId, int | None] = {}
    for vertex, number, watermark_ms in reports:
        newest[SubtaskId(vertex, number)] = watermark_ms
        for limit in alignment.on_report(SubtaskId(vertex, number), watermark_ms):
            limits[limit.vertex] = limit.watermark_max_ms
        active = {subtask: at for subtask, at in newest.items() if at is not None}
        for subtask, at in active.items():
            assert limits[subtask.vertex] >= min(active.values())
            if at == min(active.values()):
                assert at <= limits[subtask.vertex]
