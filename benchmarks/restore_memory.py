"""Measures how much memory a restore of much in-flight data takes.

    restore_memory.py [megabytes=1024] [parallelism=2] [any.option=...]

A job with windows and queues of a fixed size is stopped in the middle, when so much is in flight, by an unaligned
savepoint; a new job with the usual bounds starts from it, and reads what was in flight. Its slots are compared with
those of the first job before it had rows. Prints one line of JSON last.
"""

from __future__ import annotations

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
    rss_bytes,
    wait_until,
)
from penstock.common import Types, WatermarkStrategy
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.spark.session import open_session

DEFAULTS = {"megabytes": "1024", "parallelism": "2"}
WIDE = Types.TUPLE([Types.LONG(), Types.STRING()])
ROW_BYTES = 2_000
FILL_LIMIT_S = 240.0
SAMPLE_S = 0.02


def wide(first: int, count: int) -> pa.RecordBatch:
    numbers = pa.array(np.arange(first, first + count))
    return pa.RecordBatch.from_arrays([numbers, pa.array(["x" * ROW_BYTES] * count)], schema=WIDE.schema)


def slowly(row: tuple[int, str]) -> int:
    time.sleep(0.0005)
    return row[0]


def declare(env: StreamExecutionEnvironment) -> None:
    source = BatchGeneratorSource(wide, type_info=WIDE)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "source", type_info=WIDE).uid("source")
    slow = stream.rebalance().map(slowly, output_type=Types.LONG()).name("slow").uid("slow")
    slow.sink_to(DiscardingSink()).uid("sink")


def slots_bytes(client: JobClient) -> list[int]:
    return [rss_bytes(pid) or 0 for pid in client.report().slot_pids if pid is not None]


def measure(args: Arguments) -> dict[str, Any]:
    parallelism, in_flight_bytes = args.whole("parallelism"), args.whole("megabytes") << 20
    folder = Path(tempfile.mkdtemp(prefix="penstock-restore-"))
    defaults = {
        "parallelism.default": str(parallelism),
        "execution.checkpointing.interval": "10 min",
        "execution.checkpointing.timeout": "10 min",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
    }
    share = f"{in_flight_bytes // (2 * parallelism)} b"
    large = {
        "taskmanager.network.memory.buffer-debloat.enabled": "false",
        "penstock.network.window-bytes": share,
        "penstock.network.output-queue-bytes": share,
    }
    spark = open_session("penstock benchmark", parallelism).context
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults | large, args.options))
        declare(env)
        client = env.execute_async("fills up")
        wait_until("running job", client, lambda r: r.state == "RUNNING", START_LIMIT_S)
        idle_bytes = slots_bytes(client)
        until, full_bytes = time.monotonic() + FILL_LIMIT_S, 0
        while full_bytes < sum(idle_bytes) + in_flight_bytes and time.monotonic() < until:
            time.sleep(0.5)
            full_bytes = sum(slots_bytes(client))
        savepoint = client.stop_with_savepoint(False, str(folder / "savepoint")).result(END_LIMIT_MS * 10 / 1000)
        stored_bytes = sum(file.stat().st_size for file in Path(savepoint.removeprefix("file://")).rglob("*"))
        started = {"execution.state-recovery.path": savepoint}
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults | started, args.options))
        declare(env)
        began = time.monotonic()
        client = env.execute_async("reads what was in flight")
        peak_bytes: list[int] = [0] * parallelism
        running_s = None
        while running_s is None or time.monotonic() - began < running_s + 10.0:
            found_bytes = slots_bytes(client)
            if len(found_bytes) == parallelism:
                peak_bytes = [max(pair) for pair in zip(peak_bytes, found_bytes, strict=True)]
            if running_s is None and client.report().state == "RUNNING":
                running_s = time.monotonic() - began
            time.sleep(SAMPLE_S)
        client.cancel().result(END_LIMIT_MS / 1000)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    above = [peak - idle for peak, idle in zip(sorted(peak_bytes), sorted(idle_bytes), strict=True)]
    return {
        "peer": "penstock",
        "workload": "restore memory",
        "options": args.options,
        "savepoint_bytes": stored_bytes,
        "full_rss_bytes": full_bytes,
        "idle_rss_bytes": idle_bytes,
        "peak_rss_bytes": peak_bytes,
        "running_after_s": running_s,
        "above_idle_mb": max(above) / 2**20,
        "above_idle_all_mb": sum(above) / 2**20,
    }


if __name__ == "__main__":
    print_result(measure(parse_arguments(sys.argv[1:], DEFAULTS)))
