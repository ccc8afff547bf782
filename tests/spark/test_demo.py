"""Tests the demo as a process of its own, small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.run_programs import ROOT, surroundings

LIMIT_S = 300

pytestmark = [pytest.mark.spark, pytest.mark.timeout(LIMIT_S + 20)]


def test_the_demo_is_exact_under_a_kill(tmp_path: Path) -> None:
    """Two of its four runs, over fewer rows."""
    arguments = ("--rows", "12000", "--pause-us", "500", "--dir", tmp_path / "demo")
    chosen = ("--only", "aligned", "--only", "unaligned, killed")
    done = subprocess.run(
        [sys.executable, ROOT / "examples/flight_delays/demo.py", *arguments, *chosen],
        cwd=tmp_path,
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    report = json.loads((tmp_path / "demo" / "report.json").read_text(encoding="utf-8"))
    calm, killed = report["runs"]
    fields = {
        "name", "mode", "checkpoints_completed", "checkpoints_failed", "duration_ms_p50", "duration_ms_p90",
        "inflight_bytes_p50", "restarts", "recovery_ms", "rows", "exact",
    }  # fmt: skip
    assert fields <= calm.keys()
    assert [(run["rows"], run["exact"]) for run in report["runs"]] == [(12_000, True), (12_000, True)]
    assert (calm["restarts"], calm["recovery_ms"]) == (0, None)
    assert killed["restarts"] >= 1 and killed["recovery_ms"] > 0
    html = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert html.count("<svg") == 3 and "SIGKILL" in html
