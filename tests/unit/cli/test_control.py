"""Tests the commands for running jobs, against a real server on loopback: what they print, and how they end."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.common import Configuration
from penstock.common.job_execution import JobExecutionError, RescaleFailed, SavepointFailed
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.monitoring.subtask_figures import SubtaskCheckpoint, SubtaskReport, packed
from penstock.protocol.values.log_entries import Ended, Fence
from penstock.rest.hosting import JobHosting
from penstock.rest.job_registry import registry_directory, running_jobs, unregister
from penstock.rest.rest_client import RestClient
from penstock.storage.log import append
from penstock.storage.opening import open_store
from tests.unit.rest.conftest import Hosted, hosted, registry
from tests.unit.rest.running import JOB_ID, DrivenClient, checkpoint, report

__all__ = ["hosted", "registry"]


def penstock(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def was_asked(client: DrivenClient) -> bool:
    return bool(client.futures or client.cancels)


def asked(
    hosted: Hosted, then: Callable[[Hosted], object], is_asked: Callable[[DrivenClient], bool] = was_asked
) -> threading.Thread:
    """Does something as soon as the job has been asked for something."""

    def wait() -> None:
        until = time.monotonic() + 20
        while not is_asked(hosted.client):
            assert time.monotonic() < until, "the job was asked for nothing within 20 s"
            time.sleep(0.005)
        then(hosted)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize("named", [JOB_ID, "aba", "counting", "directory"])
def test_a_savepoint_prints_its_directory_however_the_job_is_named(
    hosted: Hosted, tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = os.path.relpath(hosted.directory) + "/" if named == "directory" else named
    answering = asked(hosted, lambda h: h.client.futures[0].set_result("/s/savepoint-1"))
    done = penstock("savepoint", named, "mine", "--aligned")
    answering.join()
    assert (done.exit_code, done.stdout) == (0, "/s/savepoint-1\n")
    assert hosted.client.asked == [("savepoint", None, str(tmp_path / "mine"), True)]


@pytest.mark.parametrize("name", ["canonical", "native", "NATIVE"])
@pytest.mark.parametrize("command", ["savepoint", "stop"])
def test_flinks_formats_are_accepted_and_said_to_be_one(hosted: Hosted, command: str, name: str) -> None:
    posted: list[dict[str, Any]] = []
    post = RestClient.post

    def noting(client: RestClient, path: str, **fields: Any) -> Any:
        posted.append(fields)
        return post(client, path, **fields)

    def end(hosted: Hosted) -> None:
        hosted.client.futures[0].set_result("/s/savepoint-1")
        if command == "stop":
            hosted.hosting.end()

    answering = asked(hosted, end)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RestClient, "post", noting)
        done = penstock(command, "counting", "--type", name)
    answering.join()
    assert (done.exit_code, done.stdout) == (0, "/s/savepoint-1\n")
    assert [fields["formatType"] for fields in posted] == [name.upper()]
    assert len(hosted.client.asked) == 1
    refused = penstock(command, "counting", "--type", "pdf")
    assert refused.exit_code == 2 and "canonical" in refused.stderr and "native" in refused.stderr
    assert "both give the same canonical savepoint" in re.sub(r"[│\s]+", " ", penstock(command, "--help").stdout)


def test_a_stop_ends_the_job_and_prints_where_it_can_be_continued(hosted: Hosted) -> None:
    def end(hosted: Hosted) -> None:
        hosted.client.futures[0].set_result("/s/savepoint-1")
        hosted.hosting.end()

    answering = asked(hosted, end)
    done = penstock("stop", JOB_ID, "--drain", "-p", "file:///s", "--unaligned")
    answering.join()
    assert (done.exit_code, done.stdout) == (0, "/s/savepoint-1\n")
    assert hosted.client.asked == [("stop", True, "/s", False)]


def test_a_savepoint_that_fails_says_why(hosted: Hosted) -> None:
    answering = asked(hosted, lambda h: h.client.futures[0].set_exception(SavepointFailed("the disk is full")))
    done = penstock("savepoint", "counting")
    answering.join()
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "penstock: the disk is full\n")


def test_waiting_has_a_limit_and_says_what_goes_on(hosted: Hosted) -> None:
    done = penstock("savepoint", "counting", "--timeout", "200 ms")
    assert done.exit_code == 1
    assert f"waited 200 ms for the savepoint of job {JOB_ID} (counting)" in done.stderr
    assert f"`penstock checkpoints {JOB_ID}`" in done.stderr
    done = penstock("cancel", "counting", "--timeout", "200 ms")
    assert done.exit_code == 1 and f"or end its driver: kill {os.getpid()}" in done.stderr
    assert penstock("stop", "counting", "--timeout", "soon").exit_code == 2


def test_who_does_not_wait_any_longer_is_told_that_the_job_still_does_it(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt  # the signal itself is ignored in processes that a shell has put into the background

    monkeypatch.setattr("penstock.cli.control.time", SimpleNamespace(monotonic=time.monotonic, sleep=interrupt))
    done = penstock("stop", "counting")
    assert done.exit_code == 130
    assert done.stderr == "penstock: interrupted; what the job was asked for is not taken back\n"
    assert hosted.client.asked


def test_a_rescale_waits_until_the_job_runs_so(hosted: Hosted) -> None:
    answering = asked(hosted, lambda h: h.client.rescales[0][1].set_result(None), lambda c: len(c.rescales) == 1)
    done = penstock("rescale", "counting", "counter=4", "sink=2")
    answering.join()
    assert done.exit_code == 0
    assert done.stderr == f"penstock: job {JOB_ID} (counting) runs at parallelism counter=4 sink=2\n"
    failure = RescaleFailed("no such operator")
    refused = asked(hosted, lambda h: h.client.rescales[1][1].set_exception(failure), lambda c: len(c.rescales) == 2)
    done = penstock("rescale", "counting", "3")
    refused.join()
    assert (done.exit_code, done.stderr) == (1, "penstock: no such operator\n")
    assert [asked for asked, _ in hosted.client.rescales] == [{"counter": 4, "sink": 2}, 3]
    done = penstock("rescale", "counting", "many")
    assert done.exit_code == 2 and "'many' is no parallelism: give one number for the job, or UID=NUMBER" in done.stderr
    done = penstock("rescale", "counting", "3", "--timeout", "200 ms")
    assert done.exit_code == 1 and "it waits for slots, or for the job to run, and is not given up" in done.stderr


def test_cancel_waits_for_the_end(hosted: Hosted) -> None:
    def end(hosted: Hosted) -> None:
        hosted.client.ended.set_exception(JobExecutionError("it was cancelled", status=JobStatus.CANCELED))
        hosted.hosting.end()

    answering = asked(hosted, end)
    done = penstock("cancel", JOB_ID[:5])
    answering.join()
    assert (done.exit_code, done.stderr) == (0, f"penstock: job {JOB_ID} (counting) is cancelled\n")
    assert hosted.client.cancels == 1


def test_a_driver_that_has_ended_before_it_said_how_is_believed_by_the_registry(hosted: Hosted) -> None:
    def die(hosted: Hosted) -> None:
        (job,) = running_jobs()
        unregister(job, registry_directory() / f"{JOB_ID}.json")

    answering = asked(hosted, die)
    done = penstock("cancel", JOB_ID)
    answering.join()
    told = f"penstock: job {JOB_ID} (counting) has ended; its own terminal says how\n"
    assert (done.exit_code, done.stderr) == (0, told)


@pytest.mark.parametrize("ended", ["FINISHED", "FAILED", "SUSPENDED"])
def test_a_job_that_ended_otherwise_is_not_called_cancelled(hosted: Hosted, ended: str) -> None:
    def end(hosted: Hosted) -> None:
        if ended == "FINISHED":
            hosted.client.ended.set_result(JobExecutionResult(JobID(JOB_ID), 1))
        else:
            hosted.client.ended.set_exception(JobExecutionError("a bad row", status=JobStatus[ended]))
        hosted.hosting.end()

    answering = asked(hosted, end)
    done = penstock("cancel", JOB_ID)
    answering.join()
    why = "the job has finished before it was cancelled" if ended == "FINISHED" else "a bad row"
    assert done.exit_code == 1 and f"it has ended otherwise: {why}" in done.stderr


def test_checkpoints_of_a_running_job_are_shown(hosted: Hosted) -> None:
    savepoint = checkpoint(2, is_savepoint=True, path="/s/savepoint-1", unaligned=True)
    failed = checkpoint(3, "failed", failure="expired: slot 1 was late")
    hosted.client.current = report(checkpoint(1), savepoint, failed)
    done = penstock("checkpoints", "counting")
    assert done.exit_code == 0
    assert f"job {JOB_ID} (counting): 2 checkpoints completed, 1 failed, 0 in progress" in done.stdout
    for text in ("unaligned savepoint", "/s/savepoint-1", "/c/chk-1", "expired: slot 1 was late", "20 ms", "400 B"):
        assert text in done.stdout


def test_why_says_the_reason_and_the_way_out_or_that_there_is_none(hosted: Hosted) -> None:
    calm = penstock("why", "counting")
    assert (calm.exit_code, calm.stdout) == (0, f"Nothing slows job {JOB_ID} (counting) down.\n")
    slow = SubtaskCheckpoint(1, 2, False, 9_000.0, 8_500.0, 1.0, 0.2, 2.0, 100, 100, 0)
    hosted.client.current = report(checkpoint(3, duration_ms=9_000.0, acknowledged=packed([slow])))
    for given in ((), ("--checkpoint", "3")):
        told = penstock("why", "counting", *given).stdout
        assert told.startswith("Checkpoint 3 took 9.0 s. Last was subtask 3 of 3 of 'sink': the barrier waited 8.5 s")
        assert "\n    Enable unaligned checkpoints" in told
    (finding,) = json.loads(penstock("why", "counting", "--json").stdout)["findings"]
    assert (finding["kind"], finding["vertex"], finding["subtask"]) == ("late-barrier", 1, 2)
    unknown = penstock("why", "counting", "--checkpoint", "4")
    assert unknown.exit_code == 1 and "checkpoint 4 is not remembered (those are: 3)" in unknown.stderr


def test_top_shows_vertices_pressure_and_the_newest_checkpoint(hosted: Hosted) -> None:
    work = SubtaskReport(0, 10, 10, 100, 100, 5.0, 5.0, 0.4, 0.2, 10, 1.5, 1_700_000_000_000, 3, 1000.0, 400.0, 200.0)
    shown = report(checkpoint(17))
    vertices = tuple(replace(vertex, subtasks={0: work}) for vertex in shown.vertices)
    hosted.client.current = replace(shown, vertices=vertices)
    done = penstock("top", "counting", "--once")
    assert done.exit_code == 0
    for text in (
        "counting  RUNNING",
        "newest 17 (aligned) took 170 ms",
        "source",
        "40 %",
        "20 %",
        "2023-11-14 22:13:20",
    ):
        assert text in done.stdout


def test_the_address_of_the_dashboard_opens_it(hosted: Hosted) -> None:
    done = penstock("dashboard", "counting")
    assert done.stdout == f"{hosted.job.url}/ui/#token={hosted.job.token}\n"
    assert hosted.hosting.dashboard(with_token=True) == done.stdout.strip()
    assert hosted.job.token not in str(hosted.hosting.dashboard(with_token=False))


def test_list_shows_running_jobs_first(hosted: Hosted, tmp_path: Path) -> None:
    hosted.client.current = report(checkpoint(17))
    listed = penstock("list").stdout
    for text in (JOB_ID, "counting", "RUNNING", str(os.getpid()), "17", str(hosted.directory)):
        assert text in listed
    listed = penstock("list", str(tmp_path)).stdout
    assert listed.index("running") < listed.index(f"There are no jobs below {tmp_path}.")
    hosted.hosting.end()
    assert JOB_ID not in penstock("list", str(tmp_path)).stdout
    assert "No job of yours is running." in penstock("list").stdout


def test_what_looks_like_markup_is_shown_as_it_is(hosted: Hosted) -> None:
    """A job called "daily [/sales]" ended `penstock list` with an error, and of "[etl] daily" a word was lost."""
    failed = checkpoint(3, "failed", failure="no room in [/data]")
    saved = checkpoint(4, path="/data/[prod]/chk-4")
    hosted.client.current = report(failed, saved)
    hosting = JobHosting(Configuration())
    hosting.start(
        DrivenClient(replace(report(name="[etl] daily [/sales]"), job_id="ac" * 16)), "/data/[prod]", pytest.fail
    )
    try:
        listed = penstock("list").stdout
    finally:
        hosting.end()
    assert "[etl] daily [/sales]" in listed and "/data/[prod]" in listed
    shown = penstock("checkpoints", JOB_ID).stdout
    assert "no room in [/data]" in shown and "/data/[prod]/chk-4" in shown


def second(job_id: str) -> JobHosting:
    hosting = JobHosting(Configuration())
    hosting.start(DrivenClient(replace(report(), job_id=job_id)), None, pytest.fail)
    return hosting


def test_a_name_that_means_two_jobs_or_none_is_a_usage_error(hosted: Hosted, registry: Path) -> None:
    other = second("ac" * 16)
    try:
        for named in ("counting", "a"):
            done = penstock("cancel", named)
            assert done.exit_code == 2
            assert f"{named!r} may be {JOB_ID} (counting), {'ac' * 16} (counting): give an id" in done.stderr
        done = penstock("cancel", "other")
        assert done.exit_code == 2 and f"running are {JOB_ID} (counting), " in done.stderr
    finally:
        other.end()
    hosted.hosting.end()
    assert f"none runs ({registry} lists them)" in penstock("savepoint", "other").stderr
    assert not hosted.client.cancels


def test_a_job_that_does_not_run_is_explained_from_its_log(registry: Path, tmp_path: Path) -> None:
    folder = tmp_path / JOB_ID
    store = open_store(str(folder), create_root=True)
    append(store, Fence(0, "inc", 0, "farhost", 4711))
    done = penstock("stop", str(folder))
    assert done.exit_code == 2
    assert "Its driver was process 4711 on farhost. If it still runs, give this command there, as user " in done.stderr
    assert f"resume it with: penstock run -s {folder} <program>" in done.stderr
    append(store, Ended(1, "inc", "CANCELED", ["chk-4/_metadata"]))
    done = penstock("stop", str(folder))
    assert done.stderr.startswith(f"penstock: job {JOB_ID} is not running: it has ended (CANCELED); resume it with: ")


def test_a_driver_that_does_not_answer_or_runs_elsewhere_is_named(hosted: Hosted, registry: Path) -> None:
    (job,), file = running_jobs(), registry / f"{JOB_ID}.json"
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(job, url="http://127.0.0.1:9")))
    done = penstock("savepoint", "counting")
    assert done.exit_code == 1
    assert f"process {os.getpid()} on {job.host}) does not answer at http://127.0.0.1:9: " in done.stderr
    assert "does not answer" in penstock("list").stdout
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(job, host="farhost")))
    done = penstock("savepoint", "counting")
    assert done.exit_code == 2 and "run this command on farhost, or start the job with rest.address" in done.stderr
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(job, token="old")))
    done = penstock("savepoint", "counting")
    assert done.exit_code == 1 and "the token is wrong" in done.stderr


def test_a_savepoint_needs_a_job_or_a_path_to_dispose_of() -> None:
    assert "give a running job" in penstock("savepoint").stderr
    assert "takes no job" in penstock("savepoint", "counting", "--dispose", "/s").stderr
