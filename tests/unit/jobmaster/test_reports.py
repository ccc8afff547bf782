"""The report's sums, kept by differences, are those over the newest status of each subtask."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from micro.driver_messages import Driver, forward_graph
from penstock.jobmaster.reports import CheckpointHistory, Reporter
from penstock.protocol.driver.lifecycle import Lifecycle, LifecycleSettings
from penstock.protocol.driver.restarts import NoRestart
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import Register, SlotAck, SlotStatus, SubtaskStatus
from penstock.protocol.values.metadata import SubtaskSnapshot
from penstock.protocol.values.reasons import FailureReason

SLOTS = 3
NONE = Generation(0, 0)


def reporter() -> Reporter:
    life = Lifecycle(LifecycleSettings(SLOTS), NoRestart(), lambda: 0.0)
    return Reporter(forward_graph(SLOTS), "job", life, CheckpointHistory(10, None))


def close(measured: float, expected: float) -> bool:
    return math.isclose(measured, expected, rel_tol=1e-3, abs_tol=0.01)


statuses = st.tuples(
    st.integers(0, 1), st.integers(0, SLOTS - 1), st.integers(0, 5000), st.floats(0, 1), st.integers(0, 2000)
)


@given(st.lists(st.one_of(statuses, st.none()), max_size=40))
def test_sums_are_those_of_the_newest_statuses(steps: list[tuple[int, int, int, float, int] | None]) -> None:
    """None: the generation ends."""
    reports, now_ms = reporter(), 0.0
    newest: dict[tuple[int, int], tuple[SubtaskStatus, float, float]] = {}
    before = [0, 0]
    for step in steps:
        if step is None:
            reports.on_generation_ended()
            for (vertex, _), (status, _, _) in newest.items():
                before[vertex] += status.rows_in
            newest.clear()
        else:
            vertex, subtask, rows, share, passes_ms = step
            now_ms += passes_ms
            status = SubtaskStatus(vertex, subtask, rows, 2 * rows, 0, 0, share, 1 - share, 0, late_rows=rows // 2)
            known = newest.get((vertex, subtask))
            elapsed_s = 0.0 if known is None else (now_ms - known[1]) / 1000
            rate = max(0, rows - known[0].rows_in) / elapsed_s if known is not None and elapsed_s else 0.0
            newest[vertex, subtask] = (status, now_ms, rate)
            reports.on_status(SlotStatus(NONE, subtask, [status], 1), now_ms)
        for vertex, report in enumerate(reports.build().vertices):
            views = [view for (v, _), view in newest.items() if v == vertex]
            rows_in = before[vertex] + sum(s.rows_in for s, _, _ in views)
            assert (report.rows_in, report.rows_out) == (rows_in, 2 * rows_in)
            assert close(report.rows_in_per_s, sum(rate for _, _, rate in views))
            assert close(report.rows_out_per_s, 2 * report.rows_in_per_s)
            assert close(report.busy_share, sum(s.busy_share for s, _, _ in views) / max(1, len(views)))
            if not views:
                assert report.rows_in_per_s == report.busy_share == report.backpressured_share == 0


def test_memory_is_that_of_the_slot_which_the_process_plays() -> None:
    """A spare that has taken a lost slot's place names its own number until it is deployed again."""
    driver = Driver(2, spares=1)
    driver.handle(driver.registrations())
    driver.run()
    driver.say("spare", Register(2, 1, 0, "spare", 102, "host", 5000, driver.python, "0"))
    driver.lose(range(1))
    driver.say("spare", SlotStatus(NONE, 2, [], 5_000))
    driver.say("p1", SlotStatus(NONE, 1, [], 7_000))
    assert driver.master.report.slot_rss_bytes == (5_000, 7_000)
    assert driver.master.report.slot_pids == (102, 101)


def test_figures_of_the_state_backend_are_those_of_the_newest_status() -> None:
    reports = reporter()
    before = reports.build()
    for subtask, keys in ((0, 1), (1, 5), (0, 3)):
        status = SubtaskStatus(1, subtask, 0, 0, 0, 0, 0.0, 0.0, 0, metrics={"rocksdb.estimate-num-keys": keys})
        reports.on_status(SlotStatus(NONE, subtask, [status], 1), 1.0)
    shown = reports.build()
    assert shown.vertices[1].metrics == {0: {"rocksdb.estimate-num-keys": 3}, 1: {"rocksdb.estimate-num-keys": 5}}
    reports.on_generation_ended()
    assert reports.build().vertices[1].metrics == {}
    assert before.vertices[1].metrics == {} and len(shown.vertices[1].metrics) == 2, "reports do not change"


def test_counters_are_added_up_until_the_next_generation_counts() -> None:
    reports = reporter()

    def count(vertex: int, subtask: int, **counts: int) -> None:
        status = SubtaskStatus(vertex, subtask, 0, 0, 0, 0, 0.0, 0.0, 0, accumulators=counts)
        reports.on_status(SlotStatus(NONE, subtask, [status], 1), 1.0)

    count(1, 0, bad=1)
    count(1, 1, bad=5, good=2)
    count(0, 0, bad=10)
    assert reports.build().accumulators == {"bad": 16, "good": 2}
    reports.on_generation_ended()
    assert reports.build().accumulators == {"bad": 16, "good": 2}, "the job may have ended with it"
    count(1, 0)
    count(0, 0, bad=1)
    assert reports.build().accumulators == {"bad": 1}


def ack(slot: int, checkpoint_id: int, vertices: int = 2) -> SlotAck:
    subtasks = [
        SubtaskSnapshot(
            v, slot, [], [], [], [], [], [], [], unaligned=True, persisted_bytes=20, state_bytes=100,
            start_delay_ms=1.5, alignment_ms=2.5, sync_ms=0.5, async_ms=3.0,
        )
        for v in range(vertices)
    ]  # fmt: skip
    return SlotAck(Generation(1, 1), slot, checkpoint_id, None, subtasks)


def test_a_checkpoint_holds_the_part_of_each_subtask_once() -> None:
    history = CheckpointHistory(10, None)
    history.triggered(7, 1000.0, 5_000, unaligned=True, subtasks=4)
    for slot, now_ms in ((0, 1010.0), (1, 1030.0), (0, 1090.0)):
        history.on_ack(ack(slot, 7), now_ms)
    (report,) = history.reports
    assert (report.subtasks_acknowledged, report.subtasks_expected, report.status) == (4, 4, "in_progress")
    assert [(p.vertex, p.subtask, p.acknowledged_ms) for p in report.parts] == [
        (0, 0, 10.0), (1, 0, 10.0), (0, 1, 30.0), (1, 1, 30.0),
    ]  # fmt: skip
    part = report.parts[0]
    assert (part.start_delay_ms, part.alignment_ms, part.sync_ms, part.async_ms) == (1.5, 2.5, 0.5, 3.0)
    assert (part.unaligned, part.state_bytes, part.written_bytes, part.persisted_bytes) == (True, 100, 20, 20)


def test_an_acknowledgement_that_comes_late_leaves_nothing() -> None:
    history = CheckpointHistory(10, None)
    history.triggered(7, 1000.0, 5_000, unaligned=True, subtasks=4)
    history.on_ack(ack(0, 7), 1010.0)
    history.aborted(7, FailureReason.EXPIRED, "too late")
    for number in (7, 8):
        history.on_ack(ack(1, number), 1100.0)
    assert history.reports[0].subtasks_acknowledged == 2
    assert not history._heard
