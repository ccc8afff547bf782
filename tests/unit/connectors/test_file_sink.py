"""Writes files with kills at any moment: each row becomes visible once, and no file in progress is left."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Encoder, Types
from penstock.common.row_types.type_information import TypeInformation
from penstock.connectors.files.file_committer import FileCommitter
from penstock.connectors.files.file_parts import FileCommittable
from penstock.connectors.testing import Kill, SinkRun, read_all, verify_sink
from penstock.datastream.connectors.base import SinkError
from penstock.datastream.connectors.file_system import (
    FileSink,
    FileSource,
    OutputFileConfig,
    ParquetBulkWriters,
    RollingPolicy,
    StreamFormat,
)
from penstock.storage.opening import open_store

PAIR = Types.TUPLE([Types.LONG(), Types.STRING()])


Directory = str | Path
Directories = Callable[[], str]
Made = tuple[FileSink, Callable[[], list[Any]]]


def pairs(first: int, count: int = 10) -> list[tuple[int, str]]:
    return [(i, f"n{i}") for i in range(first, first + count)]


def batch(rows: list[Any], row_type: TypeInformation = PAIR) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(row_type.encode(rows), schema=row_type.schema)


def visible_names(directory: Directory) -> list[str]:
    return sorted(name for name in os.listdir(directory) if not name.startswith((".", "_")))


def hidden_names(directory: Directory) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith("."))


def read_parquet(directory: Directory) -> list[Any]:
    names = visible_names(directory)
    return [row for n in names for row in PAIR.decode(pq.read_table(os.path.join(directory, n)).to_batches()[0])]


def read_lines(directory: Directory) -> list[str]:
    found: list[str] = []
    for name in visible_names(directory):
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            found += file.read().splitlines()
    return found


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    made: list[str] = []

    def make() -> str:
        made.append(str(tmp_path / f"out{len(made)}"))
        return made[-1]

    return make


@pytest.mark.parametrize("name", ["g h", "100%", "a#b?c", "ü", "%20"])
def test_a_file_uri_means_the_same_directory_everywhere(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    sink = FileSink.for_row_format(directory.as_uri(), Encoder.simple_string_encoder()).build()
    SinkRun(sink, [batch(pairs(0))], PAIR).finish()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), directory.as_uri()).build()
    assert sorted(read_all(source)) == sorted(read_lines(directory)) and read_lines(directory)
    assert open_store(directory.as_uri()).list("")


class TestExactlyOnce:
    @pytest.mark.parametrize("parallelism", [1, 3])
    def test_parquet(self, directories: Directories, parallelism: int) -> None:
        def make_sink() -> Made:
            directory = directories()
            return FileSink.for_parquet(directory), lambda: read_parquet(directory)

        verify_sink(make_sink, [pairs(0), pairs(10), pairs(20, 1), pairs(21)], PAIR, parallelism)

    def test_rows_of_text(self, directories: Directories) -> None:
        def make_sink() -> Made:
            directory = directories()
            sink = FileSink.for_row_format(directory, Encoder.simple_string_encoder()).build()
            return sink, lambda: read_lines(directory)

        verify_sink(make_sink, [["a", "b"], ["c", "ü"], ["e"]], Types.STRING(), 2)

    def test_parts_of_limited_size(self, directories: Directories) -> None:
        def make_sink() -> Made:
            directory = directories()
            builder = FileSink.for_row_format(directory, Encoder.simple_string_encoder())
            sink = builder.with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=1)).build()
            return sink, lambda: read_lines(directory)

        verify_sink(make_sink, [["a"], ["b"], ["c"]], Types.STRING())

    def test_without_checkpointing_all_becomes_visible_at_the_end(self, tmp_path: Path) -> None:
        run = SinkRun(FileSink.for_parquet(str(tmp_path)), [batch(pairs(0)), batch(pairs(10))], PAIR, 2, False)
        assert visible_names(tmp_path) == []
        run.finish()
        assert sorted(read_parquet(tmp_path)) == pairs(0, 20)
        assert hidden_names(tmp_path) == []


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(st.sampled_from([None, "given up", *Kill]), max_size=8),
    rows=st.lists(st.integers(0, 7), max_size=6),
    parallelism=st.integers(1, 3),
)
def test_whatever_happens_rows_are_visible_once_and_nothing_is_left(
    steps: list[Kill | str | None], rows: list[int], parallelism: int
) -> None:
    batches = [batch(pairs(100 * n, count)) for n, count in enumerate(rows)]
    with tempfile.TemporaryDirectory() as directory:
        run = SinkRun(FileSink.for_parquet(directory), batches, PAIR, parallelism)
        run.checkpoint()
        for step in steps:
            run.checkpoint(step if isinstance(step, Kill) else None, is_given_up=step == "given up")
        run.finish()
        assert sorted(read_parquet(directory)) == [row for n, count in enumerate(rows) for row in pairs(100 * n, count)]
        # What was pending when the last generation started is gone; it has lost nothing itself.
        assert hidden_names(directory) == []


def test_what_is_pending_survives_sigkill(tmp_path: Path) -> None:
    program = f"""
import os, signal, sys
import pyarrow as pa
from penstock.common import Types
from penstock.datastream.connectors.file_system import FileSink
from penstock.connectors.testing import SinkRun

row_type = Types.TUPLE([Types.LONG(), Types.STRING()])
batch = pa.RecordBatch.from_arrays(row_type.encode([(i, f"n{{i}}") for i in range(10)]), schema=row_type.schema)
run = SinkRun(FileSink.for_parquet({str(tmp_path)!r}), [], row_type)
run._write(batch)
(committable,) = run._writers[0].prepare_commit(1)
run._write(batch)
sys.stdout.write(committable.decode())
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    FileCommitter().commit(1, [killed.stdout])
    assert read_parquet(tmp_path) == pairs(0)
    assert [name for name in hidden_names(tmp_path) if not name.endswith(".inprogress")] == []


def test_names_say_operator_subtask_and_checkpoint_and_sort_in_order_of_writing(tmp_path: Path) -> None:
    run = SinkRun(FileSink.for_parquet(str(tmp_path)), [batch(pairs(0)), batch(pairs(10))], PAIR)
    run.finish()
    assert visible_names(tmp_path) == [
        "part-01234567-0-000001-0000-test_1.parquet",
        "part-01234567-0-000002-0001-test_1.parquet",
    ]
    assert read_parquet(tmp_path) == pairs(0, 20)


def test_prefix_and_suffix(tmp_path: Path) -> None:
    config = OutputFileConfig.builder().with_part_prefix("flights").with_part_suffix(".txt").build()
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    SinkRun(sink.with_output_file_config(config).build(), [batch(pairs(0, 1))], PAIR).finish()
    (name,) = visible_names(tmp_path)
    assert name.startswith("flights-") and name.endswith(".txt")
    assert (tmp_path / name).read_text() == "(0,n0)\n"


@pytest.mark.parametrize("prefix", ["", ".part", "_part", "a/b"])
def test_a_prefix_that_hides_the_files_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        OutputFileConfig(prefix)


def test_a_checkpoint_without_rows_makes_no_file(tmp_path: Path) -> None:
    run = SinkRun(FileSink.for_parquet(str(tmp_path)), [], PAIR)
    run.checkpoint()
    run.finish()
    assert os.listdir(tmp_path) == []


def test_untyped_rows_are_written_as_text(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    untyped = Types.PICKLED_BYTE_ARRAY()
    SinkRun(sink, [batch([1, ("a", 2)], untyped)], None).finish()
    assert read_lines(tmp_path) == ["1", "('a', 2)"]


def test_reserved_columns_are_not_written(tmp_path: Path) -> None:
    rows = batch(pairs(0, 2)).append_column("__timestamp__", pa.array([1, 2]))
    SinkRun(FileSink.for_parquet(str(tmp_path)), [rows], PAIR).finish()
    assert pq.read_table(tmp_path).column_names == ["f0", "f1"]


def test_many_small_batches_become_one_row_group(tmp_path: Path) -> None:
    batches = [batch([row]) for row in pairs(0, 1000)]
    SinkRun(FileSink.for_parquet(str(tmp_path)), batches, PAIR, checkpointing=False).finish()
    (name,) = visible_names(tmp_path)
    assert pq.ParquetFile(tmp_path / name).metadata.num_row_groups == 1
    assert read_parquet(tmp_path) == pairs(0, 1000)


class TestCommits:
    @pytest.fixture
    def pending(self, tmp_path: Path) -> FileCommittable:
        (tmp_path / ".x.pending").write_bytes(b"12345")
        return FileCommittable(str(tmp_path), ".x.pending", "x", 5)

    def test_a_commit_may_be_repeated(self, pending: FileCommittable) -> None:
        for _ in range(3):
            FileCommitter().commit(1, [pending.encode()])
        assert os.listdir(pending.directory) == ["x"]

    def test_neither_there(self, pending: FileCommittable) -> None:
        os.unlink(pending.pending_path)
        with pytest.raises(SinkError, match=r"neither .*/\.x\.pending.* nor .*/x.* exists"):
            FileCommitter().commit(1, [pending.encode()])

    def test_a_final_file_that_was_changed(self, pending: FileCommittable) -> None:
        FileCommitter().commit(1, [pending.encode()])
        with open(pending.final_path, "ab") as file:
            file.write(b"more")
        with pytest.raises(SinkError, match=r"/x has 9 bytes, but 5 were written"):
            FileCommitter().commit(1, [pending.encode()])

    def test_a_pending_file_that_was_cut(self, pending: FileCommittable) -> None:
        os.truncate(pending.pending_path, 2)
        with pytest.raises(SinkError, match=r"\.x\.pending has 2 bytes, but 5 were written"):
            FileCommitter().commit(1, [pending.encode()])
        assert os.listdir(pending.directory) == [".x.pending"]

    def test_a_directory_that_is_gone(self, pending: FileCommittable) -> None:
        os.unlink(pending.pending_path)
        os.rmdir(pending.directory)
        with pytest.raises(SinkError, match="neither"):
            FileCommitter().commit(1, [pending.encode()])


class TestLeftovers:
    def run(self, tmp_path: Path, parallelism: int = 1, job_id: str = "job") -> SinkRun:
        batches = [batch(pairs(10 * n)) for n in range(3)]
        return SinkRun(FileSink.for_parquet(str(tmp_path)), batches, PAIR, parallelism, job_id=job_id)

    @pytest.mark.parametrize("parallelism", [1, 2])
    @pytest.mark.parametrize("kill", Kill)
    def test_nothing_is_left_once_there_was_a_checkpoint(self, tmp_path: Path, kill: Kill, parallelism: int) -> None:
        run = self.run(tmp_path, parallelism=parallelism)
        run.checkpoint()
        run.checkpoint(kill)
        run.checkpoint(kill)
        run.finish()
        assert sorted(read_parquet(tmp_path)) == pairs(0, 30)
        assert hidden_names(tmp_path) == []

    def test_files_in_progress_are_removed_without_a_checkpoint_too(self, tmp_path: Path) -> None:
        run = self.run(tmp_path)
        run.checkpoint(Kill.WRITING)
        assert hidden_names(tmp_path) == []

    def test_pending_files_of_the_checkpoint_that_is_restored_stay(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = self.run(tmp_path)
        run.checkpoint()
        monkeypatch.setattr(run, "_commit", lambda committables: None)
        run.checkpoint(Kill.LOGGED)
        assert [name for name in hidden_names(tmp_path) if name.endswith(".pending")]

    def test_another_job_touches_nothing_of_this_one(self, tmp_path: Path) -> None:
        run = self.run(tmp_path)
        run.checkpoint()
        run.checkpoint(Kill.PREPARED)
        left = TestLeftovers.prepared_by(tmp_path, run, generation=2)
        other = self.run(tmp_path, job_id="other")
        other._generation = 10
        other._writer_states = run._writer_states
        other._start()
        assert left <= set(hidden_names(tmp_path))

    def test_an_old_generation_that_wakes_up_late_touches_nothing_of_a_younger_one(self, tmp_path: Path) -> None:
        run = self.run(tmp_path)
        run.checkpoint()
        states = run._writer_states
        run._restart()
        younger = TestLeftovers.prepared_by(tmp_path, run, generation=2)
        late = self.run(tmp_path)
        late._generation, late._writer_states = 0, states
        late._start()
        assert younger <= set(hidden_names(tmp_path))

    def test_without_a_fence_nothing_is_removed(self, tmp_path: Path) -> None:
        run = self.run(tmp_path, job_id="")
        run.checkpoint()
        run.checkpoint(Kill.PREPARED)
        run.checkpoint(Kill.WRITING)
        assert len(hidden_names(tmp_path)) == 2

    @staticmethod
    def prepared_by(tmp_path: Path, run: SinkRun, generation: int) -> set[str]:
        """Pending files of the given generation, which nobody commits."""
        run._write(batch(pairs(90)))
        for writer in run._writers:
            writer.prepare_commit(99)
        found = {name for name in hidden_names(tmp_path) if f"-g1.{generation}-" in name}
        assert found
        return found

    def test_a_writer_that_is_closed_takes_what_it_did_not_prepare_with_it(self, tmp_path: Path) -> None:
        run = self.run(tmp_path)
        run._write(batch(pairs(0)))
        assert len(hidden_names(tmp_path)) == 1
        for writer in run._writers:
            writer.close()
        assert hidden_names(tmp_path) == []

    def test_the_state_of_a_writer_stays_small(self, tmp_path: Path) -> None:
        batches = [batch(pairs(n)) for n in range(50)]
        run = SinkRun(FileSink.for_parquet(str(tmp_path)), batches, PAIR)
        for _ in range(50):
            run.checkpoint()
        (state,) = run._writers[0].snapshot()
        assert json.loads(state)["awaiting"] == []


class TestBadOutputIsNamed:
    def test_an_untyped_stream_as_parquet(self, tmp_path: Path) -> None:
        with pytest.raises(SinkError, match=r"without a declared type .*output_type="):
            FileSink.for_parquet(str(tmp_path)).validate(None)

    def test_another_type_than_the_writers(self, tmp_path: Path) -> None:
        sink = FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type(PAIR)).build()
        with pytest.raises(SinkError, match=r"declared for TUPLE\(LONG, STRING\), but the stream's rows are LONG"):
            sink.validate(Types.LONG())

    def test_a_path_that_is_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "out"
        path.write_text("")
        with pytest.raises(SinkError, match="out cannot be written to"):
            FileSink.for_parquet(str(path)).validate(PAIR)

    def test_no_more_space_is_named_with_the_file(self, tmp_path: Path) -> None:
        run = SinkRun(FileSink.for_parquet(str(tmp_path)), [], PAIR)
        run._write(batch(pairs(0)))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
        try:
            with pytest.raises(SinkError, match=r"\.inprogress cannot be written: File too large"):
                run._writers[0].prepare_commit(1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        run._writers[0].close()
        assert os.listdir(tmp_path) == []

    def test_an_encoder_is_needed(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match="Encoder"):
            FileSink.for_row_format(str(tmp_path), "utf-8")  # type: ignore[arg-type]
