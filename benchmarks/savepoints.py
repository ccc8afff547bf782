"""Savepoints of workload "pressure": what they cost beside checkpoints of the same run, and how soon a stop ends it.

    savepoints.py [count=20] [gap_s=0.5] [stops=3] [sleep_us=1000] [parallelism=2] [any.option=...]

Checkpoints are unaligned, every 500 ms. `savepoint_ms`: from the request to the answer, with the directory and the
metadata. `savepoint_duration_ms`: from the trigger to the last acknowledgement, as both coordinators see it.
`checkpoint_*`: the same of the checkpoints between them, up to the entry in the log. `stop_ms`: from the request to
stop with a savepoint, without a drain, until the job has ended; one job for each. Prints one line of JSON last.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from measuring import (
    END_LIMIT_MS,
    START_LIMIT_S,
    Arguments,
    configured,
    parse_arguments,
    print_result,
    quantile,
    wait_until,
)
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.monitoring.report import CheckpointReport
from penstock.spark.session import open_session
from pressure import declare

DEFAULTS = {"count": "20", "gap_s": "0.5", "stops": "3", "sleep_us": "1000", "parallelism": "2"}
WARM_CHECKPOINTS = 6
ANSWER_LIMIT_S = 60.0


def timed_ms(call: Callable[[], object]) -> float:
    started = time.monotonic()
    call()
    return (time.monotonic() - started) * 1000


def start(args: Arguments, checkpoints_dir: Path) -> JobClient:
    """Return a job that is under pressure."""
    defaults = {
        "parallelism.default": args.values["parallelism"],
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.timeout": "10 min",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.dir": checkpoints_dir.as_uri(),
        "web.checkpoints.history": "1000",
    }
    env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
    declare(env, args.whole("sleep_us"), False, DiscardingSink())
    client = env.execute_async("savepoints")
    wait_until("checkpoints", client, lambda r: r.completed >= WARM_CHECKPOINTS, START_LIMIT_S)
    return client


def take(client: JobClient, savepoints_dir: Path, count: int, gap_s: float) -> list[float]:
    """Take savepoints, one after the other. Returns how long each has taken, in ms."""
    taken_ms: list[float] = []
    for _ in range(count):
        time.sleep(gap_s)
        taken_ms.append(timed_ms(lambda: client.trigger_savepoint(str(savepoints_dir)).result(ANSWER_LIMIT_S)))
    return taken_ms


def stop(client: JobClient, savepoints_dir: Path) -> None:
    client.stop_with_savepoint(False, str(savepoints_dir)).result(ANSWER_LIMIT_S)


def of_both(reports: tuple[CheckpointReport, ...]) -> dict[str, Any]:
    done = [c for c in reports if c.status == "completed"][WARM_CHECKPOINTS:]
    savepoints, checkpoints = [c for c in done if c.is_savepoint], [c for c in done if not c.is_savepoint]
    return {
        "savepoint_duration_ms_p50": quantile([c.duration_ms for c in savepoints if c.duration_ms is not None], 0.5),
        "savepoint_size_bytes_p50": quantile([c.written_bytes for c in savepoints], 0.5),
        "checkpoint_duration_ms_p50": quantile([c.duration_ms for c in checkpoints if c.duration_ms is not None], 0.5),
        "checkpoint_ms_p50": quantile([c.publication_ms for c in checkpoints if c.publication_ms is not None], 0.5),
        "checkpoint_size_bytes_p50": quantile([c.written_bytes for c in checkpoints], 0.5),
        "checkpoints": len(checkpoints),
    }


def measure(args: Arguments) -> dict[str, Any]:
    home = Path(tempfile.mkdtemp(prefix="penstock-savepoints-"))
    spark = open_session("penstock benchmark", args.whole("parallelism")).context
    try:
        client = start(args, home / "checkpoints")
        taken_ms = take(client, home / "savepoints", args.whole("count"), args.number("gap_s"))
        figures = of_both(client.report().checkpoints)
        stops_ms: list[float] = []
        for number in range(args.whole("stops")):
            if number:
                client = start(args, home / f"checkpoints-{number}")
            stops_ms.append(timed_ms(partial(stop, client, home / "savepoints")))
            client.wait(END_LIMIT_MS)
        if not stops_ms:
            client.cancel().result(END_LIMIT_MS / 1000)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)
    return {
        "peer": "penstock",
        "workload": "savepoints",
        "options": args.options,
        "sleep_us": args.whole("sleep_us"),
        "savepoints": len(taken_ms),
        "savepoint_ms_p50": quantile(taken_ms, 0.5),
        "savepoint_ms_max": quantile(taken_ms, 1.0),
        **figures,
        "stop_ms_p50": quantile(stops_ms, 0.5),
        "stop_ms_max": quantile(stops_ms, 1.0),
    }


if __name__ == "__main__":
    print_result(measure(parse_arguments(sys.argv[1:], DEFAULTS)))
