"""Tests files of records under every block size, split and restart."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.row_types.scalar_types import STRING
from penstock.connectors.files import record_file
from penstock.connectors.files.file_formats import Portion, Position
from penstock.connectors.files.input_file import InputFile
from penstock.connectors.testing import SourceRun, read_all, verify_source
from penstock.datastream.connectors.base import SourceError
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.formats.csv import CsvReaderFormat, CsvSchema, MalformedRows

TEXT = CsvSchema.builder().add_string_column("a").add_string_column("b").build()


def rows_of(portions: list[Portion]) -> list[str]:
    return [row for portion in portions for row in portion.batch.column(0).to_pylist()]


@settings(max_examples=150, deadline=None)
@given(
    data=st.text(alphabet="ab\n", max_size=40),
    block=st.integers(1, 12),
    cuts=st.lists(st.integers(0, 40), max_size=4),
)
def test_every_line_belongs_to_one_split(data: str, block: int, cuts: list[int]) -> None:
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_file, "_BLOCK_BYTES", block)
        path = Path(directory, "a.txt")
        path.write_text(data)
        found = []
        for first, end in zip(bounds, bounds[1:]):
            file = StreamFormat.text_line_format().open(InputFile(str(path)), STRING)
            portions = list(file.read(Position(first, 0), end))
            file.close()
            found += rows_of(portions)
            # From any position on, the rest is what was still to come.
            rest = rows_of(portions)
            for portion in portions:
                for taken in range(portion.batch.num_rows + 1):
                    file = StreamFormat.text_line_format().open(InputFile(str(path)), STRING)
                    again = Position(portion.start.at, portion.start.row + taken)
                    assert rows_of(list(file.read(again, end))) == rest[taken:]
                    file.close()
                rest = rest[portion.batch.num_rows :]
        assert found == (data.removesuffix("\n").split("\n") if data else [])


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.tuples(*[st.text(alphabet='a",\n', min_size=1, max_size=5)] * 2), max_size=10),
    bad=st.sets(st.integers(0, 10)),
    block=st.integers(1, 40),
    halved=st.integers(1, 3),
)
def test_rows_and_what_is_malformed_come_once_whatever_the_blocks(
    rows: list[tuple[str, str]], bad: set[int], block: int, halved: int
) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    malformed = []
    for index, row in enumerate(rows):
        if index in bad:
            malformed.append((out.getvalue().count("\n") + 1, "one"))
            out.write("one\n")
        writer.writerow(row)
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_file, "_BLOCK_BYTES", block)
        patch.setattr(record_file, "_HALVED_RECORDS_MAX", halved)
        Path(directory, "a.csv").write_text(out.getvalue())
        format = CsvReaderFormat.for_schema(TEXT, MalformedRows.side_output("bad"))
        source = FileSource.for_record_stream_format(format, directory).build()
        run, found = SourceRun(source), []
        while (read := run.read(2)) is not None:
            found += read[1]
        assert [(row.a, row.b) for row in found] == rows
        assert [(row.line, row.text) for row in run.rejected] == malformed
        verify_source(source, found, rows_max=(1, 100), reads_lost=(0, 1))


def test_reading_stops_now_and_then_where_much_is_malformed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "_HALVED_RECORDS_MAX", 4)
    (tmp_path / "a.csv").write_text("".join(f"{i}\n" if i % 10 == 0 else f"{2**63 + i}\n" for i in range(200)))
    schema = CsvSchema.builder().add_number_column("a").build()
    source = FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(schema, MalformedRows.side_output("bad")), str(tmp_path)
    ).build()
    run, found, rejected = SourceRun(source), [], []
    while (read := run.read(1000)) is not None:
        found += read[1]
        rejected.append(len(run.rejected))
    assert len(rejected) > 5 and rejected[0] < 20
    assert [row.a for row in found] == list(range(0, 200, 10))
    assert len(run.rejected) == 180
    verify_source(source, found, rows_max=(1, 7), reads_lost=(0, 2))


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "_BLOCK_BYTES", 16)
    monkeypatch.setattr(record_file, "_RECORD_BYTES_MAX", 128)
    (tmp_path / "a.txt").write_text("short\n" + "x" * 500 + "\n")
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path)).build()
    with pytest.raises(SourceError, match=r"a\.txt, line 2 is longer than 128 bytes"):
        read_all(source)
