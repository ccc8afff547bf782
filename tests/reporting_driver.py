"""Runs a program in a driver process of its own, which reports on its job, while a test kills what the job needs."""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

ROOT = Path(__file__).resolve().parents[1]

EXECUTE_AND_REPORT = """
import signal
client = env.execute_async("counting")
signal.signal(signal.SIGUSR1, lambda *_: client.cancel())
ended = client.get_job_execution_result()
while not ended.done():
    report = client.report()
    if report is not None:
        loading = [metrics.get("restore.bytes", 0) for v in report.vertices for metrics in v.metrics.values()]
        shown = report.state, report.completed, report.slot_pids, report.restarts, report.failed, sum(loading)
        print(json.dumps(shown), flush=True)
    time.sleep(0.1)
if client.get_job_status().result(60).name != "CANCELED":
    client.wait()
print(json.dumps(["ENDED", 0, [], 0, 0, 0]), flush=True)
"""
"""The end of a program that has declared `env`, and has imported json and time. SIGUSR1 cancels its job."""


class Report(NamedTuple):
    """Describes a running job, or one that has ended. `state`: Flink's, or ENDED. `completed`, `failed`: how many
    checkpoints. `slot_pids`: None for a slot that is missing. `loaded_later_bytes`: state that is restored while the
    job runs.
    """

    state: str
    completed: int
    slot_pids: list[Any]
    restarts: int
    failed: int
    loaded_later_bytes: int


def runs(completed: int) -> Callable[[Report], bool]:
    """Return what is true of a report of a running job that has completed so many checkpoints."""
    return lambda report: report.state == "RUNNING" and report.completed >= completed and all(report.slot_pids)


class Killed(Protocol):
    """Can be killed, and brought back: a server that jobs need."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


def run_under_kills(
    start: Callable[[], Driver], kills: Sequence[str], server: Killed, seed: int, deadline: float
) -> str:
    """Run a job to its end, with the kills of `killed`. Returns what its drivers have written."""
    driver, written = killed(start, kills, server, seed, deadline)
    driver.await_end(deadline)
    return written + driver.log()


def killed(
    start: Callable[[], Driver], kills: Sequence[str], server: Killed, seed: int, deadline: float
) -> tuple[Driver, str]:
    """Start a job, and kill by SIGKILL a "slot", its "driver", or else the server, each after some checkpoints. Returns
    its driver now, and what those before have written.
    """
    chosen, written = random.Random(seed), ""
    driver, seen = start(), 0
    for kill in kills:
        report = driver.await_report(runs(seen + 3), deadline)
        assert report.state != "ENDED", f"the job was too quick for {kill}"
        seen = report.completed
        if kill == "slot":
            os.kill(chosen.choice(report.slot_pids), signal.SIGKILL)
        elif kill == "driver":
            driver.kill()
            written += driver.log()
            driver, seen = start(), 0
        else:
            server.kill()
            server.start()
    return driver, written


class Driver:
    """Runs a driver process, and reads what it reports."""

    def __init__(self, program: Path, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._log = (program.parent / f"driver-{time.monotonic_ns()}.log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(program), *arguments],
            stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("["):
                self._lines.put(line)
        self._lines.put("")

    def await_report(self, wanted: Callable[[Report], bool], deadline: float) -> Report:
        """Return the next report that is wanted, or that of the end."""
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no such report in time:\n{self.log()}") from None
            assert line, f"the driver has ended:\n{self.log()}"
            report = Report(*json.loads(line))
            if report.state == "ENDED" or wanted(report):
                return report

    def await_end(self, deadline: float) -> None:
        """Wait until the job has finished, and the process has ended well."""
        assert self.await_report(lambda report: False, deadline).state == "ENDED"
        assert self.process.wait(60) == 0, self.log()

    def log(self) -> str:
        """Return the end of what it wrote, without what its clients say of a broker that is away."""
        self._log.flush()
        lines = Path(self._log.name).read_text(encoding="utf-8").splitlines()
        return "\n".join(line for line in lines if "rdkafka#" not in line)[-6000:]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
