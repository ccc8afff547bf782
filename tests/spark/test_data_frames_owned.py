"""Tests that a start which does not own a job's log deletes none of the rows of DataFrames in its directory."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.common import Row, Types
from penstock.common.job_execution import JobExecutionError
from penstock.common.job_status import JobStatus
from penstock.datastream import JobClient
from penstock.rest.hosting import JobHosting
from penstock.spark import executor
from penstock.spark.driver import spark_job
from penstock.spark.frames.data_frames import JobFiles
from penstock.storage.opening import OpenStore
from penstock.storage.store import ObjectStore
from tests.spark.small_jobs import KEPT, checkpoints, committed, environment, file_sink, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]

ROWS = 3000
EXPECTED = {str(number): 1 for number in range(ROWS)}
WAIT_MS = 90_000
JOB_ID = "0" * 26 + "c0ffee"
HA = {"high__availability_type": "filesystem", "pipeline_job__id": JOB_ID}


@pytest.fixture
def frame(quick_session: SparkSession) -> DataFrame:
    return quick_session.range(0, ROWS, 1, 2)


def slowly(row: Row) -> str:
    time.sleep(0.001)
    return str(row.id)


def started(frame: DataFrame, root: Path, output: Path, **options: str) -> JobClient:
    env = environment(2, **checkpoints(root, **KEPT, **options))
    env.from_spark(frame, name="orders").uid("orders").map(slowly, Types.STRING()).sink_to(file_sink(output))
    return env.execute_async("orders")


def read_in_part(client: JobClient) -> None:
    before = client.report().completed
    wait_until(lambda: client.report().completed >= before + 3, "checkpoints")


def suspended_on_the_way(frame: DataFrame, root: Path, output: Path) -> Path:
    """Return the folder of rows of a job that its next start resumes."""
    client = started(frame, root, output, **HA)
    read_in_part(client)
    client.leave()  # type: ignore[attr-defined]
    [folder] = (root / JOB_ID).glob("data-frames/*")
    return folder


def parts(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_resume_whose_storage_fails_after_the_first_look_leaves_the_rows(
    frame: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, output = tmp_path / "checkpoints", tmp_path / "output"
    folder = suspended_on_the_way(frame, root, output)
    before, in_the_way, prepare = parts(folder), root / JOB_ID / "probe", JobFiles.prepare

    def prepare_then_fail(self: JobFiles, *arguments: Any) -> None:
        prepare(self, *arguments)
        if in_the_way.exists():
            in_the_way.rmdir()
        in_the_way.write_text("a file in the way")

    with monkeypatch.context() as patch:
        patch.setattr(JobFiles, "prepare", prepare_then_fail)
        with pytest.raises(JobExecutionError, match="probe"):
            started(frame, root, output, **HA).wait(WAIT_MS)
    assert parts(folder) == before
    in_the_way.unlink()
    started(frame, root, output, **HA).wait(WAIT_MS)
    assert committed(output) == EXPECTED
    assert not folder.exists(), "the end of the job releases them"


@pytest.mark.parametrize("end", ["suspended", "cancelled"])
def test_a_driver_that_ends_before_it_owns_the_log_leaves_the_rows(
    frame: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    root, output = tmp_path / "checkpoints", tmp_path / "output"
    folder = suspended_on_the_way(frame, root, output)
    before, answers, driver_store = parts(folder), threading.Event(), spark_job.driver_store

    def slow_store(configuration: Any) -> OpenStore:
        opened = driver_store(configuration)

        def open_late(directory: str, create: bool) -> ObjectStore:
            assert answers.wait(90)
            return opened(directory, create)

        return open_late

    with monkeypatch.context() as patch:
        patch.setattr(spark_job, "driver_store", slow_store)
        client = started(frame, root, output, **HA)
        try:
            if end == "suspended":
                client.leave()  # type: ignore[attr-defined]
            else:
                client.cancel().result(WAIT_MS / 1000)
        finally:
            answers.set()
    assert parts(folder) == before
    started(frame, root, output, **HA).wait(WAIT_MS)
    assert committed(output) == EXPECTED


def test_ctrl_c_while_a_job_begins_ends_it_in_order_and_leaves_the_rows(
    frame: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JobMaster went on without slots, and the rows that its checkpoint names were deleted."""
    root, output = tmp_path / "checkpoints", tmp_path / "output"

    def interrupted(self: JobHosting, client: JobClient, *_more: Any) -> None:
        wait_until(lambda: client.report().completed >= 2, "checkpoints")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(JobHosting, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            started(frame, root, output, **HA)
    wait_until(lambda: not any(thread.name == "penstock-driver" for thread in threading.enumerate()), "its end", 10)
    started(frame, root, output, **HA).wait(WAIT_MS)
    assert committed(output) == EXPECTED


def test_the_driver_that_loses_the_job_leaves_the_rows_of_the_one_that_runs(frame: DataFrame, tmp_path: Path) -> None:
    root, output = tmp_path / "checkpoints", tmp_path / "output"
    first = started(frame, root, output, **HA)
    second = started(frame, root, output, **HA)  # before a checkpoint, most times: it takes the rows along
    with pytest.raises(JobExecutionError, match="taken over"):
        first.wait(WAIT_MS)
    second.wait(WAIT_MS)
    assert committed(output) == EXPECTED
    assert list((root / JOB_ID).glob("data-frames/*")) == []


def test_two_drivers_start_from_one_checkpoint(frame: DataFrame, tmp_path: Path) -> None:
    """The second one took the same folder along, and began by removing what the first one read."""
    root, output = tmp_path / "checkpoints", tmp_path / "output"
    folder = suspended_on_the_way(frame, root, output)
    newest = max(folder.parents[1].glob("chk-*/_metadata"), key=lambda path: int(path.parent.name[4:])).parent
    other = {"high__availability_type": "filesystem", "pipeline_job__id": "1" * 32}
    begun = {**other, "execution_state__recovery_path": str(newest)}
    first = started(frame, root, output, **begun)
    second = started(frame, root, output, **begun)
    with pytest.raises(JobExecutionError, match="taken over"):
        first.wait(WAIT_MS)
    second.wait(WAIT_MS)
    assert committed(output) == EXPECTED
    assert folder.exists()


@pytest.mark.parametrize("has_run", [False, True])
@pytest.mark.parametrize("when", ["it is checked", "it is taken over"])
def test_a_start_that_meets_a_job_which_has_just_finished_says_so(
    frame: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, has_run: bool
) -> None:
    root, output = tmp_path / "checkpoints", tmp_path / "output"
    if has_run:
        suspended_on_the_way(frame, root, output)
    place, name = (executor, "check_fit") if when == "it is checked" else (JobFiles, "prepare")
    before = getattr(place, name)

    def another_driver_ends_it(*arguments: Any) -> Any:
        monkeypatch.setattr(place, name, before)
        if when == "it is checked":
            started(frame, root, output, **HA).wait(WAIT_MS)
            return before(*arguments)
        prepared = before(*arguments)
        started(frame, root, output, **HA).wait(WAIT_MS)
        return prepared

    monkeypatch.setattr(place, name, another_driver_ends_it)
    client = started(frame, root, output, **HA)
    client.wait(WAIT_MS)
    assert client.get_job_status().result(WAIT_MS / 1000) is JobStatus.FINISHED
    assert committed(output) == EXPECTED
