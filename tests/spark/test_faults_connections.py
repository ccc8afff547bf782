"""Tests slots that do not come, ports that are taken, and strangers that call."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.network.handshake import DiallerHandshake, HandshakeError, Identity
from penstock.network.listening import PortError
from penstock.spark.session import Substrate
from penstock.spark.slots.task_placement import task_places
from tests.spark.small_jobs import committed, environment, execute, failure, file_sink, is_alive, numbers, wait_until
from tools.ports import free_ports

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]


def quiet(
    env: StreamExecutionEnvironment, count: int = 1000, rows_per_second: float | None = None
) -> StreamExecutionEnvironment:
    numbers(env, count, rows_per_second).rebalance().map(lambda i: i, Types.LONG()).filter(lambda _: False).print()
    return env


# ---- slots ----------------------------------------------------------------------------------------------------------


def test_a_session_with_too_few_places_plays_several_slots_in_a_process_and_says_so(
    quick_session: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    env = environment(6)
    numbers(env, 600).rebalance().map(str, output_type=Types.STRING()).sink_to(file_sink(tmp_path))
    client = env.execute_async("packed")
    pids: set[int] = set()

    def ended() -> bool:
        pids.update(pid for pid in client.report().slot_pids if pid is not None)
        done: bool = client.get_job_execution_result().done()
        return done

    wait_until(ended, "the job's end")
    client.wait(0)
    assert committed(tmp_path) == Counter(map(str, range(600)))
    assert len(pids) == 4
    said = capfd.readouterr().err
    assert re.search(r"slot\(s\) 4, 5 share the processes of others \(4\); Spark runs 4 tasks at once", said), said
    wait_until(lambda: not any(map(is_alive, pids)), "the end of its processes")


def test_slots_that_do_not_come_in_time_are_counted_and_the_way_out_is_told(
    quick_session: SparkSession, tmp_path: Path
) -> None:
    released = tmp_path / "released"

    def occupy(_row: int) -> None:
        import time

        while not released.exists():
            time.sleep(0.02)

    context = quick_session.sparkContext
    other = threading.Thread(target=lambda: context.parallelize(range(3), 3).foreach(occupy), daemon=True)
    other.start()
    try:
        wait_until(lambda: running_tasks(context) == 3, "the other job has its tasks")
        message = failure(lambda: execute(quiet(environment(2, slot_request_timeout="4 s"))))
    finally:
        released.touch()
        other.join(60)
    assert "the job needs 2 slot(s), of which " in message and "registered within 4 s" in message
    assert "lower the parallelism" in message and "slot.request.timeout" in message


def running_tasks(context: SparkContext) -> int:
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


# ---- ports ----------------------------------------------------------------------------------------------------------


def test_a_taken_port_of_the_driver_is_told_before_the_job_starts() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortError, match=rf"jobmanager\.rpc\.bind-port: port {port} cannot be used.*give another"):
            quiet(environment(jobmanager_rpc_bind__port=str(port))).execute("never")


def test_a_taken_port_of_a_slot_ends_the_job_with_the_option_and_not_with_a_traceback() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        message = failure(lambda: execute(quiet(environment(1, taskmanager_data_bind__port=str(port)))))
    assert f"taskmanager.data.bind-port: port {port} cannot be used" in message
    assert "a range like" in message
    assert "Traceback" not in message


# ---- strangers ------------------------------------------------------------------------------------------------------


def call(port: int, sent: bytes) -> None:
    """Says something, and waits until the other end hangs up."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as sock:
        with suppress(ConnectionError):
            sock.sendall(sent)
            until_closed(sock)


def until_closed(sock: socket.socket) -> None:
    with suppress(ConnectionError):
        while sock.recv(4096):
            pass


def guess_the_secret(port: int, job_id: str, slot: int) -> None:
    """Speaks the protocol, with a wrong secret."""
    handshake = DiallerHandshake(b"wrong", os.urandom(32), Identity(job_id, slot, "stranger"))
    with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as sock:
        sock.sendall(handshake.start())
        with pytest.raises(HandshakeError, match="does not know this job's secret"):
            while data := sock.recv(4096):
                handshake.feed(data)


def forge_a_proof(port: int) -> None:
    """Sends a well-formed proof that is none."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as sock:
        sock.sendall(b"PNSK\x01" + b"n" * 32)
        assert sock.recv(4096)
        sock.sendall(b"p" * 32 + b"\x02\x00" + b"\x80\x80")
        until_closed(sock)


def test_strangers_are_hung_up_on_and_the_job_goes_on(tmp_path: Path) -> None:
    control, first, second = free_ports(3)
    stop = tmp_path / "stop"
    env = environment(
        2,
        jobmanager_rpc_bind__port=str(control),
        taskmanager_data_bind__port=f"{min(first, second)},{max(first, second)}",
    )

    def last(value: int) -> int:
        import time

        while value == 999 and not stop.exists():
            time.sleep(0.01)
        return value

    numbers(env, 1000).rebalance().map(last, Types.LONG()).filter(lambda _: False).print()
    client = env.execute_async("besieged")
    wait_until(lambda: client.report().state == "RUNNING", "the job runs")
    for port in (control, first, second):
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(100_000), b"\x00" * 10):
            call(port, garbage)
        guess_the_secret(port, str(client.get_job_id()), 0)
        forge_a_proof(port)
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    stop.touch()
    client.wait(timeout_ms=90_000)
    assert client.report().restarts == 0
    assert client.report().state == "FINISHED"


def test_a_stranger_who_says_nothing_holds_up_nobody(tmp_path: Path) -> None:
    (control,) = free_ports(1)
    env = environment(1, jobmanager_rpc_bind__port=str(control))
    client = quiet(env, 3000, 1000.0).execute_async("waited for")
    with closing(socket.create_connection(("127.0.0.1", control), timeout=30)):
        started = time.monotonic()
        client.wait(timeout_ms=90_000)
    assert time.monotonic() - started < 90


def test_a_slot_ends_as_a_success_however_busy_spark_is(
    quick_session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cancelled once, and a process that ended before that was a crashed worker to Spark, with a stack trace."""
    cancel = SparkContext.cancelJobsWithTag

    def cancel_late(context: SparkContext, tag: str) -> None:
        time.sleep(4.0)  # longer than a slot waited once
        cancel(context, tag)

    monkeypatch.setattr(SparkContext, "cancelJobsWithTag", cancel_late)
    env = environment(1)
    numbers(env, 10).print()
    client = env.execute_async("short")
    client.wait(timeout_ms=90_000)
    substrate = Substrate(quick_session.sparkContext, "local[4]", True, "127.0.0.1")
    tag = f"penstock-{client.get_job_id()}-slot-0-1"
    wait_until(lambda: task_places(substrate, tag)[-1].status != "RUNNING", "the end of the slot's task")
    assert [place.status for place in task_places(substrate, tag)] == ["SUCCESS"]
