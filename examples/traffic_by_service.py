"""Requests, failures and bytes per service and minute of a web server's log, in columns, as Parquet by service.

    penstock run -p 2 examples/traffic_by_service.py /tmp/traffic

No step makes a Python object for a row: batches are generated, computed, aggregated and written as columns. With Spark,
`spark.read.parquet("/tmp/traffic")` has the column `service` back from the names of the folders.
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.datastream import DataStream, StreamExecutionEnvironment, TumblingEventTimeWindows
from penstock.datastream.columnar import count, max_, sum_
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, ParquetBulkWriters

REQUESTS = 20_000_000
MINUTE = Duration.of_minutes(1)
START_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC
SERVICES = pa.array(["search", "basket", "login", "pictures"])

LONG = Types.LONG()
REQUEST = Types.ROW_NAMED(["service", "status", "sent_bytes", "at"], [Types.STRING(), LONG, LONG, LONG])


def requests(first: int, rows: int) -> pa.RecordBatch:
    """A hundred thousand per second, each a function of its index alone, so that a restored job sees the same ones."""
    index = np.arange(first, first + rows, dtype=np.uint64)
    dice = (index * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    service = SERVICES.take(pa.array((dice % np.uint64(7) % np.uint64(4)).astype(np.int64)))
    status = np.where(dice % np.uint64(50) == 0, 503, 200)
    at = START_MS + index.astype(np.int64) // 100 - (dice % np.uint64(2_000)).astype(np.int64)
    return pa.record_batch([service, status, (dice % np.uint64(9_000)).astype(np.int64), at], schema=REQUEST.schema)


def traffic(env: StreamExecutionEnvironment, requests_count: int = REQUESTS, every: Duration = MINUTE) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2)).with_timestamp_column("at")
    return (
        env.from_source(BatchGeneratorSource(requests, requests_count, REQUEST), strategy, "requests")
        .with_columns(failed=(pc.field("status") >= 500).cast("int64"))
        .key_by("service")
        .window(TumblingEventTimeWindows.of(every))
        .aggregate(requests=count(), failed=sum_("failed"), sent_bytes=sum_("sent_bytes"), largest=max_("sent_bytes"))
        .name("Traffic")
    )


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    by_service = BucketAssigner.column_bucket_assigner("service")
    files = FileSink.for_bulk_format(sys.argv[1], ParquetBulkWriters.for_row_type()).with_bucket_assigner(by_service)
    traffic(env).sink_to(files.build())
    env.execute("traffic by service")
