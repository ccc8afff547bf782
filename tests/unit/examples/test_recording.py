"""Records the demo's job: what a report drops is kept, and a recovery counts from the kill."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from live_view import LiveView
from penstock.monitoring.report import CheckpointReport, DrainingReport, JobReport, RecoveryReport, VertexReport
from recording import Recording, RunPlan, quantile
from report import drained

VERTEX = VertexReport("sink", 2, 100, 0, 50.0, 0.0, 0.5, 0.0)


def checkpoint(number: int, duration_ms: float | None = 10.0, status: str = "completed") -> CheckpointReport:
    return CheckpointReport(number, status, 1_000_000 + number, duration_ms, 12.0, True, 10, number, 20, 3, None)


def report(*checkpoints: CheckpointReport) -> JobReport:
    return JobReport("id", "job", "RUNNING", 1, 0, (VERTEX,), checkpoints, len(checkpoints), 1, (), 2, 2)


def test_checkpoints_are_kept_after_the_report_has_dropped_them() -> None:
    recording = Recording(RunPlan("a", "b", {}))
    recording.take(report(checkpoint(1), checkpoint(2, None, "in_progress")))
    recording.take(report(checkpoint(2, 30.0), checkpoint(3, None, "failed")))
    assert [c.checkpoint_id for c in recording.completed] == [1, 2]
    summary = recording.summary(rows=7, exact=True)
    assert summary["duration_ms_p50"] == 20.0
    assert summary["inflight_bytes_p50"] == 1.5
    assert (summary["checkpoints_completed"], summary["checkpoints_failed"]) == (2, 1)
    assert (summary["rows"], summary["exact"], summary["recovery_ms"]) == (7, True, None)


def test_recovery_counts_from_the_kill_not_from_its_discovery() -> None:
    recording = Recording(RunPlan("a", "b", {}, 0.5))
    earlier = RecoveryReport(1, 1_000, "another failure", 50.0, 1)
    ours = RecoveryReport(2, 5_040, "slot lost", 300.0, 4)
    recording.killed_wall_ms = 5_000.0
    recording.take(replace(report(), recoveries=(earlier, replace(ours, running_after_ms=None))))
    assert recording.recovery_ms is None
    recording.take(replace(report(), recoveries=(earlier, ours)))
    assert recording.recovery_ms == 340.0


def test_what_was_drained_is_kept_when_the_next_generation_has_nothing_to_drain() -> None:
    recording = Recording(RunPlan("wider", "at another parallelism", {}))
    recording.take(replace(report(), draining=DrainingReport(12, 3)))
    recording.take(replace(report(), draining=DrainingReport(12, 12, 41.26)))
    recording.take(report())
    summary = recording.summary(rows=7, exact=True)
    assert (summary["layers_drained"], summary["draining_ms"]) == (12, 41.3)
    assert drained(summary) == "; drained 12 layers of recovered rows in 41 ms"
    assert drained(Recording(RunPlan("a", "b", {})).summary(rows=7, exact=True)) == ""


def test_the_live_view_says_that_the_job_drains() -> None:
    written = io.StringIO()
    console = Console(file=written, width=120)
    view = LiveView(console, Recording(RunPlan("wider", "at another parallelism", {})), rows=200)
    for at in (DrainingReport(12, 3), DrainingReport(12, 12, 41.0)):
        console.print(view._headline(replace(report(), draining=at)))
    shown = written.getvalue()
    assert shown.count("draining 3 of 12 layers") == 1 and "draining 12" not in shown


def test_quantiles() -> None:
    assert quantile([], 0.5) is None
    assert quantile([4, 1], 0.5) == 2.5
    assert quantile(list(range(10)), 0.9) == 9
    assert quantile([3], 0.9) == 3
