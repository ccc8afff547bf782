"""Collects rows of a job into the program: each comes once through kills, and what nobody reads fills no memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock.common import CompletableFuture, JobExecutionError, JobExecutionResult, JobID, JobStatus, Types
from penstock.common.row_types.type_information import TypeInformation
from penstock.connectors.memory.collect import CollectSink
from penstock.connectors.testing import SinkRun, verify_sink
from penstock.datastream.connectors.base import SinkError

PAIR = Types.TUPLE([Types.LONG(), Types.STRING()])


class Job:
    """A job whose end the test decides."""

    def __init__(self) -> None:
        self.result: CompletableFuture[JobExecutionResult] = CompletableFuture()
        self.cancelled = False

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return self.result

    def cancel(self) -> None:
        self.cancelled = True
        self.result.set_exception(JobExecutionError("cancelled", status=JobStatus.CANCELED))

    def finish(self) -> None:
        self.result.set_result(JobExecutionResult(JobID("0" * 32), 1))


def batch(rows: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(PAIR.encode(rows), schema=PAIR.schema)


def pairs(first: int, count: int = 5) -> list[tuple[int, str]]:
    return [(i, str(i)) for i in range(first, first + count)]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("row_type", [PAIR, None])
def test_rows_come_once_through_kills(parallelism: int, row_type: TypeInformation | None) -> None:
    def make_sink() -> tuple[CollectSink, Callable[[], list[Any]]]:
        sink, job = CollectSink(), Job()
        job.finish()
        return sink, lambda: list(sink.results(job))

    verify_sink(make_sink, [pairs(0), pairs(5), pairs(10)], row_type, parallelism)


def test_rows_keep_their_order() -> None:
    sink, job = CollectSink(), Job()
    SinkRun(sink, [batch(pairs(0)), batch(pairs(5))], PAIR).finish()
    job.finish()
    assert list(sink.results(job)) == pairs(0, 10)


def test_without_checkpointing_rows_come_at_the_end() -> None:
    sink, job = CollectSink(), Job()
    run = SinkRun(sink, [batch(pairs(0)), batch(pairs(5))], PAIR, checkpointing=False)
    with pytest.raises(TimeoutError, match="no result within 1 ms"):
        next(sink.results(job, timeout_ms=1))
    run.finish()
    job.finish()
    assert list(sink.results(job)) == pairs(0, 10)


def test_an_iterator_waits_for_the_next_checkpoint_and_for_the_end() -> None:
    sink, job = CollectSink(), Job()
    run = SinkRun(sink, [batch(pairs(0)), batch(pairs(5))], PAIR)
    found: list[Any] = []
    third = threading.Event()

    def read() -> None:
        for row in sink.results(job, timeout_ms=30_000):
            found.append(row)
            if len(found) == 3:
                third.set()

    reader = threading.Thread(target=read)
    reader.start()
    run.checkpoint()
    assert third.wait(30)
    run.finish()
    job.finish()
    reader.join(30)
    assert not reader.is_alive()
    assert found == pairs(0, 10)


def test_the_failure_of_the_job_comes_after_the_rows_of_completed_checkpoints() -> None:
    sink, job = CollectSink(), Job()
    SinkRun(sink, [batch(pairs(0))], PAIR).finish()
    job.result.set_exception(JobExecutionError("it broke"))
    results, found = sink.results(job), []
    with pytest.raises(JobExecutionError, match="it broke"):
        for row in results:
            found.append(row)
    assert found == pairs(0)
    assert list(results) == []


def test_closing_cancels_a_job_that_runs() -> None:
    sink, job = CollectSink(), Job()
    run = SinkRun(sink, [batch(pairs(0)), batch(pairs(5))], PAIR)
    run.checkpoint()
    with sink.results(job) as results:
        assert next(results) == (0, "0")
    assert job.cancelled
    assert list(results) == []
    run.finish()


def test_closing_after_the_end_cancels_nothing() -> None:
    sink, job = CollectSink(), Job()
    job.finish()
    sink.results(job).close()
    assert not job.cancelled


def test_results_that_nobody_reads_have_a_limit() -> None:
    sink = CollectSink(unread_bytes_max=200)
    run = SinkRun(sink, [batch(pairs(0)), batch(pairs(5, 100))], PAIR)
    run.checkpoint()
    with pytest.raises(SinkError, match=r"bytes of collected results wait to be read, and 200 are allowed"):
        run.checkpoint()


@pytest.mark.parametrize(("checkpointing", "way_out"), [(True, "more often"), (False, "take checkpoints .env")])
def test_what_a_subtask_gathers_has_a_limit(checkpointing: bool, way_out: str) -> None:
    run = SinkRun(CollectSink(writer_bytes_max=1000), [], PAIR, checkpointing=checkpointing)
    with pytest.raises(SinkError, match=f"sink: more than 1000 bytes .*{way_out}"):
        run._write(batch(pairs(0, 1000)))
