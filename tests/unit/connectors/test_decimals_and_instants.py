"""Tests decimals and instants in files: CSV, JSON and Parquet write them, and read them back as they were."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Instant, Types
from penstock.connectors.testing import read_all, verify_sink
from penstock.datastream.connectors.base import SourceError
from penstock.datastream.connectors.file_system import FileSink, FileSource
from penstock.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from penstock.datastream.formats.json import JsonLinesBulkWriters, JsonLinesFormat
from penstock.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat

ROW = Types.ROW_NAMED(["amount", "at"], [Types.DECIMAL(20, 4), Types.INSTANT()])
ROWS = [
    (Decimal("1234567890123456.7891"), Instant(1_729_989_000, 5_000)),
    (Decimal("-0.0001"), None),
    (None, Instant(-2_208_988_800, 0)),
]
CSV = CsvSchema.builder().add_number_column("amount", Types.DECIMAL(20, 4)).add_column("at", Types.INSTANT()).build()
FORMATS: dict[str, tuple[Any, Callable[[str], FileSource]]] = {
    "csv": (
        CsvBulkWriters.for_schema(CSV),
        lambda path: FileSource.for_record_stream_format(CsvReaderFormat.for_schema(CSV), path).build(),
    ),
    "json": (
        JsonLinesBulkWriters.for_row_type(),
        lambda path: FileSource.for_record_stream_format(JsonLinesFormat.for_schema(ROW), path).build(),
    ),
    "parquet": (
        ParquetBulkWriters.for_row_type(),
        lambda path: FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(ROW), path).build(),
    ),
}


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_written_is_read_back(tmp_path: Path, format: str) -> None:
    writers, source_of = FORMATS[format]
    made: list[Path] = []

    def make_sink() -> tuple[FileSink, Callable[[], list[Any]]]:
        made.append(tmp_path / str(len(made)))
        path = str(made[-1])
        sink = FileSink.for_bulk_format(path, writers).build()
        return sink, lambda: [tuple(row.to_tuple()) for row in read_all(source_of(path))]

    verify_sink(make_sink, [[row] for row in ROWS], ROW, 1)


def test_types_of_parquet_files_are_found(tmp_path: Path) -> None:
    columns = {"amount": pa.array([Decimal("1.50")]), "at": pa.array([ROWS[0][1]], pa.timestamp("us", "Europe/Vienna"))}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), str(tmp_path)).build()
    assert source.produced_type.text == "ROW(amount DECIMAL(3, 2), at INSTANT)"
    assert [row.to_tuple() for row in read_all(source)] == [(Decimal("1.50"), ROWS[0][1])]


@pytest.mark.parametrize("line", ['{"amount": 1.23456}', '{"amount": "x"}', '{"amount": 1e30}'])
def test_decimals_that_do_not_fit_are_malformed_and_not_rounded(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.json").write_text(line + "\n")
    with pytest.raises(SourceError, match="amount"):
        read_all(FORMATS["json"][1](str(tmp_path)))


def test_decimals_of_json_are_exact(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"amount": 1234567890123456.7891}\n{"amount": "0.10"}\n{"amount": 5}\n')
    found = [row.amount for row in read_all(FORMATS["json"][1](str(tmp_path)))]
    assert found == [Decimal("1234567890123456.7891"), Decimal("0.10"), Decimal(5)]
