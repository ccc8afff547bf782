"""A crash under backpressure, and the job goes on at another parallelism: how soon, and is the result exact?

    rescale.py [cases=2-3,3-2,1-4,4-1] [rows=24000] [sleep_us=500] [any.option=...]

A program whose keyed operator is too slow by far takes unaligned checkpoints. Once one of them holds in-flight data,
the program (the driver) is killed with SIGKILL, and started anew at the other parallelism. `restore_ms`: from the start
of the second program, an interpreter without anything loaded, to the first row that a sink's writer is given. `exact`:
each row of the source has come out once, and each key's counts are 1, 2, 3, …. Prints one line of JSON last.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from counted import RECOVERY_LIMIT_S, RESTARTS_AT_ONCE, Home, declare, incarnations, is_exact
from measuring import POLL_S, START_LIMIT_S, Arguments, configured, parse_arguments, print_result, wait_until
from penstock.datastream import StreamExecutionEnvironment
from penstock.spark.session import open_session
from sinks import first_after

DEFAULTS = {"cases": "2-3,3-2,1-4,4-1", "rows": "24000", "sleep_us": "500", "home": "", "parallelism": "2"}
CHECKPOINTS_MIN = 3
END_LIMIT_S = 300.0
JOB_ID = "00000000000000000000000000be4c4a"


# ---- the program that is killed, and resumed ---------------------------------------------------------------------


def run_program(args: Arguments) -> None:
    """Prints a line with the in-flight bytes of its newest checkpoint once there are some."""
    home = Home(Path(args.values["home"]))
    defaults = {
        "parallelism.default": args.values["parallelism"],
        "pipeline.max-parallelism": "128",
        "execution.checkpointing.interval": "200 ms",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.dir": home.checkpoints.as_uri(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        **RESTARTS_AT_ONCE,
    }
    open_session("penstock benchmark", args.whole("parallelism"))
    env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
    declare(env, home, args.whole("rows"), sleep_us=args.whole("sleep_us"))
    client = env.execute_async("rescale")
    report = wait_until(
        "checkpoint with in-flight data",
        client,
        lambda r: (r.completed >= CHECKPOINTS_MIN and inflight_bytes(r) > 0) or r.state == "FINISHED",
        START_LIMIT_S,
    )
    print(json.dumps({"inflight_bytes": inflight_bytes(report)}), flush=True)
    client.wait(END_LIMIT_S * 1000)


def inflight_bytes(report: Any) -> int:
    done = [c for c in report.checkpoints if c.status == "completed"]
    return done[-1].inflight_bytes if done else 0


# ---- the crash ---------------------------------------------------------------------------------------------------


@contextmanager
def program(args: Arguments, home: Home, parallelism: int, **options: str) -> Iterator[subprocess.Popen[str]]:
    """Killed at the end, if it still runs."""
    values = {
        "home": str(home.path),
        "parallelism": str(parallelism),
        "rows": args.values["rows"],
        "sleep_us": args.values["sleep_us"],
        **args.options,
        **options,
    }
    command = [sys.executable, __file__, *(f"{key}={value}" for key, value in values.items())]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def measure_case(args: Arguments, before: int, after: int) -> dict[str, Any]:
    rows = args.whole("rows")
    home = Home(Path(tempfile.mkdtemp(prefix="penstock-rescale-")))
    fresh, resumed = {"pipeline.job-id": JOB_ID}, {"execution.state-recovery.path": str(home.checkpoints / JOB_ID)}
    try:
        with program(args, home, before, **fresh) as first:
            line = first.stdout.readline() if first.stdout else ""
        if not line:
            sys.exit(f"{before}-{after}: the first program ended before a checkpoint with in-flight data")
        known = incarnations(home.trace)
        started_ns = time.monotonic_ns()
        with program(args, home, after, **resumed) as second:
            written = first_after("write", home.trace, known, RECOVERY_LIMIT_S)
            ended = wait_for_end(second)
        return {
            "case": f"{before}-{after}",
            "inflight_bytes": json.loads(line)["inflight_bytes"],
            "restore_ms": round((written.monotonic_ns - started_ns) / 1e6, 3) if written else None,
            "exact": ended == 0 and is_exact(home.output, rows),
        }
    finally:
        shutil.rmtree(home.path, ignore_errors=True)


def wait_for_end(running: subprocess.Popen[str]) -> int | None:
    """Return its exit code; None: it did not end in time."""
    deadline = time.monotonic() + END_LIMIT_S
    while running.poll() is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return running.returncode


def measure(args: Arguments) -> dict[str, Any]:
    cases = [case.split("-") for case in args.values["cases"].split(",")]
    found = [measure_case(args, int(before), int(after)) for before, after in cases]
    restored = [case["restore_ms"] for case in found if case["restore_ms"] is not None]
    return {
        "peer": "penstock",
        "workload": "rescale",
        "options": args.options,
        "rows": args.whole("rows"),
        "cases": found,
        "restore_ms_max": max(restored) if len(restored) == len(found) else None,
        "inflight_bytes_min": min(case["inflight_bytes"] for case in found),
        "exact": all(case["exact"] for case in found),
    }


if __name__ == "__main__":
    arguments = parse_arguments(sys.argv[1:], DEFAULTS)
    if arguments.values["home"]:
        run_program(arguments)
    else:
        result = measure(arguments)
        print_result(result)
        sys.exit(0 if result["exact"] else 1)
