"""Tests rows that wait for a batch of `map_batches`, over crashes and at other parallelisms: each counts once."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common.time import Duration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from tests.unit.runtime.jobs.small_job import CommittedRows
from tests.unit.runtime.jobs.test_rescaled_jobs import Build, Cascade

ROWS = 600
LEFT_OUT = 17
PAIRS = Types.ROW_NAMED(["key", "number"], [Types.LONG(), Types.LONG()])
SUMS = Types.ROW_NAMED(["key", "sum_number"], [Types.LONG(), Types.LONG()])


def pairs(first: int, rows: int) -> pa.RecordBatch:
    found = pa.array(range(first, first + rows), pa.int64())
    return pa.RecordBatch.from_arrays([pc.bit_wise_and(found, 7), found], schema=PAIRS.schema)


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def batching(edge: str, random: Random) -> Build:
    """Two operators that wait in a row, with a filter between them, and one or two more behind `edge`."""
    waits = [(random.choice([1, 3, 7, 50, 5000]), Duration.of_millis(random.choice([1, 5, 3_600_000]))) for _ in "1234"]

    def build(env: StreamExecutionEnvironment) -> None:
        source = BatchGeneratorSource(pairs, ROWS, PAIRS)
        stream: Any = env.from_source(source, WatermarkStrategy.no_watermarks(), "pairs")
        stream = stream.map_batches(same, PAIRS, *waits[0]).filter(pc.field("number") != LEFT_OUT)
        stream = stream.map_batches(same, PAIRS, *waits[1])
        if edge == "keyed":
            stream = stream.key_by("key").sum("number").map_batches(same, SUMS, *waits[2])
        else:
            stream = stream.rebalance().map_batches(same, PAIRS, *waits[2]).map_batches(same, PAIRS, *waits[3])
        stream.sink_to(CommittedRows())

    return build


@pytest.mark.parametrize("edge", ["keyed", "rebalance"])
@pytest.mark.parametrize("seed", range(8))
def test_rows_that_wait_count_once_at_every_parallelism(edge: str, seed: int) -> None:
    random = Random(seed)
    cascade = Cascade(batching(edge, random), seed)
    for _ in range(4):
        cascade.start(random.randint(1, 3))
        cascade.crash_after(random.randrange(5, 60), random.choice([None, 1, 0]))
    cascade.start(random.randint(1, 3))
    rows = cascade.finish()
    expected = [number for number in range(ROWS) if number != LEFT_OUT]
    assert len(rows) == len(expected)
    if edge == "rebalance":
        assert sorted(row["number"] for row in rows) == expected
        return
    for key in range(8):
        largest = max(row["sum_number"] for row in rows if row["key"] == key)
        assert largest == sum(number for number in expected if number & 7 == key)
