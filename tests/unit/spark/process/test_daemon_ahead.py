"""Tests the daemon that is started ahead, with the processes that a Spark would start: who becomes the daemon, and who
if that fails.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.process import daemon_ahead
from penstock.spark.process.daemon_ahead import SOCKET_VARIABLE, start_ahead

ROOT = Path(__file__).resolve().parents[4]
OF_SPARK = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTHON_WORKER_FACTORY_SECRET": "secret"}
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def ahead() -> Iterator[tuple[dict[str, str], subprocess.Popen[bytes]]]:
    variables = start_ahead(str(ROOT))
    started = daemon_ahead._started.pop()
    deadline = time.monotonic() + 60
    while not Path(variables[SOCKET_VARIABLE]).exists():  # Java takes longer to ask for it
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield variables, started
    started.kill()
    assert started.stdin is not None
    started.stdin.close()


def as_spark_starts_it(variables: dict[str, str], **more: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **OF_SPARK, **variables, **more}
    command = [sys.executable, "-m", "penstock.spark.process.slot_daemon", "pyspark.worker"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def port_of(daemon: subprocess.Popen[bytes]) -> int:
    assert daemon.stdout is not None
    return int(struct.unpack(">i", daemon.stdout.read(4))[0])


def owner_of(port: int) -> set[int]:
    """The processes that listen at a port."""
    inodes = {
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}")
    }
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link).removeprefix("socket:[").removesuffix("]") in inodes:
                found.add(int(link.parts[2]))
        except OSError:
            continue
    return found


def ends(process: Any) -> int:
    return int(process.wait(timeout=60))


def test_the_process_that_was_started_ahead_is_the_daemon_and_ends_with_spark(ahead: Any) -> None:
    variables, started = ahead
    daemon = as_spark_starts_it(variables)
    assert owner_of(port_of(daemon)) == {started.pid}
    assert daemon.poll() is None, "it waits for the end of the other one"
    assert daemon.stdin is not None
    daemon.stdin.close()  # so Spark ends its daemon
    assert ends(daemon) == 0
    ends(started)


def test_a_daemon_ahead_ends_with_its_driver(ahead: Any) -> None:
    _, started = ahead
    assert started.stdin is not None
    started.stdin.close()
    assert ends(started) == 0


@pytest.mark.parametrize("how", ["killed", "another environment", "never started"])
def test_where_there_is_none_the_daemon_of_spark_does_without(ahead: Any, how: str) -> None:
    variables, started = ahead
    more = {}
    if how == "killed":
        os.kill(started.pid, signal.SIGKILL)
        ends(started)
    elif how == "another environment":
        more["PYTHONHASHSEED"] = "7"
    else:
        variables = {SOCKET_VARIABLE: "/nowhere/socket"}
    daemon = as_spark_starts_it(variables, **more)
    assert owner_of(port_of(daemon)) == {daemon.pid}
    assert daemon.stdin is not None
    daemon.stdin.close()
    ends(daemon)
