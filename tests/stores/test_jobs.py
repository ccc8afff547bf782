"""Jobs on a real Spark whose checkpoints are in SeaweedFS, while slots, drivers and the store are killed by SIGKILL.

Each start is the same command, as a supervisor gives it. The rows of committed files decide: each key's counts are
1, 2, 3, …, each once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.storage.layout import LogName, MetadataName, SegmentName, parse
from penstock.storage.log import newest_checkpoint, read_log
from penstock.storage.metadata import read_metadata
from penstock.storage.opening import open_store
from tests.buckets.faulty_proxy import PASSED, Fault, FaultyProxy
from tests.buckets.servers import BUCKET, settings_of
from tests.connectors.test_kafka_kills import Driver
from tests.spark.small_jobs import committed
from tests.stores.conftest import started
from tools.object_stores import SECRET_KEY, Server

LIMIT_S = 200.0
pytestmark = [pytest.mark.spark, pytest.mark.timeout(2 * LIMIT_S)]
KILLS = ("slot", "store", "slot", "driver", "slot")
JOB_ID = "00000000000000000000000000c0ffee"
ROWS = 40_000
SLOTS = 2

PROGRAM = """
import json, sys, time
from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy

out, rows, options = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment(Configuration(json.loads(options))).set_parallelism(2)
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
source = DataGeneratorSource(lambda i: (i % 7, 1), int(rows), type_info=PAIR, rows_per_second=1000.0)
pairs = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
counts = pairs.key_by(lambda p: p[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
sink = FileSink.for_row_format(out, Encoder.simple_string_encoder())
sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
counts.map(lambda p: f"{p[0]}:{p[1]}", Types.STRING()).sink_to(sink)
client = env.execute_async("counting")
ended = client.get_job_execution_result()
while not ended.done():
    report = client.report()
    if report is not None:
        print(json.dumps([report.state, report.completed, report.slot_pids]), flush=True)
    time.sleep(0.1)
client.wait()
print(json.dumps(["ENDED", 0, []]), flush=True)
"""


@pytest.fixture
def weed(tmp_path: Path) -> Iterator[Server]:
    running = started("seaweedfs", tmp_path / "seaweedfs")
    yield running
    running.stop()


class Starts:
    """Starts of one job. Its keys come by options, its checkpoints are below `root`."""

    def __init__(self, folder: Path, server: Server, root: str, **options: str) -> None:
        self._program = folder / "counting.py"
        self._program.write_text(PROGRAM, encoding="utf-8")
        self.out = folder / "out"
        self._options = {
            "execution.checkpointing.interval": "200 ms",
            "execution.checkpointing.dir": root,
            "execution.checkpointing.unaligned.enabled": "true",
            "execution.checkpointing.tolerable-failed-checkpoints": "1000",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "100 ms",
            "penstock.checkpoint-storage.retry-timeout": "3 s",
            **server.options,
            **options,
        }

    def start(self, **options: str) -> Driver:
        given = {key.replace("__", "-").replace("_", "."): text for key, text in options.items()}
        return Driver(self._program, str(self.out), str(ROWS), json.dumps({**self._options, **given}))


def expected(rows: int = ROWS) -> dict[str, int]:
    return {f"{key}:{n}": 1 for key in range(7) for n in range(1, len(range(key, rows, 7)) + 1)}


def runs(completed: int) -> Any:
    return lambda report: report[0] == "RUNNING" and report[1] >= completed and all(report[2])


HA = {"high-availability.type": "filesystem", "pipeline.job-id": JOB_ID}


def test_a_job_is_exact_while_slots_driver_and_store_are_killed(weed: Server, tmp_path: Path) -> None:
    starts = Starts(tmp_path, weed, f"s3://{BUCKET}/kills", **HA)
    chosen, deadline = random.Random(7), time.monotonic() + LIMIT_S
    driver, seen = starts.start(), 0
    logs = ""
    for kill in KILLS:
        state, seen, pids = driver.await_report(runs(seen + 3), deadline)
        assert state != "ENDED", f"the job was too quick for {kill}"
        if kill == "slot":
            os.kill(chosen.choice(pids), signal.SIGKILL)
        elif kill == "driver":
            driver.process.kill()
            driver.process.wait()
            logs += driver.log()
            driver, seen = starts.start(), 0
        else:
            weed.kill()
            weed.start()
    assert driver.await_report(lambda report: False, deadline)[0] == "ENDED"
    assert driver.process.wait(60) == 0, driver.log()
    assert committed(starts.out) == expected()
    assert SECRET_KEY not in logs + driver.log()
    job = open_store(f"s3://{BUCKET}/kills/{JOB_ID}", settings_of(weed))
    assert {type(parse(path)) for path in job.list("")} == {LogName}, "a finished job leaves nothing but its log"
    assert SECRET_KEY.encode() not in b"".join(job.get(path) for path in job.list(""))


def test_a_checkpoint_makes_no_more_objects_than_slots_and_two(weed: Server, tmp_path: Path) -> None:
    with FaultyProxy(weed.port) as proxy:
        starts = Starts(tmp_path, weed, f"s3://{BUCKET}/counts", **{"s3.endpoint": proxy.url})
        driver = starts.start()
        deadline = time.monotonic() + LIMIT_S
        first = driver.await_report(runs(3), deadline)[1]
        before = _written(proxy)
        last = driver.await_report(runs(first + 20), deadline)[1]
        after = _written(proxy)
        driver.process.kill()
        driver.process.wait()
    completed = last - first
    # One more of each may be under way at either end of what is counted.
    assert after["segments"] - before["segments"] <= SLOTS * (completed + 2)
    assert after["metadata"] - before["metadata"] <= completed + 2
    assert after["log"] - before["log"] <= completed + 2
    assert after["others"] == before["others"]
    calls = len(proxy.requests) / max(1, last)
    print(f"{calls:.1f} requests per checkpoint, with opening, probing and deleting")


def _written(proxy: FaultyProxy) -> dict[str, int]:
    counts = {"segments": 0, "metadata": 0, "log": 0, "others": 0}
    for method, path in list(proxy.requests):
        if method in ("PUT", "POST"):
            name = parse("/".join(path.partition("?")[0].split("/")[4:]))
            kinds = {SegmentName: "segments", MetadataName: "metadata", LogName: "log"}
            counts[kinds.get(type(name), "others")] += 1
    return counts


@pytest.mark.parametrize("fault", [Fault(), Fault(403, "AccessDenied"), Fault(400, "ExpiredToken")])
def test_a_store_that_fails_for_a_while_stops_checkpoints_and_not_the_job(
    weed: Server, tmp_path: Path, fault: Fault
) -> None:
    """Answers an error to everything, then applies every third put and reports one."""
    with FaultyProxy(weed.port) as proxy:
        starts = Starts(tmp_path, weed, f"s3://{BUCKET}/faults", **HA, **{"s3.endpoint": proxy.url})
        driver = starts.start(penstock_checkpoint__storage_retry__timeout="500 ms")
        deadline = time.monotonic() + LIMIT_S
        seen = driver.await_report(runs(3), deadline)[1]
        proxy.fault = lambda method, path: fault
        asked = len(proxy.requests)
        while len(proxy.requests) < asked + 30:
            assert driver.await_report(lambda report: report[0] == "RUNNING", deadline)[0] == "RUNNING"
        puts = iter(range(1_000_000))
        proxy.fault = lambda method, path: Fault(executed=True) if method == "PUT" and next(puts) % 3 == 0 else PASSED
        driver.await_report(runs(seen + 5), deadline)
        assert driver.await_report(lambda report: False, deadline)[0] == "ENDED"
        assert driver.process.wait(60) == 0, driver.log()
    assert committed(starts.out) == expected()


def test_a_job_is_resumed_by_name_from_what_its_bucket_keeps(weed: Server, tmp_path: Path) -> None:
    root = f"s3://{BUCKET}/resumed"
    starts = Starts(tmp_path, weed, root)
    driver = starts.start(pipeline_job__id=JOB_ID)
    driver.await_report(runs(5), time.monotonic() + LIMIT_S)
    driver.process.kill()
    driver.process.wait()
    store = open_store(f"{root}/{JOB_ID}", settings_of(weed))
    newest = newest_checkpoint(store)
    assert newest is not None and read_metadata(store, newest.path, newest.metadata_crc).job_name == "counting"
    driver = starts.start(execution_state__recovery_path="latest")
    assert driver.await_report(lambda report: False, time.monotonic() + LIMIT_S)[0] == "ENDED"
    assert driver.process.wait(60) == 0, driver.log()
    assert committed(starts.out) == expected()
    assert len(read_log(store)) > 0
