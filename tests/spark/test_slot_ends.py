"""Tests how Spark sees the end of a slot: a success where the job has ended it, and no worker to use again."""

from __future__ import annotations

import os
import re

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment
from tests.spark.small_jobs import environment, numbers, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]


def jobs_of_slots(context: SparkContext) -> dict[int, str]:
    """Return the state of each Spark job that was a slot's."""
    store = context._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    found = {}
    for place in range(jobs.size()):
        job = jobs.apply(place)
        if re.search(r"penstock-\w+-slot-", str(job.jobTags().mkString(" "))):
            found[int(job.jobId())] = str(job.status().name())
    return found


def ended_jobs(context: SparkContext, before: set[int]) -> dict[int, str]:
    return {number: state for number, state in jobs_of_slots(context).items() if number not in before}


def processes_of_tasks(context: SparkContext) -> set[int]:
    tasks = context.defaultParallelism
    return set(context.parallelize(range(tasks), tasks).map(lambda _: os.getpid()).collect())


@pytest.mark.parametrize("how", ["finished", "cancelled", "rescaled"])
def test_a_slot_that_the_job_ends_is_a_success_for_spark_and_no_worker(
    quick_session: SparkSession, how: str, capfd: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    context = quick_session.sparkContext
    before = set(jobs_of_slots(context))
    env: StreamExecutionEnvironment = environment(
        2, execution_checkpointing_interval="50 ms", execution_checkpointing_dir=str(tmp_path)
    )
    rows = 500 if how == "finished" else 10**9
    numbers(env, rows, 500.0).map(lambda i: i, Types.LONG()).print()
    client = env.execute_async(how)
    wait_until(lambda: client.report().completed >= 2, "checkpoints")
    slots = {pid for pid in client.report().slot_pids if pid is not None}
    if how == "rescaled":
        client.rescale(1).result(90)
        wait_until(lambda: "SUCCEEDED" in ended_jobs(context, before).values(), "the end of a slot")
    if how != "finished":
        client.cancel().result(90)
    else:
        client.wait(90_000)
    wait_until(lambda: "RUNNING" not in ended_jobs(context, before).values(), "the end of the slots")
    ended = ended_jobs(context, before)
    assert len(ended) == 2 and set(ended.values()) == {"SUCCEEDED"}, ended
    assert not slots & processes_of_tasks(context)
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in slots), "the end of the processes")
    told = capfd.readouterr().err
    assert "Lost task" not in told and "TaskKilled" not in told and "failed" not in told, told
    assert re.search(r"running with 2 slots after [\d.]+ s\n", told), told
