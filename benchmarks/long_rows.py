"""Measures what an unaligned checkpoint waits for where one row, or one moment of event time, is a lot of work.

    long_rows.py [workload=timers|generator] [seconds=30] [parallelism=2] [any.option=...]

`timers`: each second of event time 1,000 timers are ready at once, and each takes 1 ms. `generator`: a generator makes
1,000,000 rows of one, for a consumer that sleeps 1 ms for each 100. Both are far slower than their source. A snapshot
lies between two timers, or two input rows. Prints one line of JSON last.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from measuring import (
    END_LIMIT_MS,
    START_LIMIT_S,
    Arguments,
    configured,
    parse_arguments,
    print_result,
    quantile,
    wait_until,
)
from penstock.common import Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.spark.session import open_session
from pressure import Watch

DEFAULTS = {"workload": "timers", "seconds": "30", "parallelism": "2"}
LONG = Types.LONG()
TIMERS_AT_ONCE = 1_000
ROWS_OF_ONE = 1_000_000


def numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(np.arange(first, first + count))], schema=LONG.schema)


class Milliseconds(TimestampAssigner):
    """A row per ms of event time."""

    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value


class SlowTimers(KeyedProcessFunction):
    """Registers a timer for the end of the row's second; a timer takes 1 ms."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value - value % 1_000 + 1_000)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[int]:
        time.sleep(0.001)
        yield timestamp


def many(row: int) -> Iterator[int]:
    yield from range(row, row + ROWS_OF_ONE)


def slowly(row: int) -> int:
    if row % 100 == 0:
        time.sleep(0.001)
    return row


def declare(env: StreamExecutionEnvironment, workload: str) -> None:
    source = BatchGeneratorSource(numbers, type_info=LONG)
    if workload == "timers":
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Milliseconds())
        stream = env.from_source(source, strategy, "source", type_info=LONG)
        timers = stream.key_by(lambda row: row % TIMERS_AT_ONCE, key_type=LONG).process(SlowTimers(), output_type=LONG)
        timers.name("slow timers").sink_to(DiscardingSink())
        return
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "source", type_info=LONG)
    rows = stream.rebalance().flat_map(many, output_type=LONG).name("many")
    rows.rebalance().map(slowly, output_type=LONG).name("slow").sink_to(DiscardingSink())


def measure(args: Arguments) -> dict[str, Any]:
    workload, parallelism = args.values["workload"], args.whole("parallelism")
    checkpoints_dir = Path(tempfile.mkdtemp(prefix="penstock-long-rows-"))
    defaults = {
        "parallelism.default": str(parallelism),
        "execution.checkpointing.interval": "200 ms",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.timeout": "10 min",
        "execution.checkpointing.dir": checkpoints_dir.as_uri(),
        "web.checkpoints.history": "1000",
    }
    spark = open_session("penstock benchmark", parallelism).context
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        declare(env, workload)
        client = env.execute_async("long rows")
        wait_until("running job", client, lambda r: r.state == "RUNNING", START_LIMIT_S)
        watch = Watch(spark)
        report = watch.follow(client, args.number("seconds"))
        client.cancel().result(END_LIMIT_MS / 1000)
    finally:
        spark.stop()
        shutil.rmtree(checkpoints_dir, ignore_errors=True)
    done = list(watch.checkpoints.values())
    durations = [c.duration_ms for c in done if c.duration_ms is not None]
    return {
        "peer": "penstock",
        "workload": workload,
        "options": args.options,
        "completed": len(done),
        "failed": report.failed,
        "duration_ms_p50": quantile(durations, 0.5),
        "duration_ms_p90": quantile(durations, 0.9),
        "duration_ms_max": max(durations, default=None),
        "persisted_bytes_p50": quantile([c.inflight_bytes for c in done], 0.5),
        "rows": {v.name: v.rows_in for v in report.vertices},
    }


if __name__ == "__main__":
    print_result(measure(parse_arguments(sys.argv[1:], DEFAULTS, {"workload": ("timers", "generator")})))
