"""Measures how long a row takes from source to sink at a moderate rate, through keyed state in Python.

    latency.py [seconds=60] [rows_per_s=10000] [warm_up_s=5] [parallelism=2] [any.option=...]

The source stamps each row with the monotonic clock when it is made; a keyed process function counts it in value state;
the sink compares. One clock, for all slots are on one machine. A checkpoint each second. `achieved_rows_per_s` shows
whether the source was held up, which the stamps would not. Prints one line of JSON last.
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

from measuring import Arguments, configured, keys_of, parse_arguments, print_result
from penstock.common import Types, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.spark.session import open_session
from sinks import Longs, RecordingSink, recorded

DEFAULTS = {"seconds": "60", "rows_per_s": "10000", "warm_up_s": "5", "parallelism": "2"}
STAMPED = Types.TUPLE([Types.LONG(), Types.LONG()])
COUNTED = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: tuple[int, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[0], value[1], count


def stamped(first: int, count: int) -> pa.RecordBatch:
    """(key, monotonic ns). A row made again after a restore would have another stamp; no latency is read after one."""
    keys = keys_of(np.arange(first, first + count, dtype=np.int64))
    columns = [pa.array(keys), pa.array(np.full(count, time.monotonic_ns()))]
    return pa.RecordBatch.from_arrays(columns, schema=STAMPED.schema)


def stamps_and_ages(batch: pa.RecordBatch) -> Longs:
    stamps = batch.column(1).to_numpy()
    return np.column_stack([stamps, time.monotonic_ns() - stamps])


def declare(env: StreamExecutionEnvironment, args: Arguments, folder: Path) -> None:
    rows = int(args.number("seconds") * args.number("rows_per_s"))
    source = BatchGeneratorSource(stamped, rows, STAMPED, rows_per_second=args.number("rows_per_s"))
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "source")
        .key_by(lambda row: row[0], key_type=Types.LONG())
        .process(Count(), output_type=COUNTED)
        .name("count")
        .sink_to(RecordingSink(folder, stamps_and_ages))
    )


def measure(args: Arguments) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="penstock-latency-"))
    records = home / "records"
    records.mkdir()
    defaults = {
        "parallelism.default": args.values["parallelism"],
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": (home / "checkpoints").as_uri(),
    }
    spark = open_session("penstock benchmark", args.whole("parallelism")).context
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        declare(env, args, records)
        client = env.execute_async("latency")
        client.wait()
        report = client.report()
        stamps, ages = np.concatenate(recorded(records)).reshape(-1, 2).T
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    measured = ages[stamps >= stamps.min() + int(args.number("warm_up_s") * 1e9)] / 1e6
    p50, p90, p99 = np.quantile(measured, [0.5, 0.9, 0.99])
    seconds = float(stamps.max() - stamps.min()) / 1e9
    return {
        "peer": "penstock",
        "workload": "latency",
        "options": args.options,
        "rows": len(measured),
        "achieved_rows_per_s": round(len(stamps) / seconds),
        "checkpoints": report.completed,
        "restarts": report.restarts,
        "latency_ms_p50": round(float(p50), 3),
        "latency_ms_p90": round(float(p90), 3),
        "latency_ms_p99": round(float(p99), 3),
        "latency_ms_max": round(float(measured.max()), 3),
        "exact": len(stamps) == int(args.number("seconds") * args.number("rows_per_s")),
    }


if __name__ == "__main__":
    result = measure(parse_arguments(sys.argv[1:], DEFAULTS))
    print_result(result)
    sys.exit(0 if result["exact"] else 1)
