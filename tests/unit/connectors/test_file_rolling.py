"""Tests how many files a file sink makes: parts that outlive checkpoints, and parts that are joined before they are
seen."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Encoder, Types
from penstock.connectors.testing import Kill, SinkRun, verify_sink
from penstock.datastream.connectors.base import OutputGone
from penstock.datastream.connectors.file_system import (
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    ParquetBulkWriters,
    RollingPolicy,
)
from penstock.datastream.formats.csv import CsvBulkWriters, CsvSchema

NUMBER = Types.LONG()
HOUR_MS = 3_600_000


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(NUMBER.encode(numbers), schema=NUMBER.schema)


def visible(directory: str | Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


def hidden(directory: str | Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith("."))


def lines(directory: str | Path) -> list[int]:
    return [int(line) for name in visible(directory) for line in Path(directory, name).read_text().split()]


def parquet(directory: str | Path) -> list[int]:
    return [n for name in visible(directory) for n in pq.read_table(Path(directory, name)).column(0).to_pylist()]


def text_sink(directory: str | Path, interval_ms: int = HOUR_MS) -> FileSink:
    policy = RollingPolicy.default_rolling_policy(rollover_interval=interval_ms, inactivity_interval=interval_ms)
    builder = FileSink.for_row_format(str(directory), Encoder.simple_string_encoder())
    return builder.with_rolling_policy(policy).build()


def compacted(directory: str | Path, format: str, checkpoints: int = 5) -> FileSink:
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(checkpoints).build()
    if format == "text":
        builder = FileSink.for_row_format(str(directory), Encoder.simple_string_encoder())
        return builder.enable_compact(strategy, FileCompactor.concat_file_compactor()).build()
    builder = FileSink.for_bulk_format(str(directory), ParquetBulkWriters.for_row_type())
    return builder.enable_compact(strategy, FileCompactor.parquet_file_compactor()).build()


# ---- rolling --------------------------------------------------------------------------------------------------------


def test_a_part_of_rows_outlives_its_checkpoints(tmp_path: Path) -> None:
    """Sixty checkpoints made sixty files."""
    run = SinkRun(text_sink(tmp_path), [batch(n) for n in range(60)], NUMBER)
    for _ in range(60):
        run.checkpoint()
    assert visible(tmp_path) == []
    run.finish()
    assert len(visible(tmp_path)) == 1
    assert lines(tmp_path) == list(range(60))
    assert hidden(tmp_path) == []


@pytest.mark.parametrize(
    ("policy", "open_ms", "idle_ms", "expected"),
    [
        (RollingPolicy.on_checkpoint_rolling_policy(), 0, 0, True),
        (RollingPolicy.default_rolling_policy(), 59_999, 59_999, False),
        (RollingPolicy.default_rolling_policy(), 60_000, 0, True),
        (RollingPolicy.default_rolling_policy(rollover_interval=HOUR_MS), 60_000, 60_000, True),
        (RollingPolicy.default_rolling_policy(rollover_interval=HOUR_MS), 60_000, 59_999, False),
    ],
)
def test_when_a_part_rolls(policy: RollingPolicy, open_ms: int, idle_ms: int, expected: bool) -> None:
    assert policy.rolls(open_ms, idle_ms) is expected


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("interval_ms", [1, HOUR_MS])
def test_rows_are_visible_once_through_every_kill(tmp_path: Path, parallelism: int, interval_ms: int) -> None:
    made: list[Path] = []

    def make_sink() -> tuple[FileSink, Any]:
        made.append(tmp_path / str(len(made)))
        return text_sink(made[-1], interval_ms), lambda: lines(made[-1])

    verify_sink(make_sink, [[1, 2, 3], [4, 5], [6, 7, 8, 9]], NUMBER, parallelism)


STEPS = st.lists(st.sampled_from([None, "given up", *Kill]), max_size=10)


@settings(max_examples=60, deadline=None)
@given(
    steps=STEPS,
    rows=st.lists(st.integers(0, 5), max_size=8),
    parallelism=st.integers(1, 3),
    kind=st.sampled_from(["hour", "at once", "text", "parquet"]),
)
def test_whatever_happens_rows_are_visible_once_and_nothing_is_left(
    steps: list[Any], rows: list[int], parallelism: int, kind: str
) -> None:
    batches = [batch(*range(100 * n, 100 * n + count)) for n, count in enumerate(rows)]
    with tempfile.TemporaryDirectory() as directory:
        sink = {
            "hour": lambda: text_sink(directory),
            "at once": lambda: text_sink(directory, 1),
            "text": lambda: compacted(directory, "text", 2),
            "parquet": lambda: compacted(directory, "parquet", 2),
        }[kind]()
        run = SinkRun(sink, batches, NUMBER, parallelism)
        run.checkpoint()
        for step in steps:
            run.checkpoint(step if isinstance(step, Kill) else None, is_given_up=step == "given up")
        run.finish()
        found = parquet(directory) if kind == "parquet" else lines(directory)
        assert sorted(found) == [n for written in batches for n in written.column(0).to_pylist()]
        assert hidden(directory) == []


@pytest.mark.parametrize("kind", ["open", "joined"])
def test_a_stop_leaves_no_hidden_files(tmp_path: Path, kind: str) -> None:
    """Nobody may ever continue the job. If the savepoint fails, it goes on."""
    sink = text_sink(tmp_path) if kind == "open" else compacted(tmp_path, "text", checkpoints=100)
    run = SinkRun(sink, [batch(1), batch(2), batch(3), batch(4)], NUMBER, parallelism=2)
    run.checkpoint()
    assert hidden(tmp_path) and not visible(tmp_path)
    run.checkpoint(is_stop=True, is_given_up=True)
    run.checkpoint()
    assert sorted(lines(tmp_path)) == [1, 2] and hidden(tmp_path), "the job goes on after the failed stop"
    run.checkpoint(is_stop=True)
    assert sorted(lines(tmp_path)) == [1, 2, 3, 4] and not hidden(tmp_path)


def test_what_an_old_writer_appends_after_a_restart_is_not_seen(tmp_path: Path) -> None:
    """A slot that lost its driver goes on for a moment. It may hold the part that the next generation goes on with."""
    run = SinkRun(text_sink(tmp_path), [batch(1), batch(2), batch(3)], NUMBER)
    run.checkpoint()
    old = run._writers[0]
    run.checkpoint(Kill.LOGGED)
    old.write(batch(1000))
    old.prepare_commit(99)
    run.finish()
    assert lines(tmp_path) == [1, 2, 3]


def test_an_older_checkpoint_finds_its_rows_in_the_file_that_they_have_become(tmp_path: Path) -> None:
    run = SinkRun(text_sink(tmp_path), [batch(1), batch(2), batch(3)], NUMBER)
    run.checkpoint()
    older = [*run._writer_states], run._restored_batch
    run.finish()
    assert lines(tmp_path) == [1, 2, 3]
    again = SinkRun(text_sink(tmp_path), run.batches, NUMBER)
    again._writer_states, again._restored_batch = older
    again._restart()
    again.finish()
    assert sorted(lines(tmp_path)) == [1, 1, 2, 2, 3, 3], "the output repeats, as for every older checkpoint"
    for name in visible(tmp_path):
        os.unlink(tmp_path / name)
    with pytest.raises(OutputGone, match="rows of a completed checkpoint are lost"):
        again._writer_states = older[0]
        again._restart()


# ---- compaction -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["text", "parquet"])
def test_small_parts_are_joined_before_they_are_seen(tmp_path: Path, format: str) -> None:
    """Sixty checkpoints made sixty Parquet files; joined every fifth time they make at most fourteen."""
    run = SinkRun(compacted(tmp_path, format), [batch(n) for n in range(60)], NUMBER)
    run.finish()
    assert len(visible(tmp_path)) <= 14
    assert sorted(parquet(tmp_path) if format == "parquet" else lines(tmp_path)) == list(range(60))
    assert hidden(tmp_path) == []


def test_parts_are_joined_at_a_size(tmp_path: Path) -> None:
    strategy = FileCompactStrategy.builder().set_size_threshold(20).set_num_compact_threads(2).build()
    builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    builder = builder.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    sink = builder.enable_compact(strategy, FileCompactor.concat_file_compactor(b"\n")).build()
    run = SinkRun(sink, [batch(1000 + n) for n in range(8)], NUMBER)
    run.finish()
    assert 1 < len(visible(tmp_path)) < 8
    assert sorted(lines(tmp_path)) == list(range(1000, 1008))


@pytest.mark.parametrize("format", ["text", "parquet"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_joined_rows_are_visible_once_through_every_kill(tmp_path: Path, format: str, parallelism: int) -> None:
    made: list[Path] = []

    def make_sink() -> tuple[FileSink, Any]:
        made.append(tmp_path / str(len(made)))
        return compacted(made[-1], format, 2), lambda: (parquet if format == "parquet" else lines)(made[-1])

    verify_sink(make_sink, [[1, 2, 3], [4, 5], [6, 7], [8, 9]], NUMBER, parallelism)


def test_identical_files_are_not_joined(tmp_path: Path) -> None:
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()
    builder = FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type())
    sink = builder.enable_compact(strategy, FileCompactor.identical_file_compactor()).build()
    SinkRun(sink, [batch(n) for n in range(6)], NUMBER).finish()
    assert len(visible(tmp_path)) == 6 and sorted(parquet(tmp_path)) == list(range(6))


@pytest.mark.parametrize(
    ("declare", "error", "told"),
    [
        (lambda: FileCompactStrategy.builder().build(), ValueError, "needs set_size_threshold"),
        (lambda: FileCompactStrategy.builder().set_size_threshold(0), ValueError, "at least 1, got 0"),
        (lambda: FileCompactStrategy.builder().enable_compaction_on_checkpoint(0), ValueError, "at least 1, got 0"),
        (lambda: RollingPolicy.default_rolling_policy(rollover_interval=0), ValueError, "rollover_interval must be"),
        (lambda: parquet_joined_by(FileCompactor.concat_file_compactor()), ValueError, "take .*parquet_file_compactor"),
        (lambda: csv_joined(use_header=True), ValueError, r"begins with a header.*set_use_header\(False\)"),
        (lambda: parquet_joined_by("concat"), TypeError, "takes a FileCompactor, got 'concat'"),
        (lambda: text_joined_by(FileCompactor.parquet_file_compactor()), ValueError, "this sink writes others"),
    ],
)
def test_what_cannot_be_joined_is_refused_where_it_is_declared(declare: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        declare()


def test_csv_without_a_header_is_joined(tmp_path: Path) -> None:
    SinkRun(csv_joined(use_header=False, path=tmp_path), [batch(1, 2), batch(3)], NUMBER).finish()
    assert sorted(lines(tmp_path)) == [1, 2, 3]


STRATEGY = FileCompactStrategy.builder().enable_compaction_on_checkpoint(1).build()


def parquet_joined_by(compactor: Any) -> None:
    FileSink.for_bulk_format("/tmp/none", ParquetBulkWriters.for_row_type()).enable_compact(STRATEGY, compactor)


def text_joined_by(compactor: Any) -> None:
    FileSink.for_row_format("/tmp/none", Encoder.simple_string_encoder()).enable_compact(STRATEGY, compactor)


def csv_joined(use_header: bool, path: str | Path = "/tmp/none") -> FileSink:
    schema = CsvSchema.builder().add_number_column("value").set_use_header(use_header).build()
    builder = FileSink.for_bulk_format(str(path), CsvBulkWriters.for_schema(schema))
    return builder.enable_compact(STRATEGY, FileCompactor.concat_file_compactor()).build()
