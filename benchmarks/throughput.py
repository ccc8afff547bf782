"""Workloads "reduce" and "window" on Penstock, the twin of `peers/peer flink-throughput` (and of `peer spark`).

    throughput.py [workload=reduce|window] [rows=20000000] [keys=10000] [parallelism=2] [functions=columns|python]
                  [any.option=...]

reduce: a rolling sum per key, one output per input. window: the sum per key and tumbling window of 10 s of event time.
`functions=python` does the same with row functions. As in the peer, `seconds` is what `execute()` takes: slots start in
it, the JVM before it. `exact`: the rows that came out are as many as they must be, and so is their sum. Prints one line
of JSON last.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from measuring import Arguments, configured, parse_arguments, print_result, scattered
from penstock.common import Duration, Types, WatermarkStrategy
from penstock.datastream import DataStream, StreamExecutionEnvironment, TumblingEventTimeWindows
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.spark.session import open_session
from sinks import Counted, CountingSink, counted

DEFAULTS = {
    "workload": "reduce",
    "rows": "20000000",
    "keys": "10000",
    "parallelism": "2",
    "functions": "columns",
}
CHOICES = {"workload": ("reduce", "window"), "functions": ("columns", "python")}
WINDOW_MS = 10_000
ROWS_PER_MS = 1000
NAMES = ["key", "value", "time_ms"]
NAMED = Types.ROW_NAMED(NAMES, [Types.LONG(), Types.LONG(), Types.LONG()])
TUPLES = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])


@dataclass(frozen=True)
class Generate:
    """(index * 2654435761 mod keys, 1, index / 1000 ms), as in peers/flink/Throughput.java."""

    keys: int
    schema: pa.Schema

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        indices = np.arange(first, first + count, dtype=np.int64)
        columns = [scattered(indices, self.keys), np.ones(count, np.int64), indices // ROWS_PER_MS]
        return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=self.schema)


def source(env: StreamExecutionEnvironment, args: Arguments, columnar: bool) -> DataStream:
    row_type = NAMED if columnar else TUPLES
    generate = Generate(args.whole("keys"), row_type.schema)
    strategy = WatermarkStrategy.no_watermarks()
    if args.values["workload"] == "window":
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column(row_type.schema.names[2])
    rows = BatchGeneratorSource(generate, args.whole("rows"), row_type)
    return env.from_source(rows, strategy, "source")


def declare(env: StreamExecutionEnvironment, args: Arguments, folder: Path) -> None:
    columnar = args.values["functions"] == "columns"
    stream = source(env, args, columnar)
    windows = TumblingEventTimeWindows.of(Duration.of_millis(WINDOW_MS))
    is_window = args.values["workload"] == "window"
    if columnar:
        keyed = stream.key_by("key")
        sums = (keyed.window(windows) if is_window else keyed).sum("value")
        sums.sink_to(CountingSink(folder, "sum_value"))
        return
    by_key = stream.key_by(lambda row: row[0], key_type=Types.LONG())
    (by_key.window(windows) if is_window else by_key).reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2]))).sink_to(
        CountingSink(folder, 1)
    )


def expected(workload: str, rows: int, keys: int) -> Counted:
    """Rolling sums of a key with n rows are 1 to n; windows put out every row's 1 once, summed."""
    if workload == "reduce":
        per_key = rows_per_key(0, rows, keys)
        return Counted(rows, int((per_key * (per_key + 1) // 2).sum()))
    step = WINDOW_MS * ROWS_PER_MS
    windows = (rows_per_key(first, min(first + step, rows), keys) for first in range(0, rows, step))
    return Counted(sum(int(np.count_nonzero(per_key)) for per_key in windows), rows)


def rows_per_key(first: int, end: int, keys: int) -> np.ndarray:
    counts = np.zeros(keys, np.int64)
    for start in range(first, end, 1 << 20):
        indices = np.arange(start, min(start + (1 << 20), end), dtype=np.int64)
        counts += np.bincount(scattered(indices, keys), minlength=keys)
    return counts


def measure(args: Arguments) -> dict[str, Any]:
    rows, keys, workload = args.whole("rows"), args.whole("keys"), args.values["workload"]
    folder = Path(tempfile.mkdtemp(prefix="penstock-throughput-"))
    defaults = {"parallelism.default": args.values["parallelism"], "pipeline.object-reuse": "true"}
    spark = open_session("penstock benchmark", args.whole("parallelism")).context
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        declare(env, args, folder)
        started = time.monotonic()
        env.execute("throughput")
        seconds = time.monotonic() - started
        found = counted(folder)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "peer": "penstock",
        "workload": workload,
        "functions": args.values["functions"],
        "options": args.options,
        "rows": rows,
        "keys": keys,
        "parallelism": args.whole("parallelism"),
        "seconds": round(seconds, 3),
        "rows_per_s": round(rows / seconds),
        "exact": found == expected(workload, rows, keys),
    }


if __name__ == "__main__":
    result = measure(parse_arguments(sys.argv[1:], DEFAULTS, CHOICES))
    print_result(result)
    sys.exit(0 if result["exact"] else 1)
