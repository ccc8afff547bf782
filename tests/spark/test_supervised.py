"""Tests one command, started again by a supervisor whatever has become of its driver, until the job's result is
exact.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.run_programs import ROOT, surroundings
from tests.spark.small_jobs import committed, wait_until

LIMIT_S = 120
pytestmark = [pytest.mark.spark, pytest.mark.timeout(3 * LIMIT_S)]

JOB_ID = "00000000000000000000000000c0ffee"
ROWS = 12_000

COUNTING = """
import sys
from penstock.common import Encoder, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy

out, rows = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment()
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
source = DataGeneratorSource(lambda i: (i % 7, 1), int(rows), type_info=PAIR, rows_per_second=1500.0)
pairs = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
counts = pairs.key_by(lambda p: p[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
sink = FileSink.for_row_format(out, Encoder.simple_string_encoder())
sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
counts.map(lambda p: f"{p[0]}:{p[1]}", Types.STRING()).sink_to(sink)
env.execute("counting")
"""
POISONED = """
import sys
from pathlib import Path
from penstock.common import Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource

cured = Path(sys.argv[1])

def refuse(i):
    if i == 1500 and not cured.exists():
        raise ValueError("not yet")
    return i

env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda i: i, 2000, type_info=Types.LONG(), rows_per_second=1000.0)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
numbers.map(refuse, Types.LONG()).filter(lambda i: i >= 1500).print()
env.execute("poisoned")
"""


def command(program: Path, checkpoints: Path, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    given = ("execution.checkpointing.interval=100 ms", f"execution.checkpointing.dir={checkpoints}", *options)
    defined = [part for option in given for part in ("-D", option)]
    run = [sys.executable, "-m", "penstock.cli.main", "run", "--ha", "-p", "2"]
    return [*run, *defined, str(program), *arguments]


def start(given: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(given, cwd=ROOT, env=surroundings(), stderr=subprocess.PIPE, text=True)


def run(given: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        given, cwd=ROOT, env=surroundings(), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def expected() -> dict[str, int]:
    return {f"{key}:{n}": 1 for key in range(7) for n in range(1, len(range(key, ROWS, 7)) + 1)}


def has_written_more(out: Path, before: int) -> bool:
    return sum(committed(out).values()) > before


@pytest.fixture
def counting(tmp_path: Path) -> list[str]:
    program = tmp_path / "counting.py"
    program.write_text(COUNTING, encoding="utf-8")
    # Two levels that do not exist: the directory is made.
    checkpoints = tmp_path / "not" / "there"
    return command(program, checkpoints, str(tmp_path / "out"), str(ROWS), options=(f"pipeline.job-id={JOB_ID}",))


def test_one_command_is_started_again_until_its_result_is_exact(counting: list[str], tmp_path: Path) -> None:
    job, out = tmp_path / "not" / "there" / JOB_ID, tmp_path / "out"
    told = ""
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        before = sum(committed(out).values())
        driver = start(counting)
        try:
            wait_until(lambda: has_written_more(out, before) or driver.poll() is not None, "output", LIMIT_S)
            driver.send_signal(number)
            _, told = driver.communicate(timeout=LIMIT_S)
        finally:
            if driver.poll() is None:
                driver.kill()
        assert driver.returncode == (-number if number == signal.SIGKILL else 128 + number), told
        begins = "starting" if not before else "resuming"
        assert f"penstock: {begins} job {JOB_ID} (counting) in {job}, " in told
        assert ("suspending job" in told) == (number == signal.SIGTERM) and "Traceback" not in told
    last = run(counting)
    assert last.returncode == 0, last.stderr
    assert re.search(rf"penstock: resuming job {JOB_ID} \(counting\) in {job}, chk-\d+\n", last.stderr)
    assert committed(out) == expected()

    # Neither source nor sink is asked any more: a broker may be away, and files in another place.
    out.rename(tmp_path / "taken")
    out.write_text("no directory")
    again = run(counting)
    out.unlink()
    (tmp_path / "taken").rename(out)
    assert again.returncode == 0 and f"job {JOB_ID} (counting) in {job} has FINISHED before" in again.stderr
    assert committed(out) == expected()


def test_of_two_drivers_at_once_one_runs_the_job_and_the_other_says_so(counting: list[str], tmp_path: Path) -> None:
    drivers = [start(counting), start(counting)]
    try:
        told = [driver.communicate(timeout=2 * LIMIT_S)[1] for driver in drivers]
    finally:
        for driver in drivers:
            if driver.poll() is None:
                driver.kill()
    assert sorted(driver.returncode for driver in drivers) == [0, 3], "\n\n".join(told)
    (loser,) = (said for driver, said in zip(drivers, told, strict=True) if driver.returncode == 3)
    assert "this job was taken over by the driver of process" in loser or "has a log already" in loser
    assert committed(tmp_path / "out") == expected()


def test_a_job_that_failed_for_good_is_resumed_and_may_finish(tmp_path: Path) -> None:
    program, cured = tmp_path / "poisoned.py", tmp_path / "cured"
    program.write_text(POISONED, encoding="utf-8")
    given = command(program, tmp_path / "c", str(cured), options=("restart-strategy.type=none",))
    failed = run(given)
    assert failed.returncode == 1 and "ValueError: not yet" in failed.stderr
    cured.touch()
    done = run(given)
    assert done.returncode == 0, done.stderr
    assert re.search(r"resuming job \w+ \(poisoned\) in \S+, chk-\d+. It had FAILED before\n", done.stderr)
    # A checkpoint may hold rows that the other subtask had printed before the row that failed: those are not repeated.
    printed = [line.partition("> ")[2] for line in (failed.stdout + done.stdout).splitlines()]
    assert set(printed) == {str(i) for i in range(1500, 2000)}


@pytest.mark.parametrize("how", ["penstock run", "python"])
def test_a_checkpoint_directory_that_cannot_be_made_is_refused_without_a_traceback(tmp_path: Path, how: str) -> None:
    program = tmp_path / "poisoned.py"
    program.write_text(POISONED, encoding="utf-8")
    (tmp_path / "file").touch()
    given = command(program, tmp_path / "file" / "below", "x")
    if how == "python":
        conf = tmp_path / "conf"
        conf.mkdir()
        options = f"execution.checkpointing.interval: 1 s\nexecution.checkpointing.dir: {tmp_path / 'file' / 'below'}\n"
        (conf / "config.yaml").write_text(options, encoding="utf-8")
        given = ["env", f"PENSTOCK_CONF_DIR={conf}", sys.executable, str(program), "x"]
    refused = run(given)
    assert refused.returncode == (2 if how == "penstock run" else 1)
    assert refused.stderr.startswith("penstock: ") and str(tmp_path / "file") in refused.stderr
    assert "Traceback" not in refused.stderr
