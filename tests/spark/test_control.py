"""Tests a job that runs in one process, and is seen, saved, stopped and cancelled from others: the command
`penstock`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.rest.job_registry import running_jobs
from tests.spark.small_jobs import committed, wait_until
from tests.spark.test_command_line import COUNTING, LIMIT_S, run, surroundings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * LIMIT_S)]

ROWS = 12_000
EXPECTED = {f"{key}:{n}": 1 for key in range(7) for n in range(1, len(range(key, ROWS, 7)) + 1)}
PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_REGISTRY_DIR", str(tmp_path / "registry"))
    return tmp_path / "registry"


@contextmanager
def running(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Starts `penstock run`, and ends it if the test does not."""
    process = subprocess.Popen(
        [*PENSTOCK, "run", "-p", "2", *command], cwd=folder, env=surroundings(), stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=LIMIT_S)


def test_a_job_is_listed_saved_and_stopped_from_another_process_and_continues_exactly(
    registry: Path, tmp_path: Path
) -> None:
    file, out, checkpoints = tmp_path / "job.py", tmp_path / "out", tmp_path / "checkpoints"
    file.write_text(COUNTING)
    options = ["-D", "execution.checkpointing.interval=100 ms", "-D", f"execution.checkpointing.dir={checkpoints}"]
    options += ["-D", "execution.checkpointing.unaligned.enabled=true"]
    job, slow, fast = [str(file), str(out), str(ROWS)], "100", "100000"
    with running(tmp_path, *options, *job, slow) as first:
        wait_until(lambda: bool(list(checkpoints.glob("*/chk-*/_metadata"))), "a checkpoint", LIMIT_S)
        (entry,) = running_jobs()
        assert (entry.job_name, entry.pid, Path(entry.directory or "").parent) == ("counting", first.pid, checkpoints)
        listed = run(*PENSTOCK, "list", cwd=tmp_path)
        assert listed.returncode == 0 and re.search(rf"{entry.job_id}\s+counting\s+RUNNING", listed.stdout)
        assert re.search(r"chk-\d+\s*$", run(*PENSTOCK, "checkpoints", "counting", cwd=tmp_path).stdout, re.M)

        saved = run(*PENSTOCK, "savepoint", "counting", "saved", cwd=tmp_path)
        assert saved.returncode == 0, saved.stderr
        savepoint = Path(saved.stdout.strip())
        assert savepoint.parent == tmp_path / "saved" and first.poll() is None
        assert f"of job {entry.job_id} (counting)" in run(*PENSTOCK, "info", savepoint, cwd=tmp_path).stdout

        refused = run(*PENSTOCK, "stop", entry.job_id[:6], cwd=tmp_path)
        assert refused.returncode == 1 and "or set execution.checkpointing.savepoint-dir" in refused.stderr
        stopped = run(*PENSTOCK, "stop", str(entry.directory), "-p", "stopped", cwd=tmp_path)
        assert stopped.returncode == 0, stopped.stderr
        _, said = first.communicate(timeout=LIMIT_S)
    assert first.returncode == 0, said
    assert entry.token not in said
    assert list(registry.iterdir()) == []
    assert committed(out).keys() < EXPECTED.keys(), "it was stopped before its end"
    gone = run(*PENSTOCK, "stop", str(entry.directory), cwd=tmp_path)
    assert gone.returncode == 2 and "is not running: it has ended (FINISHED)" in gone.stderr

    done = run(*PENSTOCK, "run", "-p", "2", *options, "-s", stopped.stdout.strip(), *job, fast, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert committed(out) == EXPECTED
    disposed = run(*PENSTOCK, "savepoint", "--dispose", savepoint, cwd=tmp_path)
    assert disposed.returncode == 0 and not savepoint.exists()


def test_a_job_is_cancelled_from_another_process(registry: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text(COUNTING)
    with running(tmp_path, str(file), str(tmp_path / "out"), "1000000", "1000") as job:
        wait_until(lambda: any(entry.job_name == "counting" for entry in running_jobs()), "a running job", LIMIT_S)
        cancelled = run(*PENSTOCK, "cancel", "counting", cwd=tmp_path)
        assert cancelled.returncode == 0, cancelled.stderr
        _, said = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 1 and "was cancelled" in said
    assert list(registry.iterdir()) == []
