"""DataFrames of jobs whose checkpoints are in SeaweedFS: written and read by Spark's executors, through our stores."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.common import Configuration, Row, Types
from penstock.connectors.files import arrow_messages
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.datastream.connectors.base import SourceError
from penstock.spark.frames import arrow_files
from penstock.storage.opening import open_store
from penstock.storage.store import BrowsableStore
from tests.buckets.servers import BUCKET, settings_of
from tests.spark.conftest import every_spark_is_quick, quick_session, spark_session
from tests.spark.small_jobs import KEPT, committed, file_sink, restarts, wait_until
from tests.spark.test_data_frames import ALL_TYPES, identity, split_columns
from tests.stores.conftest import started
from tools.object_stores import SECRET_KEY, Server

__all__ = ["every_spark_is_quick", "quick_session", "spark_session"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.usefixtures("quick_session")]

ROWS = 3000
EXPECTED = {str(number): 1 for number in range(ROWS)}
WAIT_MS = 90_000


@pytest.fixture(scope="module")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = started("seaweedfs", tmp_path_factory.mktemp("seaweedfs"))
    yield running
    running.stop()


class Place:
    """A folder of checkpoints in a bucket, or on the disk."""

    def __init__(self, server: Server, root: str = "") -> None:
        self.root = root or f"s3://{BUCKET}/{uuid.uuid4().hex}"
        self.server = server

    @property
    def store(self) -> BrowsableStore:
        return open_store(self.root, settings_of(self.server), create_root=True)

    def environment(self, start: str = "", **options: str) -> StreamExecutionEnvironment:
        named = {key.replace("__", "-").replace("_", "."): text for key, text in options.items()}
        if start:
            named["execution.state-recovery.path"] = start
        checkpoints = {"execution.checkpointing.interval": "50 ms", "execution.checkpointing.dir": self.root}
        given = Configuration({**self.server.options, **checkpoints, **named})
        return StreamExecutionEnvironment.get_execution_environment(given).set_parallelism(2)

    def frames(self) -> list[str]:
        """The folders of DataFrames, below the jobs'."""
        return sorted({path.rpartition("/")[0] for path in self.store.list("") if "/data-frames/" in path})


@pytest.fixture
def place(weed: Server) -> Place:
    return Place(weed)


def slowly(row: Row) -> str:
    time.sleep(0.001)
    return str(row.id)


def orders(env: StreamExecutionEnvironment, frame: DataFrame, output: Path) -> JobClient:
    env.from_spark(frame, name="orders").uid("orders").map(slowly, Types.STRING()).sink_to(file_sink(output))
    return env.execute_async("orders")


def cancelled_on_the_way(client: JobClient, root: str) -> str:
    """The job's directory. It has read a part of its rows, and retains its newest checkpoint."""
    before = client.report().completed
    wait_until(lambda: client.report().completed >= before + 3, "checkpoints")
    client.cancel().result(WAIT_MS / 1000)
    return f"{root}/{client.get_job_id()}"


def test_every_type_of_a_column_goes_in_and_comes_out_as_it_was(place: Place, quick_session: SparkSession) -> None:
    frame = quick_session.range(20).selectExpr(*split_columns(ALL_TYPES))
    result = identity(place.environment().from_spark(frame)).to_spark(quick_session)
    expected, found = (sorted(f.collect(), key=lambda row: row.id) for f in (frame, result))
    assert [row.asDict(recursive=True) for row in expected] == [row.asDict(recursive=True) for row in found]
    assert place.frames() == [], "a job that has finished needs them no more"
    plan = result._jdf.queryExecution().toString()
    assert SECRET_KEY not in plan and "penstock-files" in plan


def test_rows_go_through_each_store_and_back(server: Server, quick_session: SparkSession) -> None:
    place = Place(server, f"{server.uri(BUCKET)}/{uuid.uuid4().hex}")
    frame = quick_session.range(0, 10_000, 1, 3).selectExpr("id", "concat('é', id) as text")
    result = identity(place.environment().from_spark(frame)).to_spark(quick_session)
    sums = "sum(id)", "sum(length(text))", "count(1)"
    assert result.selectExpr(*sums).collect() == frame.selectExpr(*sums).collect()
    assert place.frames() == []


def test_instants_and_many_rows(place: Place, quick_session: SparkSession) -> None:
    columns = ["id", "timestamp_seconds(id) as at", "repeat('x', cast(id % 50 as int)) as text"]
    frame = quick_session.range(0, 100_000, 1, 3).selectExpr(*columns)
    result = identity(place.environment().from_spark(frame)).to_spark(quick_session)
    sums = "sum(id)", "sum(unix_micros(cast(at as timestamp)))", "sum(length(text))", "count(1)"
    zone = quick_session.conf.get("spark.sql.session.timeZone")
    quick_session.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        assert result.selectExpr(*sums).collect() == frame.selectExpr(*sums).collect()
    finally:
        quick_session.conf.set("spark.sql.session.timeZone", str(zone))


def test_a_frame_without_rows(place: Place, quick_session: SparkSession) -> None:
    result = identity(place.environment().from_spark(quick_session.range(0))).to_spark(quick_session)
    assert result.collect() == [] and result.columns == ["id"]


@pytest.fixture
def many_small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_files, "_MESSAGE_BYTES", 512)
    monkeypatch.setattr(arrow_messages, "_SPLIT_BYTES", 2048)


@pytest.mark.usefixtures("many_small_splits")
def test_rows_come_once_over_a_killed_slot_and_a_resumption(
    place: Place, quick_session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame, output = quick_session.range(0, ROWS, 1, 2), tmp_path / "out"
    client = orders(place.environment(**KEPT, **restarts(10)), frame, output)
    wait_until(lambda: client.report().completed >= 2, "checkpoints")
    os.kill(client.report().slot_pids[0], signal.SIGKILL)
    wait_until(lambda: client.report().restarts and client.report().state == "RUNNING", "a restart")
    job = cancelled_on_the_way(client, place.root)
    (kept,) = place.frames()
    with pytest.raises(SourceError, match="'orders': the DataFrame has changed"):
        orders(place.environment(job, **KEPT), frame.filter("id > 0"), output)
    capsys.readouterr()
    orders(place.environment(job, **KEPT), frame, output).wait(WAIT_MS)
    assert re.search(rf"the DataFrame's rows of 2.*, in {place.root}/{kept};", capsys.readouterr().err)
    assert committed(output) == EXPECTED
    assert place.frames() == []


@pytest.mark.usefixtures("many_small_splits")
@pytest.mark.parametrize(("here", "there"), [("s3", "s3"), ("disk", "s3"), ("s3", "disk")])
def test_a_new_job_takes_the_rows_along(
    weed: Server, quick_session: SparkSession, tmp_path: Path, here: str, there: str
) -> None:
    """Moves a job from a bucket to a bucket, and between a bucket and the disk. What it started from is untouched."""
    first, second = (Place(weed, "" if kind == "s3" else str(tmp_path / "jobs")) for kind in (here, there))
    frame, output = quick_session.range(0, ROWS, 1, 2), tmp_path / "out"
    job = cancelled_on_the_way(orders(first.environment(**KEPT), frame, output), first.root)
    name = max((n for n in first.store.list("") if n.endswith("/_metadata")), key=lambda n: int(n.split("-")[-1][:-10]))
    before = first.frames()
    client = orders(second.environment(f"{first.root}/{name.rpartition('/')[0]}", **KEPT), frame, output)
    client.wait(WAIT_MS)
    assert committed(output) == EXPECTED
    assert first.frames() == before and job.endswith(before[0].partition("/")[0])
    if first.root != second.root:
        assert second.frames() == []


def test_a_savepoint_has_the_rows(place: Place, quick_session: SparkSession, tmp_path: Path) -> None:
    frame, output = quick_session.range(0, ROWS, 1, 2), tmp_path / "out"
    client = orders(place.environment(**KEPT), frame, output)
    wait_until(lambda: client.report().completed >= 2, "checkpoints")
    savepoint = client.stop_with_savepoint(False, f"{place.root}/savepoints").result(WAIT_MS / 1000)
    for path in place.store.list(""):
        if not path.startswith("savepoints/"):
            place.store.delete(path)
    orders(place.environment(savepoint), frame, output).wait(WAIT_MS)
    assert committed(output) == EXPECTED


def test_a_file_that_is_gone_is_named(place: Place, quick_session: SparkSession, tmp_path: Path) -> None:
    frame, output = quick_session.range(0, ROWS, 1, 2), tmp_path / "out"
    job = cancelled_on_the_way(orders(place.environment(**KEPT), frame, output), place.root)
    for path in place.store.list(""):
        if "/part-" in path:
            place.store.delete(path)
    with pytest.raises(Exception, match=r"/part-\S+, with rows of a DataFrame, cannot be read: it does not exist"):
        orders(place.environment(job), frame, output).wait(WAIT_MS)


def test_a_task_that_is_repeated_adds_no_rows(place: Place, quick_session: SparkSession) -> None:
    """Ignores what a task that failed has written: it is in no list."""
    from penstock.spark.frames.stored_frames import _TaskUpload

    folder = f"{place.root}/frames"
    upload = _TaskUpload(folder, settings_of(place.server), b"m" * 32)
    messages = [b"x" * 1000] * 3

    def fails() -> Iterator[bytes]:
        yield from messages
        raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        list(upload(0, fails()))
    first, second = list(upload(0, messages)), list(upload(0, messages))
    assert first != second and first[0][1] == 3 * 1032
    assert list(upload(1, [])) == []
    assert place.store.list("frames") == sorted(f"frames/{name}" for name, _ in first + second)


def test_the_manifest_says_which_files_there_are(place: Place, quick_session: SparkSession, tmp_path: Path) -> None:
    frame = quick_session.range(0, ROWS, 1, 2)
    job = cancelled_on_the_way(orders(place.environment(**KEPT), frame, tmp_path / "out"), place.root)
    (folder,) = place.frames()
    manifest: dict[str, Any] = json.loads(place.store.get(f"{folder}/_penstock.json"))
    named = [f"{folder}/{name}" for name, _ in manifest["files"]]
    assert sorted([*named, f"{folder}/_penstock.json"]) == place.store.list(folder)
    place.store.put(f"{folder}/part-00000-of-a-task-that-failed", [b"rows"])
    orders(place.environment(job, **KEPT), frame, tmp_path / "out").wait(WAIT_MS)
    assert committed(tmp_path / "out") == EXPECTED
