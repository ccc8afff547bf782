"""Checks the sinks that measure: they add up over all writers, and lose nothing of what each has recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.datastream.connectors.base import WriterContext
from sinks import Counted, CountingSink, Moment, RecordingSink, counted, first_after, recorded


def context(subtask: int) -> WriterContext:
    return WriterContext(subtask, 2, "sink", "uid", f"incarnation-{subtask}", True, None, None)


def numbers(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.int64())})


def test_rows_and_their_sum_are_counted_over_all_writers_while_they_live(tmp_path: Path) -> None:
    sink = CountingSink(tmp_path, "value")
    writers = [sink.create_writer(context(i), []) for i in range(2)]
    writers[0].write(numbers(1, 2))
    writers[1].write(numbers(-5))
    writers[0].write(numbers(10))
    assert counted(tmp_path) == Counted(4, 8)
    writers[0].close()
    assert counted(tmp_path) == Counted(4, 8)


def test_without_a_column_only_rows_are_counted(tmp_path: Path) -> None:
    CountingSink(tmp_path).create_writer(context(0), []).write(pa.record_batch({"text": ["a", "b"]}))
    assert counted(tmp_path) == Counted(2, 0)


def test_what_is_recorded_of_each_batch_comes_back_in_order_by_writer(tmp_path: Path) -> None:
    sink = RecordingSink(tmp_path, lambda batch: batch.column(0).to_numpy() * 10)
    for subtask, batches in enumerate(([numbers(1, 2), numbers(3)], [numbers(4)])):
        writer = sink.create_writer(context(subtask), [])
        for batch in batches:
            writer.write(batch)
        writer.close()
    assert [list(values) for values in recorded(tmp_path)] == [[10, 20, 30], [40]]
    assert all(values.dtype == np.int64 for values in recorded(tmp_path))


def test_the_first_moment_of_a_new_generation_is_found_among_all_writers(tmp_path: Path) -> None:
    (tmp_path / "write-0-1.log").write_text("100 old\n300 new\n400 new\n")
    (tmp_path / "write-1-2.log").write_text("150 old\n250 new\n27")
    (tmp_path / "commit-3.log").write_text("200 new\n")
    assert first_after("write", tmp_path, {"old"}, 5.0) == Moment(250, "new")
    assert first_after("commit", tmp_path, {"old"}, 5.0) == Moment(200, "new")
    assert first_after("write", tmp_path, {"old", "new"}, 0.0) is None
