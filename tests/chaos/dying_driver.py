"""Lets a driver kill itself by SIGKILL, behind one step of what it has ordered. Imported by the driver's program."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.common.job_client import JobClient
from penstock.jobmaster.ports import Event, MessageReceived
from penstock.network.control_server import ControlServer
from penstock.protocol.driver.coordinator import CheckpointCoordinator
from penstock.protocol.values.messages import Message
from penstock.spark.driver.driver_loop import OrderedWork
from penstock.spark.driver.spark_job import SparkJob

RESCALE = "request the checkpoint of a rescale"
WORK_S = 0.2


class Steps:
    """Notes the steps of the driver from `begin` on. A step is a message that was sent, an event or a message that was
    handled, or an operation on a store that has been executed, of which the driver's loop knows nothing yet.

    `fatal` names the step behind which the process is killed. `a > b`: the first `b` behind the first `a`, because a
    periodic checkpoint, too, may be in progress. Nothing: none is."""

    def __init__(self, fatal: str) -> None:
        self._awaited = fatal.split(" > ") if fatal else []
        self._has_begun = False
        self._lock = threading.Lock()
        self._appended_s = 0.0
        self.seen: dict[str, None] = {}

    def begin(self) -> None:
        self._has_begun = True

    @property
    def has_worked(self) -> bool:
        """Return whether the job has had time to emit rows since its newest checkpoint."""
        return time.monotonic() - self._appended_s > WORK_S

    def on_step(self, step: str) -> None:
        if step == "log: AppendEntry":
            self._appended_s = time.monotonic()
        with self._lock:
            if not self._has_begun:
                return
            self.seen[step] = None
            if self._awaited and step == self._awaited[0]:
                del self._awaited[0]
                if not self._awaited:
                    os.kill(os.getpid(), signal.SIGKILL)


def watch(steps: Steps) -> None:
    """Report the steps of all jobs of this process from now on."""
    submit, send, handle = OrderedWork.submit, ControlServer.send, SparkJob._handle
    request_rescale = CheckpointCoordinator.request_rescale

    def submitted(self: OrderedWork, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def executed() -> Any:
            try:
                return work()
            finally:
                steps.on_step(name)

        submit(self, name, executed, done)

    def sent(self: ControlServer, process: str, message: Message) -> None:
        send(self, process, message)
        steps.on_step(f"send {type(message).__name__}")

    def handled(self: SparkJob, event: Event) -> None:
        handle(self, event)
        steps.on_step(f"handle {type(event.message if isinstance(event, MessageReceived) else event).__name__}")

    def requested(self: CheckpointCoordinator, aligned: bool, now_ms: float) -> Any:
        steps.on_step(RESCALE)
        return request_rescale(self, aligned, now_ms)

    OrderedWork.submit, ControlServer.send, SparkJob._handle = submitted, sent, handled  # type: ignore[method-assign]
    CheckpointCoordinator.request_rescale = requested  # type: ignore[method-assign]


def order(client: JobClient, what: str, steps: Steps, savepoints: str) -> None:
    """Order it from a job that has completed checkpoints since it runs, and wait until that is done. Nothing: the job
    runs to its end."""
    ended = client.get_job_execution_result()
    while what and not ended.done():
        report = client.report()
        if report.state == "RUNNING" and report.completed >= 2 and all(report.slot_pids) and steps.has_worked:
            steps.begin()
            if what.startswith("rescale"):
                client.rescale(int(what.split()[-1])).result(60)
                shown = {"rescaled": max(v.parallelism for v in client.report().vertices)}
            else:
                shown = {"savepoint": client.stop_with_savepoint(what == "drain", savepoints).result(60)}
            print(json.dumps(shown | {"steps": list(steps.seen)}), flush=True)
            break
        time.sleep(0.01)
