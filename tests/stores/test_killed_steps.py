"""Kills a slot, or the driver, by SIGKILL at each step of incremental checkpoints in SeaweedFS: at each kind of request
that changes the bucket, before the store gets it, and after the store has executed it. Each day a third of the steps:
the simulation kills at each of them in every run.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.storage.layout import LogName, MetadataName, SegmentName, parse
from penstock.storage.opening import open_store
from tests.buckets.faulty_proxy import PASSED, Fault, FaultyProxy
from tests.buckets.servers import BUCKET, settings_of
from tests.drawn import of_today
from tests.reporting_driver import Report, runs
from tests.spark.small_jobs import committed
from tests.stores.buckets_listed import unfinished_uploads, unnamed
from tests.stores.test_jobs import HA, JOB_ID, Starts
from tests.stores.test_large_jobs import OPTIONS, assert_exact, fat_program
from tools.object_stores import Server

LIMIT_S = 300.0
pytestmark = [pytest.mark.spark, pytest.mark.timeout(2 * LIMIT_S)]
STEPS = (
    "begin upload", "part", "end upload", "put segment", "put metadata", "put log", "delete segment",
    "delete metadata", "delete log",
)  # fmt: skip
KILLS = {
    "slot": [(step, executed) for step in STEPS for executed in (False, True)],
    # Slots ask for the first four steps: there a driver, which needs ten seconds to come back, is killed twice only.
    "driver": [
        ("end upload", True), ("put segment", True),
        *((step, executed) for step in STEPS[4:] for executed in (False, True)),
    ],
}  # fmt: skip
"""By who is killed: at which step, and whether the store has executed the request."""


class LongStarts(Starts):
    """Starts a job that does not end: it is cancelled. Each second or so it stores its 16 MB whole."""

    program = fat_program(1600, 1600.0)
    rows = 10_000_000


def step_of(method: str, path: str) -> tuple[str, int | None]:
    """Return which step of a checkpoint a request is, and the slot that asks; None: the driver."""
    key, _, query = path.partition("?")
    name = parse("/".join(key.split("/")[4:]))
    if isinstance(name, SegmentName) and "upload" in query:
        steps = {"PUT": "part", "DELETE": "abort upload"}
        return steps.get(method, "end upload" if "uploadId" in query else "begin upload"), name.slot
    kinds: dict[type, str] = {SegmentName: "segment", MetadataName: "metadata", LogName: "log"}
    verb = {"PUT": "put", "DELETE": "delete"}.get(method, "read")
    return f"{verb} {kinds.get(type(name), 'other')}", name.slot if isinstance(name, SegmentName) else None


class KillAt:
    """Gives the next request of one step a fault, that kills the process that `victim` returns for the slot of it."""

    def __init__(self, step: str, executed: bool, victim: Callable[[int | None], int]) -> None:
        self._step = step
        self._executed = executed
        self._victim = victim
        self._lock = threading.Lock()
        self.happened = threading.Event()

    def __call__(self, method: str, path: str) -> Fault:
        step, slot = step_of(method, path)
        with self._lock:
            if step != self._step or self.happened.is_set():
                return PASSED
            self.happened.set()
        return Fault(executed=self._executed, kills=self._victim(slot))


def after_restart(before: Report) -> Callable[[Report], bool]:
    """Return what is true of reports once a slot's kill is over, and further checkpoints have completed."""
    return lambda report: report.restarts > before.restarts and runs(before.completed + 2)(report)


@pytest.mark.parametrize("victim", ["slot", "driver"])
def test_kills_at_each_step_of_checkpoints_lose_nothing_and_leave_nothing(
    weed: Server, tmp_path: Path, victim: str
) -> None:
    folder = f"steps/{JOB_ID}"
    deadline = time.monotonic() + LIMIT_S
    with FaultyProxy(weed.port) as proxy:
        starts = LongStarts(tmp_path, weed, f"s3://{BUCKET}/steps", **HA, **{**OPTIONS, "s3.endpoint": proxy.url})
        driver = starts.start()
        report = driver.await_report(runs(2), deadline)
        for step, executed in of_today(KILLS[victim]):
            pids = report.slot_pids
            driver_pid = driver.process.pid
            kill = KillAt(step, executed, lambda slot: pids[slot or 0] if victim == "slot" else driver_pid)
            proxy.fault = kill
            assert kill.happened.wait(max(0.0, deadline - time.monotonic())), f"no {step}:\n{driver.log()}"
            if victim == "slot":
                report = driver.await_report(after_restart(report), deadline)
            else:
                driver.process.wait(30)
                driver = starts.start()
                report = driver.await_report(runs(2), deadline)
        driver.process.send_signal(signal.SIGUSR1)
        driver.await_end(deadline)

    uploading = [step_of(method, path) for method, path in proxy.requests if "upload" in path.partition("?")[2]]
    assert uploading and all(slot is not None for _, slot in uploading), "only slots upload in parts"
    left, named = unnamed(open_store(f"s3://{BUCKET}/{folder}", settings_of(weed)))
    assert not left
    last = max(name.generation for path in named if isinstance(name := parse(path), SegmentName))
    uploads = [parse(path) for path in unfinished_uploads(weed, folder)]
    assert uploads or victim == "driver", "some kills of slots leave an upload, which is for the bucket's rule"
    assert all(isinstance(name, SegmentName) and name.generation < last for name in uploads)
    assert_exact(committed(starts.out))
