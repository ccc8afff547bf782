"""Tests whole jobs on a real Spark: what their ends leave behind, and what the user is told."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark import SparkContext

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.common.job_execution import JobExecutionError
from penstock.datastream import SingleOutputStreamOperator, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.network.listening import PortError
from tests.shared_spark import own_substrate

WAIT_S = 90.0
pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def context() -> SparkContext:
    return own_substrate(2).context


@pytest.fixture
def env(context: SparkContext) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    return env


def numbers(env: StreamExecutionEnvironment, count: int) -> SingleOutputStreamOperator:
    source = NumberSequenceSource(0, count - 1)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def wait_until(condition: Callable[[], object], what: str, limit_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:.0f} s"
        time.sleep(0.02)


def test_a_job_runs_and_what_it_prints_has_the_subtasks_number(
    env: StreamExecutionEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    def say(number: int) -> int:
        print("user code says", number)
        return number

    # Dealt out, because one reader may take all splits before the other is there.
    rows = sorted(numbers(env, 10).rebalance().map(say, output_type=Types.LONG()).execute_and_collect("prints"))
    assert rows == list(range(10))
    said = re.findall(r"^([12])> user code says (\d)$", capfd.readouterr().out, re.M)
    assert sorted(int(number) for _, number in said) == list(range(10))
    assert {subtask for subtask, _ in said} == {"1", "2"}


def test_a_failing_function_ends_the_job_with_its_own_traceback_and_leaves_no_process(
    env: StreamExecutionEnvironment,
) -> None:
    def fail(number: int) -> int:
        if number == 7:
            raise ValueError(f"row {number} is bad")
        return number

    numbers(env, 100).map(fail, output_type=Types.LONG()).print()
    client = env.execute_async("fails")
    pids: set[int] = set()

    def ended() -> bool:
        pids.update(pid for pid in client.report().slot_pids if pid is not None)
        return client.get_job_execution_result().done()

    wait_until(ended, "the job's end")
    with pytest.raises(JobExecutionError, match="ValueError: row 7 is bad") as raised:
        client.wait(0)
    assert str(raised.value).startswith("Traceback (most recent call last):")
    assert 'raise ValueError(f"row {number} is bad")' in str(raised.value)
    assert "site-packages" not in str(raised.value)
    wait_until(lambda: not any(map(is_alive, pids)), f"the end of {pids}", 10.0)


def test_a_cancelled_job_leaves_no_process_and_no_spark_job(
    env: StreamExecutionEnvironment, context: SparkContext
) -> None:
    env.enable_checkpointing(100)

    def slow(number: int) -> int:
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
    # Spark's status follows its events.
    wait_until(lambda: not list(context.statusTracker().getActiveJobsIds()), "the end of Spark's jobs")


def test_a_slot_that_is_killed_again_and_again_comes_back_without_spark_allowing_retries(
    env: StreamExecutionEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    env.enable_checkpointing(100)

    def slow(number: int) -> int:
        time.sleep(0.002)
        return number

    iterator = numbers(env, 3000).rebalance().map(slow, output_type=Types.LONG()).execute_and_collect("kills")
    client = iterator._client

    def is_restarted(times: int) -> bool:
        restarts: int = client.report().restarts
        return restarts == times

    def runs_after(restarts: int) -> bool:
        return client.report().state == "RUNNING" and is_restarted(restarts)

    killed = []
    for kill in range(2):
        wait_until(partial(runs_after, kill), "the job's run")
        pid = client.report().slot_pids[kill % 2]
        os.kill(pid, signal.SIGKILL)
        wait_until(partial(is_restarted, kill + 1), "the restart")
        killed.append(pid)
    assert sorted(iterator) == list(range(3000))
    told = capfd.readouterr().err
    assert all(f"was lost: its process {pid} on 127.0.0.1 was ended by SIGKILL" in told for pid in killed), told


def test_a_process_that_ends_itself_is_named_with_its_exit_code(env: StreamExecutionEnvironment) -> None:
    numbers(env, 10).map(lambda _number: os._exit(3), output_type=Types.LONG()).print()
    env.set_parallelism(1)
    with pytest.raises(JobExecutionError, match=r"slot [01] was lost: its process \d+ on 127.0.0.1 exited with code 3"):
        env.execute("exits")


def test_a_port_that_is_taken_is_told_before_the_job_starts(env: StreamExecutionEnvironment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        env.configure(Configuration({"jobmanager.rpc.bind-port": str(port)}))
        numbers(env, 10).print()
        with pytest.raises(PortError, match=f"jobmanager.rpc.bind-port: port {port} cannot be used"):
            env.execute("no port")


@pytest.mark.parametrize("key", ["jobmanager.rpc.port", "jobmanager.rpc.bind-port"])
def test_the_driver_listens_on_the_port_that_it_announces(env: StreamExecutionEnvironment, key: str) -> None:
    """Flink's own config.yaml has `jobmanager.rpc.port: 6123`: slots were sent there, and nobody listened."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env.configure(Configuration({key: str(port)}))
    assert sorted(numbers(env, 10).execute_and_collect()) == list(range(10))


def test_network_options_of_flinks_file_are_used_as_they_are(env: StreamExecutionEnvironment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flinks = {
        "jobmanager.bind-host": "localhost",
        "jobmanager.rpc.address": "localhost",
        "jobmanager.rpc.port": str(port),
        "taskmanager.bind-host": "localhost",
        "taskmanager.host": "localhost",
        "taskmanager.rpc.port": "0",
        "taskmanager.data.port": "0",
        "rest.address": "localhost",
        "rest.bind-address": "localhost",
    }
    env.configure(Configuration(flinks))
    assert sorted(numbers(env, 10).execute_and_collect()) == list(range(10))


def test_slots_listen_on_one_of_the_data_ports_that_they_announce(env: StreamExecutionEnvironment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        first = min(free.getsockname()[1], 65_000)
    env.configure(Configuration({"taskmanager.data.port": f"{first}-{first + 20}", "jobmanager.rpc.port": "0"}))
    assert sorted(numbers(env, 10).execute_and_collect()) == list(range(10))


@pytest.mark.parametrize("key", ["jobmanager.rpc.port", "taskmanager.data.port"])
def test_an_announced_port_that_is_taken_is_named(env: StreamExecutionEnvironment, key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        env.configure(Configuration({key: str(port)}))
        numbers(env, 10).print()
        with pytest.raises((PortError, JobExecutionError), match=f"{key}: port {port} cannot be used"):
            env.execute("no port")
