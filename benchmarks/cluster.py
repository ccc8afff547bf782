"""Measures how long a job stands still when an executor, a JVM with the slots in it, is killed with SIGKILL in
`local-cluster`.

    cluster.py [spares=0,1] [seconds=60] [kills=3] [rows_per_s=5000] [parallelism=2] [any.option=...]

Two runs: with as many executors of one core as slots (nothing is spare), and with one more, on which a spare slot
stands by. The job is that of recovery.py. `recovery_ms`: from the kill to the first row that a sink's writer of the new
generation is given. The next kill comes when everything is as it was before. `exact`: each row of the source has come
out once, and each key's counts are 1, 2, 3, …. Prints one line of JSON last.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext

from counted import RESTARTS_AT_ONCE, Home, declare, is_exact, kill_and_time
from measuring import (
    START_LIMIT_S,
    Arguments,
    configured,
    parse_arguments,
    print_result,
    quantile,
    wait_until,
)
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.monitoring.report import JobReport

DEFAULTS = {"spares": "0,1", "seconds": "60", "kills": "3", "rows_per_s": "5000", "parallelism": "2"}
EXECUTOR_MIB = 1024
FINISH_LIMIT_S = 300.0
SETTLE_S = 3.0


def start_cluster(executors: int) -> SparkContext:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.master": f"local-cluster[{executors},1,{EXECUTOR_MIB}]",
        "spark.app.name": "penstock benchmark",
        "spark.executor.memory": f"{EXECUTOR_MIB}m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    return SparkContext(conf=SparkConf().setAll(list(settings.items())))


def executor_of(pid: int) -> int:
    """The JVM that a slot's Python process descends from."""
    while pid > 1:
        # The name, in parentheses, may hold anything.
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if name == "java":
            return pid
        pid = int(rest.split()[1])
    raise LookupError("the slot's process has no JVM above it")


def is_settled(report: JobReport, spares: int) -> bool:
    """Return whether every slot is played in an executor of its own, and the spares are there."""
    pids = [pid for pid in (*report.slot_pids, *report.spare_pids) if pid is not None]
    if report.state != "RUNNING" or len(pids) < report.slots_needed + spares:
        return False
    try:
        return len({executor_of(pid) for pid in pids}) == report.slots_needed + spares
    except OSError:
        return False  # one of them has just died


def flush_held(client: JobClient, spares: int) -> bool:
    """Wait until everything is as before a kill. False where the job has ended."""
    ended = "FINISHED"
    wait_until("slot in each executor", client, lambda r: r.state == ended or is_settled(r, spares), START_LIMIT_S)
    completed = client.report().completed
    wait_until("checkpoint", client, lambda r: r.state == ended or r.completed > completed, START_LIMIT_S)
    time.sleep(SETTLE_S)
    return bool(client.report().state != ended)


def measure_kills(args: Arguments, spares: int) -> dict[str, Any]:
    parallelism, rows_per_s = args.whole("parallelism"), args.number("rows_per_s")
    rows = int(args.number("seconds") * rows_per_s)
    home = Home(Path(tempfile.mkdtemp(prefix="penstock-cluster-")))
    defaults = {
        "parallelism.default": str(parallelism),
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.dir": home.checkpoints.as_uri(),
        "slotmanager.redundant-taskmanager-num": str(spares),
        **RESTARTS_AT_ONCE,
    }
    context = start_cluster(parallelism + spares)
    recovered: list[float] = []
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        declare(env, home, rows, rows_per_s)
        client = env.execute_async("cluster")
        while len(recovered) < args.whole("kills") and flush_held(client, spares):
            pids = client.report().slot_pids
            to_row_ms, _ = kill_and_time(home, [executor_of(pids[len(recovered) % len(pids)])])
            recovered.append(to_row_ms)
        report = wait_until("end of input", client, lambda r: r.state == "FINISHED", FINISH_LIMIT_S)
        exact = is_exact(home.output, rows)
    finally:
        context.stop()
        shutil.rmtree(home.path, ignore_errors=True)
    return {
        "kills": len(recovered),
        "restarts": report.restarts,
        "recovery_ms_p50": quantile(recovered, 0.5),
        "recovery_ms_max": round(max(recovered), 3) if recovered else None,
        "exact": exact,
    }


def measure(args: Arguments) -> dict[str, Any]:
    runs = {int(spares): measure_kills(args, int(spares)) for spares in args.values["spares"].split(",")}
    return {
        "peer": "penstock",
        "workload": "cluster",
        "options": args.options,
        **{f"{field}_spares_{spares}": value for spares, run in runs.items() for field, value in run.items()},
        "exact": all(run["exact"] for run in runs.values()),
    }


if __name__ == "__main__":
    result = measure(parse_arguments(sys.argv[1:], DEFAULTS))
    print_result(result)
    sys.exit(0 if result["exact"] else 1)
