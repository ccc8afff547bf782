"""Spark starts executors because slots wait for them, while executors and slots are killed: the job stays exact."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.standalone import StandaloneCluster, executor_of, session_on, standalone_cluster
from tests.chaos.test_adaptive import ADAPTIVE, slots
from tests.chaos.test_standalone import Running
from tests.spark.small_jobs import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 30_000
ALLOCATION = {
    "spark.executor.cores": "1",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "5s",
}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("dynamic"), workers=2, cores=1) as cluster:
        yield cluster


@pytest.fixture
def session(cluster: StandaloneCluster) -> Iterator[Any]:
    with session_on(cluster, ALLOCATION) as session:
        yield session


def executors(session: Any) -> int:
    """Return the number of executors that the session has now."""
    return int(session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver counts


def test_executors_come_for_waiting_slots_and_go_when_the_job_ends(session: Any, tmp_path: Path) -> None:
    job = Running(tmp_path, ROWS, False, **ADAPTIVE)
    before = job.until(lambda r: slots(r) == 2 and r.completed >= 2, "Spark starts an executor for each slot")
    os.kill(executor_of(before.slot_pids[1]), signal.SIGKILL)
    job.until(lambda r: r.generation > before.generation, "the loss is noticed")
    after = job.until(lambda r: slots(r) == 2 and r.completed > before.completed, "Spark starts an executor again")
    assert after.slot_pids[1] not in before.slot_pids
    assert after.slot_pids[0] in before.slot_pids, "the process that is left goes on"
    os.kill(after.slot_pids[0], signal.SIGKILL)
    killed = job.until_runs(after.generation)
    for executor in {executor_of(pid) for pid in killed.slot_pids}:
        os.kill(executor, signal.SIGKILL)
    job.until(lambda r: slots(r) == 2 and r.completed > killed.completed, "all executors are started again")
    job.assert_exact()
    wait_until(lambda: executors(session) == 0, "Spark takes the idle executors away")
