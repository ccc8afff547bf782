"""A job on a real Spark that reads files from SeaweedFS and writes files there, while slots, its driver and the store
are killed by SIGKILL. Checkpoints are there, too. The rows of visible objects decide.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from penstock.storage.opening import open_store
from tests.buckets.servers import BUCKET, settings_of
from tests.reporting_driver import EXECUTE_AND_REPORT, Driver, run_under_kills
from tests.stores.test_jobs import HA, LIMIT_S, expected
from tools.object_stores import SECRET_KEY, Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(2 * LIMIT_S)]
KILLS = ("slot", "slot", "store", "slot", "driver", "slot")
ROWS = 20_000

PROGRAM = """
import json, sys, time
from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import (
    FileEnumeratorProvider, FileSink, FileSource, RollingPolicy, StreamFormat,
)

root, options = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment(Configuration(json.loads(options))).set_parallelism(2)
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"{root}/in").build()

def slowly(line):
    time.sleep(0.001)
    return int(line) % 7, 1

def files(folder, policy):
    sink = FileSink.for_row_format(f"{root}/{folder}", Encoder.simple_string_encoder())
    return sink.with_rolling_policy(policy).build()

lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
counts = lines.map(slowly, PAIR).key_by(lambda p: p[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
texts = counts.map(lambda p: f"{p[0]}:{p[1]}", Types.STRING())
texts.sink_to(files("each", RollingPolicy.on_checkpoint_rolling_policy()))
texts.sink_to(files("few", RollingPolicy.default_rolling_policy(1 << 20, 3_600_000, 3_600_000)))
"""


def test_files_in_a_store_are_exact_while_slots_driver_and_store_are_killed(weed: Server, tmp_path: Path) -> None:
    root = f"s3://{BUCKET}/files"
    store = open_store(root, settings_of(weed))
    for n in range(8):
        store.put(f"in/{n}", ["".join(f"{i}\n" for i in range(n, ROWS, 8)).encode()])
    program = tmp_path / "files.py"
    program.write_text(PROGRAM + EXECUTE_AND_REPORT, encoding="utf-8")
    options = {
        "execution.checkpointing.interval": "200 ms",
        "execution.checkpointing.dir": f"s3://{BUCKET}/jobs",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "100 ms",
        "penstock.checkpoint-storage.retry-timeout": "3 s",
        **weed.options,
        **HA,
    }

    def start() -> Driver:
        return Driver(program, root, json.dumps(options))

    logs = run_under_kills(start, KILLS, weed, 11, time.monotonic() + LIMIT_S)
    for folder in ("each", "few"):
        written = [name for name in store.list(folder) if "_penstock" not in name]
        assert Counter(line for name in written for line in store.get(name).decode().split()) == expected(ROWS)
        assert store.list(f"{folder}/_penstock") == [], "nothing is left over"
    assert len(store.list("few")) < len(store.list("each"))
    assert SECRET_KEY not in logs
