"""Tests jobs on a real Spark that have checkpoints, savepoints and files in HDFS: open, and behind Kerberos."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common import Configuration, Encoder, Types
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.storage.hdfs import TEMPORARY_FOLDER, HdfsStore
from penstock.storage.layout import LogName, parse
from penstock.storage.opening import open_store
from tests.buckets.servers import BUCKET, settings_of
from tests.reporting_driver import runs
from tests.spark.conftest import every_spark_is_quick, quick_session, spark_session
from tests.spark.small_jobs import KEPT, committed, numbers, restarts, wait_until
from tests.stores.conftest import started
from tests.stores.test_jobs import HA, Starts, expected
from tools.hdfs_servers import Hdfs, SecureHdfs

__all__ = ["every_spark_is_quick", "quick_session", "spark_session"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ROWS = 60_000
RATE = 1000.0
FAULT_S = 3.0
"""HDFS stays away for longer than a request and its repetitions may take, so checkpoints and commits fail."""
EXPECTED = {f"{key}:{n}": 1 for key in range(7) for n in range(1, len(range(key, ROWS, 7)) + 1)}
WAIT_S = 120.0


def job(hdfs: Hdfs, name: str, rows_per_second: float, out: str = "", **options: str) -> StreamExecutionEnvironment:
    """Counts the rows of each key. Checkpoints are in HDFS, and so is the output if `out` names no other place."""
    root = f"{hdfs.uri(BUCKET)}/{name}"
    given = {
        "execution.checkpointing.interval": "200 ms",
        "execution.checkpointing.dir": f"{root}/jobs",
        "execution.checkpointing.savepoint-dir": f"{root}/savepoints",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
        "penstock.checkpoint-storage.retry-timeout": "1 s",
        "penstock.checkpoint-storage.request-timeout": "1 s",
        **{key.replace("__", "-").replace("_", "."): text for key, text in (restarts(1000) | KEPT | options).items()},
        **hdfs.options,
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(given)).set_parallelism(2)
    keyed = numbers(env, ROWS, rows_per_second).map(lambda i: (i % 7, 1), Types.TUPLE([Types.LONG(), Types.LONG()]))
    counted = keyed.key_by(lambda pair: pair[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("counts")
    sink = FileSink.for_row_format(out or f"{root}/out", Encoder.simple_string_encoder())
    sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    counted.map(lambda pair: f"{pair[0]}:{pair[1]}", Types.STRING()).sink_to(sink.build())
    return env


def check_output(hdfs: Hdfs, name: str, out: str = "") -> None:
    store = open_store(out or f"{hdfs.uri(BUCKET)}/{name}/out", settings_of(hdfs))
    files = store.list("")
    assert not [path for path in files if "_penstock" in path], "nothing is left over"
    assert Counter(line for path in files for line in store.get(path).decode().split()) == EXPECTED
    jobs = open_store(f"{hdfs.uri(BUCKET)}/{name}/jobs", settings_of(hdfs))
    assert isinstance(jobs, HdfsStore)
    everything = [status.path for status in jobs._client.list_status(jobs._root, True) if not status.isdir]
    assert not [path for path in everything if TEMPORARY_FOLDER in path], "a job that ends sweeps what is half-written"
    assert {type(parse(path.partition("/")[2])) for path in jobs.list("")} == {LogName}


def completes(client: JobClient, more: int = 3) -> None:
    before = client.report().completed
    wait_until(lambda: client.report().completed >= before + more, "checkpoints complete", WAIT_S)


def fails(client: JobClient, says: str) -> None:
    """Await a checkpoint that fails for this reason."""

    def failed() -> bool:
        return any(says in (checkpoint.failure or "") for checkpoint in client.report().checkpoints)

    wait_until(failed, f"a checkpoint fails with {says!r}", WAIT_S)


# ---- HDFS that is open to everybody ---------------------------------------------------------------------------------


@pytest.fixture
def hdfs(tmp_path: Path) -> Iterator[Hdfs]:
    running = started("hdfs", tmp_path / "hdfs")
    assert isinstance(running, Hdfs)
    yield running
    running.stop()


@pytest.mark.usefixtures("quick_session")
def test_checkpoints_fail_while_hdfs_does_and_the_job_continues_without_a_restart(hdfs: Hdfs, tmp_path: Path) -> None:
    """Its output lies elsewhere: what cannot be committed restarts a job."""
    out = str(tmp_path / "out")
    client = job(hdfs, "faults", RATE, out).execute_async("counting")
    completes(client)
    for fault, end, says in (
        ("safemode enter", "safemode leave", "the name node is in safe mode"),
        ("namenode stop", "namenode start", "Connection refused"),
    ):
        hdfs.execute(fault)
        fails(client, says)
        hdfs.execute(end)
        completes(client)
    hdfs.suspend()
    fails(client, "no answer within 1 s")
    hdfs.resume()
    completes(client)
    hdfs.execute(f"quota /{BUCKET} 1000")
    fails(client, "the quota of the directory is used up")
    hdfs.execute(f"quota /{BUCKET} {1 << 40}")
    completes(client)
    assert client.report().restarts == 0
    client.wait(timeout_ms=WAIT_S * 1000)
    check_output(hdfs, "faults", out)


@pytest.mark.usefixtures("quick_session")
def test_output_in_hdfs_is_exact_over_safe_mode_and_a_restart_of_the_name_node(hdfs: Hdfs) -> None:
    delay = {"restart__strategy_fixed__delay_delay": "500 ms"}
    client = job(hdfs, "output", RATE, **delay).execute_async("counting")
    completes(client)
    for fault, end in (("safemode enter", "safemode leave"), ("namenode stop", "namenode start")):
        hdfs.execute(fault)
        time.sleep(FAULT_S)
        hdfs.execute(end)
        completes(client)
    client.wait(timeout_ms=WAIT_S * 1000)
    check_output(hdfs, "output")


@pytest.mark.usefixtures("quick_session")
def test_a_savepoint_is_resumed_and_so_is_the_latest_checkpoint_after_kills(hdfs: Hdfs) -> None:
    client = job(hdfs, "saved", RATE).execute_async("counting")
    completes(client)
    os.kill(next(pid for pid in client.report().slot_pids if pid is not None), signal.SIGKILL)
    completes(client)
    savepoint = client.stop_with_savepoint().result(WAIT_S)
    assert savepoint.startswith(f"{hdfs.uri(BUCKET)}/saved/savepoints/")
    client = job(hdfs, "saved", RATE, execution_state__recovery_path=savepoint).execute_async("counting")
    completes(client)
    client.cancel().result(WAIT_S)
    client = job(hdfs, "saved", 1e6, execution_state__recovery_path="latest").execute_async("counting")
    client.wait(timeout_ms=WAIT_S * 1000)
    check_output(hdfs, "saved")


# ---- HDFS behind Kerberos -------------------------------------------------------------------------------------------


def test_a_job_runs_behind_kerberos_with_a_keytab_over_kills_of_a_slot_and_of_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure = started("hdfs-kerberos", tmp_path / "hdfs")
    assert isinstance(secure, SecureHdfs)
    for key, text in secure.environment.items():
        monkeypatch.setenv(key, text)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
    starts = Starts(tmp_path, secure, f"{secure.uri(BUCKET)}/jobs", **HA)
    deadline = time.monotonic() + 2 * WAIT_S
    driver = starts.start()
    seen = driver.await_report(runs(3), deadline)
    os.kill(seen.slot_pids[0], signal.SIGKILL)
    driver.await_report(runs(seen.completed + 3), deadline)
    driver.kill()
    driver = starts.start()
    assert driver.await_report(lambda report: False, deadline).state == "ENDED"
    assert driver.process.wait(60) == 0, driver.log()
    assert committed(starts.out) == expected()
    secure.stop()
