"""Measures what busy processes cost a columnar stream, beyond the processor time that they take.

    neighbours.py [busy=4,24] [rounds=4] [block_s=6] [settle_s=2] [warm_up_s=10] [keys=10000] [parallelism=2]
                  [any.option=...]

One run of the pipeline of `throughput.py workload=reduce`, without an end. Blocks without other processes and blocks
beside 4 and 24 processes that compute without pause take turns; each block begins after `settle_s`. A block's figure
is the rows per second that the slots' processes computed. Each round gives a ratio per number of processes: its block's
figure over the mean of the two quiet blocks around it. Prints one line of JSON last.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measuring import END_LIMIT_MS, START_LIMIT_S, configured, parse_arguments, print_result, wait_until
from overhead import cpu_of
from penstock.common import WatermarkStrategy
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.spark.session import open_session
from sinks import CountingSink, counted
from throughput import NAMED, Generate

DEFAULTS = {
    "busy": "4,24",
    "rounds": "4",
    "block_s": "6",
    "settle_s": "2",
    "warm_up_s": "10",
    "keys": "10000",
    "parallelism": "2",
}


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Runs `count` processes that compute without pause."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def rows_per_cpu_second(client: JobClient, counts: Path, busy: int, settle_s: float, block_s: float) -> float:
    """Runs one block. Returns the rows per second that the slots computed in it."""
    with busy_processes(busy):
        time.sleep(settle_s)
        slots = client.report().slot_pids
        rows, cpu_s = counted(counts).rows, cpu_of(slots)
        time.sleep(block_s)
        rows = counted(counts).rows - rows
        cpu_s = cpu_of(slots) - cpu_s
    if not cpu_s:
        sys.exit("the slots' processor time cannot be read: this benchmark needs /proc")
    return rows / cpu_s


def main() -> None:
    args = parse_arguments(sys.argv[1:], DEFAULTS)
    numbers = [int(n) for n in args.values["busy"].split(",")]
    home = Path(tempfile.mkdtemp(prefix="penstock-neighbours-"))
    defaults = {"parallelism.default": args.values["parallelism"], "pipeline.object-reuse": "true"}
    spark = open_session("penstock benchmark", args.whole("parallelism")).context
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        source = BatchGeneratorSource(Generate(args.whole("keys"), NAMED.schema), None, NAMED)
        rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "source")
        rows.key_by("key").sum("value").sink_to(CountingSink(home, "sum_value"))
        client = env.execute_async("neighbours")
        wait_until("first rows", client, lambda r: counted(home).rows > 0, START_LIMIT_S)
        time.sleep(args.number("warm_up_s"))
        figures = measure(client, home, numbers, args.whole("rounds"), args.number("settle_s"), args.number("block_s"))
        client.cancel().result(END_LIMIT_MS / 1000)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    print_result({"peer": "penstock", "workload": "neighbours", "options": args.options, **figures})


def measure(
    client: JobClient, counts: Path, numbers: list[int], rounds: int, settle_s: float, block_s: float
) -> dict[str, Any]:
    quiet = [rows_per_cpu_second(client, counts, 0, settle_s, block_s)]
    ratios: dict[int, list[float]] = {n: [] for n in numbers}
    for _ in range(rounds):
        for n in numbers:
            beside = rows_per_cpu_second(client, counts, n, settle_s, block_s)
            quiet.append(rows_per_cpu_second(client, counts, 0, settle_s, block_s))
            ratios[n].append(2 * beside / (quiet[-2] + quiet[-1]))
    found: dict[str, Any] = {"rows_per_cpu_s": round(statistics.median(quiet))}
    for n, values in ratios.items():
        found[f"ratio_beside_{n}"] = round(statistics.median(values), 3)
        found[f"ratios_beside_{n}"] = [round(v, 3) for v in values]
    return found


if __name__ == "__main__":
    main()
