"""A standalone cluster loses its only Worker, and has no place for any slot for longer than a lost slot used to get."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import quick_spark, shared_spark
from tests.chaos.standalone import StandaloneCluster, executor_of
from tests.chaos.test_standalone import PARALLELISM, Running

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

LOST_S = 40.0


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    from penstock.spark.java import ensure_java

    ensure_java()
    cluster = StandaloneCluster(tmp_path_factory.mktemp("places"), workers=1, cores=2)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def session(cluster: StandaloneCluster) -> Iterator[Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    shared_spark.stop()
    builder = SparkSession.builder.master(cluster.master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": quick_spark.java_options,
        # A slot whose task fails is submitted again by us, and not tried again by Spark.
        "spark.task.maxFailures": "1",
        **shared_spark.USERS,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


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
