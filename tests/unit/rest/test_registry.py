"""Tests the registry of running jobs: who can read it, and what is left of drivers that are gone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from penstock.common import Configuration
from penstock.rest.hosting import JobHosting
from penstock.rest.job_registry import RunningJob, process_started, registry_directory, running_jobs, unregister
from tests.unit.rest.conftest import Hosted
from tests.unit.rest.running import JOB_ID, DrivenClient


def changed(job: RunningJob, file: Path, **more: object) -> RunningJob:
    job = msgspec.structs.replace(job, **more)
    file.write_bytes(msgspec.json.encode(job))
    return job


def test_a_job_is_registered_for_this_user_only_while_it_runs(hosted: Hosted, registry: Path) -> None:
    (file,) = registry.iterdir()
    assert file.name == f"{JOB_ID}.json"
    assert (stat.S_IMODE(registry.stat().st_mode), stat.S_IMODE(file.stat().st_mode)) == (0o700, 0o600)
    job = hosted.job
    assert (job.job_id, job.job_name, job.pid, job.directory) == (
        JOB_ID,
        "counting",
        os.getpid(),
        str(hosted.directory),
    )
    assert job.url.startswith("http://127.0.0.1:") and len(job.token) >= 32
    assert job.token not in repr(job)
    hosted.hosting.end()
    assert list(registry.iterdir()) == []


def test_files_of_drivers_that_are_gone_are_removed(hosted: Hosted, registry: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    changed(hosted.job, registry / "dead.json", job_id="dead", pid=ended.pid)
    changed(hosted.job, registry / "reused.json", job_id="reused", process_started="1")
    changed(hosted.job, registry / "elsewhere.json", job_id="elsewhere", host="another host", pid=ended.pid)
    (registry / "foreign.json").write_text("{}")
    assert {job.job_id for job in running_jobs()} == {JOB_ID, "elsewhere"}
    assert {file.stem for file in registry.iterdir()} == {JOB_ID, "elsewhere", "foreign"}
    assert process_started(ended.pid) is None


def test_a_process_that_has_ended_but_was_not_waited_for_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process_started(child.pid) is None
    child.communicate()


def test_a_driver_that_has_lost_its_job_leaves_the_file_of_the_next_one(hosted: Hosted, registry: Path) -> None:
    file = registry / f"{JOB_ID}.json"
    changed(hosted.job, file, token="another")
    unregister(hosted.job, file)
    assert [job.token for job in running_jobs()] == ["another"]


@pytest.mark.parametrize("fault", ["open to others", "a file"])
def test_a_job_runs_without_a_registry_and_says_so(registry: Path, fault: str) -> None:
    if fault == "a file":
        registry.write_text("")
    else:
        registry.mkdir()
        registry.chmod(0o755)
    warned: list[str] = []
    hosting = JobHosting(Configuration())
    hosting.start(DrivenClient(), None, warned.append)
    hosting.end()
    (warning,) = warned
    assert warning.startswith(f"other terminals cannot reach this job: cannot register the job in {registry}: ")
    assert "PENSTOCK_REGISTRY_DIR" in warning


def test_the_registry_lies_where_the_session_keeps_such_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_REGISTRY_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    assert registry_directory() == tmp_path / ".penstock" / "jobs"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert registry_directory() == tmp_path / "penstock"


def test_jobs_of_other_sessions_are_found_at_home(
    hosted: Hosted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_REGISTRY_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    home = tmp_path / ".penstock" / "jobs"
    home.mkdir(parents=True)
    changed(hosted.job, home / "x.json")
    assert running_jobs() == [hosted.job]
