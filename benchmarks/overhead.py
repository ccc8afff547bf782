"""What a checkpoint each second costs in throughput.

    overhead.py [seconds=600] [block_s=5] [precision=0.01] [warm_up_s=15] [parallelism=2] [any.option=...]

One run of the pressure pipeline without its pause. Blocks with a checkpoint each second and blocks with none take
turns (on, off, off, on, …), so that warm-up and drift fall on both. Each neighbouring pair gives a ratio; the run
ends when the 95 % interval of their median is within ± `precision`, or after `seconds`. Rows are counted in a page of
memory that the sinks share with this process. Prints one line of JSON last.
"""

from __future__ import annotations

import math
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import (
    END_LIMIT_MS,
    START_LIMIT_S,
    Arguments,
    configured,
    median_interval,
    parse_arguments,
    print_result,
    wait_until,
)
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.spark.session import open_session
from pressure import declare
from sinks import CountingSink, counted

DEFAULTS = {"seconds": "600", "block_s": "5", "precision": "0.01", "warm_up_s": "15", "parallelism": "2"}
CHECKPOINT_EACH_S = 1.0
PAIRS_MIN = 8


def block(client: JobClient, counts: Path, seconds: float, checkpoints: bool) -> float:
    """Rows per second over one block."""
    started, rows_before = time.monotonic(), counted(counts).rows
    next_trigger = started + CHECKPOINT_EACH_S / 2
    while (now := time.monotonic()) < started + seconds:
        if checkpoints and now >= next_trigger:
            client.trigger_checkpoint()
            next_trigger += CHECKPOINT_EACH_S
        time.sleep(max(0.0, min(next_trigger if checkpoints else started + seconds, started + seconds) - now))
    return (counted(counts).rows - rows_before) / (time.monotonic() - started)


def measure_pairs(client: JobClient, counts: Path, args: Arguments) -> list[tuple[float, float]]:
    """(rows per second with checkpoints, without)."""
    block_s, precision = args.number("block_s"), args.number("precision")
    deadline = time.monotonic() + args.number("seconds")
    pairs: list[tuple[float, float]] = []
    while time.monotonic() < deadline:
        on_first = len(pairs) % 2 == 0
        first = block(client, counts, block_s, checkpoints=on_first)
        second = block(client, counts, block_s, checkpoints=not on_first)
        pairs.append((first, second) if on_first else (second, first))
        low, high = median_interval([on / off for on, off in pairs])
        if len(pairs) >= PAIRS_MIN and (high - low) / 2 <= precision:
            break
    return pairs


def measure(args: Arguments) -> dict[str, Any]:
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
        pairs = measure_pairs(client, counts, args)
        report = client.report()
        client.cancel().result(END_LIMIT_MS / 1000)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    ratios = [on / off for on, off in pairs]
    low, high = median_interval(ratios)
    return {
        "peer": "penstock",
        "workload": "overhead",
        "options": args.options,
        "pairs": len(pairs),
        "checkpoints": report.completed - before,
        "failed": report.failed,
        "rows_per_s_with": round(statistics.median(on for on, _ in pairs)),
        "rows_per_s_without": round(statistics.median(off for _, off in pairs)),
        "ratio": round(statistics.median(ratios), 4),
        "ratio_low": round(low, 4) if math.isfinite(low) else None,
        "ratio_high": round(high, 4) if math.isfinite(high) else None,
    }


if __name__ == "__main__":
    print_result(measure(parse_arguments(sys.argv[1:], DEFAULTS)))
