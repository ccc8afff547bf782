"""Measures how long a job under pressure stands still when it is rescaled, and whether its results are exact.

    live_rescale.py [turns=4] [rows=60000] [sleep_us=1000] [parallelism=2] [more=3] [any.option=...]

A keyed count that sleeps for each row is slower than its source; its rows go to exactly-once Parquet files
(counted.py). The job is rescaled from `parallelism` to `more` and back, `turns` times. `*_ms`: from the request to the
first row that a sink's writer of the new generation is given. Prints one line of JSON last.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from counted import RECOVERY_LIMIT_S, Home, declare, incarnations, is_exact
from measuring import START_LIMIT_S, Arguments, configured, parse_arguments, print_result, quantile, wait_until
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.spark.session import open_session
from sinks import first_after

DEFAULTS = {"turns": "4", "rows": "60000", "sleep_us": "1000", "parallelism": "2", "more": "3"}
SETTLE_S = 1.5
FINISH_LIMIT_S = 300.0


def rescale_and_time(client: JobClient, home: Home, parallelism: int) -> float:
    """Rescale the job; return the milliseconds from the request to the first row of the new generation at a sink."""
    known = incarnations(home.trace)
    asked_ns = time.monotonic_ns()
    rescaled = client.rescale(parallelism)
    written = first_after("write", home.trace, known, RECOVERY_LIMIT_S)
    rescaled.result(RECOVERY_LIMIT_S)
    if written is None:
        sys.exit(f"nothing new at a sink within {RECOVERY_LIMIT_S:g} s of the request for parallelism {parallelism}")
    return (written.monotonic_ns - asked_ns) / 1e6


def measure(args: Arguments) -> dict[str, Any]:
    fewer, more, rows = args.whole("parallelism"), args.whole("more"), args.whole("rows")
    home = Home(Path(tempfile.mkdtemp(prefix="penstock-live-rescale-")))
    defaults = {
        "parallelism.default": args.values["parallelism"],
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.dir": home.checkpoints.as_uri(),
    }
    spark = open_session("penstock benchmark", more).context
    up_ms: list[float] = []
    down_ms: list[float] = []
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        declare(env, home, rows, sleep_us=args.whole("sleep_us"))
        client = env.execute_async("live rescale")
        wait_until("first checkpoint", client, lambda r: r.completed > 0, START_LIMIT_S)
        for _ in range(args.whole("turns")):
            time.sleep(SETTLE_S)
            up_ms.append(rescale_and_time(client, home, more))
            time.sleep(SETTLE_S)
            down_ms.append(rescale_and_time(client, home, fewer))
        report = wait_until("end of input", client, lambda r: r.state == "FINISHED", FINISH_LIMIT_S)
        exact = is_exact(home.output, rows)
    finally:
        spark.stop()
        shutil.rmtree(home.path, ignore_errors=True)
    return {
        "peer": "penstock",
        "workload": "live-rescale",
        "options": args.options,
        "rows": rows,
        "rescales": len(report.rescales),
        "up_ms_p50": quantile(up_ms, 0.5),
        "up_ms_max": quantile(up_ms, 1.0),
        "down_ms_p50": quantile(down_ms, 0.5),
        "down_ms_max": quantile(down_ms, 1.0),
        "exact": exact,
    }


if __name__ == "__main__":
    result = measure(parse_arguments(sys.argv[1:], DEFAULTS))
    print_result(result)
    sys.exit(0 if result["exact"] else 1)
