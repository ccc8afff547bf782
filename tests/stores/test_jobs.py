"""Tests jobs on a real Spark whose checkpoints are in SeaweedFS, while slots, drivers and the store are killed by
SIGKILL.

Each start is the same command, as a supervisor gives it. The rows of committed files decide: each key's counts are
1, 2, 3, …, each once.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.storage.layout import LogName, MetadataName, SegmentName, parse
from penstock.storage.log import newest_checkpoint, read_log
from penstock.storage.metadata_file import read_metadata
from penstock.storage.opening import open_store
from penstock.storage.store import BrowsableStore, ObjectMissing
from tests.buckets.faulty_proxy import PASSED, Fault, FaultyProxy
from tests.buckets.servers import BUCKET, settings_of
from tests.reporting_driver import EXECUTE_AND_REPORT, Driver, Report, run_under_kills, runs
from tests.spark.small_jobs import committed
from tools.object_stores import SECRET_KEY, Server

LIMIT_S = 200.0
pytestmark = [pytest.mark.spark, pytest.mark.timeout(2 * LIMIT_S)]
KILLS = ("slot", "store", "slot", "driver", "slot")
JOB_ID = "00000000000000000000000000c0ffee"
ROWS = 40_000
SLOTS = 2
KEYS_ONCE = 2000

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
"""


class Starts:
    """Starts one job. Its keys come by options, or from its environment (`server` None); its checkpoints are below
    `root`.
    """

    program: ClassVar[str] = PROGRAM
    rows: ClassVar[int] = ROWS

    def __init__(self, folder: Path, server: Server | None, root: str, **options: str) -> None:
        self._program = folder / "counting.py"
        self._program.write_text(self.program + EXECUTE_AND_REPORT, encoding="utf-8")
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
            **({} if server is None else server.options),
            **options,
        }

    def start(self, **options: str) -> Driver:
        given = {key.replace("__", "-").replace("_", "."): text for key, text in options.items()}
        return Driver(self._program, str(self.out), str(self.rows), json.dumps({**self._options, **given}))


class ChainedStarts(Starts):
    """Starts a job whose checkpoints store little, and name what earlier ones have stored: first all keys come, then
    some again and again.
    """

    program = PROGRAM.replace("i % 7", f"i if i < {KEYS_ONCE} else i % 40")

    def __init__(self, folder: Path, server: Server | None, root: str, **options: str) -> None:
        incremental = {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"}
        super().__init__(folder, server, root, **incremental, **options)


class ShortStarts(Starts):
    """Starts a job of half as many rows."""

    rows = ROWS // 2


def expected(rows: int = ROWS) -> dict[str, int]:
    return {f"{key}:{n}": 1 for key in range(7) for n in range(1, len(range(key, rows, 7)) + 1)}


HA = {"high-availability.type": "filesystem", "pipeline.job-id": JOB_ID}


def test_a_job_is_exact_while_slots_driver_and_store_are_killed(weed: Server, tmp_path: Path) -> None:
    starts = Starts(tmp_path, weed, f"s3://{BUCKET}/kills", **HA)
    logs = run_under_kills(starts.start, KILLS, weed, 7, time.monotonic() + LIMIT_S)
    assert committed(starts.out) == expected()
    assert SECRET_KEY not in logs
    job = open_store(f"s3://{BUCKET}/kills/{JOB_ID}", settings_of(weed))
    assert {type(parse(path)) for path in job.list("")} == {LogName}, "a finished job leaves nothing but its log"
    assert SECRET_KEY.encode() not in b"".join(job.get(path) for path in job.list(""))


@pytest.mark.parametrize("starting", [Starts, ChainedStarts], ids=["all of memory", "a chain of RocksDB"])
def test_a_checkpoint_makes_no_more_objects_than_slots_and_two(
    weed: Server, tmp_path: Path, starting: type[Starts]
) -> None:
    root = f"s3://{BUCKET}/counts"
    job = open_store(f"{root}/{JOB_ID}", settings_of(weed), create_root=True)
    named_min = 1 if starting is Starts else SLOTS + 1

    def is_long_enough(report: Report) -> bool:
        return runs(3)(report) and _segments_named(job) >= named_min

    with FaultyProxy(weed.port) as proxy:
        starts = starting(tmp_path, weed, root, **HA, **{"s3.endpoint": proxy.url})
        driver = starts.start()
        deadline = time.monotonic() + LIMIT_S
        first = driver.await_report(is_long_enough, deadline).completed
        before = _asked(proxy)
        last = driver.await_report(runs(first + 20), deadline).completed
        after = _asked(proxy)
        driver.kill()
    completed = last - first
    # One more of each may be under way at either end of what is counted.
    asked = {kind: after[kind] - before[kind] for kind in after}
    assert asked["put segment"] <= SLOTS * (completed + 2)
    assert asked["put metadata"] <= completed + 2
    assert asked["put log"] <= completed + 2
    assert asked["put other"] == 0
    assert asked["list"] <= completed + 2, "a checkpoint lists the log once"
    assert asked["read"] == 0
    assert _segments_named(job) >= named_min
    calls = len(proxy.requests) / max(1, last)
    print(f"{calls:.1f} requests per checkpoint, with opening, probing and deleting")


def _segments_named(job: BrowsableStore) -> int:
    """Return how many objects the newest checkpoint of a running job names, or 0."""
    with suppress(ObjectMissing):  # it was deleted while it was opened
        newest = newest_checkpoint(job)
        return 0 if newest is None else len(read_metadata(job, newest.path).segments)
    return 0


def _asked(proxy: FaultyProxy) -> Counter[str]:
    """Return how many requests of each kind there were. Deletions do not count."""
    kinds: dict[type, str] = {SegmentName: "segment", MetadataName: "metadata", LogName: "log"}
    asked = Counter(dict.fromkeys(("put segment", "put metadata", "put log", "put other", "list", "read"), 0))
    for method, path in list(proxy.requests):
        if method in ("PUT", "POST"):
            name = parse("/".join(path.partition("?")[0].split("/")[4:]))
            asked[f"put {kinds.get(type(name), 'other')}"] += 1
        elif method != "DELETE":
            asked["list" if "list-type" in path else "read"] += 1
    return asked


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(), "answers 503 SlowDown"),
        (Fault(403, "AccessDenied"), f"refuses access to s3://{BUCKET} (403 AccessDenied"),
        (Fault(400, "ExpiredToken"), f"the credentials for s3://{BUCKET} have expired (400 ExpiredToken"),
        (Fault(507, "XMinioStorageFull"), f"is full, or the quota of s3://{BUCKET} is used up (507 XMinioStorageFull"),
        (Fault(404, "NoSuchBucket"), f"bucket s3://{BUCKET} does not exist at http://127.0.0.1"),
    ],
    ids=["away", "forbidden", "expired", "full", "removed"],
)
def test_a_store_that_fails_for_a_while_stops_checkpoints_and_not_the_job(
    weed: Server, tmp_path: Path, fault: Fault, says: str
) -> None:
    """Answers an error to everything, then applies every third put and reports one."""
    with FaultyProxy(weed.port) as proxy:
        starts = ShortStarts(tmp_path, weed, f"s3://{BUCKET}/faults", **HA, **{"s3.endpoint": proxy.url})
        driver = starts.start(penstock_checkpoint__storage_retry__timeout="500 ms")
        deadline = time.monotonic() + LIMIT_S
        seen = driver.await_report(runs(3), deadline)
        proxy.fault = lambda method, path: fault
        asked = len(proxy.requests)
        while len(proxy.requests) < asked + 30:
            assert driver.await_report(lambda report: report.state == "RUNNING", deadline).state == "RUNNING"
        failing = driver.await_report(lambda report: report.failed > seen.failed, deadline)
        assert says in driver.log()
        puts = iter(range(1_000_000))
        proxy.fault = lambda method, path: Fault(executed=True) if method == "PUT" and next(puts) % 3 == 0 else PASSED
        last = driver.await_report(runs(failing.completed + 5), deadline)
        assert (last.state, last.restarts) == ("RUNNING", 0)
        driver.await_end(deadline)
    assert committed(starts.out) == expected(ShortStarts.rows)


def test_a_job_is_resumed_by_name_from_what_its_bucket_keeps(weed: Server, tmp_path: Path) -> None:
    root = f"s3://{BUCKET}/resumed"
    starts = Starts(tmp_path, weed, root)
    driver = starts.start(pipeline_job__id=JOB_ID)
    driver.await_report(runs(5), time.monotonic() + LIMIT_S)
    driver.kill()
    store = open_store(f"{root}/{JOB_ID}", settings_of(weed))
    newest = newest_checkpoint(store)
    assert newest is not None and read_metadata(store, newest.path, newest.metadata_crc).job_name == "counting"
    driver = starts.start(execution_state__recovery_path="latest")
    driver.await_end(time.monotonic() + LIMIT_S)
    assert committed(starts.out) == expected()
    assert len(read_log(store)) > 0
