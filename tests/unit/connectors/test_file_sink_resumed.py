"""Tests a file sink that is resumed: with other settings, at another parallelism, elsewhere, more than once."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Types
from penstock.connectors.testing import Kill, SinkRun
from penstock.datastream.connectors.base import WriterContext
from penstock.datastream.connectors.file_system import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    ParquetBulkWriters,
)
from tests.unit.connectors.test_file_rolling import NUMBER, batch, compacted, hidden, lines, parquet, text_sink, visible

PAIR = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])


def pairs(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(PAIR.encode([(n, "x") for n in numbers]), schema=PAIR.schema)


class ResumedRun(SinkRun):
    """Starts from the newest checkpoint of another run, whose writers' states are dealt out as a restore does."""

    def __init__(self, old: SinkRun, sink: FileSink, parallelism: int = 1, **options: Any) -> None:
        self._old = old
        options = {"batches": old.batches, "input_type": old.input_type, "job_id": old.job_id, **options}
        super().__init__(sink=sink, parallelism=parallelism, **options)

    def _start(self) -> None:
        if self._generation == 0:
            old = self._old
            states = [state for of_writer in old._writer_states for state in of_writer]
            states.sort(key=lambda state: json.loads(state)["subtask"])
            self._writer_states = [states[n :: self.parallelism] for n in range(self.parallelism)]
            self._generation, self._checkpoint_id = old._generation, old._checkpoint_id
            self._next_batch = self._restored_batch = old._restored_batch
            self._newest = old._newest
        super()._start()
        self._commit(self._newest)


class OtherSinkRun(SinkRun):
    """Another sink of the same job."""

    def _context(self, subtask: int) -> WriterContext:
        return dataclasses.replace(super()._context(subtask), operator_uid="f" * 32)


def identical(directory: Path) -> FileSink:
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()
    builder = FileSink.for_bulk_format(str(directory), ParquetBulkWriters.for_row_type())
    return builder.enable_compact(strategy, FileCompactor.identical_file_compactor()).build()


# ---- other settings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_turning_compaction_off_keeps_the_rows_that_wait_to_be_joined(tmp_path: Path, parallelism: int) -> None:
    """A sink without compaction took them for garbage, and removed them."""
    run = SinkRun(compacted(tmp_path, "parquet", 20), [batch(1, 2), batch(3, 4), batch(5, 6)], NUMBER, parallelism=2)
    run.checkpoint()
    run.checkpoint()
    ResumedRun(run, FileSink.for_parquet(str(tmp_path)), parallelism).finish()
    assert sorted(parquet(tmp_path)) == [1, 2, 3, 4, 5, 6]
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("is_compacted", [False, True])
def test_an_open_part_keeps_its_suffix_where_the_format_changes(tmp_path: Path, is_compacted: bool) -> None:
    run = SinkRun(text_sink(tmp_path), [batch(1), batch(2)], NUMBER)
    run.checkpoint()
    ResumedRun(run, compacted(tmp_path, "parquet", 5) if is_compacted else FileSink.for_parquet(str(tmp_path))).finish()
    text, table = sorted(visible(tmp_path), key=lambda name: name.endswith(".parquet"))
    assert (tmp_path / text).read_text() == "1\n"
    assert pq.read_table(tmp_path / table).column(0).to_pylist() == [2]
    assert not text.endswith(".parquet") and hidden(tmp_path) == []


def test_parts_of_other_columns_are_not_joined(tmp_path: Path) -> None:
    """They could not be: each restart ended at the same parts, whatever the restart strategy."""
    run = SinkRun(compacted(tmp_path, "parquet", 5), [batch(1), batch(2)], NUMBER)
    run.checkpoint()
    run.checkpoint()
    again = ResumedRun(
        run, compacted(tmp_path, "parquet", 5), batches=[pairs(), pairs(), pairs(3), pairs(4)], input_type=PAIR
    )
    again.finish()
    tables = [pq.read_table(tmp_path / name) for name in visible(tmp_path)]
    assert sorted(n for table in tables for n in table.column(0).to_pylist()) == [1, 2, 3, 4]
    assert sorted(len(table.column_names) for table in tables) == [1, 1, 2]
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("job_id", ["job", "other"])
@pytest.mark.parametrize("kill", [None, *Kill])
def test_open_parts_follow_the_sink_to_another_directory(tmp_path: Path, job_id: str, kill: Kill | None) -> None:
    run = SinkRun(text_sink(tmp_path / "a"), [batch(1), batch(2), batch(3)], NUMBER)
    run.checkpoint()
    again = ResumedRun(run, text_sink(tmp_path / "b"), job_id=job_id)
    again.checkpoint(kill)
    again.finish()
    assert lines(tmp_path / "a") == []
    assert sorted(lines(tmp_path / "b")) == [1, 2, 3]
    assert hidden(tmp_path / "b") == []
    assert len(hidden(tmp_path / "a")) == (job_id == "other"), "another job's files stay"


# ---- more than once -------------------------------------------------------------------------------------------------


def test_restarts_at_other_parallelisms_before_a_checkpoint_leave_nothing(tmp_path: Path) -> None:
    run = SinkRun(compacted(tmp_path, "text", 20), [batch(1, 2), batch(3, 4), batch(5, 6)], NUMBER)
    run.checkpoint()
    run.checkpoint()
    between = ResumedRun(run, compacted(tmp_path, "text", 20), parallelism=2)
    between._write(batch(5, 6))
    run._generation = between._generation
    ResumedRun(run, compacted(tmp_path, "text", 20)).finish()
    assert sorted(lines(tmp_path)) == [1, 2, 3, 4, 5, 6]
    assert hidden(tmp_path) == []


def test_identical_files_leave_nothing_after_a_restart(tmp_path: Path) -> None:
    run = SinkRun(identical(tmp_path), [batch(n) for n in range(6)], NUMBER)
    run.checkpoint()
    run.checkpoint(Kill.LOGGED)
    run.finish()
    assert sorted(parquet(tmp_path)) == list(range(6))
    assert hidden(tmp_path) == []


def test_an_older_checkpoint_finds_its_rows_beside_those_of_another_sink(tmp_path: Path) -> None:
    """Subtask, number and incarnation of two sinks are the same."""
    run = SinkRun(text_sink(tmp_path), [batch(1), batch(2)], NUMBER)
    run.checkpoint()
    states, restored_batch = run._writer_states, run._restored_batch
    OtherSinkRun(text_sink(tmp_path), [batch(10)], NUMBER).finish()
    run.finish()
    run._writer_states, run._restored_batch = states, restored_batch
    ResumedRun(run, text_sink(tmp_path)).finish()
    assert sorted(lines(tmp_path)) == [1, 1, 2, 2, 10], "the output repeats, as for every older checkpoint"


CHANGES = st.lists(
    st.tuples(
        st.sampled_from([None, "given up", *Kill]),
        st.booleans(),
        st.integers(1, 3),
        st.sampled_from(["hour", "at once", "joined"]),
    ),
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(changes=CHANGES, rows=st.lists(st.integers(0, 5), max_size=8))
def test_whatever_changes_rows_are_visible_once(changes: list[Any], rows: list[int]) -> None:
    batches = [batch(*range(100 * n, 100 * n + count)) for n, count in enumerate(rows)]
    with tempfile.TemporaryDirectory() as directory:
        kinds = {"hour": lambda: text_sink(directory), "at once": lambda: text_sink(directory, 1),
                 "joined": lambda: compacted(directory, "text", 2)}  # fmt: skip
        run = SinkRun(compacted(directory, "text", 2), batches, NUMBER, 2)
        run.checkpoint()
        for step, is_resumed, parallelism, kind in changes:
            run.checkpoint(step if isinstance(step, Kill) else None, is_given_up=step == "given up")
            if is_resumed:
                run = ResumedRun(run, kinds[kind](), parallelism)
        run.finish()
        assert sorted(lines(directory)) == [n for written in batches for n in written.column(0).to_pylist()]


# ---- a joining under way --------------------------------------------------------------------------------------------


class SlowCompactor(FileCompactor):
    """Holds the thread of each joining until it is told to go on."""

    began = threading.Event()
    go_on = threading.Event()
    now = most = 0

    def compact(self, paths: Sequence[str], file: BinaryIO) -> None:
        SlowCompactor.now += 1
        SlowCompactor.most = max(SlowCompactor.most, SlowCompactor.now)
        self.began.set()
        assert self.go_on.wait(60)
        SlowCompactor.now -= 1
        for path in paths:
            file.write(Path(path).read_bytes())


@pytest.fixture
def slow_compactor() -> Any:
    SlowCompactor.began.clear()
    SlowCompactor.go_on.clear()
    SlowCompactor.most = 0
    yield SlowCompactor()
    SlowCompactor.go_on.set()


def slowly(directory: Path, compactor: FileCompactor, checkpoints: int = 2) -> FileSink:
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(checkpoints).build()
    builder = FileSink.for_bulk_format(str(directory), ParquetBulkWriters.for_row_type())
    buckets = BucketAssigner.column_bucket_assigner("a")
    return builder.with_bucket_assigner(buckets).enable_compact(strategy, compactor).build()


def test_a_writer_is_closed_while_parts_are_being_joined(tmp_path: Path, slow_compactor: FileCompactor) -> None:
    """A restart or a cancel waited for the whole of the file."""
    run = SinkRun(slowly(tmp_path, slow_compactor), [pairs(1), pairs(1)], PAIR)
    run.checkpoint()
    run.checkpoint()
    assert SlowCompactor.began.wait(60)
    names = [part["name"] for part in json.loads(run._writer_states[0][0])["parts"]]
    run._writers[0].close()
    assert SlowCompactor.now == 1, "it goes on"
    assert hidden(tmp_path) == sorted(names)
    joining = [thread for thread in threading.enumerate() if thread.name == "file compaction"]
    SlowCompactor.go_on.set()
    for thread in joining:
        thread.join(60)
    assert hidden(tmp_path) == sorted(names), "what it wrote has no name any more"
    ResumedRun(run, FileSink.for_parquet(str(tmp_path))).finish()
    found = [pq.read_table(Path(folder, name)) for folder, _, files in os.walk(tmp_path) for name in files]
    assert sum(table.num_rows for table in found) == 2 and hidden(tmp_path) == []


def test_a_writer_joins_one_file_at_a_time(tmp_path: Path, slow_compactor: FileCompactor) -> None:
    run = SinkRun(slowly(tmp_path, slow_compactor), [pairs(*range(20)), pairs(*range(20))], PAIR)
    run.checkpoint()
    run.checkpoint()
    assert SlowCompactor.began.wait(60)
    SlowCompactor.go_on.set()
    run.finish()
    assert SlowCompactor.most == 1
    assert len(visible(tmp_path)) == 20
