"""Reads CSV of every dialect in splits: rows come once through restores, and a malformed one is named by its line."""

from __future__ import annotations

import bz2
import csv
import datetime
import decimal
import gzip
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.common.types import Types
from penstock.connectors.files import record_file
from penstock.connectors.formats.csv.csv_records import RecordEnds
from penstock.connectors.testing import SinkRun, SourceRun, read_all, verify_sink, verify_source
from penstock.datastream.connectors.base import SinkError, Source, SourceError
from penstock.datastream.connectors.file_system import FileEnumeratorProvider, FileSink, FileSource
from penstock.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema, MalformedRows

PAIRS = CsvSchema.builder().add_number_column("id").add_string_column("name").build()


def source_of(
    directory: Path, schema: CsvSchema = PAIRS, malformed: MalformedRows | None = None, splits: bool = False
) -> FileSource:
    builder = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema, malformed), str(directory))
    if splits:
        builder.set_file_enumerator(FileEnumeratorProvider.default_splittable_file_enumerator())
    return builder.build()


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".bz2":
        data = bz2.compress(data)
    elif path.suffix == ".zst":
        data = pa.Codec("zstd").compress(data, asbytes=True)
    path.write_bytes(data)
    return path


def pairs_of(source: Source, **options: int) -> list[tuple[Any, Any]]:
    return [(row.id, row.name) for row in read_all(source, **options)]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "_BLOCK_BYTES", 64)


class TestReading:
    @pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".zst"])
    @pytest.mark.parametrize("parallelism", [1, 2])
    def test_rows_come_once_through_restores(
        self, tmp_path: Path, small_blocks: None, suffix: str, parallelism: int
    ) -> None:
        for number in range(2):
            text = "".join(f'{i},"n {i}\nof ""{number}"""\r\n' for i in range(number * 20, number * 20 + 20))
            write(tmp_path / f"{number}.csv{suffix}", text)
        source = source_of(tmp_path)
        rows = read_all(source)
        assert [(row.id, row.name) for row in rows] == [(i, f'n {i}\nof "{i // 20}"') for i in range(40)]
        verify_source(source, rows, parallelism, rows_max=(1, 3, 1000), reads_lost=(0, 2))

    def test_a_file_is_split_where_values_hold_no_line_breaks(
        self, tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.connectors.formats.text.text_bytes.SPLIT_BYTES", 50)
        schema = CsvSchema.builder().add_columns_from(PAIRS).disable_quote_char().set_use_header().build()
        write(tmp_path / "a.csv", "id,name\n" + "".join(f"{i},{'x' * (i % 70)}\n" for i in range(60)))
        source = source_of(tmp_path, schema, splits=True)
        rows = read_all(source)
        assert [(row.id, row.name) for row in rows] == [(i, "x" * (i % 70)) for i in range(60)]
        run = SourceRun(source)
        splits = set()
        while run.read(1000):
            splits.add(run.current_split)
        assert len(splits) > 10
        for parallelism in (1, 3):
            verify_source(source, rows, parallelism, rows_max=(2, 1000), reads_lost=(0, 2))

    def test_splitting_of_quoted_files_is_said_to_be_left_out(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", '1,"a\nb"\n')
        with pytest.warns(UserWarning, match=r"read whole.*line breaks.*disable_quote_char"):
            source = source_of(tmp_path, splits=True)
        assert pairs_of(source) == [(1, "a\nb")]

    def test_all_types(self, tmp_path: Path) -> None:
        builder = CsvSchema.builder().add_boolean_column("yes").add_number_column("big", Types.BIG_INT())
        builder.add_number_column("dec", Types.BIG_DEC()).add_number_column("f", Types.DOUBLE())
        builder.add_column("d", Types.SQL_DATE()).add_column("t", Types.SQL_TIME()).add_column(
            "ts", Types.SQL_TIMESTAMP()
        )
        builder.add_array_column("tags").add_array_column("numbers", "|", Types.INT())
        write(
            tmp_path / "a.csv",
            "true,123456789012345678901234,1.50,2.5,2026-01-31,10:15:00.5,2026-01-31 10:15:00,a;b,1|2\n,,,,,,,,\n",
        )
        first, second = read_all(source_of(tmp_path, builder.build()))
        assert list(first.as_dict().values()) == [
            True,
            123456789012345678901234,
            decimal.Decimal("1.50"),
            2.5,
            datetime.date(2026, 1, 31),
            datetime.time(10, 15, 0, 500000),
            datetime.datetime(2026, 1, 31, 10, 15),
            ["a", "b"],
            [1, 2],
        ]
        assert list(second.as_dict().values()) == [None] * 7 + [[], []]

    def test_other_characters_and_a_text_for_null(self, tmp_path: Path) -> None:
        schema = (
            CsvSchema.builder()
            .add_columns_from(PAIRS)
            .set_column_separator("|")
            .set_quote_char("'")
            .set_escape_char("\\")
            .set_null_value("NULL")
            .build()
        )
        write(tmp_path / "a.csv", "1|'a\\'|\nb'\nNULL|NULL\n2|'NULL'\n3|x\\|y\n4|\n")
        assert pairs_of(source_of(tmp_path, schema)) == [
            (1, "a'|\nb"),
            (None, None),
            (2, "NULL"),
            (3, "x|y"),
            (4, ""),
        ]

    def test_blank_lines_byte_order_marks_and_missing_line_ends(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", b"\xef\xbb\xbf\n1,a\r\n\r\n\n2,b")
        write(tmp_path / "b.csv", b"")
        write(tmp_path / "c.csv", b"\n\n")
        write(tmp_path / "d.csv", b'"",""\n')
        assert pairs_of(source_of(tmp_path)) == [(1, "a"), (2, "b"), (None, "")]

    def test_headers(self, tmp_path: Path) -> None:
        columns = CsvSchema.builder().add_columns_from(PAIRS).set_use_header()
        write(tmp_path / "a.csv", '"other","name\nof","id"\nx,a,1\n')
        with pytest.raises(SourceError, match=r"a\.csv, line 1: the header has no column 'name'; it has other, name"):
            source_of(tmp_path, columns.set_strict_headers().build()).validate()
        write(tmp_path / "a.csv", "other,name,id\nx,a,1\n")
        with pytest.raises(SourceError, match="columns that the schema has not: other"):
            source_of(tmp_path, columns.build()).validate()
        columns.set_strict_headers(False).set_reorder_columns()
        assert pairs_of(source_of(tmp_path, columns.build())) == [(1, "a")]
        write(tmp_path / "a.csv", "id,name\nskipped,row\n1,a\n")
        columns.set_reorder_columns(False).set_skip_first_data_row()
        assert pairs_of(source_of(tmp_path, columns.build())) == [(1, "a")]
        write(tmp_path / "a.csv", "name,id\na,1\n")
        with pytest.raises(SourceError, match="the header is name, id, the schema's order id, name"):
            source_of(tmp_path, columns.set_strict_headers().set_skip_first_data_row(False).build()).validate()

    def test_a_file_of_only_a_header_has_no_rows(self, tmp_path: Path) -> None:
        schema = CsvSchema.builder().add_columns_from(PAIRS).set_use_header().set_strict_headers().build()
        write(tmp_path / "a.csv", "id,name")
        assert read_all(source_of(tmp_path, schema)) == []

    def test_a_record_longer_than_a_block(self, tmp_path: Path, small_blocks: None) -> None:
        long = "x\n" * 500
        write(tmp_path / "a.csv", f'1,a\n2,"{long}"\n3,c\n')
        source = source_of(tmp_path)
        assert pairs_of(source) == [(1, "a"), (2, long), (3, "c")]
        verify_source(source, read_all(source))


Malformed = tuple[Path, str, str]
"""The directory, the line and the reason."""

MALFORMED: dict[str, tuple[str | bytes, str]] = {
    "too few fields": ("7\n", "it has 1 fields, not 2"),
    "too many fields": ("7,a,b\n", "it has 3 fields, not 2"),
    "no number": ("seven,a\n", "field 'id': 'seven' is no LONG"),
    "too large": ("9999999999999999999,a\n", "field 'id' is no LONG"),
    "a fraction": ("1.5,a\n", "field 'id': '1.5' is no LONG"),
    "no UTF-8": (b"7,\xff\n", "field 'name' is no STRING .*UTF8"),
    "two lines": ('seven,"a\nb"\n', "field 'id': 'seven' is no LONG"),
}


class TestMalformedRows:
    @pytest.fixture(params=MALFORMED)
    def malformed(self, request: pytest.FixtureRequest, tmp_path: Path, small_blocks: None) -> Malformed:
        content, reason = MALFORMED[request.param]
        line = content if isinstance(content, bytes) else content.encode()
        good = [b"%d,n%d\n" % (i, i) for i in range(20)]
        write(tmp_path / "a.csv", b"".join(good[:12]) + line + b"".join(good[12:]) + line.rstrip(b"\n"))
        return tmp_path, line.rstrip(b"\n").decode(errors="replace"), reason

    def test_fail_names_file_line_and_field(self, malformed: Malformed) -> None:
        directory, _, reason = malformed
        with pytest.raises(SourceError, match=rf"a\.csv, line 13 cannot be read: {reason}.*MalformedRows\.skip"):
            read_all(source_of(directory))

    def test_skip_counts(self, malformed: Malformed) -> None:
        directory, _, _ = malformed
        source = source_of(directory, malformed=MalformedRows.skip())
        run, found = SourceRun(source), []
        while (rows := run.read(7)) is not None:
            found += [row.id for row in rows[1]]
        assert found == list(range(20))
        assert run.skipped_rows == 2
        assert run.rejected == []

    def test_side_output_has_every_one_once_through_restores(self, malformed: Malformed) -> None:
        directory, line, _ = malformed
        source = source_of(directory, malformed=MalformedRows.side_output("bad"))
        assert source.rejected_tag_id == "bad"
        run, found = SourceRun(source), []
        while (rows := run.read(7)) is not None:
            found += rows[1]
        path = str(directory / "a.csv")
        first = 21 + line.count("\n") + 1
        assert [(r.file, r.line, r.text) for r in run.rejected] == [(path, 13, line), (path, first, line)]
        verify_source(source, found, rows_max=(1, 4, 1000), reads_lost=(0, 3))
        verify_source(source, found, parallelism=2, rows_max=(3,), reads_lost=(2,))

    def test_only_malformed_rows(self, tmp_path: Path, small_blocks: None) -> None:
        write(tmp_path / "a.csv", "".join(f"{2**70 + i},x\n" for i in range(500)))
        run = SourceRun(source_of(tmp_path, malformed=MalformedRows.side_output("bad")))
        assert run.read(10) is None
        assert [row.line for row in run.rejected] == list(range(1, 501))

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_a_quote_that_is_never_closed(self, tmp_path: Path, small_blocks: None, suffix: str) -> None:
        write(tmp_path / f"a.csv{suffix}", '1,a\n2,"b\n3,c\n' + "4,d\n" * 100)
        with pytest.raises(SourceError, match="line 2 cannot be read: an opening quote is never closed"):
            read_all(source_of(tmp_path))
        source = source_of(tmp_path, malformed=MalformedRows.side_output("bad"))
        run, found = SourceRun(source), []
        while (rows := run.read(7)) is not None:
            found += rows[1]
        assert [row.id for row in found] == [1, 3, *[4] * 100]
        assert [(row.line, row.text) for row in run.rejected] == [(2, '2,"b')]
        verify_source(source, found, rows_max=(1, 50), reads_lost=(0, 2))

    def test_bad_values_of_types_that_are_checked_here(self, tmp_path: Path) -> None:
        builder = CsvSchema.builder().add_number_column("n", Types.BIG_DEC()).add_array_column("l", ";", Types.INT())
        write(tmp_path / "a.csv", "1,1;2\nx,1\n2,1;y\n")
        run = SourceRun(source_of(tmp_path, builder.build(), MalformedRows.side_output("bad")))
        read = run.read(10)
        assert read is not None and len(read[1]) == 1
        assert [row.line for row in run.rejected] == [2, 3]
        assert "'n'" in run.rejected[0].reason and "'l'" in run.rejected[1].reason

    def test_lines_are_numbered_in_splits_too(
        self, tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.connectors.formats.text.text_bytes.SPLIT_BYTES", 100)
        schema = CsvSchema.builder().add_columns_from(PAIRS).disable_quote_char().build()
        write(tmp_path / "a.csv", "".join("x,y\n" if i % 10 == 9 else f"{i},a\n" for i in range(200)))
        run = SourceRun(source_of(tmp_path, schema, MalformedRows.side_output("bad"), splits=True), parallelism=3)
        while run.read(10):
            pass
        assert sorted(row.line for row in run.rejected) == list(range(10, 201, 10))

    def test_a_tag_of_another_type_is_refused(self) -> None:
        class Tag:
            tag_id = "bad"
            type_info = Types.STRING()

        with pytest.raises(TypeError, match=r"'bad' of malformed rows carries ROW\(file .*declare it as"):
            MalformedRows.side_output(Tag())
        with pytest.raises(TypeError, match="named by an OutputTag"):
            MalformedRows.side_output(5)


class TestDamage:
    def test_a_truncated_gz(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv.gz", "".join(f"{i},{i * 7919 % 1000}\n" for i in range(400_000)))
        os.truncate(path, path.stat().st_size - 100)
        source = source_of(tmp_path)
        source.validate()
        with pytest.raises(SourceError, match=r"a\.csv\.gz cannot be read behind \d+ bytes.* gzip data is .*cut off"):
            read_all(source, rows_max=100_000)

    def test_something_else_than_gz(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv.gz").write_bytes(b"1,a\n")
        with pytest.raises(SourceError, match=r"a\.csv\.gz cannot be read .* gzip data is damaged"):
            source_of(tmp_path).validate()

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_a_file_changed_since_the_checkpoint(self, tmp_path: Path, suffix: str) -> None:
        path = write(tmp_path / f"a.csv{suffix}", "1,a\n2,b\n")
        source = source_of(tmp_path)
        run = SourceRun(source)
        run.read(1)
        snapshot = run.snapshot()
        write(path, "1,a\n2,b\n3,c\n")
        with pytest.raises(SourceError, match="has changed since the job started or took its checkpoint: its size"):
            SourceRun(source, restored=snapshot).read(1)


@settings(max_examples=100, deadline=None)
@example([('"', "\n"), ("a\n", '"b')])
@given(st.lists(st.tuples(*[st.text(alphabet='",\n\r a', max_size=6)] * 2), max_size=20))
def test_record_ends_are_those_that_were_written(rows: list[tuple[str, str]]) -> None:
    ends, out = [], io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        writer.writerow(row)
        ends.append(out.tell())
    found = RecordEnds(b",", b'"', None).find(out.getvalue().encode())
    assert found.tolist() == ends


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet='",\na', max_size=40))
def test_arrays_and_fields_one_by_one_find_the_same_ends(text: str) -> None:
    data = text.encode()
    rules = RecordEnds(b",", b'"', None)
    quotes = np.flatnonzero(np.frombuffer(data, np.uint8) == 34)
    spans = [m.span("quoted") for m in rules._spans(data)]
    expected = [
        i + 1 for i, byte in enumerate(data) if byte == 10 and not any(start <= i < end for start, end in spans)
    ]
    assert rules.find(data).tolist() == expected
    if len(quotes) and rules._is_regular(np.frombuffer(data, np.uint8), quotes):
        assert len(spans) > 0


def test_characters_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="must differ"):
        CsvSchema.builder().add_string_column("a").set_column_separator('"').build()
    with pytest.raises(ValueError, match="single ASCII character"):
        CsvSchema.builder().set_column_separator("ab")
    with pytest.raises(ValueError, match="set_use_header"):
        CsvSchema.builder().add_string_column("a").set_reorder_columns().build()
    with pytest.raises(ValueError, match="repeat"):
        CsvSchema.builder().add_string_column("a").add_string_column("a").build()
    with pytest.raises(TypeError, match="column 'm': no text of CSV stands for MAP"):
        CsvSchema.builder().add_column("m", Types.MAP(Types.STRING(), Types.LONG()))


class TestWriting:
    ROW = Types.ROW_NAMED(
        ["id", "name", "tags", "price"], [Types.LONG(), Types.STRING(), Types.LIST(Types.STRING()), Types.DOUBLE()]
    )

    def test_what_is_written_is_read_back(self, tmp_path: Path) -> None:
        schema = CsvSchema.builder().add_columns_from(CsvSchema.of(self.ROW)).set_use_header().build()
        rows: list[tuple[int | None, str, list[str], float | None]] = [
            *((i, f'n{i},"\n', ["a", f"{i}"], i / 7) for i in range(1000)),
            (None, "", [], None),
        ]
        batch = pa.RecordBatch.from_arrays(self.ROW.encode(rows), schema=self.ROW.schema)
        sink = FileSink.for_bulk_format(str(tmp_path), CsvBulkWriters.for_schema(schema)).build()
        SinkRun(sink, [batch.slice(0, 400), batch.slice(400)], self.ROW, parallelism=2).finish()
        found = [tuple(row.as_dict().values()) for row in read_all(source_of(tmp_path, schema))]
        assert sorted(found, key=repr) == sorted(rows, key=repr)
        (name, *_) = sorted(os.listdir(tmp_path))
        assert name.endswith(".csv")
        assert (tmp_path / name).read_text().splitlines()[0] == '"id","name","tags","price"'

    def test_exactly_once(self, tmp_path: Path) -> None:
        made: list[Path] = []
        row_type = PAIRS.row_type

        def make_sink() -> tuple[FileSink, Callable[[], list[Any]]]:
            directory = tmp_path / str(len(made))
            made.append(directory)
            sink = FileSink.for_bulk_format(str(directory), CsvBulkWriters.for_schema(PAIRS)).build()
            return sink, lambda: pairs_of(source_of(directory))

        verify_sink(make_sink, [[(1, "a")], [(2, "b"), (3, "c\n")], [(4, "d")]], row_type, 2)

    def test_what_cannot_be_written(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="quote char"):
            CsvBulkWriters.for_schema(CsvSchema.builder().add_columns_from(PAIRS).set_quote_char("'").build())
        sink = FileSink.for_bulk_format(str(tmp_path), CsvBulkWriters.for_schema(PAIRS)).build()
        with pytest.raises(SinkError, match=r"columns are ROW\(id LONG, name STRING\), but the stream's rows are LONG"):
            sink.validate(Types.LONG())
