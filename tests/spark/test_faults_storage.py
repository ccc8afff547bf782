"""Tests checkpoint directories and checkpoints that are not what they should be, and files that change under a job."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.common import Row, Types, WatermarkStrategy
from penstock.common.job_execution import JobExecutionError
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.datastream.connectors.base import SourceError
from penstock.datastream.connectors.file_system import FileSource
from penstock.jobmaster.identity import RestoreSourceError
from penstock.storage.layout import MetadataName, parse
from penstock.storage.metadata_file import read_metadata
from penstock.storage.opening import open_store
from penstock.storage.store import StoreError
from tests.spark.small_jobs import (
    KEPT,
    checkpoints,
    committed,
    environment,
    execute,
    failure,
    file_sink,
    numbers,
    restarts,
    wait_until,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]

ROWS = 3000
KEPT_ROWS = 40_000
"""More than the rate lets through before the job with the kept checkpoints is cancelled."""


def stateful(
    env: StreamExecutionEnvironment, out: Path, count: int = ROWS, rows_per_second: float = 1000.0, keys: int = 7
) -> None:
    """The n-th line of key k is `k:n`."""
    keyed = numbers(env, count, rows_per_second).map(lambda i: (i % keys, 1), Types.TUPLE([Types.LONG(), Types.LONG()]))
    counted = keyed.key_by(lambda pair: pair[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
    counted.map(lambda pair: f"{pair[0]}:{pair[1]}", Types.STRING()).sink_to(file_sink(out))


def expected(count: int = ROWS, keys: int = 7) -> dict[str, int]:
    return {f"{key}:{n}": 1 for key in range(keys) for n in range(1, len(range(key, count, keys)) + 1)}


def started(env: StreamExecutionEnvironment, completed: int = 3) -> JobClient:
    client = env.execute_async("a job")
    wait_until(lambda: client.report().completed >= completed, "checkpoints complete")
    return client


# ---- the checkpoint directory ---------------------------------------------------------------------------------------


def test_a_checkpoint_directory_that_cannot_be_is_told_before_the_job_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    env = environment(**checkpoints(tmp_path / "file" / "checkpoints"))
    stateful(env, tmp_path / "out")
    with pytest.raises(StoreError, match=r"file/checkpoints.*a part of this path is a file, not a directory"):
        env.execute("never")


def test_a_checkpoint_directory_that_is_removed_ends_the_job_by_name_and_nothing_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = environment(**checkpoints(tmp_path / "checkpoints"), **restarts(1))
    stateful(env, tmp_path / "out")
    client = started(env)
    (tmp_path / "checkpoints").rename(tmp_path / "aside")
    message = failure(lambda: client.wait(timeout_ms=90_000))
    assert f"checkpoint directory {tmp_path}/checkpoints/{client.get_job_id()} has been removed" in message
    assert f"Resume from: {tmp_path}/checkpoints/{client.get_job_id()}" in message
    assert "Failure 1 of this job" in capsys.readouterr().err

    (tmp_path / "aside").rename(tmp_path / "checkpoints")
    env = environment(execution_state__recovery_path="latest", **checkpoints(tmp_path / "checkpoints"))
    stateful(env, tmp_path / "out", rows_per_second=100_000)
    execute(env, "a job")
    assert committed(tmp_path / "out") == expected()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("cannot mount a small disk here; tests/unit/storage has the same at the store")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
def test_a_full_disk_is_named_and_the_job_goes_on_once_there_is_room(
    tiny_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    keys, count = 500, 15_000  # fifteen seconds, in which the disk is full for a moment
    options = {
        **checkpoints(tiny_disk),
        **KEPT,
        "execution_checkpointing_num__retained": "3",
        "execution_checkpointing_tolerable__failed__checkpoints": "1000",
        "execution_checkpointing_incremental": str(kind == "rocksdb").lower(),
        "state_backend_type": kind,
        "state_backend_rocksdb_localdir": str(tmp_path / "local"),
    }
    (tmp_path / "local").mkdir()
    env = environment(**options, **restarts(1000))
    stateful(env, tmp_path / "out", count, keys=keys)
    client = started(env)
    filler = tiny_disk / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    wait_until(lambda: client.report().failed, "a checkpoint fails")
    filler.unlink()
    completed = client.report().completed
    wait_until(lambda: client.report().completed >= completed + 3, "checkpoints complete again")
    assert client.report().restarts == 0
    client.cancel().result(90)
    warned = capsys.readouterr().err
    assert "the disk is full, or the quota used up" in warned and "and the job runs on (" in warned

    job = open_store(str(tiny_disk / str(client.get_job_id())))
    named = [read_metadata(job, path).segments for path in job.list("") if isinstance(parse(path), MetadataName)]
    assert len(named) == 3
    for segments in named:
        assert [job.size(segment.path) for segment in segments] == [segment.length_bytes for segment in segments]
    names_earlier = any(len(segments) > 2 for segments in named)
    assert names_earlier == (kind == "rocksdb"), "an incremental checkpoint names segments of earlier ones"
    env = environment(execution_state__recovery_path="latest", **options, **restarts(0))
    stateful(env, tmp_path / "out", count, 100_000.0, keys)
    execute(env, "a job")
    assert committed(tmp_path / "out") == expected(count, keys)


# ---- damaged checkpoints --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(quick_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the `checkpoints` and the output `out` of a job that was cancelled and kept two of them."""
    root = tmp_path_factory.mktemp("kept")
    options = checkpoints(root / "checkpoints", execution_checkpointing_num__retained="2")
    env = environment(**options, **KEPT)
    stateful(env, root / "out", count=KEPT_ROWS)
    client = started(env, 4)
    client.cancel().result(60)
    return root


@pytest.fixture
def job(kept: Path, tmp_path: Path) -> Path:
    """A copy of that job's directory."""
    shutil.copytree(kept / "checkpoints", tmp_path / "checkpoints")
    (directory,) = (tmp_path / "checkpoints").iterdir()
    return directory


def retained(job: Path) -> list[Path]:
    """Older first."""
    return sorted((path.parent for path in job.glob("chk-*/_metadata")), key=lambda path: int(path.name[4:]))


def resumed(job: Path, path: Path, out: Path) -> StreamExecutionEnvironment:
    env = environment(execution_state__recovery_path=str(path), **checkpoints(job.parent), **restarts(3))
    stateful(env, out, count=KEPT_ROWS, rows_per_second=100_000)
    return env


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.write_bytes(data)


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink])
@pytest.mark.parametrize("what", ["metadata", "segment"])
def test_a_damaged_checkpoint_is_refused_by_name_and_never_skipped(
    job: Path, tmp_path: Path, what: str, damage: Callable[[Path], None]
) -> None:
    older, newest = retained(job)
    segments = {path: path.stat().st_mtime for path in (job / "shared").iterdir()}
    before = {path.name for path in retained(job)}
    file = newest / "_metadata" if what == "metadata" else newest_segment(newest, segments)
    damage(file)
    # What its metadata shows is told before the job starts, a segment's damage when it is restored.
    with pytest.raises((RestoreSourceError, JobExecutionError)) as refused:
        execute(resumed(job, job, tmp_path / "out"), "a job")
    message = str(refused.value)
    assert f"checkpoint {newest.name[4:]}" in message
    assert str(file.relative_to(job)) in message
    assert f"-s {older}" in message and "put out again" in message
    assert "Traceback" not in message
    assert {path.name for path in retained(job)} >= before - ({newest.name} if what == "metadata" else set())
    assert not (tmp_path / "out").exists() or not committed(tmp_path / "out")


def newest_segment(checkpoint: Path, segments: dict[Path, float]) -> Path:
    """The largest segment that the checkpoint's metadata names."""
    metadata = (checkpoint / "_metadata").read_bytes()
    named = [path for path in segments if f"shared/{path.name}".encode() in metadata]
    return max(named, key=lambda path: path.stat().st_size)


def test_the_checkpoint_before_a_damaged_one_restores_by_its_path_with_a_warning(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newest = retained(job)
    flip(newest / "_metadata")
    execute(resumed(job, older, tmp_path / "out"), "a new job")
    told = capsys.readouterr().err
    assert f"chk-{older.name[4:]}" in told and "again" in told
    assert older.exists()
    lines = committed(tmp_path / "out")
    assert max(lines.values(), default=1) == 1
    assert lines.keys() <= expected(KEPT_ROWS).keys()


def test_a_checkpoint_that_is_not_there_is_told_before_the_job_starts(job: Path, tmp_path: Path) -> None:
    with pytest.raises(RestoreSourceError, match=r"execution\.state-recovery\.path.*chk-9999"):
        execute(resumed(job, job / "chk-9999", tmp_path / "out"))


# ---- files that are read --------------------------------------------------------------------------------------------


def parquet(env: StreamExecutionEnvironment, path: Path, out: Path) -> None:
    source = FileSource.for_parquet(str(path))
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "flights")

    def slow(row: Row) -> str:
        import time

        time.sleep(0.001)
        return str(row[0])

    rows.map(slow, Types.STRING()).sink_to(file_sink(out))


def test_files_that_are_missing_truncated_or_of_another_schema_are_told_before_the_job_starts(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": range(1000)}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": ["x"]}), tmp_path / "2.parquet")
    for path, says in [
        (tmp_path / "nothing.parquet", r"nothing\.parquet is missing"),
        (tmp_path, r"2\.parquet has another schema.*column 'a' is missing; column 'b' is not expected"),
    ]:
        env = environment(1)
        with pytest.raises(SourceError, match=says):
            parquet(env, path, tmp_path / "out")
            env.execute("never")
    truncate(tmp_path / "1.parquet")
    env = environment(1)
    with pytest.raises(SourceError, match=r"1\.parquet is not a Parquet file, or is truncated"):
        parquet(env, tmp_path / "1.parquet", tmp_path / "out")
        env.execute("never")


def test_a_file_that_is_damaged_inside_names_operator_file_and_place(tmp_path: Path) -> None:
    file = tmp_path / "1.parquet"
    pq.write_table(pa.table({"a": range(100_000)}), file, compression="snappy")
    data = bytearray(file.read_bytes())
    data[1000:3000] = b"\xff" * 2000
    file.write_bytes(data)
    env = environment(1)
    parquet(env, file, tmp_path / "out")
    message = failure(lambda: execute(env))
    assert message.startswith(f"operator 'Source: flights': {file}, row group 0 cannot be read, the file is damaged")


@pytest.mark.parametrize("change", ["changed", "removed"])
def test_a_file_that_is_not_what_the_checkpoint_knew_is_named(tmp_path: Path, change: str) -> None:
    file = tmp_path / "1.parquet"
    pq.write_table(pa.table({"a": range(50_000)}), file)
    env = environment(1, **checkpoints(tmp_path / "checkpoints"), **restarts(1))
    parquet(env, file, tmp_path / "out")
    client = started(env, 1)
    if change == "changed":
        pq.write_table(pa.table({"a": range(50_001)}), tmp_path / "other")
        os.replace(tmp_path / "other", file)
    else:
        file.unlink()
    os.kill(client.report().slot_pids[0], signal.SIGKILL)
    message = failure(lambda: client.wait(timeout_ms=90_000))
    assert message.startswith("operator 'Source: flights': ") and str(file) in message
    assert ("changed" if change == "changed" else "No such file") in message
    assert "failure 2 of it" in message
