"""Declares small jobs for tests on a real Spark, and waits for what they do, with a limit."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest

from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.common.job_execution import JobExecutionError
from penstock.datastream import SingleOutputStreamOperator, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.jobmaster.identity import RestoreSourceError

WRITES_ARROW = not pyspark.__version__.startswith("3.")
"""PySpark 3.5, the oldest that the tests run on, has no way to write Arrow batches of a given number of rows."""
WAIT_S = 90.0
"""For what takes a second on a quiet machine."""


def environment(parallelism: int = 2, /, **options: str) -> StreamExecutionEnvironment:
    """`a_b__c=value` is the option a.b-c."""
    named = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(named))
    return env.set_parallelism(parallelism)


def restarts(times: int) -> dict[str, str]:
    return {
        "restart__strategy_type": "fixed-delay",
        "restart__strategy_fixed__delay_attempts": str(times),
        "restart__strategy_fixed__delay_delay": "10 ms",
    }


def checkpoints(directory: Path, **more: str) -> dict[str, str]:
    return {"execution_checkpointing_interval": "50 ms", "execution_checkpointing_dir": str(directory), **more}


KEPT = {"execution_checkpointing_externalized__checkpoint__retention": "RETAIN_ON_CANCELLATION"}


def numbers(
    env: StreamExecutionEnvironment, count: int, rows_per_second: float | None = None
) -> SingleOutputStreamOperator:
    source = DataGeneratorSource(lambda i: i, count, type_info=Types.LONG(), rows_per_second=rows_per_second)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())


def file_sink(directory: Path) -> FileSink:
    """Show rows with each checkpoint, so that a test can wait for some, and miss those that are lost."""
    builder = FileSink.for_row_format(str(directory), Encoder.simple_string_encoder())
    return builder.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()


def committed(directory: Path) -> Counter[str]:
    """Return the lines of all committed part files."""
    lines: Counter[str] = Counter()
    for file in directory.rglob("*"):
        if file.is_file() and not file.name.startswith((".", "_")):
            lines.update(file.read_text(encoding="utf-8").splitlines())
    return lines


def failure(run: Callable[[], Any]) -> str:
    """Return the message of the job that fails, or that its checkpoint refuses before it starts."""
    with pytest.raises((JobExecutionError, RestoreSourceError)) as raised:
        run()
    return str(raised.value)


def execute(env: StreamExecutionEnvironment, name: str = "job") -> Any:
    """Execute as `env.execute` does, with a limit."""
    return env.execute_async(name).wait(timeout_ms=WAIT_S * 1000)


def wait_until(condition: Callable[[], Any], what: str, limit_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:.0f} s"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """Return the descendants of a process, itself included."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            parents[int(status.parent.name)] = int(re.findall(r"^PPid:\t(\d+)", status.read_text(), re.M)[0])
        except OSError:
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found
