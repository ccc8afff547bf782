"""Writes JSON lines exactly once, and reads them again with Python's reader and with our source."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.type_information import TypeInformation
from penstock.connectors.formats.json.json_writer import json_lines
from penstock.connectors.testing import SinkRun, read_all, verify_sink
from penstock.datastream.connectors.base import SinkError
from penstock.datastream.connectors.file_system import FileSink, FileSource
from penstock.datastream.formats.json import JsonLinesBulkWriters, JsonLinesFormat

PAIR = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
INNER = Types.ROW_NAMED(["x", "tags"], [Types.INT(), Types.LIST(Types.STRING())])
ALL = Types.ROW_NAMED(
    ['a "name"', "f", "big", "dec", "yes", "day", "time", "at", "inner", "map"],
    [
        Types.STRING(),
        Types.DOUBLE(),
        Types.BIG_INT(),
        Types.BIG_DEC(),
        Types.BOOLEAN(),
        Types.SQL_DATE(),
        Types.SQL_TIME(),
        Types.SQL_TIMESTAMP(),
        Types.LIST(INNER),
        Types.MAP(Types.STRING(), Types.LIST(Types.INT())),
    ],
)


def batch(rows: list[Any], row_type: TypeInformation = PAIR) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(row_type.encode(rows), schema=row_type.schema)


def sink_of(directory: Path) -> FileSink:
    return FileSink.for_bulk_format(str(directory), JsonLinesBulkWriters.for_row_type()).build()


def read_lines(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in sorted(os.listdir(directory)):
        if not name.startswith("."):
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                found += map(json.loads, file)
    return found


@pytest.mark.parametrize("parallelism", [1, 3])
def test_exactly_once(tmp_path: Path, parallelism: int) -> None:
    made: list[Path] = []

    def make_sink() -> tuple[FileSink, Callable[[], list[Any]]]:
        directory = tmp_path / str(len(made))
        made.append(directory)
        return sink_of(directory), lambda: [(row["id"], row["name"]) for row in read_lines(directory)]

    verify_sink(make_sink, [[(1, "a"), (2, None)], [(3, "ü\n")], [(4, "d"), (5, "e")]], PAIR, parallelism)


texts = st.none() | st.text(max_size=8)
inner = st.none() | st.tuples(st.none() | st.integers(-5, 5), st.none() | st.lists(texts, max_size=3))
rows = st.tuples(
    texts,
    st.none() | st.floats(),
    st.none() | st.integers(-(10**30), 10**30),
    st.none() | st.decimals(allow_nan=False, allow_infinity=False, places=3),
    st.none() | st.booleans(),
    st.none() | st.dates(),
    st.none() | st.times(),
    st.none() | st.datetimes(),
    st.none() | st.lists(inner, max_size=3),
    st.none() | st.dictionaries(st.text(max_size=3), st.lists(st.none() | st.integers(0, 9)), max_size=3),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(rows, min_size=1, max_size=5), st.integers(0, 3))
def test_what_is_written_is_what_python_reads(values: list[tuple[Any, ...]], skipped: int) -> None:
    encoded = batch(values, ALL).slice(skipped)
    # Not `splitlines`, which knows more line ends than JSON does.
    lines = bytes(json_lines(encoded, ALL)).decode().split("\n")[:-1]
    assert len(lines) == encoded.num_rows
    for line, row in zip(lines, values[skipped:], strict=True):
        found = json.loads(line)
        assert list(found) == list(ALL.field_names)
        text, number, big, decimal, yes, day, time, at, items, mapping = row
        assert found['a "name"'] == text
        assert found["f"] == number or (math.isnan(found["f"]) and math.isnan(number))
        assert (found["big"], found["yes"]) == (big, yes)
        assert found["dec"] == (None if decimal is None else float(decimal))
        assert found["day"] == (day and day.isoformat())
        assert found["time"] == (None if time is None else time.isoformat("microseconds"))
        assert found["at"] == (at and at.isoformat(timespec="microseconds"))
        expected = items and [item and {"x": item[0], "tags": item[1]} for item in items]
        assert found["inner"] == expected
        assert found["map"] == mapping


def test_what_is_written_can_be_read_by_our_source(tmp_path: Path) -> None:
    rows = [(i, f'n{i}\n"') for i in range(40_000)]
    SinkRun(sink_of(tmp_path), [batch(rows)], PAIR).finish()
    (name,) = os.listdir(tmp_path)
    assert name.endswith(".json")
    source = FileSource.for_record_stream_format(JsonLinesFormat.for_schema(PAIR), str(tmp_path)).build()
    assert [(row.id, row.name) for row in read_all(source)] == rows


@pytest.mark.parametrize(
    ("row_type", "row", "line"),
    [
        (Types.STRING(), 'a"', b'"a\\""\n'),
        (Types.LONG(), None, b"null\n"),
        (Types.TUPLE([Types.INT(), Types.INT()]), (1, None), b'{"f0":1,"f1":null}\n'),
        (Types.LIST(Types.FLOAT()), [0.5, None], b"[0.5,null]\n"),
        (Types.ROW_NAMED(["a"], [Types.LIST(Types.LIST(Types.INT()))]), Row([[1], [], None]), b'{"a":[[1],[],null]}\n'),
    ],
)
def test_types(row_type: ColumnType, row: object, line: bytes) -> None:
    assert bytes(json_lines(batch([row], row_type), row_type)) == line


@pytest.mark.parametrize(
    ("row_type", "message"),
    [
        (None, "without a declared type"),
        (Types.ROW_NAMED(["a"], [Types.PRIMITIVE_ARRAY(Types.BYTE())]), "field 'a': .* cannot be written as JSON"),
        (Types.ROW_NAMED(["m"], [Types.MAP(Types.INT(), Types.INT())]), "field 'm': keys of JSON objects are strings"),
        (Types.PICKLED_BYTE_ARRAY(), "cannot be written as JSON"),
    ],
)
def test_types_that_no_json_stands_for(tmp_path: Path, row_type: ColumnType | None, message: str) -> None:
    with pytest.raises(SinkError, match=message):
        sink_of(tmp_path).validate(row_type)
