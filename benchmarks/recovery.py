"""Measures how long a job stands still when a slot's Python process is killed with SIGKILL, and whether its results are
exact.

    recovery.py [seconds=60] [kills=10] [rows_per_s=20000] [parallelism=2] [any.option=...]

A paced source feeds a keyed count whose rows go to exactly-once Parquet files (counted.py). `recovery_ms`: from the
kill to the first row that a sink's writer of the new generation is given; `committed_ms`: to the first commit of such
rows. Prints one line of JSON last.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from counted import RESTARTS_AT_ONCE, Home, declare, is_exact, kill_and_time
from measuring import START_LIMIT_S, Arguments, configured, parse_arguments, print_result, quantile, wait_until
from penstock.datastream import StreamExecutionEnvironment
from penstock.spark.session import open_session

DEFAULTS = {"seconds": "60", "kills": "10", "rows_per_s": "20000", "parallelism": "2"}
SETTLE_S = 1.5
FINISH_LIMIT_S = 300.0


def measure(args: Arguments) -> dict[str, Any]:
    rows_per_s, kills = args.number("rows_per_s"), args.whole("kills")
    rows = int(args.number("seconds") * rows_per_s)
    home = Home(Path(tempfile.mkdtemp(prefix="penstock-recovery-")))
    defaults = {
        "parallelism.default": args.values["parallelism"],
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.dir": home.checkpoints.as_uri(),
        **RESTARTS_AT_ONCE,
    }
    spark = open_session("penstock benchmark", args.whole("parallelism")).context
    recovered: list[float] = []
    committed: list[float] = []
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        declare(env, home, rows, rows_per_s)
        client = env.execute_async("recovery")
        wait_until("first checkpoint", client, lambda r: r.completed > 0, START_LIMIT_S)
        for number in range(kills):
            time.sleep(SETTLE_S)
            report = client.report()
            if report.state != "RUNNING":
                break
            to_row_ms, to_commit_ms = kill_and_time(home, [report.slot_pids[number % len(report.slot_pids)]])
            recovered.append(to_row_ms)
            committed.append(to_commit_ms)
        report = wait_until("end of input", client, lambda r: r.state == "FINISHED", FINISH_LIMIT_S)
        exact = is_exact(home.output, rows)
    finally:
        spark.stop()
        shutil.rmtree(home.path, ignore_errors=True)
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
