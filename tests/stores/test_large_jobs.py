"""Runs a job whose state is in RocksDB, with incremental checkpoints that are uploaded to SeaweedFS in parts, and
restored while it runs, while slots, the driver and the store are killed by SIGKILL.
"""

from __future__ import annotations

import signal
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from penstock.storage.layout import LogName, SegmentName, parse
from penstock.storage.opening import open_store
from tests.buckets.faulty_proxy import Fault, FaultyProxy
from tests.buckets.servers import BUCKET, settings_of
from tests.reporting_driver import Driver, killed, runs
from tests.spark.small_jobs import committed
from tests.stores.buckets_listed import s3, unfinished_uploads, unnamed
from tests.stores.test_jobs import HA, JOB_ID, LIMIT_S, Starts
from tools.object_stores import SECRET_KEY, Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(2 * LIMIT_S)]
KILLS = ("slot", "store", "driver", "slot")
LEFT_BY_KILLS = {"slot": 1, "driver": 2, "store": 2}
"""How many uploads of two slots a kill can leave unfinished, at most. For them buckets have a rule."""
ROWS = 40_800
KEYS = 2_400
PART_BYTES = 5 * 1024**2


def fat_program(keys: int, rows_per_second: float) -> str:
    """Return a program that counts the rows of each key, and keeps 10 kB with every second count."""
    return f"""
import json, sys, time
from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.state import ValueStateDescriptor

class Fat(KeyedProcessFunction):
    '''Counts the rows of each key, and keeps 10 kB with every second count.'''

    def open(self, runtime_context):
        self.counted = runtime_context.get_state(ValueStateDescriptor("counted", Types.LONG()))
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", Types.STRING()))

    def process_element(self, row, ctx):
        n = (self.counted.value() or 0) + 1
        self.counted.update(n)
        wanted = n - 1 if n % 2 == 0 else n - 2
        kept = int(self.kept.value() or -1)
        if n % 2:
            self.kept.update(f"{{n:>10000}}")
        yield f"{{row[0]}}:{{n}}" if kept == wanted else f"{{row[0]}}:{{n}}: {{kept}} is kept"

out, rows, options = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment(Configuration(json.loads(options))).set_parallelism(2)
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
source = DataGeneratorSource(lambda i: (i % {keys}, 1), int(rows), type_info=PAIR, rows_per_second={rows_per_second})
pairs = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
counts = pairs.key_by(lambda p: p[0], Types.LONG()).process(Fat(), Types.STRING()).uid("fat")
sink = FileSink.for_row_format(out, Encoder.simple_string_encoder())
counts.sink_to(sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build())
"""


class LargeStarts(Starts):
    """Starts the job."""

    program = fat_program(KEYS, 1200.0)
    rows = ROWS


OPTIONS = {
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "s3.upload.min.part.size": "5 mb",
    "penstock.state.rocksdb.range-size": "4 kb",
    "penstock.state.rocksdb.object-cache-size": "1 mb",
    "heartbeat.interval": "500 ms",  # slots report with it what they load later
}


def test_large_state_is_exact_and_nothing_is_left_while_slots_driver_and_store_are_killed(
    weed: Server, tmp_path: Path
) -> None:
    root = f"s3://{BUCKET}/large"
    starts = LargeStarts(tmp_path, weed, root, **HA, **OPTIONS)
    job = open_store(f"{root}/{JOB_ID}", settings_of(weed))
    deadline = time.monotonic() + LIMIT_S

    def start() -> Driver:
        """Start the job, and wait until a state has been stored whole, in parts."""
        driver = starts.start()
        driver.await_report(lambda report: any(found.size_bytes > PART_BYTES for found in job.objects("")), deadline)
        return driver

    driver, logs = killed(start, KILLS, weed, 15, deadline)
    report = driver.await_report(lambda report: runs(3)(report) and report.loaded_later_bytes > 0, deadline)
    assert report.state == "RUNNING", "the job ended before all kills: give it more rows"
    driver.process.send_signal(signal.SIGUSR1)
    driver.await_end(deadline)
    logs += driver.log()

    left, named = unnamed(job)
    assert not left
    checkpoints = {name.checkpoint_id for path in named if isinstance(name := parse(path), SegmentName)}
    assert len(checkpoints) > 1, "the checkpoint names segments of earlier ones"
    s3(weed).create_multipart_upload(Bucket=BUCKET, Key="others/one")
    assert unfinished_uploads(weed, "others") == ["one"], "an unfinished upload is listed"
    uploads = [parse(path) for path in unfinished_uploads(weed, f"large/{JOB_ID}")]
    last = max(name.generation for path in named if isinstance(name := parse(path), SegmentName))
    assert all(isinstance(name, SegmentName) and name.generation < last for name in uploads)
    assert len(uploads) <= sum(LEFT_BY_KILLS[kill] for kill in KILLS)

    driver = starts.start(high__availability_type="NONE", execution_state__recovery_path="latest")
    driver.await_end(deadline)
    lines = committed(starts.out)
    assert lines == {f"{key}:{n}": 1 for key in range(KEYS) for n in range(1, ROWS // KEYS + 1)}
    assert {type(parse(path)) for path in job.list("")} == {LogName}, "a finished job leaves nothing but its log"
    assert SECRET_KEY not in logs + driver.log()


def test_a_slow_store_completes_checkpoints_of_large_state(weed: Server, tmp_path: Path) -> None:
    """Each request takes 50 ms more, and its bytes pass at 20 MB/s."""
    with FaultyProxy(weed.port) as proxy:
        starts = LargeStarts(tmp_path, weed, f"s3://{BUCKET}/slow", **HA, **{**OPTIONS, "s3.endpoint": proxy.url})
        proxy.fault = lambda method, path: Fault(0, delay_s=0.05)
        proxy.bytes_per_second = 20e6
        driver = starts.start()
        deadline = time.monotonic() + LIMIT_S
        # The counts of all keys have been written, whole, when a part has been uploaded.
        driver.await_report(lambda report: any("partNumber" in path for _, path in proxy.requests), deadline)
        seen = driver.await_report(runs(3), deadline)
        last = driver.await_report(runs(seen.completed + 10), deadline)
        assert (last.state, last.restarts, last.failed) == ("RUNNING", 0, 0)
        driver.process.send_signal(signal.SIGUSR1)
        driver.await_end(deadline)
    left, named = unnamed(open_store(f"s3://{BUCKET}/slow/{JOB_ID}", settings_of(weed)))
    assert not left
    assert sum(named.values()) > 20e6
    assert_exact(committed(starts.out))


def assert_exact(lines: Counter[str]) -> None:
    """Check the lines of a job that was cancelled: the counts of each key are 1, 2, 3, …, each once."""
    counts = defaultdict(list)
    for line in lines.elements():
        key, _, count = line.partition(":")
        counts[key].append(int(count))
    assert counts
    assert all(sorted(of_key) == list(range(1, len(of_key) + 1)) for of_key in counts.values())
