"""A standalone cluster loses a Worker for good, and gets another one later: an adaptive job follows its places."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.standalone import StandaloneCluster, executor_of, session_on, standalone_cluster
from tests.chaos.test_standalone import Running

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

KEY = "jobmanager.adaptive-scheduler."
ADAPTIVE = {
    "jobmanager.scheduler": "adaptive",
    f"{KEY}submission.resource-stabilization-timeout": "2 s",
    f"{KEY}executing.resource-stabilization-timeout": "1 s",
    f"{KEY}executing.cooldown-after-rescaling": "500 ms",
}
ROWS = 24_000


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("adaptive"), workers=2, cores=1) as cluster:
        yield cluster


@pytest.fixture
def session(cluster: StandaloneCluster) -> Iterator[Any]:
    with session_on(cluster, {"spark.executor.cores": "1"}) as session:
        yield session


def slots(report: Any) -> int:
    """Return the number of the job's slots, once all of them run."""
    is_running = report.state == "RUNNING" and report.slot_pids and all(report.slot_pids)
    return max(v.parallelism for v in report.vertices) if is_running else 0


def test_a_job_follows_workers_that_are_killed_and_come(
    session: Any, cluster: StandaloneCluster, tmp_path: Any
) -> None:
    job = Running(tmp_path, ROWS, False, **ADAPTIVE)
    before = job.until(lambda r: slots(r) == 2 and r.completed >= 2, "two slots")
    cluster.kill_worker_of(executor_of(before.slot_pids[1]))
    after = job.until(lambda r: slots(r) == 1 and r.completed > before.completed, "the job runs in one slot")
    assert after.slot_pids[0] in before.slot_pids, "the process that is left goes on"
    cluster.start_worker(2)
    grown = job.until(lambda r: slots(r) == 2 and r.completed > after.completed, "the job gets its second slot")
    assert after.slot_pids[0] in grown.slot_pids, "it grows while it runs"
    os.kill(grown.slot_pids[0], 9)
    job.until_runs(grown.generation)
    report = job.assert_exact()
    # The process that was killed last may come back too late for the job to wait.
    assert [(r.reason, r.after[0]) for r in report.rescales][:2] == [("slots lost", 1), ("more slots available", 2)]
