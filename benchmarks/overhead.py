"""Measures what a checkpoint each second costs in throughput.

    overhead.py [seconds=600] [block_s=1] [per_second=1] [precision=0.01] [warm_up_s=15] [parallelism=2]
                [any.option=...]

One run of the pressure pipeline without its pause. Blocks with a checkpoint each second and blocks with none take
turns as ABBA, BAAB, …, so that warm-up and drift, of rising or falling speed alike, fall on both. Each four blocks give
a ratio, the rows of both with over those of both without; the run ends when the 95 % interval of the ratios' median is
within ± `precision`, or after `seconds`. A block is a whole number of seconds, with `per_second` checkpoints spread
over each. Short blocks tell more in the same time: what disturbs a machine lasts longer than they do, and so disturbs
both sides. `ratio_sd` is the spread of the ratios.

More checkpoints than one in a second cost more, while the machine disturbs the run as much as before; `ratio_per_one`
is 1 less the cost of one of them, so that its interval is narrower by their number. This supposes that one alone costs
no more than the mean of many, which calls with 1, 2 and 4 can show. `cpu_ratio` is the same as `ratio` of rows per
second that the slots computed: less than what is claimed, for it does not see a stream that waits, but hardly disturbed
by other programs. Rows are counted in a page of memory that the sinks share with this process. Prints one line of JSON
last.
"""

from __future__ import annotations

import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import (
    END_LIMIT_MS,
    START_LIMIT_S,
    Arguments,
    configured,
    cpu_seconds,
    median_interval,
    parse_arguments,
    print_result,
    wait_until,
)
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.spark.session import open_session
from pressure import declare
from sinks import CountingSink, counted

DEFAULTS = {
    "seconds": "600",
    "block_s": "1",
    "per_second": "1",
    "precision": "0.01",
    "warm_up_s": "15",
    "parallelism": "2",
}
QUADS_MIN = 8


@dataclass(frozen=True)
class Block:
    with_checkpoints: bool
    rows: int
    seconds: float
    cpu_s: float
    """Of the slots; 0 where that cannot be known."""

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds


def run_block(client: JobClient, counts: Path, seconds: int, per_second: int) -> Block:
    """Run a block with so many checkpoints in each of its seconds: one is in the middle, two are at a quarter and three
    …"""
    slots = client.report().slot_pids
    started, rows_before, cpu_before_s = time.monotonic(), counted(counts).rows, cpu_of(slots)
    triggers = [started + (n + 0.5) / per_second for n in range(seconds * per_second)]
    for at in [*triggers, started + seconds]:
        time.sleep(max(0.0, at - time.monotonic()))
        if at in triggers:
            client.trigger_checkpoint()
    rows = counted(counts).rows - rows_before
    return Block(per_second > 0, rows, time.monotonic() - started, cpu_of(slots) - cpu_before_s)


def cpu_of(slots: Iterable[int | None]) -> float:
    """Return what the slots' processes have computed for. None: a slot that is missing just now."""
    return sum(cpu_seconds(pid) or 0.0 for pid in slots if pid is not None)


def wall(block: Block) -> float:
    return block.seconds


def cpu(block: Block) -> float:
    return block.cpu_s


def ratio_of(quad: list[Block], cost: Callable[[Block], float]) -> float:
    """Rows per cost with checkpoints over those without."""
    on, off = ([b for b in quad if b.with_checkpoints is side] for side in (True, False))
    rate_on, rate_off = (sum(b.rows for b in side) / sum(cost(b) for b in side) for side in (on, off))
    return rate_on / rate_off


def spread(name: str, ratios: list[float]) -> dict[str, float | None]:
    low, high = median_interval(ratios)
    is_bounded = math.isfinite(low)
    return {
        name: round(statistics.median(ratios), 4),
        f"{name}_sd": round(statistics.stdev(ratios), 4) if len(ratios) > 1 else None,
        f"{name}_low": round(low, 4) if is_bounded else None,
        f"{name}_high": round(high, 4) if is_bounded else None,
        f"{name}_half_width": round((high - low) / 2, 4) if is_bounded else None,
    }


def measure_quads(client: JobClient, counts: Path, args: Arguments) -> list[list[Block]]:
    block_s, per_second, precision = args.whole("block_s"), args.whole("per_second"), args.number("precision")
    deadline = time.monotonic() + args.number("seconds")
    quads: list[list[Block]] = []
    while time.monotonic() < deadline:
        first = len(quads) % 2 == 0
        order = (first, not first, not first, first)
        quads.append([run_block(client, counts, block_s, per_second if on else 0) for on in order])
        low, high = median_interval([ratio_of(quad, wall) for quad in quads])
        if len(quads) >= QUADS_MIN and (high - low) / 2 <= precision * per_second:
            break
    return quads


def measure(args: Arguments) -> dict[str, Any]:
    if args.whole("block_s") < 1:
        sys.exit("block_s: a block holds whole checkpoint periods, so it is 1, 2, … seconds long")
    if args.whole("per_second") < 1:
        sys.exit("per_second: at least one checkpoint in a second, or there is nothing to measure")
    home = Path(tempfile.mkdtemp(prefix="penstock-overhead-"))
    counts = home / "counts"
    counts.mkdir()
    defaults = {
        "parallelism.default": args.values["parallelism"],
        # Checkpoints are on, and come when they are asked for.
        "execution.checkpointing.interval": "10 h",
        "execution.checkpointing.dir": (home / "checkpoints").as_uri(),
    }
    spark = open_session("penstock benchmark", args.whole("parallelism")).context
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        declare(env, sleep_us=0, busy=False, sink=CountingSink(counts))
        client = env.execute_async("overhead")
        wait_until("first rows", client, lambda r: counted(counts).rows > 0, START_LIMIT_S)
        time.sleep(args.number("warm_up_s"))
        before = client.report().completed
        quads = measure_quads(client, counts, args)
        report = client.report()
        client.cancel().result(END_LIMIT_MS / 1000)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    rates = {on: [b.rows_per_s for quad in quads for b in quad if b.with_checkpoints is on] for on in (True, False)}
    per_second, ratios = args.whole("per_second"), [ratio_of(quad, wall) for quad in quads]
    has_cpu = all(block.cpu_s for quad in quads for block in quad)
    return {
        "peer": "penstock",
        "workload": "overhead",
        "options": args.options,
        "block_s": args.whole("block_s"),
        "per_second": per_second,
        "quads": len(quads),
        "checkpoints": report.completed - before,
        "failed": report.failed,
        "rows_per_s_with": round(statistics.median(rates[True])),
        "rows_per_s_without": round(statistics.median(rates[False])),
        **spread("ratio", ratios),
        **spread("ratio_per_one", [1 - (1 - ratio) / per_second for ratio in ratios]),
        **(spread("cpu_ratio", [ratio_of(quad, cpu) for quad in quads]) if has_cpu else {}),
    }


if __name__ == "__main__":
    print_result(measure(parse_arguments(sys.argv[1:], DEFAULTS)))
