"""Workload "read-modify-write" on Penstock: the twin of `peers/peer flink-state` and `peer pyflink-state`.

    keyed_state.py [keys=10000000] [rows=20000000] [functions=columns|python] [parallelism=2] [any.option=...]

A rolling sum per key of 100 bytes, on RocksDB: every row reads the value of its key, and writes it. All keys come once,
then again and again, in an order that is spread over all of them. `functions=python` keeps the sum in value state of a
Python function. As in the peers, `seconds` is what `execute()` takes. `slot_rss_bytes_max` is the most that a slot's
process had resident, and `disk_bytes_max` the most that all slots had on the disk, looked at once a second. `exact`:
the rows that came out are as many as they must be, and so is their sum. Prints one line of JSON last.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from measuring import HEX_PAIRS, Arguments, configured, parse_arguments, print_result, rss_bytes, scattered
from penstock.common import Types, WatermarkStrategy
from penstock.datastream import JobClient, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.spark.session import open_session
from sinks import CountingSink, counted
from throughput import expected

DEFAULTS = {"keys": "10000000", "rows": "20000000", "functions": "columns", "parallelism": "2"}
CHOICES = {"functions": ("columns", "python")}
KEY_CHARS = 100
MULTIPLIER = 0x9E37_79B9_7F4A_7C15
NAMED = Types.ROW_NAMED(["key", "value"], [Types.STRING(), Types.LONG()])
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def key_texts(numbers: np.ndarray) -> pa.StringArray:
    """A number times a constant, modulo 2^64, as 16 hex digits, repeated to 100."""
    words = (numbers.astype(np.uint64) * np.uint64(MULTIPLIER)).astype(">u8")
    digits = np.tile(HEX_PAIRS[words.view(np.uint8)].view(np.uint8).reshape(len(numbers), 16), 7)[:, :KEY_CHARS]
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * KEY_CHARS
    characters = pa.py_buffer(np.ascontiguousarray(digits))
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), characters)


@dataclass(frozen=True)
class Generate:
    """(the text of index * 2654435761 mod keys, 1), as in peers/flink/KeyedState.java."""

    keys: int

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        numbers = scattered(np.arange(first, first + count, dtype=np.int64), self.keys)
        return pa.RecordBatch.from_arrays([key_texts(numbers), pa.array(np.ones(count, np.int64))], schema=NAMED.schema)


class Total(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[int]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield total


def declare(env: StreamExecutionEnvironment, args: Arguments, folder: Path) -> None:
    keys, rows, now = args.whole("keys"), args.whole("rows"), WatermarkStrategy.no_watermarks()
    if args.values["functions"] == "columns":
        source = env.from_source(BatchGeneratorSource(Generate(keys), rows, NAMED), now, "source")
        source.key_by("key").sum("value").sink_to(CountingSink(folder, "sum_value"))
        return
    numbers = env.from_source(NumberSequenceSource(0, rows - 1), now, "source")
    pairs = numbers.map(lambda i: ((f"{i * 2654435761 % keys * MULTIPLIER % 2**64:016x}" * 7)[:KEY_CHARS], 1), PAIR)
    pairs.key_by(lambda row: row[0], Types.STRING()).process(Total(), Types.LONG()).sink_to(CountingSink(folder, 0))


class Watch(threading.Thread):
    """Looks once a second at the memory of the slots, and at what lies below `local`, until `over` is set."""

    def __init__(self, client: JobClient, local: Path) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._local = local
        self.over = threading.Event()
        self.rss_bytes_max = self.disk_bytes_max = 0

    def run(self) -> None:
        while not self.over.wait(1.0):
            report = self._client.report()
            for pid in report.slot_pids if report is not None else ():
                self.rss_bytes_max = max(self.rss_bytes_max, (rss_bytes(pid) or 0) if pid else 0)
            self.disk_bytes_max = max(self.disk_bytes_max, size_of(self._local))


def size_of(folder: Path) -> int:
    """Return what the files below a folder take, while others make and delete them."""
    found = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                found += os.stat(os.path.join(directory, name)).st_size
    return found


def measure(args: Arguments) -> dict[str, Any]:
    rows, keys = args.whole("rows"), args.whole("keys")
    folder = Path(tempfile.mkdtemp(prefix="penstock-keyed-state-"))
    defaults = {
        "parallelism.default": args.values["parallelism"],
        "pipeline.object-reuse": "true",
        "state.backend.type": "rocksdb",
        "state.backend.rocksdb.localdir": str(folder / "rocksdb"),
    }
    spark = open_session("penstock benchmark", args.whole("parallelism")).context
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        declare(env, args, folder)
        started = time.monotonic()
        client = env.execute_async("keyed state")
        watch = Watch(client, folder / "rocksdb")
        watch.start()
        client.wait()
        seconds = time.monotonic() - started
        watch.over.set()
        found = counted(folder)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "peer": "penstock",
        "workload": "read-modify-write",
        "functions": args.values["functions"],
        "options": args.options,
        "rows": rows,
        "keys": keys,
        "parallelism": args.whole("parallelism"),
        "seconds": round(seconds, 3),
        "rows_per_s": round(rows / seconds),
        "slot_rss_bytes_max": watch.rss_bytes_max,
        "disk_bytes_max": watch.disk_bytes_max,
        "exact": found == expected("reduce", rows, keys),
    }


if __name__ == "__main__":
    result = measure(parse_arguments(sys.argv[1:], DEFAULTS, CHOICES))
    print_result(result)
    sys.exit(0 if result["exact"] else 1)
