"""Tests rows of a source whose event time cannot be read: malformed records, whatever the source is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common.program.failures import OperatorFailure
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.files.file_source import FileSource
from penstock.connectors.files.malformed_rows import MALFORMED_ROW_TYPE, MalformedRows
from penstock.connectors.formats.csv.csv_format import CsvReaderFormat
from penstock.connectors.formats.csv.csv_schema import CsvSchema
from penstock.connectors.formats.json.json_lines import JsonDecoder, JsonLinesFormat
from penstock.connectors.formats.parquet.parquet import ParquetColumnarRowInputFormat
from penstock.connectors.formats.text.text_lines import StreamFormat
from penstock.connectors.memory.collection import CollectionSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.base import MalformedRecord, Source
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.output_tag import OutputTag
from penstock.protocol.values.reasons import SubtaskFailureReason
from penstock.runtime.process.reason_of import reason_of
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_small_jobs import finish

ROW = Types.ROW_NAMED(["id", "time"], [Types.LONG(), Types.LONG()])
TAG = OutputTag("bad", MALFORMED_ROW_TYPE)
TIMES = [10, None, 30, None]
BY_COLUMN = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("time")
BY_FUNCTION = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row[1])


def rows_of(source: Source, strategy: WatermarkStrategy, columnar: bool = False) -> list[Any]:
    """Return the committed rows: all that the source read, and what went to the side output."""

    def build(env: StreamExecutionEnvironment) -> None:
        read = env.from_source(source, strategy, "in")
        if source.rejected_tag_id is not None:
            read.get_side_output(TAG).sink_to(CommittedRows())
        (read if columnar else read.map(lambda row: row, ROW)).sink_to(CommittedRows())

    source.validate()
    return finish(SmallJob(graph_of(build, 1)), 1)


def written(folder: Path, kind: str) -> str:
    if kind == "parquet":
        path = folder / "rows.parquet"
        ids = pa.array(range(1, 5), pa.int64())
        pq.write_table(pa.table({"id": ids, "time": pa.array(TIMES, pa.int64())}), path, row_group_size=2)
        return str(path)
    path = folder / f"rows.{kind}"
    if kind == "csv":
        path.write_text("1,10\n2,\n\n3,30\n4,\n")
    else:
        path.write_text('{"id": 1, "time": 10}\n\n{"id": 2}\n{"id": 3, "time": 30}\n{"id": 4, "time": null}\n')
    return str(path)


def format_of(kind: str, malformed: MalformedRows | None) -> Any:
    if kind == "parquet":
        return ParquetColumnarRowInputFormat(ROW, malformed_rows=malformed)
    if kind == "json":
        return JsonLinesFormat.for_schema(ROW, malformed)
    schema = CsvSchema.builder().add_number_column("id", Types.LONG()).add_number_column("time", Types.LONG())
    return CsvReaderFormat.for_schema(schema.set_null_value("").build(), malformed)


def files(folder: Path, kind: str, malformed: MalformedRows | None = None) -> FileSource:
    return FileSource(format_of(kind, malformed), [written(folder, kind)])


PLACES = {"csv": "rows.csv, line 2", "json": "rows.json, line 3", "parquet": "rows.parquet, row group 0, row 1"}


@pytest.mark.parametrize("columnar", [True, False])
@pytest.mark.parametrize("strategy", [BY_COLUMN, BY_FUNCTION], ids=["column", "function"])
@pytest.mark.parametrize("kind", PLACES)
def test_files_name_the_record_once_and_for_all(
    tmp_path: Path, kind: str, strategy: WatermarkStrategy, columnar: bool
) -> None:
    with pytest.raises(OperatorFailure, match=f"{PLACES[kind]}: .*time.*malformed_rows") as failed:
        rows_of(files(tmp_path, kind), strategy, columnar)
    assert reason_of(failed.value) is SubtaskFailureReason.PERMANENT


@pytest.mark.parametrize("columnar", [True, False])
@pytest.mark.parametrize("kind", PLACES)
def test_files_skip_them_or_emit_them_to_the_side_output(tmp_path: Path, kind: str, columnar: bool) -> None:
    assert [row[0] for row in rows_of(files(tmp_path, kind, MalformedRows.skip()), BY_COLUMN, columnar)] == [1, 3]
    found = rows_of(files(tmp_path, kind, MalformedRows.side_output(TAG)), BY_COLUMN, columnar)
    assert sorted(row[0] for row in found if len(row) == 2) == [1, 3]
    rejected = sorted((row[1], row[3]) for row in found if len(row) == 4)
    lines = {"csv": [2, 5], "json": [3, 5], "parquet": [1, 1]}[kind]
    assert [line for line, _ in rejected] == lines
    assert all("'time' is null" in reason for _, reason in rejected)


@pytest.mark.parametrize("columnar", [True, False])
@pytest.mark.parametrize("with_time", [0, 10], ids=["none", "one of ten"])
def test_many_of_them_are_left_out_in_slices_that_grow(
    tmp_path: Path, with_time: int, columnar: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this: each one costs a slice of its own, and another look at all records of its block."""
    looked: list[int] = []
    bounds = JsonDecoder.bounds

    def counted(decoder: JsonDecoder, data: bytes) -> Any:
        looked.append(len(data))
        return bounds(decoder, data)

    monkeypatch.setattr(JsonDecoder, "bounds", counted)
    timed = [bool(with_time) and i % with_time == 0 for i in range(3000)]
    lines = [f'{{"id": {i}, "time": {i if has_time else "null"}}}\n' for i, has_time in enumerate(timed)]
    path = tmp_path / "rows.json"
    path.write_text("".join(lines))
    source = FileSource(format_of("json", MalformedRows.skip()), [str(path)])

    def build(env: StreamExecutionEnvironment) -> None:
        read = env.from_source(source, BY_COLUMN, "in")
        (read if columnar else read.map(lambda row: row, ROW)).sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 1))
    assert len(finish(job, 1)) == sum(timed)
    reading = next(subtask for subtask in job.subtasks.values() if subtask.vertex.is_source)
    assert reading.work.slice_rows() >= 100
    assert len(looked) < 10


def number_of(line: str, _: int) -> int:
    return int(line)


def test_lines_of_text_are_named_although_blank_ones_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("1\n2\n\n4\n")
    source = FileSource(StreamFormat.text_line_format(), [str(path)])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(number_of)
    with pytest.raises(OperatorFailure, match=r"lines.txt, line 3: .*ValueError: invalid literal.*line \d+"):
        rows_of(source, strategy, columnar=True)


@pytest.mark.parametrize("strategy", [BY_COLUMN, BY_FUNCTION], ids=["column", "function"])
@pytest.mark.parametrize(
    ("source", "place"),
    [
        (CollectionSource([(i, t) for i, t in enumerate(TIMES)], ROW), "row 1 of the collection"),
        (DataGeneratorSource(lambda i: (i, TIMES[i % 4]), 9, type_info=ROW), "the generator's row for index 1"),
    ],
    ids=["collection", "generator"],
)
def test_rows_of_programs_are_named(source: Source, place: str, strategy: WatermarkStrategy) -> None:
    with pytest.raises(OperatorFailure, match=place) as failed:
        rows_of(source, strategy)
    assert reason_of(failed.value) is SubtaskFailureReason.PERMANENT


def test_a_hybrid_source_does_what_its_current_source_does(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    hybrid = HybridSource.builder(files(first, "csv", MalformedRows.skip())).add_source(files(second, "json")).build()
    with pytest.raises(OperatorFailure, match=PLACES["json"]):
        rows_of(hybrid, BY_COLUMN)
    skip = MalformedRows.skip()
    hybrid = HybridSource.builder(files(first, "csv", skip)).add_source(files(second, "json", skip)).build()
    assert [row[0] for row in rows_of(hybrid, BY_COLUMN)] == [1, 3, 1, 3]


def test_rows_behind_a_function_fail_for_good_too() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        read = env.from_source(CollectionSource([(1, 10), (2, None)], ROW), WatermarkStrategy.no_watermarks(), "in")
        mapped = read.map(lambda row: row, ROW)
        mapped.assign_timestamps_and_watermarks(BY_COLUMN).map(lambda row: row, ROW).sink_to(CommittedRows())

    with pytest.raises(OperatorFailure, match=r"'time' is null.*the row was .*2") as failed:
        finish(SmallJob(graph_of(build, 1)), 1)
    assert reason_of(failed.value) is SubtaskFailureReason.PERMANENT


def test_malformed_records_are_never_restarted() -> None:
    assert reason_of(OperatorFailure("in", MalformedRecord("row 1"))) is SubtaskFailureReason.PERMANENT
