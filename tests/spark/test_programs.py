"""The programs that a reader of the README starts, as processes of their own: its first program, the demo and the
benchmarks, small."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300

pytestmark = [pytest.mark.spark, pytest.mark.timeout(LIMIT_S + 20)]


def start(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def last_json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_the_first_program_of_the_readme_says_what_it_should(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    path = tmp_path / "word_lengths.py"
    path.write_text(program, encoding="utf-8")
    done = start(path, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    printed = re.findall(r"\((\d+), *'?(\w+)'?, *(\d+)\)", done.stdout)
    assert Counter(printed) == Counter(
        [("4", "gate", "1"), ("3", "dam", "1"), ("4", "pipe", "1"), ("3", "dam", "2"), ("7", "turbine", "1")]
    )


def test_the_demo_is_exact_under_a_kill(tmp_path: Path) -> None:
    """Two of its four runs, over fewer rows."""
    arguments = ("--rows", "12000", "--pause-us", "500", "--dir", tmp_path / "demo")
    chosen = ("--only", "aligned", "--only", "unaligned, killed")
    done = start(ROOT / "examples/flight_delays/demo.py", *arguments, *chosen, cwd=tmp_path)
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


def test_pressure_prints_the_peers_fields(tmp_path: Path) -> None:
    option = "execution.checkpointing.unaligned.enabled=true"
    result = last_json(start(ROOT / "benchmarks/pressure.py", "seconds=4", option, cwd=tmp_path))
    assert result["completed"] >= 3 and result["failed"] == 0 and result["restarts"] == 0
    assert result["options"] == {"execution.checkpointing.unaligned.enabled": "true"}
    assert 0 < result["duration_ms_p50"] <= result["duration_ms_p90"] <= result["duration_ms_max"]
    assert result["publication_ms_p50"] >= result["duration_ms_p50"]
    assert result["persisted_bytes_p50"] > 0 and result["objects_written_max"] <= 4
    assert len(result["slots_rss_bytes_end"]) == 2


def test_recovery_counts_a_kill_and_checks_every_row(tmp_path: Path) -> None:
    result = last_json(start(ROOT / "benchmarks/recovery.py", "seconds=8", "kills=1", "rows_per_s=5000", cwd=tmp_path))
    assert result["exact"] is True and result["kills"] == 1 and result["restarts"] >= 1
    assert 0 < result["recovery_ms_p50"] <= result["committed_ms_p50"]


def test_overhead_takes_turns(tmp_path: Path) -> None:
    arguments = ("seconds=6", "block_s=1", "warm_up_s=1")
    result = last_json(start(ROOT / "benchmarks/overhead.py", *arguments, cwd=tmp_path))
    assert result["quads"] >= 1 and result["checkpoints"] >= 2 and result["failed"] == 0
    assert 0.3 < result["ratio"] < 3
