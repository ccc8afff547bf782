"""A standalone cluster loses its only Worker, and has no place for any slot for longer than a lost slot used to get."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.standalone import StandaloneCluster, executor_of, session_on, standalone_cluster
from tests.chaos.test_standalone import PARALLELISM, Running

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

LOST_S = 40.0


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("places"), workers=1, cores=2) as cluster:
        yield cluster


@pytest.fixture
def session(cluster: StandaloneCluster) -> Iterator[Any]:
    # A slot whose task fails is submitted again by us, and not tried again by Spark.
    with session_on(cluster, {"spark.task.maxFailures": "1"}) as session:
        yield session


def test_a_job_without_any_place_waits_and_goes_on_exactly(
    session: Any, cluster: StandaloneCluster, tmp_path: Path
) -> None:
    """It waits for places for `slot.request.timeout`, five minutes: having none is no failure of a slot."""
    job = Running(tmp_path, **{"restart-strategy.fixed-delay.attempts": "3"})
    before = job.until_runs()
    tracker = session.sparkContext.statusTracker()
    jobs = set(tracker.getActiveJobsIds())
    executor = executor_of(before.slot_pids[0])
    os.kill(executor, signal.SIGKILL)
    job.until(lambda r: len(set(tracker.getActiveJobsIds()) - jobs) == PARALLELISM, "all slots are submitted again")
    cluster.kill_all_workers()
    job.until(lambda r: not any(r.slot_pids), "all slots are lost")
    lost_s = time.monotonic()
    job.until(lambda r: time.monotonic() - lost_s > LOST_S, "the job waits for places")
    cluster.start_worker(1)
    job.until_runs(before.generation)
    report = job.assert_exact()
    assert report.completed > before.completed and 1 <= report.restarts <= 3
