"""Workload "calls": `map_batches` with a function that costs the same however many rows it is given.

    batch_calls.py [rows=400000] [call_ms=5] [seconds=20] [parallelism=1] [batch_size=0] [any.option=...]

The function sleeps for `call_ms`, as one that asks a model or a server does. The first run has `rows` rows from a
source without a limit, and counts the calls. The second has no end; it takes an unaligned checkpoint every 500 ms for
`seconds`, and gives their durations. `batch_size` above 0 is given to the call of `map_batches`. Prints one line
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
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.spark.session import open_session
from pressure import Watch
from sinks import CountingSink, counted

DEFAULTS = {"rows": "400000", "call_ms": "5", "seconds": "20", "parallelism": "1", "batch_size": "0"}
NUMBERS = Types.ROW_NAMED(["number", "calls"], [Types.LONG(), Types.LONG()])
UNALIGNED = {"execution.checkpointing.interval": "500 ms", "execution.checkpointing.unaligned.enabled": "true"}


def generate(first: int, count: int) -> pa.RecordBatch:
    numbers = np.arange(first, first + count, dtype=np.int64)
    return pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(np.zeros(count, np.int64))], schema=NUMBERS.schema)


@dataclass(frozen=True)
class Call:
    """Sleeps, and marks the first row of each batch, so that the sum of the marks counts the calls."""

    seconds: float

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(self.seconds)
        marks = np.zeros(batch.num_rows, np.int64)
        marks[:1] = 1
        return batch.set_column(1, "calls", pa.array(marks))


def declare(env: StreamExecutionEnvironment, args: Arguments, rows: int | None, counts: Path) -> None:
    source = BatchGeneratorSource(generate, rows, NUMBERS)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "source")
    batch_size = args.whole("batch_size") or None
    called = numbers.map_batches(Call(args.number("call_ms") / 1000), NUMBERS.schema, batch_size)
    called.sink_to(CountingSink(counts, "calls"))


def measure(args: Arguments) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="penstock-calls-"))
    bounded, endless = home / "bounded", home / "endless"
    for folder in (bounded, endless):
        folder.mkdir()
    defaults = {"parallelism.default": args.values["parallelism"]}
    spark = open_session("penstock benchmark", args.whole("parallelism")).context
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        declare(env, args, args.whole("rows"), bounded)
        env.execute("calls")
        found = counted(bounded)
        directory = {"execution.checkpointing.dir": (home / "checkpoints").as_uri()}
        options = configured({**defaults, **UNALIGNED, **directory}, args.options)
        env = StreamExecutionEnvironment.get_execution_environment(options)
        declare(env, args, None, endless)
        client = env.execute_async("calls without end")
        wait_until("first checkpoint", client, lambda r: r.completed > 0, START_LIMIT_S)
        watch = Watch(spark)
        watch.follow(client, args.number("seconds"))
        client.cancel().result(END_LIMIT_MS / 1000)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    durations = [c.duration_ms for c in watch.checkpoints.values() if c.duration_ms is not None]
    return {
        "peer": "penstock",
        "workload": "calls",
        "options": args.options,
        "rows": args.whole("rows"),
        "call_ms": args.number("call_ms"),
        "calls": found.sum,
        "completed": len(durations),
        "duration_ms_p50": quantile(durations, 0.5),
        "duration_ms_p90": quantile(durations, 0.9),
        "exact": found.rows == args.whole("rows"),
    }


if __name__ == "__main__":
    result = measure(parse_arguments(sys.argv[1:], DEFAULTS))
    print_result(result)
    sys.exit(0 if result["exact"] else 1)
