"""Tests drivers whose Java process is killed, or whose SparkContext is stopped: they end within seconds."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark.run_programs import ROOT, surroundings
from tests.spark.small_jobs import committed

LIMIT_S = 150
END_S_MAX = 20.0
"""On a quiet machine it takes two seconds, most of which the slots need to end."""
pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * LIMIT_S)]

PROGRAM = """
import os, signal, sys, threading, time
from pathlib import Path
from pyspark import SparkContext
from penstock.common import Encoder, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy

how, out, again = sys.argv[1], sys.argv[2], Path(sys.argv[3])

def say(what):
    print("now", what, time.time(), file=sys.stderr, flush=True)

def kill_java():
    say("killed")
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)

def java_of_this_program():
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = entry.read_text().rpartition(")")
        except OSError:
            continue
        if int(rest.split()[1]) == os.getpid() and "java" in name:
            return int(entry.parent.name)
    return None

def kill_a_java_that_starts():
    while (pid := java_of_this_program()) is None:
        time.sleep(0.01)
    say("killed")
    os.kill(pid, signal.SIGKILL)

def fails_once(i):
    if how == "restarting" and i == 300 and not again.exists():
        raise ValueError("again")
    return i

is_first = not again.exists()
if how == "starting" and is_first:
    threading.Thread(target=kill_a_java_that_starts, daemon=True).start()
    again.touch()
env = StreamExecutionEnvironment.get_execution_environment()
if how == "writing a DataFrame" and is_first:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # another python3 may have no pyarrow
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import udf
    spark = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false").getOrCreate()
    begun = str(again) + "-rows"

    def row(i):
        open(begun, "w").close()
        time.sleep(1)
        return str(i)

    def kill_java_once_rows_are_written():
        while not os.path.exists(begun):
            time.sleep(0.01)
        time.sleep(0.5)
        kill_java()

    env.from_spark(spark.range(100).select(udf(row)("id").alias("text"))).print()
    threading.Thread(target=kill_java_once_rows_are_written, daemon=True).start()
    env.execute("dying")
    sys.exit(9)
source = DataGeneratorSource(lambda i: i, 1000, type_info=Types.LONG(), rows_per_second=500.0 if is_first else None)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(fails_once, Types.LONG())
sink = FileSink.for_row_format(out, Encoder.simple_string_encoder())
sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
numbers.map(lambda i: str(i), Types.STRING()).sink_to(sink)
job = env.execute_async("dying")

def strike():
    while job.report().completed < 2:
        time.sleep(0.01)
    if how != "restarting":
        again.touch()
    if how == "running":
        kill_java()
    elif how == "restarting":
        while job.report().restarts == 0:
            time.sleep(0.01)
        again.touch()
        kill_java()
    elif how == "stopping":
        job.stop_with_savepoint(savepoint_directory=str(again.parent / "savepoints"))
        kill_java()
    elif how == "hanging":
        java = SparkContext._gateway.proc.pid
        os.kill(java, signal.SIGSTOP)
        before = job.report().completed
        while job.report().completed < before + 3:  # the job does without Spark
            time.sleep(0.01)
        print("now hanging", java, time.time(), file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
    elif how == "stopped by Spark":
        say("stopped")
        SparkContext._active_spark_context._jsc.stop()
    elif how == "stopped by the program":
        say("stopped")
        SparkContext._active_spark_context.stop()

if is_first:
    threading.Thread(target=strike, daemon=True).start()
job.wait()
"""


def run(tmp_path: Path, how: str) -> tuple[int, str, float]:
    """Return the exit code, what was written to stderr, and when it ended."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    options = ("execution.checkpointing.interval=100 ms", f"execution.checkpointing.dir={tmp_path / 'checkpoints'}")
    defined = [part for option in options for part in ("-D", option)]
    given = [sys.executable, "-m", "penstock.cli.main", "run", "--ha", "-p", "2", *defined, str(program), how]
    # To a file, because a Java process that hangs keeps a pipe open.
    with (tmp_path / "told").open("w+", encoding="utf-8") as told:
        done = subprocess.run(
            [*given, str(tmp_path / "out"), str(tmp_path / "again")],
            cwd=ROOT, env=surroundings(), stdout=told, stderr=told, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        ended_s = time.time()
        told.seek(0)
        return done.returncode, told.read(), ended_s


@pytest.mark.parametrize("how", ["running", "stopped by the program", "restarting", "stopping", "stopped by Spark"])
def test_a_driver_without_its_spark_ends_within_seconds_and_is_resumed(tmp_path: Path, how: str) -> None:
    code, told, ended_s = run(tmp_path, how)
    struck = re.search(r"^now (killed|stopped) ([\d.]+)$", told, re.MULTILINE)
    assert struck is not None, told
    if how == "stopping" and code == 0:
        return  # its savepoint was quicker
    assert code == 1, told
    assert ended_s - float(struck[2]) < END_S_MAX, told
    why = r"Spark's own process \d+ was ended by SIGKILL" if struck[1] == "killed" else "the SparkContext was stopped"
    assert re.search(f"^(penstock: )?{why}", told, re.MULTILINE) or how == "stopping", told
    assert "Traceback" not in told or how == "restarting"
    code, told, _ = run(tmp_path, how)
    assert code == 0, told
    if how != "stopping":
        assert committed(tmp_path / "out") == {str(i): 1 for i in range(1000)}


def test_a_java_that_hangs_is_no_reason_to_fail_and_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """A driver waited two minutes for a cancellation that Java never answered."""
    code, told, ended_s = run(tmp_path, "hanging")
    struck = re.search(r"^now hanging (\d+) ([\d.]+)$", told, re.MULTILINE)
    assert struck is not None, told
    with suppress(ProcessLookupError):
        os.kill(int(struck[1]), signal.SIGKILL)
    assert code == 128 + signal.SIGTERM, told
    assert ended_s - float(struck[2]) < 2 * END_S_MAX and "did not end within" not in told, told
    code, told, _ = run(tmp_path, "hanging")
    assert code == 0, told
    assert committed(tmp_path / "out") == {str(i): 1 for i in range(1000)}


@pytest.mark.parametrize("how", ["starting", "writing a DataFrame"])
def test_a_java_that_ends_before_the_job_runs_is_named(tmp_path: Path, how: str) -> None:
    code, told, ended_s = run(tmp_path, how)
    struck = re.search(r"^now killed ([\d.]+)$", told, re.MULTILINE)
    assert struck is not None and code == 1, told
    assert ended_s - float(struck[1]) < END_S_MAX, told
    assert re.search(r"penstock: .*(its Java process ended|Spark's own process \d+ was ended by SIGKILL)", told), told
    assert "Traceback" not in told
