"""Workloads "map" and "udf" on Penstock, row functions in Python: the twin of `peers/peer pyflink`.

    udf.py [workload=udf|map] [rows=2000000] [parallelism=2] [any.option=...]

map: one stateless map. udf: a map and a rolling reduce per key (10,007 keys). `rows_per_s` is, as the peer's, without
what a job costs that does nothing (`startup_seconds`, a job of 1,000 rows; the second one counts, because the first
also pays for what later jobs find there). `exact`: the same program, with every row
let through to its end, puts out as many rows as it must, and their sum is right. Prints one line of JSON last.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from measuring import KEYS, Arguments, configured, keys_of, parse_arguments, print_result
from penstock.common import Types, WatermarkStrategy
from penstock.connectors.memory.print_sink import PrintSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.base import Sink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.spark.session import open_session
from sinks import Counted, CountingSink, counted

DEFAULTS = {"workload": "udf", "rows": "2000000", "parallelism": "2"}
CHOICES = {"workload": ("udf", "map")}
STARTUP_ROWS = 1000
CHECKED_ROWS = 100_000
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def run(args: Arguments, rows: int, below: int, sink: Sink) -> float:
    """Seconds. Results below that number reach the sink; there is none below 0."""
    defaults = {"parallelism.default": args.values["parallelism"]}
    env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
    numbers = env.from_source(NumberSequenceSource(0, rows - 1), WatermarkStrategy.no_watermarks(), "numbers")
    out = numbers.map(lambda i: (i * 2654435761 % 10007, 1), output_type=PAIR)
    if args.values["workload"] == "udf":
        out = out.key_by(lambda t: t[0], key_type=Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
    out.map(lambda t: t[1], output_type=Types.LONG()).filter(lambda n: n < below).sink_to(sink)
    started = time.monotonic()
    env.execute(args.values["workload"])
    return time.monotonic() - started


def expected(workload: str, rows: int) -> Counted:
    if workload == "map":
        return Counted(rows, rows)
    per_key = np.bincount(keys_of(np.arange(rows, dtype=np.int64)), minlength=KEYS)
    return Counted(rows, int((per_key * (per_key + 1) // 2).sum()))


def measure(args: Arguments) -> dict[str, Any]:
    rows, workload = args.whole("rows"), args.values["workload"]
    folder = Path(tempfile.mkdtemp(prefix="penstock-udf-"))
    spark = open_session("penstock benchmark", args.whole("parallelism")).context
    try:
        run(args, STARTUP_ROWS, 0, PrintSink())
        base = run(args, STARTUP_ROWS, 0, PrintSink())
        total = run(args, rows, 0, PrintSink())
        run(args, CHECKED_ROWS, CHECKED_ROWS + 1, CountingSink(folder, 0))
        exact = counted(folder) == expected(workload, CHECKED_ROWS)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "peer": "penstock",
        "workload": workload,
        "options": args.options,
        "rows": rows,
        "parallelism": args.whole("parallelism"),
        "seconds": round(total, 3),
        "startup_seconds": round(base, 3),
        "rows_per_s": round(rows / max(total - base, 1e-9)),
        "exact": exact,
    }


if __name__ == "__main__":
    result = measure(parse_arguments(sys.argv[1:], DEFAULTS, CHOICES))
    print_result(result)
    sys.exit(0 if result["exact"] else 1)
