"""Reads JSON lines as Python's reader does: rows come once through restores, a malformed one is named by its line."""

from __future__ import annotations

import datetime
import gzip
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.type_information import TypeInformation
from penstock.common.types import Types
from penstock.connectors.files import record_file
from penstock.connectors.files.record_file import RefusedRecords
from penstock.connectors.formats.json.json_lines import JsonDecoder
from penstock.connectors.testing import SourceRun, read_all, verify_source
from penstock.datastream.connectors.base import SourceError
from penstock.datastream.connectors.file_system import FileEnumeratorProvider, FileSource
from penstock.datastream.formats.json import JsonLinesFormat, MalformedRows

PAIR = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


def source_of(
    path: Path,
    row_type: TypeInformation = PAIR,
    malformed: MalformedRows | None = None,
    splits: bool = False,
    ignore_unknown_fields: bool = True,
) -> FileSource:
    format = JsonLinesFormat.for_schema(row_type, malformed, ignore_unknown_fields=ignore_unknown_fields)
    builder = FileSource.for_record_stream_format(format, str(path))
    if splits:
        builder.set_file_enumerator(FileEnumeratorProvider.default_splittable_file_enumerator())
    return builder.build()


def lines(ids: Iterable[int]) -> str:
    return "".join(json.dumps({"id": i, "name": f"ü{i}" + "x" * (i % 40)}, ensure_ascii=i % 2 == 0) + "\n" for i in ids)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "_BLOCK_BYTES", 64)
    monkeypatch.setattr("penstock.connectors.formats.text.text_bytes.SPLIT_BYTES", 100)


class TestReading:
    @pytest.mark.parametrize("parallelism", [1, 3])
    @pytest.mark.parametrize("kind", ["whole", "split", "gz"])
    def test_rows_come_once_through_restores(
        self, tmp_path: Path, small_blocks: None, kind: str, parallelism: int
    ) -> None:
        for number in range(2):
            data = lines(range(number * 30, number * 30 + 30)).encode()
            name = f"{number}.json.gz" if kind == "gz" else f"{number}.json"
            (tmp_path / name).write_bytes(gzip.compress(data) if kind == "gz" else data.rstrip(b"\n"))
        source = source_of(tmp_path, splits=kind == "split")
        rows = read_all(source)
        assert [row.id for row in rows] == list(range(60))
        assert rows[1].name == "ü1x"
        verify_source(source, rows, parallelism, rows_max=(1, 3, 1000), reads_lost=(0, 2))

    def test_all_types(self, tmp_path: Path) -> None:
        inner = Types.ROW_NAMED(["x", "day"], [Types.INT(), Types.SQL_DATE()])
        row_type = Types.ROW_NAMED(
            ["yes", "big", "f", "d", "t", "ts", "l", "r"],
            [
                Types.BOOLEAN(),
                Types.BIG_INT(),
                Types.DOUBLE(),
                Types.SQL_DATE(),
                Types.SQL_TIME(),
                Types.SQL_TIMESTAMP(),
                Types.LIST(Types.INT()),
                inner,
            ],
        )
        line = {
            "yes": True,
            "big": 10**30,
            "f": 1,
            "d": "2026-01-31",
            "t": "10:15:00.5",
            "ts": "2026-01-31T10:15:00",
            "l": [1, None],
            "r": {"x": 1, "day": "2026-01-31", "more": 1},
            "further": [{"a": None}],
        }
        (tmp_path / "a.json").write_text("\ufeff" + json.dumps(line) + "\r\n\r\n  {} \n")
        first, second = read_all(source_of(tmp_path, row_type))
        day = datetime.date(2026, 1, 31)
        assert list(first.as_dict().values())[:7] == [
            True,
            10**30,
            1.0,
            day,
            datetime.time(10, 15, 0, 500000),
            datetime.datetime(2026, 1, 31, 10, 15),
            [1, None],
        ]
        assert (first.r.x, first.r.day) == (1, day)
        assert list(second.as_dict().values()) == [None] * 8

    @pytest.mark.parametrize(
        "kind", [Types.TUPLE([Types.INT()]), Types.PICKLED_BYTE_ARRAY(), Types.LIST(Types.PICKLED_BYTE_ARRAY())]
    )
    def test_types_that_no_json_stands_for(self, kind: ColumnType) -> None:
        with pytest.raises(TypeError, match=r"field 'a.*is not read from JSON"):
            JsonLinesFormat.for_schema(Types.ROW_NAMED(["a"], [kind]))
        with pytest.raises(TypeError, match=r"Types\.ROW_NAMED"):
            JsonLinesFormat.for_schema(kind)


Malformed = tuple[Path, str, str]
"""The directory, the line and the reason."""

MALFORMED = {
    '{"id": 1': "it is no JSON: Expecting",
    "{'id': 1}": "it is no JSON",
    "[1]": "it is no object, but list",
    "null": "it is no object, but NoneType",
    '"text"': "it is no object, but str",
    '{"id": 1} {"id": 2}': "it is no JSON: Extra data",
    '{"id": 1} null': "it is no JSON: Extra data",
    '{"id": "1a"}': "field 'id': '1a' is no LONG",
    '{"id": "1.0"}': "field 'id': '1.0' is no LONG",
    '{"id": 1.5}': r"field 'id': '1.5' is no LONG \(it has a fraction",
    '{"id": 9223372036854775808}': r"field 'id': '9223372036854775808' is no LONG \(it is out of range",
    '{"id": true}': "field 'id': 'true' is no LONG",
    '{"name": "\udcff"}': "it is no JSON: 'utf-8' codec",
    '{"id": 1, "id": 2}': "it is no JSON: field 'id' is there twice",
}


class TestMalformedRows:
    @pytest.fixture(params=MALFORMED)
    def malformed(self, request: pytest.FixtureRequest, tmp_path: Path, small_blocks: None) -> Malformed:
        line = request.param.encode(errors="surrogateescape")
        data = (line + b"\n" + lines(range(12)).encode() + line + b"\n") * 2
        (tmp_path / "a.json").write_bytes(data.rstrip(b"\n"))
        return tmp_path, line.decode(errors="replace"), MALFORMED[request.param]

    def test_fail_names_file_line_and_field(self, malformed: Malformed) -> None:
        directory, _, reason = malformed
        with pytest.raises(SourceError, match=rf"a\.json, line 1 cannot be read: {reason}.*JsonLinesFormat.*skip"):
            read_all(source_of(directory))

    def test_skip_counts(self, malformed: Malformed) -> None:
        run, found = SourceRun(source_of(malformed[0], malformed=MalformedRows.skip())), []
        while (rows := run.read(5)) is not None:
            found += [row.id for row in rows[1]]
        assert found == [*range(12), *range(12)]
        assert run.skipped_rows == 4

    def test_side_output_has_every_one_once_through_restores(self, malformed: Malformed) -> None:
        directory, line, _ = malformed
        source = source_of(directory, malformed=MalformedRows.side_output("bad"), splits=True)
        run, found = SourceRun(source, parallelism=2), []
        while (rows := run.read(5)) is not None:
            found += rows[1]
        assert sorted((r.line, r.text) for r in run.rejected) == [(n, line) for n in (1, 14, 15, 28)]
        verify_source(source, found, parallelism=2, rows_max=(1, 4, 1000), reads_lost=(0, 3))

    def test_numbers_that_python_does_not_read_are_no_reason_to_refuse_a_row(self, tmp_path: Path) -> None:
        good = ['{"id": 1, "more": Inf}', '{"id": 2, "more": ' + "1" * 5000 + "}", '{"id": 3, "more": NaN}']
        (tmp_path / "a.json").write_text("\n".join([*good, "bad"]))
        run = SourceRun(source_of(tmp_path, malformed=MalformedRows.skip()))
        read = run.read(10)
        assert read is not None and [row.id for row in read[1]] == [1, 2, 3]
        assert run.skipped_rows == 1

    def test_unknown_fields_can_be_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text('{"id": 1}\n{"id": 1, "nmae": "a"}\n')
        with pytest.raises(SourceError, match=r"line 2 .* unexpected field 'nmae'; declared are id, name"):
            read_all(source_of(tmp_path, ignore_unknown_fields=False))

    def test_objects_over_several_lines_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text(json.dumps({"id": 1, "name": "a"}, indent=1) + "\n")
        with pytest.raises(SourceError, match="line 1 cannot be read: it is no JSON"):
            read_all(source_of(tmp_path))


def is_row(line: str) -> bool:
    try:
        row = json.loads(line, parse_constant=lambda word: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return False
    return isinstance(row, dict)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(alphabet='{}[]",:1 \tnul', max_size=12), min_size=1, max_size=4))
def test_whatever_stands_in_a_file_a_row_is_an_object_on_one_line(found: list[str]) -> None:
    """Arrow's reader, left alone, crashes the process at some of these."""
    decoder = JsonDecoder(Types.ROW_NAMED(["1"], [Types.LIST(Types.INT())]), True)
    data = "\n".join(found).encode()
    try:
        rows = decoder.decode(data)
    except RefusedRecords:
        return
    present = [line for line in found if line.strip(" \t")]
    assert rows.num_rows == len(present)
    assert all(map(is_row, present))
