"""Whole jobs on a real Spark: what their ends leave behind, and what the user is told."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.common.job_execution import JobExecutionError
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.network.listening import PortError
from penstock.spark.session import open_session

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 90.0
pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def context():
    context = open_session("test of jobs", 2).context
    yield context
    context.stop()


@pytest.fixture
def env(context):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    return env


def numbers(env, count):
    source = NumberSequenceSource(0, count - 1)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def wait_until(condition, what, limit_s=WAIT_S):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:.0f} s"
        time.sleep(0.02)


def test_a_job_runs_and_what_it_prints_has_the_subtasks_number(env, capfd):
    def say(number):
        print("user code says", number)
        return number

    # Dealt out, because one reader may take all splits before the other is there.
    rows = sorted(numbers(env, 10).rebalance().map(say, output_type=Types.LONG()).execute_and_collect("prints"))
    assert rows == list(range(10))
    said = re.findall(r"^([12])> user code says (\d)$", capfd.readouterr().out, re.M)
    assert sorted(int(number) for _, number in said) == list(range(10))
    assert {subtask for subtask, _ in said} == {"1", "2"}


def test_a_failing_function_ends_the_job_with_its_own_traceback_and_leaves_no_process(env):
    def fail(number):
        if number == 7:
            raise ValueError(f"row {number} is bad")
        return number

    numbers(env, 100).map(fail, output_type=Types.LONG()).print()
    client = env.execute_async("fails")
    pids = set()

    def ended():
        pids.update(client.report().slot_pids)
        return client.get_job_execution_result().done()

    wait_until(ended, "the job's end")
    with pytest.raises(JobExecutionError, match="ValueError: row 7 is bad") as raised:
        client.wait(0)
    assert str(raised.value).startswith("Traceback (most recent call last):")
    assert 'raise ValueError(f"row {number} is bad")' in str(raised.value)
    assert "site-packages" not in str(raised.value)
    wait_until(lambda: not any(map(is_alive, pids - {0})), f"the end of {pids}", 10.0)


def test_a_cancelled_job_leaves_no_process_and_no_spark_job(env, context):
    env.enable_checkpointing(100)

    def slow(number):
        time.sleep(0.005)
        return number

    numbers(env, 1_000_000).map(slow, output_type=Types.LONG()).print()
    client = env.execute_async("endless")
    wait_until(lambda: client.report().completed >= 2, "two checkpoints")
    pids = client.report().slot_pids
    assert all(map(is_alive, pids))
    client.cancel().result(WAIT_S)
    assert client.get_job_status().result(0).name == "CANCELED"
    with pytest.raises(JobExecutionError, match="cancelled"):
        client.wait(0)
    wait_until(lambda: not any(map(is_alive, pids)), f"the end of {pids}", 10.0)
    assert list(context.statusTracker().getActiveJobsIds()) == []


def test_a_slot_that_is_killed_again_and_again_comes_back_without_spark_allowing_retries(env):
    env.enable_checkpointing(100)

    def slow(number):
        time.sleep(0.002)
        return number

    iterator = numbers(env, 3000).rebalance().map(slow, output_type=Types.LONG()).execute_and_collect("kills")
    client = iterator._client
    for kill in range(2):
        wait_until(
            lambda kill=kill: client.report().state == "RUNNING" and client.report().restarts == kill, "the job's run"
        )
        os.kill(client.report().slot_pids[kill % 2], signal.SIGKILL)
        wait_until(lambda kill=kill: client.report().restarts == kill + 1, "the restart")
    assert sorted(iterator) == list(range(3000))


def test_a_port_that_is_taken_is_told_before_the_job_starts(env):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        env.configure(Configuration({"jobmanager.rpc.bind-port": str(port)}))
        numbers(env, 10).print()
        with pytest.raises(PortError, match=f"jobmanager.rpc.bind-port: port {port} cannot be used"):
            env.execute("no port")


PROGRAM = """
import time
from beside_the_job import slow
from penstock.common import Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.enable_checkpointing(100)
source = NumberSequenceSource(0, 1_000_000)
env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()).map(
    slow, output_type=Types.LONG()).print()
env.execute("endless")
"""


@pytest.fixture
def endless(tmp_path):
    """Starts a program that never ends, in a process group of its own, and waits for its third checkpoint."""
    (tmp_path / "job.py").write_text(PROGRAM)
    (tmp_path / "beside_the_job.py").write_text("import time\ndef slow(x):\n    time.sleep(0.005)\n    return x\n")
    checkpoints = tmp_path / "checkpoints"
    command = [
        sys.executable, "-m", "penstock.cli.main", "run",
        "-D", f"execution.checkpointing.dir={checkpoints}",
        "-D", "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION",
        str(tmp_path / "job.py"),
    ]  # fmt: skip
    program = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
    )  # fmt: skip

    def newest():
        assert program.poll() is None, program.stderr.read()
        return max((int(path.name[4:]) for path in checkpoints.glob("*/chk-*")), default=0)

    wait_until(lambda: newest() >= 3, "three checkpoints")
    yield program, checkpoints
    if program.poll() is None:
        program.kill()
    program.stderr.close()


def descendants(pid: int) -> set[int]:
    """Of a process, itself included."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            parents[int(status.parent.name)] = int(re.search(r"^PPid:\t(\d+)", status.read_text(), re.M)[1])
        except OSError:
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def test_ctrl_c_is_a_clean_stop_that_tells_where_to_go_on(endless):
    program, checkpoints = endless
    processes = descendants(program.pid)
    assert len(processes) >= 5  # the program, its JVM, PySpark's daemon, two slots
    os.killpg(program.pid, signal.SIGINT)
    _, said = program.communicate(timeout=WAIT_S)
    assert program.returncode == 130
    (job,) = checkpoints.iterdir()
    assert f"penstock: resume it with -s {job}\n" in said
    assert "Traceback" not in said
    wait_until(lambda: not any(map(is_alive, processes)), f"the end of {processes}", 15.0)


def test_a_killed_driver_leaves_no_process(endless):
    program, _ = endless
    processes = descendants(program.pid)
    program.kill()
    program.wait(WAIT_S)
    wait_until(lambda: not any(map(is_alive, processes)), f"the end of {processes}", 15.0)
