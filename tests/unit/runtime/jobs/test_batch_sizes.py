"""Tests `map_batches` with a batch size: rows wait for each other, for a bounded time, and nothing passes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common.configuration import Configuration
from penstock.common.time import Duration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.operators.columns.columnar_chain import ColumnarChain
from penstock.operators.columns.columnar_functions import columnar_operators
from tests.unit.runtime.jobs.small_job import CommittedRows, ManualClock, SmallJob, graph_of
from tests.unit.runtime.jobs.test_small_jobs import SMALL, finish, run_with_checkpoint

NUMBERS = Types.ROW_NAMED(["number"], [Types.LONG()])


def numbers(first: int, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(first, first + rows), pa.int64())], schema=NUMBERS.schema)


class Sizes:
    """Writes down how many rows each call got. Functions travel pickled, so the notes are in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        with self.path.open("a") as file:
            file.write(f"{batch.num_rows}\n")
        return batch

    @property
    def found(self) -> list[int]:
        return [int(line) for line in self.path.read_text().split()] if self.path.exists() else []


@pytest.fixture
def sizes(tmp_path: Path) -> Sizes:
    return Sizes(tmp_path / "sizes")


def job_of(sizes: Sizes, rows: int | None, batch_size: int, latency: Duration) -> SmallJob:
    def build(env: StreamExecutionEnvironment) -> None:
        source = BatchGeneratorSource(numbers, rows, NUMBERS)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        stream.map_batches(sizes, NUMBERS, batch_size, latency).sink_to(CommittedRows())

    return SmallJob(graph_of(build), Configuration(SMALL))


def waiting(chain: ColumnarChain) -> tuple[bool, float | None, int | None]:
    return chain.holds, chain.due_in_ms, chain.lacking_rows


def test_every_call_gets_a_full_batch_and_the_end_of_data_the_rest(sizes: Sizes) -> None:
    job = job_of(sizes, 1_000, 300, Duration.of_hours(1))
    rows = finish(job, 1)
    assert sizes.found == [300, 300, 300, 100]
    assert sorted(row["number"] for row in rows) == list(range(1_000))
    job.close()


def test_a_row_waits_no_longer_than_the_latency(sizes: Sizes) -> None:
    """The wait begins with the first row of a batch."""
    vertex = job_of(sizes, 1, 10, Duration.of_millis(50)).graph.vertices[0]
    clock = ManualClock()
    chain = ColumnarChain(vertex, columnar_operators(vertex, None), clock.monotonic_ms)
    assert waiting(chain) == (False, None, 10)
    assert chain.run(numbers(0, 4)) == []
    clock.now_ms += 30
    assert chain.run(numbers(4, 3)) == []
    assert waiting(chain) == (True, 20, 3)
    [(_, full)] = chain.run(numbers(7, 5))
    assert full.num_rows == 10
    assert waiting(chain) == (True, 50, 8)
    clock.now_ms += 60
    assert chain.due_in_ms == 0
    [(_, rest)] = chain.flush_held()
    assert rest.column("number").to_pylist() == [10, 11]
    assert waiting(chain) == (False, None, 10)


class Reads:
    """Makes numbers, and writes down how many rows each read of the source asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, first: int, rows: int) -> pa.RecordBatch:
        with self.path.open("a") as file:
            file.write(f"{rows}\n")
        return numbers(first, rows)


def test_a_filter_in_front_does_not_make_slices_tiny(sizes: Sizes, tmp_path: Path) -> None:
    """Slices had the rows that the batch lacked, of which a hundredth passed: 11 rows each, on average."""
    reads = Reads(tmp_path / "reads")

    def build(env: StreamExecutionEnvironment) -> None:
        source = BatchGeneratorSource(reads, 100_000, NUMBERS)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        hundreds = stream.filter(pc.field("number") / pc.scalar(100) * pc.scalar(100) == pc.field("number"))
        hundreds.map_batches(sizes, NUMBERS, 50, Duration.of_hours(1)).sink_to(CommittedRows())

    job = SmallJob(graph_of(build), Configuration(SMALL))
    rows = finish(job, 1)
    assert sorted(row["number"] for row in rows) == list(range(0, 100_000, 100))
    assert sizes.found == [50] * 20
    slices = [int(rows) for rows in reads.path.read_text().split()]
    assert sum(slices) == 100_000
    assert len(slices) < 500
    job.close()


@pytest.mark.parametrize("arriving", [1, 10, 12])
def test_a_row_behind_another_batch_waits_no_longer_either(sizes: Sizes, arriving: int) -> None:
    """Each batch that was begun in front set the time back at which the larger one behind it was due."""

    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.from_source(BatchGeneratorSource(numbers, 1, NUMBERS), WatermarkStrategy.no_watermarks(), "n")
        small = stream.map_batches(sizes, NUMBERS, 10, Duration.of_hours(1))
        small.map_batches(sizes, NUMBERS, 1_000, Duration.of_millis(50)).sink_to(CommittedRows())

    vertex = graph_of(build).vertices[0]
    clock = ManualClock()
    chain = ColumnarChain(vertex, columnar_operators(vertex, None), clock.monotonic_ms)
    assert chain.run(numbers(0, 10)) == []
    for waited_ms in (10, 20, 30, 40):
        clock.now_ms += 10
        assert chain.run(numbers(0, arriving)) == []
        assert chain.due_in_ms == 50 - waited_ms
    clock.now_ms += 10
    assert chain.due_in_ms == 0
    assert sum(batch.num_rows for _, batch in chain.flush_held()) == 10 + 4 * arriving
    assert waiting(chain)[:2] == (False, None)


def test_a_barrier_ends_the_wait(sizes: Sizes) -> None:
    job = job_of(sizes, None, 1_000_000, Duration.of_hours(1))
    job.run(5)
    assert not sizes.found
    done = run_with_checkpoint(job, 1, None)
    assert sum(sizes.found) == len(done.committed) > 0
    job.close()


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is a positive number of rows, got 0"),
        ({"batch_size": True}, TypeError, "batch_size is a number of rows, got True"),
        ({"batch_size": 2.5}, TypeError, "batch_size is a number of rows, got 2.5"),
        ({"max_latency": Duration.of_millis(5)}, ValueError, "give both"),
        ({"batch_size": 5, "max_latency": 5}, TypeError, "max_latency is a Duration, got 5"),
        ({"batch_size": 5, "max_latency": Duration.of_millis(0)}, ValueError, "at least 1 ms"),
    ],
)
def test_wrong_sizes_are_refused_where_they_are_declared(
    arguments: dict[str, Any], error: type[Exception], told: str
) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.from_source(BatchGeneratorSource(numbers, 1, NUMBERS), WatermarkStrategy.no_watermarks(), "n")
        stream.map_batches(lambda b: b, NUMBERS, **arguments)

    with pytest.raises(error, match=told):
        graph_of(build)
