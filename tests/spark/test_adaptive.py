"""Tests the adaptive scheduler on a real Spark whose task places others take and give back."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.spark.small_jobs import checkpoints, committed, environment, wait_until
from tests.spark.test_live_rescale import RESTARTS
from tests.spark.test_savepoints import EXPECTED, UNALIGNED, WAIT_S, counting, finish

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200)]

PLACES = 4
"""Of the session, which is `local[4]`."""
ADAPTIVE = {
    "jobmanager_scheduler": "adaptive",
    "jobmanager_adaptive__scheduler_submission_resource__stabilization__timeout": "1500 ms",
    "jobmanager_adaptive__scheduler_executing_resource__stabilization__timeout": "1 s",
    "jobmanager_adaptive__scheduler_executing_cooldown__after__rescaling": "200 ms",
}


@contextmanager
def taken(session: Any, folder: Path, tasks: int) -> Iterator[None]:
    """Let so many tasks of somebody else run, or wait for a place, until the end."""
    started, over = folder / "started", folder / "over"
    folder.mkdir()

    def hold(_: Any) -> Iterator[int]:
        import time

        started.touch()
        while not over.exists():
            time.sleep(0.02)
        yield 0

    def run() -> None:
        session.sparkContext.parallelize(range(tasks), tasks).mapPartitions(hold).collect()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        wait_until(started.exists, "the other tasks")
        yield
    finally:
        over.touch()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def slots_of(client: Any) -> set[int]:
    """Return the slots of each operator, once all subtasks run."""
    report = client.report()
    return {v.parallelism for v in report.vertices} if report.state == "RUNNING" and all(report.slot_pids) else set()


def test_a_job_runs_in_as_many_slots_as_there_are_places(quick_session: Any, tmp_path: Path) -> None:
    out, options = tmp_path / "out", {**checkpoints(tmp_path / "checkpoints"), **UNALIGNED, **RESTARTS, **ADAPTIVE}
    env = counting(environment(3, **options), out, pause_s=0.02)
    with taken(quick_session, tmp_path / "first", PLACES - 2):
        client = env.execute_async("counting")
        wait_until(lambda: slots_of(client) == {2}, "the job runs in the two places that are left")
        wait_until(lambda: client.report().completed >= 2, "checkpoints")
    wait_until(lambda: slots_of(client) == {3}, "the job gets its third slot")
    completed = client.report().completed
    wait_until(lambda: client.report().completed > completed, "a checkpoint of three slots")
    # One of them takes the last place, the other one that of the slot that is killed.
    with taken(quick_session, tmp_path / "second", 2):
        os.kill(next(pid for pid in client.report().slot_pids if pid is not None), 9)
        wait_until(lambda: slots_of(client) == {2}, "the job goes on in two slots")
    wait_until(lambda: slots_of(client) == {3}, "the job gets its third slot again")
    finish(client, out)
    assert committed(out) == EXPECTED
    rescales = [(r.reason, r.before[0], r.after[0]) for r in client.report().rescales]
    assert rescales == [
        ("too few slots at the start", 3, 2),
        ("more slots available", 2, 3),
        ("slots lost", 3, 2),
        ("more slots available", 2, 3),
    ]


def test_a_job_waits_for_its_least_slots(quick_session: Any, tmp_path: Path) -> None:
    out, options = tmp_path / "out", {**checkpoints(tmp_path / "checkpoints"), **UNALIGNED, **RESTARTS, **ADAPTIVE}
    options["jobmanager_adaptive__scheduler_submission_resource__stabilization__timeout"] = "0 ms"
    options["jobmanager_adaptive__scheduler_min__parallelism"] = "3"
    env = counting(environment(PLACES, **options), out, pause_s=0.02)
    with taken(quick_session, tmp_path / "first", PLACES - 2):
        client = env.execute_async("counting")
        wait_until(lambda: client.report().slots_registered == 2, "processes in the two places that are left")
    wait_until(lambda: slots_of(client) == {PLACES}, "the job gets its last slot")
    finish(client, out)
    assert committed(out) == EXPECTED
    assert all(min(r.after) >= 3 for r in client.report().rescales), "it never runs in one or two slots"


def test_where_places_never_change_it_begins_at_once_in_those_that_there_are(
    quick_session: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ADAPTIVE | {
        "jobmanager_adaptive__scheduler_submission_resource__stabilization__timeout": "10 min",
        "jobmanager_adaptive__scheduler_submission_resource__wait__timeout": "10 min",
    }
    env = counting(environment(PLACES + 2, **options), tmp_path / "out")
    client = env.execute_async("counting")
    client.wait(timeout_ms=WAIT_S * 1000)
    assert {v.parallelism for v in client.report().vertices} == {PLACES}
    assert committed(tmp_path / "out") == EXPECTED
    assert f"the job runs in {PLACES} slot(s) instead of {PLACES + 2}" in capfd.readouterr().err
