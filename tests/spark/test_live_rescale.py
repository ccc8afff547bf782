"""Rescales of running jobs on a real Spark: in living processes, under backpressure, and exact."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.common.job_execution import RescaleFailed
from tests.spark.small_jobs import checkpoints, committed, environment, wait_until
from tests.spark.test_savepoints import EXPECTED, UNALIGNED, WAIT_S, counting, finish

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("quick_session")]

RESTARTS = {"restart__strategy_type": "fixed-delay", "restart__strategy_fixed__delay_attempts": "10",
            "restart__strategy_fixed__delay_delay": "10 ms"}  # fmt: skip


def test_a_job_grows_and_shrinks_under_backpressure_and_its_processes_stay(tmp_path: Path) -> None:
    out, options = tmp_path / "out", {**checkpoints(tmp_path / "checkpoints"), **UNALIGNED}
    client = counting(environment(2, **options), out, pause_s=0.012).execute_async("counting")
    wait_until(lambda: client.report().completed >= 3, "checkpoints under backpressure")
    before = client.report().slot_pids
    client.rescale(3).result(WAIT_S)
    report = client.report()
    assert {v.parallelism for v in report.vertices} == {3} and report.slots_needed == 3
    assert set(before) <= set(report.slot_pids), "the processes go on"
    wait_until(lambda: client.report().completed > report.completed + 2, "checkpoints at the new parallelism")
    client.rescale(2).result(WAIT_S)
    assert len(client.report().slot_pids) == 2
    with pytest.raises(RescaleFailed, match="cannot have parallelism 1000"):
        client.rescale(1000).result(WAIT_S)
    assert [(r.before[0], r.after[0]) for r in client.report().rescales] == [(2, 3), (3, 2)]
    finish(client, out)
    assert committed(out) == EXPECTED
    with pytest.raises(RescaleFailed, match="the job has ended"):
        client.rescale(3).result(WAIT_S)


@pytest.mark.parametrize("after", ["at once", "while it restarts"])
def test_a_slot_that_is_killed_during_a_rescale_costs_no_row(tmp_path: Path, after: str) -> None:
    out = tmp_path / "out"
    options = {**checkpoints(tmp_path / "checkpoints"), **UNALIGNED, **RESTARTS}
    client = counting(environment(2, **options), out, pause_s=0.012).execute_async("counting")
    wait_until(lambda: client.report().completed >= 2, "checkpoints")
    pid = next(pid for pid in client.report().slot_pids if pid is not None)
    rescaled = client.rescale(3)
    if after == "while it restarts":
        wait_until(lambda: client.report().generation > 1 or rescaled.done(), "the restart of the rescale")
    os.kill(pid, 9)
    rescaled.result(WAIT_S)
    finish(client, out)
    assert {v.parallelism for v in client.report().vertices} == {3}
    assert committed(out) == EXPECTED
