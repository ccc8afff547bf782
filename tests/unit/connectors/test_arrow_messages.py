"""Tests files of Arrow messages: every row once however they are split, and files that are not whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Types
from penstock.connectors.files import arrow_messages
from penstock.connectors.files.arrow_messages import MARKER_BYTES, ArrowMessages
from penstock.connectors.files.file_formats import Position
from penstock.connectors.files.file_source import FileEnumeratorProvider, FileSource
from penstock.connectors.files.input_file import InputFile
from penstock.connectors.testing import read_all, verify_source
from penstock.datastream.connectors.base import SourceError

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
ROW_TYPE = Types.ROW_NAMED(["id", "at"], [Types.LONG(), Types.SQL_TIMESTAMP()])
MARKER = b"0123456789abcdef" * 2
FORMAT = ArrowMessages(ROW_TYPE, SCHEMA, MARKER)


def write(path: Path, sizes: Sequence[int]) -> Path:
    first = 0
    with open(path, "wb") as file:
        for size in sizes:
            ids = pa.array(np.arange(first, first + size))
            file.write(pa.RecordBatch.from_arrays([ids, ids.cast(SCHEMA.field("at").type)], schema=SCHEMA).serialize())
            file.write(MARKER)
            first += size
    return path


def source_of(path: Path) -> FileSource:
    splittable = FileEnumeratorProvider.default_splittable_file_enumerator()
    return FileSource.for_bulk_file_format(FORMAT, str(path)).set_file_enumerator(splittable).build()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_rows_come_once_through_restores_in_the_type_of_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parallelism: int
) -> None:
    monkeypatch.setattr(arrow_messages, "_SPLIT_BYTES", 700)
    source = source_of(write(tmp_path / "rows", [3, 1, 7, 20, 2]))
    source.validate()
    assert len(FORMAT.inspect(InputFile(str(tmp_path / "rows"))).bounds) > 3
    rows = read_all(source)
    assert [row.id for row in rows] == list(range(33))
    assert rows[5].at.isoformat() == "1970-01-01T00:00:00.000005"
    verify_source(source, rows, parallelism)


@given(sizes=st.lists(st.integers(0, 40), max_size=6), cuts=st.sets(st.integers(1, 4000)), searched=st.integers(1, 200))
def test_wherever_a_file_is_cut_a_message_belongs_to_the_part_that_it_begins_in(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], cuts: set[int], searched: int
) -> None:
    path = write(tmp_path_factory.mktemp("cut") / "rows", sizes)
    length = path.stat().st_size
    bounds = [0, *sorted(cut for cut in cuts if cut < length), length]
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_messages, "_SEARCHED_BYTES", searched)
        file = FORMAT.open(InputFile(str(path)), ROW_TYPE)
        for first, end in zip(bounds, bounds[1:]):
            for portion in file.read(Position(first, 0), end):
                assert first <= portion.start.at < end
                found += portion.batch["id"].to_pylist()
        file.close()
    assert found == list(range(sum(sizes)))


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert read_all(source_of(write(tmp_path / "rows", []))) == []


@pytest.mark.parametrize("left", [-1, -MARKER_BYTES - 1, 100, 3])
def test_a_file_that_is_cut_off_is_refused_with_its_name_and_the_place(tmp_path: Path, left: int) -> None:
    path = write(tmp_path / "rows", [5])
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(SourceError, match=r"rows cannot be read at byte 0, the file is damaged"):
        read_all(source_of(path))


def test_another_marker_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "rows", [5])
    path.write_bytes(path.read_bytes().replace(MARKER, MARKER[::-1]))
    with pytest.raises(SourceError, match="there is no marker behind it"):
        read_all(source_of(path))


def test_a_part_without_a_marker_is_damage_and_not_the_end(tmp_path: Path) -> None:
    path = write(tmp_path / "rows", [5, 5])
    length = path.stat().st_size
    path.write_bytes(path.read_bytes().replace(MARKER, MARKER[::-1]))
    file = FORMAT.open(InputFile(str(path)), ROW_TYPE)
    with pytest.raises(SourceError, match="rows cannot be read from byte 50 on, the file is damaged: .* none follows"):
        list(file.read(Position(50, 0), length))
    file.close()


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="none cannot be read: No such file"):
        FORMAT.inspect(InputFile(str(tmp_path / "none")))
    with pytest.raises(SourceError, match="none cannot be opened: .*No such file"):
        FORMAT.open(InputFile(str(tmp_path / "none")), ROW_TYPE)


def test_a_marker_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="a marker is 32 bytes, got 2"):
        ArrowMessages(ROW_TYPE, SCHEMA, b"ab")
