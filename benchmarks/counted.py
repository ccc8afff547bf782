"""The pipeline of the benchmarks that kill: a keyed count whose rows go to exactly-once Parquet files.

Each row of the source comes out once, and the counts of each key are 1, 2, 3, …: that is what `is_exact` checks.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset

from measuring import PRESSURE_ROW, generate_pressure, keys_of
from penstock.common import Types, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.datastream.connectors.file_system import FileSink, ParquetBulkWriters
from penstock.datastream.state import ValueStateDescriptor
from sinks import TracedSink, first_after, moments

COUNTED = Types.ROW_NAMED(["index", "key", "count"], [Types.LONG(), Types.LONG(), Types.LONG()])
RECOVERY_LIMIT_S = 60.0
RESTARTS_AT_ONCE = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "0 ms",
}


class Count(KeyedProcessFunction):
    """Asleep for `sleep_us` per row."""

    def __init__(self, sleep_us: int) -> None:
        self.seconds = sleep_us / 1e6

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: tuple[Any, ...], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int, int]]:
        if self.seconds:
            time.sleep(self.seconds)
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[0], value[1], count


@dataclass(frozen=True)
class Home:
    """A benchmark's folder: what the sink writes, the traces of its writers, and checkpoints."""

    path: Path

    @property
    def output(self) -> Path:
        return self.path / "output"

    @property
    def trace(self) -> Path:
        return self.path / "trace"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"


def declare(
    env: StreamExecutionEnvironment, home: Home, rows: int, rows_per_s: float | None = None, sleep_us: int = 0
) -> None:
    home.trace.mkdir(parents=True, exist_ok=True)
    source = BatchGeneratorSource(generate_pressure, rows, PRESSURE_ROW, rows_per_second=rows_per_s)
    files = FileSink.for_bulk_format(str(home.output), ParquetBulkWriters.for_row_type(COUNTED)).build()
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "source")
        .rebalance()
        .map(lambda row: row, output_type=PRESSURE_ROW)
        .name("map")
        .key_by(lambda row: row[1], key_type=Types.LONG())
        .process(Count(sleep_us), output_type=COUNTED)
        .name("count")
        .sink_to(TracedSink(files, home.trace))
    )


def incarnations(trace: Path) -> set[str]:
    return {m.incarnation for kind in ("write", "commit") for m in moments(trace, kind)}


def kill_and_time(home: Home, victims: Sequence[int]) -> tuple[float, float]:
    """SIGKILLs processes; milliseconds from there to the first row at a sink's writer, and to the first commit."""
    known = incarnations(home.trace)
    killed_ns = time.monotonic_ns()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    written = first_after("write", home.trace, known, RECOVERY_LIMIT_S)
    committed = first_after("commit", home.trace, known, RECOVERY_LIMIT_S)
    if written is None or committed is None:
        sys.exit(f"nothing new at a sink within {RECOVERY_LIMIT_S:g} s of the SIGKILL of {victims}")
    return (written.monotonic_ns - killed_ns) / 1e6, (committed.monotonic_ns - killed_ns) / 1e6


def is_exact(output: Path, rows: int) -> bool:
    table = pyarrow.dataset.dataset(output, format="parquet").to_table()
    if table.num_rows != rows:
        return False
    order = np.argsort(table["index"].to_numpy(), kind="stable")
    indices, keys = table["index"].to_numpy()[order], table["key"].to_numpy()[order]
    if not np.array_equal(indices, np.arange(rows)) or not np.array_equal(keys, keys_of(indices)):
        return False
    counts = table["count"].to_numpy()[order]
    by_key = np.lexsort((counts, keys))
    starts = np.flatnonzero(np.diff(keys[by_key], prepend=-1))
    lengths = np.diff(starts, append=rows)
    expected = np.arange(rows) - np.repeat(starts, lengths) + 1
    return bool(np.array_equal(counts[by_key], expected))
