"""How long a job stands still when a slot's Python process is killed with SIGKILL, and whether its results are exact.

    recovery.py [seconds=60] [kills=10] [rows_per_s=20000] [parallelism=2] [any.option=...]

A paced source feeds a keyed count whose rows go to exactly-once Parquet files. `recovery_ms`: from the kill to the
first row that a sink's writer of the new generation is given; `committed_ms`: to the first commit of such rows.
`exact`: each row of the source has come out once, and each key's counts are 1, 2, 3, … Prints one line of JSON last.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset

from measuring import (
    POLL_S,
    PRESSURE_ROW,
    START_LIMIT_S,
    Arguments,
    configured,
    generate_pressure,
    keys_of,
    parse_arguments,
    print_result,
    quantile,
    wait_until,
)
from penstock.common import Types, WatermarkStrategy
from penstock.datastream import JobClient, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.datastream.connectors.file_system import FileSink, ParquetBulkWriters
from penstock.datastream.state import ValueStateDescriptor
from penstock.spark.session import open_session
from sinks import Moment, TracedSink, moments

DEFAULTS = {"seconds": "60", "kills": "10", "rows_per_s": "20000", "parallelism": "2"}
SETTLE_S = 1.5
RECOVERY_LIMIT_S = 60.0
FINISH_LIMIT_S = 300.0
COUNTED = Types.ROW_NAMED(["index", "key", "count"], [Types.LONG(), Types.LONG(), Types.LONG()])


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: tuple[Any, ...], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[0], value[1], count


def declare(env: StreamExecutionEnvironment, rows: int, rows_per_s: float, output: Path, trace: Path) -> None:
    source = BatchGeneratorSource(generate_pressure, rows, PRESSURE_ROW, rows_per_second=rows_per_s)
    files = FileSink.for_bulk_format(str(output), ParquetBulkWriters.for_row_type(COUNTED)).build()
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "source", type_info=PRESSURE_ROW)
        .rebalance()
        .map(lambda row: row, output_type=PRESSURE_ROW)
        .name("map")
        .key_by(lambda row: row[1], key_type=Types.LONG())
        .process(Count(), output_type=COUNTED)
        .name("count")
        .sink_to(TracedSink(files, trace))
    )


def first_after(kind: str, trace: Path, known: set[str], limit_s: float) -> Moment | None:
    """The first moment of a generation that is not among the known ones."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        fresh = [m for m in moments(trace, kind) if m.incarnation not in known]
        if fresh:
            return fresh[0]
        time.sleep(POLL_S)
    return None


def kill_and_time(client: JobClient, trace: Path, victim: int) -> tuple[float, float]:
    """Milliseconds from the kill to the first row at a sink's writer, and to the first commit."""
    known = {m.incarnation for m in moments(trace, "write")} | {m.incarnation for m in moments(trace, "commit")}
    pids = client.report().slot_pids
    pid = pids[victim % len(pids)]
    killed_ns = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    written = first_after("write", trace, known, RECOVERY_LIMIT_S)
    committed = first_after("commit", trace, known, RECOVERY_LIMIT_S)
    if written is None or committed is None:
        sys.exit(f"kill {victim + 1}: nothing new at a sink within {RECOVERY_LIMIT_S:g} s; {client.report()}")
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


def measure(args: Arguments) -> dict[str, Any]:
    rows_per_s, kills = args.number("rows_per_s"), args.whole("kills")
    rows = int(args.number("seconds") * rows_per_s)
    home = Path(tempfile.mkdtemp(prefix="penstock-recovery-"))
    output, trace = home / "output", home / "trace"
    trace.mkdir()
    defaults = {
        "parallelism.default": args.values["parallelism"],
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.dir": (home / "checkpoints").as_uri(),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.fixed-delay.delay": "0 ms",
    }
    spark = open_session("penstock benchmark", args.whole("parallelism")).context
    recovered: list[float] = []
    committed: list[float] = []
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        declare(env, rows, rows_per_s, output, trace)
        client = env.execute_async("recovery")
        wait_until("first checkpoint", client, lambda r: r.completed > 0, START_LIMIT_S)
        for number in range(kills):
            time.sleep(SETTLE_S)
            if client.report().state != "RUNNING":
                break
            to_row_ms, to_commit_ms = kill_and_time(client, trace, number)
            recovered.append(to_row_ms)
            committed.append(to_commit_ms)
        report = wait_until("end of input", client, lambda r: r.state == "FINISHED", FINISH_LIMIT_S)
        exact = is_exact(output, rows)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    return {
        "peer": "penstock",
        "workload": "recovery",
        "options": args.options,
        "rows": rows,
        "kills": len(recovered),
        "restarts": report.restarts,
        "recovery_ms_p50": quantile(recovered, 0.5),
        "recovery_ms_max": round(max(recovered), 3) if recovered else None,
        "committed_ms_p50": quantile(committed, 0.5),
        "committed_ms_max": round(max(committed), 3) if committed else None,
        "exact": exact,
    }


if __name__ == "__main__":
    result = measure(parse_arguments(sys.argv[1:], DEFAULTS))
    print_result(result)
    sys.exit(0 if result["exact"] else 1)
