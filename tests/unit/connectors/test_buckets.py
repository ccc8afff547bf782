"""Writes rows into buckets by their columns, with kills: each is visible once, in its bucket, and nothing is left."""

from __future__ import annotations

import datetime
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Encoder, Types
from penstock.common.row_types.type_information import TypeInformation
from penstock.connectors.files import file_writer
from penstock.connectors.files.file_formats import FileWriteFormat
from penstock.connectors.files.rolling_policy import RollingPolicy
from penstock.connectors.testing import Kill, SinkRun, read_all, verify_sink
from penstock.datastream.connectors.base import RefusedRecord, SinkError
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, FileSource, ParquetBulkWriters
from penstock.datastream.formats.csv import CsvBulkWriters, CsvSchema
from penstock.datastream.formats.json import JsonLinesBulkWriters

ROW = Types.ROW_NAMED(["id", "day", "name"], [Types.LONG(), Types.SQL_DATE(), Types.STRING()])
FIRST = datetime.date(2026, 1, 30)


Directory = str | Path


def rows(first: int, count: int = 10, days: int = 4) -> list[tuple[int, datetime.date, str]]:
    return [(i, FIRST + datetime.timedelta(i % days), f"n{i}") for i in range(first, first + count)]


def batch(values: list[Any], row_type: TypeInformation = ROW) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(row_type.encode(values), schema=row_type.schema)


def sink_of(
    directory: Directory,
    *columns: str,
    format: FileWriteFormat | None = None,
    open_buckets_max: int = 64,
    rolling: RollingPolicy | None = None,
    **options: Any,
) -> FileSink:
    builder = FileSink.for_bulk_format(str(directory), format or ParquetBulkWriters.for_row_type())
    if rolling is not None:
        builder.with_rolling_policy(rolling)
    assigner = BucketAssigner.column_bucket_assigner(*columns, **options)
    return builder.with_bucket_assigner(assigner, open_buckets_max).build()


def files_below(directory: Directory) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(parent, name), directory)
        for parent, _, names in os.walk(directory)
        for name in names
    )


def read_back(directory: Directory, schema: pa.Schema = ROW.schema) -> list[tuple[Any, ...]]:
    partitioning = ds.partitioning(pa.schema([schema.field("day")]), flavor="hive")
    table = ds.dataset(str(directory), format="parquet", partitioning=partitioning, schema=schema).to_table()
    return list(zip(*(table.column(name).to_pylist() for name in schema.names)))


class TestExactlyOnce:
    @pytest.mark.parametrize("parallelism", [1, 3])
    @pytest.mark.parametrize("open_buckets_max", [1, 2, 64])
    def test_parquet(self, tmp_path: Path, parallelism: int, open_buckets_max: int) -> None:
        made: list[Path] = []

        def make_sink() -> tuple[FileSink, Callable[[], list[Any]]]:
            made.append(tmp_path / str(len(made)))
            directory = made[-1]
            sink = sink_of(directory, "day", open_buckets_max=open_buckets_max)
            return sink, lambda: read_back(directory)

        verify_sink(make_sink, [rows(0), rows(10), rows(20, 1), rows(21)], ROW, parallelism)

    @pytest.mark.parametrize("kind", ["json", "csv", "text"])
    def test_every_format_commits_into_its_buckets(self, tmp_path: Path, kind: str) -> None:
        assigner = BucketAssigner.column_bucket_assigner("day")
        if kind == "text":
            builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
        else:
            csv = CsvBulkWriters.for_schema(CsvSchema.of(ROW))
            builder = FileSink.for_bulk_format(
                str(tmp_path), csv if kind == "csv" else JsonLinesBulkWriters.for_row_type()
            )
        SinkRun(builder.with_bucket_assigner(assigner).build(), [batch(rows(0, 2))], ROW).finish()
        found = files_below(tmp_path)
        assert [os.path.dirname(name) for name in found] == ["day=2026-01-30", "day=2026-01-31"]
        text = (tmp_path / found[1]).read_text()
        assert text == {"json": '{"id":1,"name":"n1"}\n', "csv": '1,"n1"\n', "text": "+I[1, n1]\n"}[kind]


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.sampled_from([None, "given up", *Kill]), max_size=6),
    counts=st.lists(st.integers(0, 9), max_size=5),
    parallelism=st.integers(1, 2),
    open_buckets_max=st.integers(1, 3),
)
def test_whatever_happens_rows_are_visible_once_and_nothing_is_left(
    steps: list[Kill | str | None], counts: list[int], parallelism: int, open_buckets_max: int
) -> None:
    parts = [rows(100 * n, count) for n, count in enumerate(counts)]
    with tempfile.TemporaryDirectory() as directory:
        sink = sink_of(directory, "day", open_buckets_max=open_buckets_max)
        run = SinkRun(sink, [batch(part) for part in parts], ROW, parallelism)
        run.checkpoint()
        for step in steps:
            run.checkpoint(step if isinstance(step, Kill) else None, is_given_up=step == "given up")
        run.finish()
        assert sorted(read_back(directory)) == [row for part in parts for row in part]
        assert all(name.startswith("day=2026-") for name in files_below(directory))
        # A bucket's directory is made by a commit: none is empty.
        assert {os.path.dirname(name) for name in files_below(directory)} == set(os.listdir(directory))


WRITERS: dict[str, FileWriteFormat] = {
    "parquet": ParquetBulkWriters.for_row_type(),
    "json": JsonLinesBulkWriters.for_row_type(),
    "csv": CsvBulkWriters.for_schema(CsvSchema.of(ROW)),
}


@pytest.mark.parametrize("buckets", [64, 65, 300])
@pytest.mark.parametrize("kind", [*WRITERS, "text"])
def test_each_bucket_has_one_file_however_many_are_written_in_turn(tmp_path: Path, kind: str, buckets: int) -> None:
    """Without this: a bucket too many finishes the part of another one with each row."""
    assigner = BucketAssigner.column_bucket_assigner("day")
    if kind == "text":
        rolling = RollingPolicy.default_rolling_policy()
        builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).with_rolling_policy(rolling)
    else:
        builder = FileSink.for_bulk_format(str(tmp_path), WRITERS[kind])
    run = SinkRun(builder.with_bucket_assigner(assigner).build(), [], ROW)
    before = len(os.listdir("/proc/self/fd"))
    for first in range(0, 4 * buckets, 50):
        run._write(batch(rows(first, 50, days=buckets)))
        assert len(os.listdir("/proc/self/fd")) <= before + 64 + 1
    if kind == "text":  # its parts outlive checkpoints
        run.checkpoint()
        run.checkpoint()
        assert files_below(tmp_path) and all(name.endswith(".inprogress") for name in files_below(tmp_path))
        run._write(batch(rows(10_000, 50, days=buckets)))
    run.finish()
    found = files_below(tmp_path)
    assert len(found) == len({os.path.dirname(name) for name in found}) == buckets
    if kind == "parquet":
        assert sorted(read_back(tmp_path)) == rows(0, -(-4 * buckets // 50) * 50, days=buckets)
    if kind == "text":
        lines = sum(len((tmp_path / name).read_text().splitlines()) for name in found)
        assert lines == -(-4 * buckets // 50) * 50 + 50


def test_rows_that_wait_are_bounded_and_the_largest_parts_are_finished_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file_writer, "_WAITING_ROWS_BYTES_MAX", 200_000)
    run = SinkRun(sink_of(tmp_path, "day", open_buckets_max=2), [], ROW)
    for first in range(0, 20_000, 500):
        run._write(batch(rows(first, 500, days=20)))
    assert sum("parts are finished early" in message for message in caplog.messages) == 1
    run.checkpoint()
    sizes = [(tmp_path / name).stat().st_size for name in files_below(tmp_path)]
    assert 20 < len(sizes) < 100 and sorted(read_back(tmp_path)) == rows(0, 20_000, days=20)


def test_a_bucket_that_waits_rolls_by_size(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "day", open_buckets_max=1, rolling=RollingPolicy(part_size=60_000))
    run = SinkRun(sink, [], ROW)
    for first in range(0, 20_000, 500):
        run._write(batch(rows(first, 500, days=2)))
    run.finish()
    counts = Counter(os.path.dirname(name) for name in files_below(tmp_path))
    assert len(counts) == 2 and min(counts.values()) > 2 and max(counts.values()) < 12, counts


def test_one_more_bucket_than_may_be_open_does_not_finish_a_part(tmp_path: Path) -> None:
    run = SinkRun(sink_of(tmp_path, "day", open_buckets_max=2), [], ROW)
    day = [FIRST + datetime.timedelta(n) for n in range(3)]
    for n in (0, 1, 0, 2, 0):
        run._write(batch([(n, day[n], "a")]))
    run.checkpoint()
    assert [os.path.dirname(name) for name in files_below(tmp_path)] == [f"day={each}" for each in day]
    run._write(batch([(9, day[0], "a"), (9, day[1], "a"), (9, day[2], "a")]))
    run.finish()
    assert len(read_back(tmp_path)) == 8


def test_parts_of_a_bucket_roll_by_size_and_rows_keep_their_order(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "day", rolling=RollingPolicy(part_size=1))
    SinkRun(sink, [batch(rows(0, 4, days=2)), batch(rows(4, 4, days=2))], ROW).finish()
    names = files_below(tmp_path)
    assert len(names) == 4
    assert [row.id for row in read_all(FileSource.for_parquet(str(tmp_path / "day=2026-01-30")))] == [0, 2, 4, 6]


VALUES = ["a", "", None, "a/b", "50%", "x=y", "ü ñ", 'q"\\{}[]^', "line\nfeed\x7f", "a:b*?#'"]


def test_names_of_buckets_are_hives(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["id", "s"], [Types.INT(), Types.STRING()])
    SinkRun(sink_of(tmp_path, "s"), [batch(list(enumerate(VALUES)), row_type)], row_type).finish()
    names = {os.path.dirname(name) for name in files_below(tmp_path)}
    assert names == {
        "s=a",
        "s=__HIVE_DEFAULT_PARTITION__",
        "s=a%2Fb",
        "s=50%25",
        "s=x%3Dy",
        "s=ü ñ",
        "s=q%22%5C%7B}%5B%5D%5E",
        "s=line%0Afeed%7F",
        "s=a%3Ab%2A%3F%23%27",
    }


def test_several_columns_and_all_kinds_of_them(tmp_path: Path) -> None:
    kinds = [Types.BOOLEAN(), Types.BYTE(), Types.SQL_TIMESTAMP(), Types.LONG()]
    row_type = Types.ROW_NAMED(["yes", "n", "at", "id"], kinds)
    at = datetime.datetime(2026, 1, 31, 10, 15)
    values = [(True, 1, at, 0), (False, -1, at.replace(microsecond=500000), 1), (True, 1, at, 2), (None, None, None, 3)]
    SinkRun(sink_of(tmp_path, "yes", "n", "at"), [batch(values, row_type)], row_type).finish()
    found = {os.path.dirname(name) for name in files_below(tmp_path)}
    null = "__HIVE_DEFAULT_PARTITION__"
    assert found == {
        "yes=true/n=1/at=2026-01-31 10%3A15%3A00",
        "yes=false/n=-1/at=2026-01-31 10%3A15%3A00.5",
        f"yes={null}/n={null}/at={null}",
    }
    rows = read_all(FileSource.for_parquet(str(tmp_path / "yes=true")))
    assert [row.as_dict() for row in rows] == [{"id": 0}, {"id": 2}]


def test_columns_can_be_kept(tmp_path: Path) -> None:
    SinkRun(sink_of(tmp_path, "day", keep_columns=True), [batch(rows(0, 1))], ROW).finish()
    assert read_all(FileSource.for_parquet(str(tmp_path)))[0].as_dict() == {"id": 0, "day": FIRST, "name": "n0"}


def test_a_bucket_whose_column_begins_with_an_underscore_can_be_read(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["_day", "id"], [Types.INT(), Types.INT()])
    SinkRun(sink_of(tmp_path, "_day"), [batch([(1, 2)], row_type)], row_type).finish()
    assert [row.id for row in read_all(FileSource.for_parquet(str(tmp_path)))] == [2]


class TestDateTime:
    def bucket(self, monkeypatch: pytest.MonkeyPatch, pattern: str, zone: str = "UTC") -> str:
        assigner = BucketAssigner.date_time_bucket_assigner(pattern, zone)
        now = datetime.datetime(2026, 1, 31, 9, 5, 7, tzinfo=datetime.UTC)
        monkeypatch.setattr(assigner, "now", now.astimezone)
        ((bucket, _),) = assigner.assign(batch(rows(0, 1)), ROW)
        return bucket

    def test_patterns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.bucket(monkeypatch, "yyyy-MM-dd--HH") == "2026-01-31--09"
        assert self.bucket(monkeypatch, "'day='yyyyMMdd/HHmmss", "Asia/Tokyo") == "day=20260131/180507"
        assert self.bucket(monkeypatch, "yy.DDD 100%") == "26.031 100%"

    def test_what_is_not_understood(self) -> None:
        with pytest.raises(ValueError, match="'EEE' in 'yyyy EEE' is not understood; yyyy, "):
            BucketAssigner.date_time_bucket_assigner("yyyy EEE")
        with pytest.raises(ValueError, match="time zone 'Mars/Base' is not known"):
            BucketAssigner.date_time_bucket_assigner(timezone_id="Mars/Base")
        with pytest.raises(ValueError, match="no name of a directory"):
            BucketAssigner.date_time_bucket_assigner("'_'yyyy/'.'")

    def test_files_are_written_there(self, tmp_path: Path) -> None:
        sink = FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type())
        sink.with_bucket_assigner(BucketAssigner.date_time_bucket_assigner("yyyy", "UTC"))
        SinkRun(sink.build(), [batch(rows(0, 3))], ROW).finish()
        (name,) = files_below(tmp_path)
        assert name.split("/")[0].isdigit()


class TestBadOutputIsNamed:
    def test_a_column_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(SinkError, match="no column 'dya' to make buckets of; there are id, day, name"):
            sink_of(tmp_path, "dya").validate(ROW)

    def test_a_column_of_another_kind(self, tmp_path: Path) -> None:
        row_type = Types.ROW_NAMED(["a", "f"], [Types.INT(), Types.DOUBLE()])
        with pytest.raises(SinkError, match="column 'f' is double: buckets are made of whole numbers"):
            sink_of(tmp_path, "f").validate(row_type)

    def test_rows_without_columns(self, tmp_path: Path) -> None:
        with pytest.raises(SinkError, match="rows of LONG have no columns"):
            sink_of(tmp_path, "f").validate(Types.LONG())
        assigner = BucketAssigner.column_bucket_assigner("f")
        builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
        with pytest.raises(SinkError, match="rows of no declared type"):
            builder.with_bucket_assigner(assigner).build().validate(None)

    def test_nothing_left_to_write(self, tmp_path: Path) -> None:
        with pytest.raises(SinkError, match="nothing is left"):
            sink_of(tmp_path, "id", "day", "name").validate(ROW)

    def test_arguments(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="repeat"):
            BucketAssigner.column_bucket_assigner("a", "a")
        with pytest.raises(ValueError, match="by their names"):
            BucketAssigner.column_bucket_assigner()
        builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
        with pytest.raises(TypeError, match="a BucketAssigner is needed"):
            builder.with_bucket_assigner("day")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="open_buckets_max"):
            builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner(), 0)

    def test_a_name_that_is_too_long(self, tmp_path: Path) -> None:
        row_type = Types.ROW_NAMED(["id", "s"], [Types.INT(), Types.STRING()])
        run = SinkRun(sink_of(tmp_path, "s"), [batch([(1, "x" * 300)], row_type)], row_type)
        with pytest.raises(RefusedRecord, match=r"s=xxx.* is no name of a directory in .*: it has 302 bytes, and 255"):
            run.finish()
