"""Workload "async": rows that call a slow service, many at a time, beside unaligned checkpoints.

    async_calls.py [capacity=1000] [call_ms=50] [seconds=20] [warm_up_s=5] [parallelism=1] [ordered=false]
                   [blocking=false] [any.option=...]

An endless source → `AsyncDataStream` → discard. A call sleeps for `call_ms`, in the event loop or (`blocking`) in a
thread. No subtask can answer more than `capacity` rows per `call_ms`: `share_of_limit` is the rate over that limit. An
unaligned checkpoint every 500 ms holds the calls that are under way, and the answers that have come. Prints one line of
JSON last.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
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
from penstock.common import Time, Types, WatermarkStrategy
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import AsyncDataStream, AsyncFunction, BlockingFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.spark.session import open_session
from pressure import Watch

DEFAULTS = {
    "capacity": "1000", "call_ms": "50", "seconds": "20", "warm_up_s": "5", "parallelism": "1", "ordered": "false",
    "blocking": "false",
}  # fmt: skip
CALLED = Types.TUPLE([Types.LONG(), Types.LONG()])
UNALIGNED = {"execution.checkpointing.interval": "500 ms", "execution.checkpointing.unaligned.enabled": "true"}


def generate(first: int, count: int) -> pa.RecordBatch:
    numbers = pa.array(np.arange(first, first + count, dtype=np.int64))
    return pa.RecordBatch.from_arrays([numbers, numbers], schema=CALLED.schema)


class Sleeping(AsyncFunction[Any, Any]):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep(self.seconds)
        return [value]


class Blocking(BlockingFunction[Any, Any]):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def invoke(self, value: Any) -> list[Any]:
        time.sleep(self.seconds)
        return [value]


def declare(env: StreamExecutionEnvironment, args: Arguments) -> None:
    source = env.from_source(BatchGeneratorSource(generate, None, CALLED), WatermarkStrategy.no_watermarks(), "source")
    function = (Blocking if args.flag("blocking") else Sleeping)(args.number("call_ms") / 1000)
    wait = AsyncDataStream.ordered_wait if args.flag("ordered") else AsyncDataStream.unordered_wait
    answers = wait(source, function, Time.seconds(60), args.whole("capacity"), CALLED)
    answers.name("calls").sink_to(DiscardingSink())


def rows_of_calls(report: Any) -> int:
    vertex = next(v for v in report.vertices if v.name.startswith("calls"))
    return int(vertex.rows_out)


def measure(args: Arguments) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="penstock-async-"))
    defaults = {
        "parallelism.default": args.values["parallelism"],
        "execution.checkpointing.dir": home.as_uri(),
        "web.checkpoints.history": "1000",
        **UNALIGNED,
    }
    spark = open_session("penstock benchmark", args.whole("parallelism")).context
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        declare(env, args)
        client = env.execute_async("async calls")
        wait_until("first checkpoint", client, lambda r: r.completed > 0, START_LIMIT_S)
        Watch(spark).follow(client, args.number("warm_up_s"))
        watch, before = Watch(spark), rows_of_calls(client.report())
        started = time.monotonic()
        after = rows_of_calls(watch.follow(client, args.number("seconds")))
        elapsed = time.monotonic() - started
        client.cancel().result(END_LIMIT_MS / 1000)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    durations = [c.duration_ms for c in watch.checkpoints.values() if c.duration_ms is not None]
    limit = args.whole("parallelism") * args.whole("capacity") * 1000 / args.number("call_ms")
    rate = (after - before) / elapsed
    return {
        "peer": "penstock",
        "workload": "async",
        "options": args.options,
        "capacity": args.whole("capacity"),
        "call_ms": args.number("call_ms"),
        "rows_per_s": round(rate),
        "share_of_limit": round(rate / limit, 3),
        "completed": len(durations),
        "duration_ms_p50": quantile(durations, 0.5),
        "duration_ms_p90": quantile(durations, 0.9),
        "inflight_bytes_p50": quantile([c.inflight_bytes for c in watch.checkpoints.values()], 0.5),
    }


if __name__ == "__main__":
    print_result(measure(parse_arguments(sys.argv[1:], DEFAULTS)))
