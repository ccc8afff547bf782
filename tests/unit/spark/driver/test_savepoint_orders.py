"""Tests what a program hears of the savepoints that it has ordered, whenever the job ends."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock.common.job_execution import CheckpointFailed, JobExecutionError, RescaleFailed, SavepointFailed
from penstock.common.job_id import JobID
from penstock.jobmaster.ports import CheckpointAnswer, JobOutcome, RescaleOrder, SavepointOrder
from penstock.protocol.driver.savepoint import Alignment
from penstock.spark.driver.spark_job_client import SparkJobClient


def client_with(
    orders: list[SavepointOrder],
    rescales: list[RescaleOrder] | None = None,
    asked: list[CheckpointAnswer] | None = None,
) -> SparkJobClient:
    rescales = [] if rescales is None else rescales
    asked = [] if asked is None else asked
    return SparkJobClient(
        JobID("a" * 32), lambda: cast(Any, None), lambda: None, asked.append, orders.append, rescales.append
    )


def test_an_order_that_nobody_answers_any_more_fails_when_the_job_has_ended() -> None:
    client = client_with([])
    taken, stopped = client.trigger_savepoint("/s"), client.stop_with_savepoint()
    client.on_ended(JobOutcome("FINISHED", None, None, 1.0))
    for future in (taken, stopped, client.trigger_savepoint("/s")):
        with pytest.raises(SavepointFailed, match="the job has ended"):
            future.result(0)


def test_a_stop_is_complete_when_the_job_has_ended_and_fails_with_it() -> None:
    for state in ("FINISHED", "FAILED"):
        orders: list[SavepointOrder] = []
        client = client_with(orders)
        stopped = client.stop_with_savepoint(True, "/s", aligned=True)
        assert orders[0].stops and orders[0].drains and orders[0].alignment is Alignment.ALIGNED
        orders[0].answer("/s/savepoint-1")
        assert not stopped.done(), "its output is still to be committed"
        client.on_ended(JobOutcome(state, None if state == "FINISHED" else "no", "/job", 1.0))
        if state == "FINISHED":
            assert stopped.result(0) == "/s/savepoint-1"
        else:
            with pytest.raises(JobExecutionError, match=r"(?s)^no\nResume from: /job\n.* with -s /s/savepoint-1$"):
                stopped.result(0)


def test_a_program_that_gives_up_waiting_for_the_job_still_controls_it() -> None:
    orders: list[SavepointOrder] = []
    client = client_with(orders)
    stopped = client.stop_with_savepoint(False, "/s")
    assert not client.get_job_execution_result().cancel() and not client.cancel().cancel()
    client.trigger_savepoint("/s")
    assert len(orders) == 2, "the job has not ended"
    orders[0].answer("/s/savepoint-1")
    client.on_ended(JobOutcome("FINISHED", None, None, 1.0))
    assert stopped.result(0) == "/s/savepoint-1"


def test_a_checkpoint_is_accepted_or_refused_or_comes_too_late() -> None:
    asked: list[CheckpointAnswer] = []
    client = client_with([], asked=asked)
    accepted, refused, late = (client.trigger_checkpoint() for _ in range(3))
    asked[0](None)
    asked[1](CheckpointFailed("the job restarts"))
    assert accepted.result(0) is None
    with pytest.raises(CheckpointFailed, match="the job restarts"):
        refused.result(0)
    client.on_ended(JobOutcome("FINISHED", None, None, 1.0))
    for future in (late, client.trigger_checkpoint()):
        with pytest.raises(CheckpointFailed, match="the job has ended"):
            future.result(0)


def test_a_rescale_is_answered_by_the_driver_or_by_the_end_of_the_job() -> None:
    rescales: list[RescaleOrder] = []
    client = client_with([], rescales)
    done, refused, late = client.rescale(3), client.rescale({"counter": 2}), client.rescale(4)
    assert [order.parallelism for order in rescales] == [3, {"counter": 2}, 4]
    rescales[0].answer(None)
    rescales[1].answer(RescaleFailed("no such operator"))
    assert done.result(0) is None
    with pytest.raises(RescaleFailed, match="no such operator"):
        refused.result(0)
    client.on_ended(JobOutcome("FINISHED", None, None, 1.0))
    for future in (late, client.rescale(5)):
        with pytest.raises(RescaleFailed, match="the job has ended"):
            future.result(0)
