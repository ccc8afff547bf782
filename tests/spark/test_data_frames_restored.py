"""Tests jobs that read DataFrames and start from another job's checkpoint, from a moved directory, or beside
leftovers.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.common import Row, Types
from penstock.connectors.files import arrow_messages
from penstock.datastream import JobClient
from penstock.datastream.connectors.base import SourceError
from penstock.spark.frames import arrow_files
from tests.spark.small_jobs import (
    KEPT,
    WRITES_ARROW,
    checkpoints,
    committed,
    environment,
    failure,
    file_sink,
    wait_until,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]

ROWS = 3000
EXPECTED = {str(number): 1 for number in range(ROWS)}
WAIT_MS = 90_000


@pytest.fixture(autouse=True)
def many_small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split of 2 KiB holds a few messages, so checkpoints find splits that begin behind byte 0."""
    monkeypatch.setattr(arrow_files, "_MESSAGE_BYTES", 512)
    monkeypatch.setattr(arrow_messages, "_SPLIT_BYTES", 2048)


@pytest.fixture
def frame(quick_session: SparkSession) -> DataFrame:
    return quick_session.range(0, ROWS, 1, 1)


def slowly(row: Row) -> str:
    time.sleep(0.001)
    return str(row.id)


def started(frame: DataFrame, root: Path, output: Path, start: Path | None = None, **options: str) -> JobClient:
    if start is not None:
        options["execution_state__recovery_path"] = str(start)
    env = environment(2, **checkpoints(root, **KEPT, **options))
    env.from_spark(frame, name="orders").uid("orders").map(slowly, Types.STRING()).sink_to(file_sink(output))
    return env.execute_async("orders")


def cancelled_on_the_way(client: JobClient, root: Path) -> Path:
    """The job's directory. It has read a part of its rows, and retains its newest checkpoint."""
    before = client.report().completed
    wait_until(lambda: client.report().completed >= before + 3, "checkpoints")
    client.cancel().result(WAIT_MS / 1000)
    return root / str(client.get_job_id())


def newest_of(job: Path) -> Path:
    return max((path.parent for path in job.glob("chk-*/_metadata")), key=lambda path: int(path.name[4:]))


def folders(job: Path) -> list[Path]:
    return sorted(job.glob("data-frames/*"))


def test_a_job_begun_from_a_checkpoint_of_another_is_resumed_after_that_one_is_gone(
    frame: DataFrame, tmp_path: Path
) -> None:
    root, output = tmp_path / "checkpoints", tmp_path / "output"
    first = cancelled_on_the_way(started(frame, root, output), root)
    second = cancelled_on_the_way(started(frame, root, output, newest_of(first)), root)
    assert folders(first), "NO_CLAIM leaves the first job's files alone"
    shutil.rmtree(first)
    started(frame, root, output, second).wait(WAIT_MS)
    assert committed(output) == EXPECTED


def test_a_claimed_checkpoint_brings_the_files_along(frame: DataFrame, tmp_path: Path) -> None:
    root, output = tmp_path / "checkpoints", tmp_path / "output"
    first = cancelled_on_the_way(started(frame, root, output), root)
    claim = {"execution_state__recovery_claim__mode": "CLAIM"}
    second = cancelled_on_the_way(started(frame, root, output, newest_of(first), **claim), root)
    assert folders(first) == [], "the first job has no checkpoint any more that needs them"
    assert len(folders(second)) == 1
    started(frame, root, output, second).wait(WAIT_MS)
    assert committed(output) == EXPECTED
    assert folders(second) == []


@pytest.mark.skipif(not WRITES_ARROW, reason="Parquet has no marker")
def test_files_of_a_start_that_was_killed_are_not_taken_for_the_checkpoints(frame: DataFrame, tmp_path: Path) -> None:
    root, output = tmp_path / "checkpoints", tmp_path / "output"
    job = cancelled_on_the_way(started(frame, root, output), root)
    [folder] = folders(job)
    uid = folder.name.rpartition("-")[0]
    for random in ("00000000", "ffffffff"):  # whichever way folders are sorted
        leftover = shutil.copytree(folder, folder.with_name(f"{uid}-{random}"))
        manifest = json.loads((leftover / "_penstock.json").read_text())
        old, new = manifest["arrow"]["marker"], manifest["arrow"]["marker"][::-1]
        manifest["arrow"]["marker"] = new
        (leftover / "_penstock.json").write_text(json.dumps(manifest))
        for part in leftover.glob("part-*"):
            part.write_bytes(part.read_bytes().replace(old.encode(), new.encode()))
    started(frame, root, output, job).wait(WAIT_MS)
    assert committed(output) == EXPECTED
    assert folders(job) == [], "no checkpoint needs any of them"


def test_a_directory_that_was_moved_or_copied_is_resumed_there(frame: DataFrame, tmp_path: Path) -> None:
    root, output = tmp_path / "checkpoints", tmp_path / "output"
    job = cancelled_on_the_way(started(frame, root, output), root)
    moved = tmp_path / "elsewhere" / job.name
    shutil.copytree(job, moved, copy_function=shutil.copyfile)  # as `cp -r`: no times of modification
    shutil.rmtree(root)
    started(frame, moved.parent, output, moved).wait(WAIT_MS)
    assert committed(output) == EXPECTED


@pytest.mark.skipif(not WRITES_ARROW, reason="Parquet has no marker")
def test_files_that_are_gone_or_damaged_are_named(frame: DataFrame, tmp_path: Path) -> None:
    root, output = tmp_path / "checkpoints", tmp_path / "output"
    job = cancelled_on_the_way(started(frame, root, output), root)
    [folder] = folders(job)
    manifest = json.loads((folder / "_penstock.json").read_text())
    for part in folder.glob("part-*"):
        part.write_bytes(part.read_bytes().replace(manifest["arrow"]["marker"].encode(), b"x" * 32))
    said = failure(lambda: started(frame, root, output, job).wait(WAIT_MS))
    assert "a restart cannot mend it" in said
    assert "the file is damaged" in said
    assert str(next(folder.glob("part-*"))) in said
    folder.rename(folder.with_name("taken-away"))
    with pytest.raises(SourceError, match=f"'orders': the rows that the checkpoint needs are not in {folder}"):
        started(frame, root, output, job)
