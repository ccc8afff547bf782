"""Reads Parquet files: rows come once through restores, and a file that is missing, changed or foreign is named."""

from __future__ import annotations

import datetime
import decimal
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common.types import Types
from penstock.connectors.files.file_formats import Position
from penstock.connectors.files.input_file import InputFile
from penstock.connectors.testing import SourceRun, SourceSnapshot, read_all, verify_source
from penstock.datastream.connectors.base import SourceError
from penstock.datastream.connectors.file_system import (
    FileEnumeratorProvider,
    FileSink,
    FileSource,
    ListedFile,
    ParquetColumnarRowInputFormat,
)

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def write(path: str | Path, ids: Sequence[int], row_group_size: int = 4) -> str:
    table = pa.table({"id": list(ids), "name": [f"n{i}" for i in ids]}, schema=SCHEMA)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group_size)
    return str(path)


def ids(rows: list[Any]) -> list[int]:
    return [row.id for row in rows]


@pytest.fixture
def directory(tmp_path: Path) -> str:
    for number in range(3):
        write(tmp_path / "in" / f"{number}.parquet", range(number * 10, number * 10 + 10))
    return str(tmp_path / "in")


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("split_groups", [False, True])
def test_rows_come_once_through_restores(directory: str, parallelism: int, split_groups: bool) -> None:
    builder = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), directory)
    if split_groups:
        builder.set_file_enumerator(FileEnumeratorProvider.default_splittable_file_enumerator())
    source = builder.build()
    rows = read_all(source)
    assert ids(rows) == list(range(30))
    verify_source(source, rows, parallelism, rows_max=(3, 1000), reads_lost=(0, 2))


@pytest.mark.parametrize(
    ("columns", "batch_rows"),
    [(["n0"], 65_536), ([f"n{i}" for i in range(20)], (4 << 20) // (20 * 8)), (["n0", "text"], 8192)],
)
def test_batches_are_large_where_it_is_known_how_much_memory_that_takes(
    tmp_path: Path, columns: list[str], batch_rows: int
) -> None:
    path, rows = str(tmp_path / "0.parquet"), 70_000
    numbers = pa.array(range(rows), pa.int64())
    pq.write_table(pa.table({**{f"n{i}": numbers for i in range(20)}, "text": ["a"] * rows}), path)
    format = ParquetColumnarRowInputFormat(columns=columns)
    shape = format.inspect(InputFile(path))
    file = format.open(InputFile(path), shape.row_type)
    counts = [portion.batch.num_rows for portion in file.read(Position(0, 0), shape.bounds[-1])]
    file.close()
    assert max(counts) == batch_rows
    assert sum(counts) == rows


def test_a_named_row_per_line_of_the_table(directory: str) -> None:
    source = FileSource.for_parquet(directory)
    assert source.produced_type == Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
    assert read_all(source)[3].as_dict() == {"id": 3, "name": "n3"}


def test_order_is_as_given_then_by_name(directory: str, tmp_path: Path) -> None:
    single = write(tmp_path / "z" / "single.parquet", [100])
    pattern = os.path.join(directory, "[12].parquet")
    assert ids(read_all(FileSource.for_parquet(single, pattern))) == [100, *range(10, 30)]
    assert ids(read_all(FileSource.for_parquet(pattern, "file://" + single))) == [*range(10, 30), 100]


def test_a_name_that_looks_like_a_pattern_is_a_name_if_there_is_such_a_file(tmp_path: Path) -> None:
    for n, name in enumerate(("e[1].parquet", "e1.parquet", "run[2]/0.parquet", "run2/0.parquet", "a b/%20#?.parquet")):
        write(tmp_path / name, [n])
    for name, expected in {
        "e[1].parquet": [0],
        "e[!2].parquet": [1],
        "run[2]": [2],
        "run[2]/*.parquet": [2],
        "run[1-3]/*.parquet": [3],
        "**/[0].parquet": [2, 3],
        "a b/%20#?.parquet": [4],
    }.items():
        assert sorted(ids(read_all(FileSource.for_parquet(str(tmp_path / name))))) == expected, name
        if "*" not in name:
            assert sorted(ids(read_all(FileSource.for_parquet((tmp_path / name).as_uri())))) == expected, name


@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        (pa.int8(), Types.SHORT()),
        (pa.int16(), Types.LONG()),
        (pa.int32(), Types.LONG()),
        (pa.float32(), Types.DOUBLE()),
        (pa.int32(), Types.DOUBLE()),
    ],
    ids=str,
)
def test_numbers_are_read_as_a_larger_type_that_holds_all_of_them(
    tmp_path: Path, stored: pa.DataType, declared: Any
) -> None:
    path = str(tmp_path / "n.parquet")
    pq.write_table(pa.table({"n": pa.array([1, None, -128], stored)}), path)
    format = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["n"], [declared]))
    source = FileSource.for_bulk_file_format(format, path).build()
    assert [row.n for row in read_all(source)] == [1, None, -128]


def test_a_later_file_may_have_smaller_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1], pa.int64())}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"n": pa.array([2], pa.int32())}), tmp_path / "2.parquet")
    assert [row.n for row in read_all(FileSource.for_parquet(str(tmp_path)))] == [1, 2]


def test_hidden_names_and_directories_are_left_out(directory: str, tmp_path: Path) -> None:
    write(tmp_path / "in" / "_temporary" / "0.parquet", [1000])
    write(tmp_path / "in" / ".pending.parquet", [1001])
    write(tmp_path / "in" / "deeper" / "0.parquet", [50])
    assert sorted(ids(read_all(FileSource.for_parquet(directory)))) == [*range(30), 50]


def test_one_subtask_reads_several_files_and_empty_ones(tmp_path: Path) -> None:
    write(tmp_path / "in" / "0.parquet", [])
    write(tmp_path / "in" / "1.parquet", [1, 2])
    write(tmp_path / "in" / "2.parquet", [])
    source = FileSource.for_parquet(str(tmp_path / "in"))
    verify_source(source, read_all(source))
    assert ids(read_all(source, parallelism=4)) == [1, 2]


def test_columns_can_be_chosen(directory: str) -> None:
    source = FileSource.for_parquet(directory, columns=["name"])
    assert source.produced_type == Types.ROW_NAMED(["name"], [Types.STRING()])
    assert read_all(source)[0].as_dict() == {"name": "n0"}


def test_columns_of_all_kinds_arrive_as_python_values(tmp_path: Path) -> None:
    values = {
        "small": pa.array([1, None], pa.uint8()),
        "unsigned": pa.array([2**40, 0], pa.uint64()),
        "category": pa.array(["a", "b"]).dictionary_encode(),
        "price": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(10, 2)),
        "at": pa.array([datetime.datetime(2013, 1, 1, 5), None], pa.timestamp("ms", tz="UTC")),
        "day": pa.array([datetime.date(2013, 1, 1), None], pa.date32()),
        "tags": pa.array([["x", "y"], None], pa.list_(pa.string())),
        "inner": pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())])),
    }
    path = str(tmp_path / "kinds.parquet")
    pq.write_table(pa.table(values), path)
    first, second = read_all(FileSource.for_parquet(path))
    assert (first.small, first.unsigned, first.category, first.price) == (1, 2**40, "a", decimal.Decimal("1.50"))
    at = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    assert (first.at, first.day) == (at, datetime.date(2013, 1, 1))
    assert (first.tags, first.inner.a) == (["x", "y"], 1)
    assert (second.small, second.price, second.at, second.tags, second.inner) == (None, None, None, None, None)


class TestBadInputIsNamedBeforeTheJobStarts:
    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match=r"none\.parquet is missing"):
            FileSource.for_parquet(str(tmp_path / "none.parquet")).validate()

    def test_a_pattern_without_a_match(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match=r"no file matches .*\*\.parquet"):
            FileSource.for_parquet(str(tmp_path / "*.parquet")).validate()

    def test_an_empty_directory(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match="no files in directory"):
            FileSource.for_parquet(str(tmp_path)).validate()

    def test_a_truncated_file(self, directory: str) -> None:
        path = os.path.join(directory, "1.parquet")
        os.truncate(path, os.path.getsize(path) - 6)
        with pytest.raises(SourceError, match=r"1\.parquet is not a Parquet file, or is truncated"):
            FileSource.for_parquet(directory).validate()

    def test_something_else_than_parquet(self, directory: str, tmp_path: Path) -> None:
        (tmp_path / "in" / "notes.txt").write_text("hello, this is text")
        with pytest.raises(SourceError, match=r"notes\.txt is not a Parquet file"):
            FileSource.for_parquet(directory).validate()

    def test_another_schema(self, directory: str, tmp_path: Path) -> None:
        other = pa.schema([("id", pa.string()), ("extra", pa.int8())])
        pq.write_table(pa.table({"id": ["1"], "extra": [1]}, schema=other), tmp_path / "in" / "9.parquet")
        with pytest.raises(SourceError) as caught:
            FileSource.for_parquet(directory).validate()
        for part in ("9.parquet", "'name' is missing", "'extra' is not expected", "'id' is string, not int64"):
            assert part in str(caught.value)

    def test_a_larger_type_than_the_declared_one(self, tmp_path: Path) -> None:
        path = str(tmp_path / "long.parquet")
        pq.write_table(pa.table({"n": pa.array([1], pa.int64())}), path)
        format = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["n"], [Types.INT()]))
        with pytest.raises(SourceError, match="column 'n' is int64, not int32"):
            FileSource.for_bulk_file_format(format, path).build().validate()

    def test_a_column_that_is_not_there(self, directory: str) -> None:
        with pytest.raises(SourceError, match="no column 'nmae'; it has id, name"):
            FileSource.for_parquet(directory, columns=["nmae"]).validate()

    def test_a_column_that_no_type_holds(self, tmp_path: Path) -> None:
        path = str(tmp_path / "null.parquet")
        pq.write_table(pa.table({"nothing": pa.nulls(2)}), path)
        with pytest.raises(SourceError, match=r"null\.parquet.*'nothing'.*columns="):
            FileSource.for_parquet(path).validate()

    def test_other_file_systems(self) -> None:
        with pytest.raises(ValueError, match="files cannot be stored at ftp://.*or one of s3://"):
            FileSource.for_parquet("ftp://host/key")


Stopped = tuple[FileSource, SourceSnapshot, list[int]]


class TestWhatChangesWhileTheJobRuns:
    @pytest.fixture
    def stopped(self, directory: str) -> Stopped:
        """A source that was snapshotted in its second file."""
        source = FileSource.for_parquet(directory)
        run = SourceRun(source)
        read: list[int] = []
        while len(read) < 13:
            found = run.read(3)
            assert found is not None
            read += ids(found[1])
        snapshot = run.snapshot()
        run.close()
        return source, snapshot, read

    def test_a_file_of_another_size(self, stopped: Stopped, directory: str) -> None:
        source, snapshot, _ = stopped
        write(os.path.join(directory, "1.parquet"), range(500))
        with pytest.raises(SourceError, match=r"1\.parquet has changed .* its size was \d+ bytes and is \d+"):
            SourceRun(source, restored=snapshot).read(10)

    def test_a_file_written_again_with_the_same_size(self, stopped: Stopped, directory: str) -> None:
        source, snapshot, _ = stopped
        path = os.path.join(directory, "1.parquet")
        os.utime(path, ns=(0, os.stat(path).st_mtime_ns + 1))
        with pytest.raises(SourceError, match=r"1\.parquet has changed .* time of modification"):
            SourceRun(source, restored=snapshot).read(10)

    def test_a_file_that_is_gone(self, stopped: Stopped, directory: str) -> None:
        source, snapshot, _ = stopped
        pickled = cloudpickle.loads(cloudpickle.dumps(source))
        os.unlink(os.path.join(directory, "1.parquet"))
        with pytest.raises(SourceError, match=r"1\.parquet cannot be read: No such file"):
            SourceRun(pickled, restored=snapshot).read(10)

    def test_a_file_that_is_read_already_may_go(self, stopped: Stopped, directory: str) -> None:
        source, snapshot, read = stopped
        pickled = cloudpickle.loads(cloudpickle.dumps(source))
        os.unlink(os.path.join(directory, "0.parquet"))
        run = SourceRun(pickled, restored=snapshot)
        while (found := run.read(100)) is not None:
            read += ids(found[1])
        assert read == list(range(30))

    def test_damage_inside_a_file_is_named_with_its_row_group(self, tmp_path: Path) -> None:
        path = write(tmp_path / "in" / "0.parquet", range(5000), row_group_size=1000)
        source = FileSource.for_parquet(path)
        source.validate()
        group = pq.ParquetFile(path).metadata.row_group(2).column(0)
        start = group.dictionary_page_offset or group.data_page_offset
        stat = os.stat(path)
        with open(path, "r+b") as file:
            file.seek(start)
            file.write(b"\xff" * 64)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        with pytest.raises(SourceError, match=r"0\.parquet, row group 2 cannot be read"):
            read_all(source)


def test_a_column_whose_values_do_not_fit_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "big.parquet")
    pq.write_table(pa.table({"n": pa.array([1, 2**64 - 1], pa.uint64())}), path)
    with pytest.raises(SourceError, match=r"big\.parquet, row group 0: column 'n' does not fit int64"):
        read_all(FileSource.for_parquet(path))


class TestListedFiles:
    def test_exactly_these_in_this_order(self, directory: str) -> None:
        files = [ListedFile.of(os.path.join(directory, f"{n}.parquet")) for n in (2, 0)]
        source = FileSource.for_listed_files(ParquetColumnarRowInputFormat(), files)
        rows = read_all(source)
        assert ids(rows) == [*range(20, 30), *range(10)]
        verify_source(source, rows, 2)
        split = FileSource.for_listed_files(ParquetColumnarRowInputFormat(), files, splits_files=True)
        verify_source(split, rows, 2)

    def test_one_that_changed_since_is_refused_before_the_job_starts(self, directory: str) -> None:
        files = [ListedFile.of(os.path.join(directory, f"{n}.parquet")) for n in (0, 1)]
        source = FileSource.for_listed_files(ParquetColumnarRowInputFormat(), files)
        write(files[1].path, range(99))
        with pytest.raises(SourceError, match=r"1\.parquet has changed .* its size was"):
            source.validate()
        os.unlink(files[1].path)
        with pytest.raises(SourceError, match=r"1\.parquet cannot be read: No such file"):
            source.validate()

    def test_one_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match=r"x\.parquet cannot be read: No such file"):
            ListedFile.of(str(tmp_path / "x.parquet"))
        with pytest.raises(ValueError, match="at least one file"):
            FileSource.for_listed_files(ParquetColumnarRowInputFormat(), [])


def test_a_file_that_is_given_twice_is_read_twice_under_two_ids(directory: str) -> None:
    path = os.path.join(directory, "0.parquet")
    source = FileSource.for_parquet(path, path)
    assert ids(read_all(source)) == [*range(10), *range(10)]
    run, splits = SourceRun(source), []
    while run.read(100):
        splits.append(run.current_split)
    assert len(set(splits)) == 2
    assert run.finished_splits == set(splits)


def test_files_describe_themselves_in_plans(directory: str, tmp_path: Path) -> None:
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), directory).build()
    described = {"connector": "files", "paths": directory, "format": "ParquetColumnarRowInputFormat"}
    assert source.describe() == described
    listed = [ListedFile.of(os.path.join(directory, "0.parquet"))]
    assert FileSource.for_listed_files(ParquetColumnarRowInputFormat(), listed).describe()["paths"] == "1 listed files"
    sink = FileSink.for_parquet(str(tmp_path / "out"))
    assert sink.describe() == {"connector": "files", "directory": str(tmp_path / "out"), "format": "ParquetWriteFormat"}
