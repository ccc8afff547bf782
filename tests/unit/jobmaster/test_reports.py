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
from penstock.protocol.values.messages import Register, SlotStatus, SubtaskStatus

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
