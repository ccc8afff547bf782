"""Tests what a driver lists that takes over a job in SeaweedFS: as much as the job has now, however long it has run."""

from __future__ import annotations

import io
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.storage.layout import LogName, SegmentName, parse
from penstock.storage.opening import open_store
from tests.buckets.faulty_proxy import FaultyProxy
from tests.buckets.servers import BUCKET, settings_of
from tests.reporting_driver import runs
from tests.stores.test_jobs import HA, JOB_ID, LIMIT_S, Starts, expected
from tools.object_stores import Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(2 * LIMIT_S)]
CHECKPOINTS = 40
LISTED_MAX = 30
"""The most names that a listing may show: the log is shortened from time to time, and one checkpoint is retained."""

PROGRAM = """
import json, sys, time
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.spark.frames.data_frames import DataFrames

out, rows, options = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment(Configuration(json.loads(options))).set_parallelism(2)
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
ROW = Types.ROW_NAMED(["key", "n"], [Types.LONG(), Types.LONG()])
source = DataGeneratorSource(lambda i: (i % 7, 1), int(rows), type_info=PAIR, rows_per_second=1000.0)
pairs = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
counts = pairs.key_by(lambda p: p[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
counts.map(lambda p: p, ROW).sink_to(DataFrames().sink(None))  # what to_spark() does before it waits
"""


class ResultStarts(Starts):
    """Starts a job that collects a DataFrame."""

    program = PROGRAM
    rows = 20_000


def test_a_driver_that_takes_over_lists_no_results(weed: Server, tmp_path: Path) -> None:
    """The results of a DataFrame get a file per slot and checkpoint, and stay until the job's end."""
    root = f"s3://{BUCKET}/listings"
    job = open_store(f"{root}/{JOB_ID}", settings_of(weed), create_root=True)
    with FaultyProxy(weed.port) as proxy:
        soon_swept = {"heartbeat.interval": "500 ms", "heartbeat.timeout": "4 s"}
        starts = ResultStarts(tmp_path, weed, root, **HA, **soon_swept, **{"s3.endpoint": proxy.url})
        deadline = time.monotonic() + LIMIT_S
        driver = starts.start()
        driver.await_report(runs(CHECKPOINTS), deadline)
        driver.kill()
        # A sink that restarts lists what is not yet visible, which is little.
        made = len(results := [name for name in job.list("results") if "/_penstock/" not in name])
        proxy.listed.clear()
        driver = starts.start()
        driver.await_end(deadline)
        listed = [[name.partition(f"{JOB_ID}/")[2] for name in names] for names in proxy.listed]
    print(f"{len(listed)} listings, of at most {max(map(len, listed))} names, next to {made} files of results")
    assert made > 2 * LISTED_MAX
    seen = {type(parse(name)) for names in listed for name in names}
    assert {LogName, SegmentName} <= seen, "the listings of the takeover and of the sweep are noticed"
    assert not [name for names in listed for name in names if name in results]
    assert max(map(len, listed)) <= LISTED_MAX
    files = [pq.read_table(io.BytesIO(job.get(name))) for name in job.list("results")]
    assert Counter(f"{row['key']}:{row['n']}" for file in files for row in file.to_pylist()) == expected(starts.rows)
