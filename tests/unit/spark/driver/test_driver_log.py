"""Tests the lines of a driver's log, which follow the reports of its job."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.monitoring.report import CheckpointReport, JobReport, RecoveryReport, RescaleReport, VertexReport
from penstock.spark.driver.driver_log import DriverLog, status_line
from penstock.spark.driver.terminal import Terminal

BEGUN = JobReport("id", "orders", "CREATED", 0, 0, (), (), 0, 0, (), 2, 0)
RUNNING = replace(BEGUN, state="RUNNING", generation=1, has_run=True)
SAVEPOINT = CheckpointReport(4, "in_progress", 0, None, None, True, 0, 0, 0, 0, None, is_savepoint=True)
RECOVERY = RecoveryReport(2, 0, "a slot was lost", None, None)


class Log:
    """Looks at one report after the other, and returns what is written for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, interval_s: float = 0.0) -> None:
        self._stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", self._stream)
        self.report = BEGUN
        self.log = DriverLog(Terminal("orders"), lambda: self.report, 2, interval_s)

    def of(self, report: JobReport) -> list[str]:
        self.report = report
        self.log._look()
        return self.taken()

    def taken(self) -> list[str]:
        lines = self._stream.getvalue().splitlines()
        self._stream.seek(0)
        self._stream.truncate()
        return [line.split("] penstock: ")[1] for line in lines]


def test_each_event_leaves_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch)
    assert log.of(BEGUN) == []
    [running] = log.of(RUNNING)
    assert running.startswith("running with 2 slots after ")
    assert log.of(RUNNING) == []
    assert log.of(replace(RUNNING, state="RESTARTING", recoveries=(RECOVERY,))) == []
    again = replace(RUNNING, recoveries=(replace(RECOVERY, running_after_ms=1240.0, restored_checkpoint=17),))
    assert log.of(again) == ["the job runs again after 1.2 s, from checkpoint 17"]
    assert log.of(again) == []
    pending = replace(again, checkpoints=(SAVEPOINT,))
    assert log.of(pending) == []
    taken = replace(SAVEPOINT, status="completed", path="/sp/savepoint-1", duration_ms=900.0)
    assert log.of(replace(again, checkpoints=(taken,))) == ["savepoint /sp/savepoint-1 is complete after 0.9 s"]
    rescale = RescaleReport(1, "asked for", (2, 2), (4, 4), 100.0, 200.0, 300.0)
    rescaled = replace(again, checkpoints=(taken,), rescales=(rescale,))
    assert log.of(rescaled) == ["rescaled from parallelism 2 to 4 in 0.6 s (asked for)"]
    assert log.of(rescaled) == []
    log.log.end("FINISHED", "")
    [ended] = log.taken()
    assert ended.startswith("the job is FINISHED after ")


def test_the_address_of_the_dashboard_follows_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch)
    log.log = DriverLog(Terminal("orders"), lambda: log.report, 2, 0.0, lambda: "http://127.0.0.1:8081/ui/")
    assert log.of(RUNNING)[1:] == ["dashboard: http://127.0.0.1:8081/ui/"]


def test_a_job_that_has_run_between_two_looks_leaves_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cancelled, or rescaled, within a fifth of a second."""
    log = Log(monkeypatch)
    log.report = replace(RUNNING, state="CANCELED")
    log.log.end("CANCELED", "")
    running, ended = log.taken()
    assert running.startswith("running with 2 slots after ") and ended.startswith("the job is CANCELED after ")


def test_a_line_says_now_and_then_that_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch, interval_s=1e-9)
    assert log.of(BEGUN) == []
    assert len(log.of(RUNNING)) == 2
    assert log.of(RUNNING) == ["RUNNING: 0 rows/s; 0 restarts"]
    assert Log(monkeypatch).of(RUNNING)[1:] == []


def test_the_status_has_rates_lag_and_the_last_checkpoint() -> None:
    vertices = (
        VertexReport("source", 1, 0, 9, 0.0, 1500.0, 0, 0, lag_rows=1234),
        VertexReport("sink", 1, 9, 0, 40.0, 0.0, 0, 0),
    )
    newest = CheckpointReport(17, "completed", 10_000, 12.4, 15.0, True, 0, 0, 0, 0, None)
    report = replace(RUNNING, vertices=vertices, checkpoints=(newest,), failed=1, restarts=2)
    told = (
        "RUNNING: 1,500 rows/s; 1,234 rows behind; checkpoint 17 took 12 ms, 4 s ago; 1 failed checkpoints, 2 restarts"
    )
    assert status_line(report, 14_000) == told


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="other systems do not say where arguments are")
@pytest.mark.parametrize("title", ["penstock: orders slot 3", "x" * 100_000])
def test_a_process_is_named_in_ps_and_its_environment_is_whole(title: str) -> None:
    code = """if True:
        import sys
        from penstock.spark.process.process_title import set_title
        set_title(sys.argv[1], "penstock-3")
        for name in ("cmdline", "comm"):
            print(open(f"/proc/self/{name}").read())
        print(open("/proc/self/environ").read().count("MARK=mark"))
    """
    environment = {**os.environ, "MARK": "mark"}
    done = subprocess.run(
        [sys.executable, "-c", code, title], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    shown, name, marks = done.stdout.replace("\0", "").split()[:-2], *done.stdout.split()[-2:]
    assert " ".join(shown).startswith(title[:40]) and name == "penstock-3" and marks == "1"
