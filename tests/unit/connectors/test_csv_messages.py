"""Tests messages of CSV: what is decoded whole is what is decoded one by one, and what is written is read again."""

from __future__ import annotations

import csv
import datetime
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Types
from penstock.connectors.messages.decoding import decode_all, decoder_of
from penstock.connectors.messages.encoding import encoder_of, validate
from penstock.datastream.connectors.base import SinkError
from penstock.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema

ORDER = Types.ROW_NAMED(["id", "item"], [Types.LONG(), Types.STRING()])
Reader = CsvRowDeserializationSchema.Builder
Writer = CsvRowSerializationSchema.Builder

TEXTS = st.text(st.sampled_from("ab,;\"'\\\r\n #é"), max_size=6)


def rows_of(
    schema: CsvRowDeserializationSchema, values: list[bytes | None]
) -> tuple[list[tuple[Any, ...]], dict[int, str]]:
    decoded = decode_all(decoder_of(schema), values)
    assert len(decoded.taken) == decoded.rows.num_rows
    row_type = schema.get_produced_type()
    return [row.to_tuple() for row in row_type.decode(decoded.rows)], decoded.refused


def written(schema: CsvRowSerializationSchema, rows: list[Any], row_type: Any = ORDER) -> list[bytes | None]:
    batch = pa.RecordBatch.from_arrays(row_type.encode(rows), schema=row_type.schema)
    return encoder_of(schema, row_type)(batch)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.binary(max_size=8) | TEXTS.map(str.encode) | st.sampled_from([b"1,a", b'2,"x\ny"', None]), max_size=8)
)
def test_what_is_decoded_together_is_what_is_decoded_alone(values: list[bytes | None]) -> None:
    """Quotes that one message leaves open, and another closes, are the reason for this test."""
    schema = Reader(ORDER).build()
    rows, refused = rows_of(schema, values)
    alone: list[tuple[Any, ...]] = []
    for index, value in enumerate(values):
        if value is None:
            continue
        try:
            alone.append(schema.deserialize(value).to_tuple())
            assert index not in refused
        except ValueError as error:
            assert refused[index] == str(error)
    assert rows == alone


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-(2**40), 2**40) | st.none(), TEXTS), max_size=10),
    st.sampled_from([",", "|", ";"]),
    st.sampled_from(['"', "'"]),
    st.sampled_from([None, "\\"]),
    st.sampled_from(["", "\n", "\r\n"]),
)
def test_rows_are_read_as_they_are_written(
    rows: list[tuple[int | None, str]], delimiter: str, quote: str, escape: str | None, line_end: str
) -> None:
    reader = Reader(ORDER).set_field_delimiter(delimiter).set_quote_character(quote)
    writer = Writer(ORDER).set_field_delimiter(delimiter).set_quote_character(quote).set_line_delimiter(line_end)
    if escape is not None:
        reader.set_escape_character(escape)
        writer.set_escape_character(escape)
    values = written(writer.build(), rows)
    found, refused = rows_of(reader.build(), values)
    assert not refused and found == rows
    if escape is None:  # Python's own reader is an independent witness
        texts = [
            next(csv.reader(io.StringIO((v or b"").decode(), ""), delimiter=delimiter, quotechar=quote)) for v in values
        ]
        assert texts == [["" if n is None else str(n), t] for n, t in rows]


def test_every_type_is_read_as_it_is_written() -> None:
    row_type = Types.ROW_NAMED(
        ["b", "n", "f", "t", "d", "u", "h", "l", "x", "big"],
        [
            Types.BOOLEAN(), Types.SHORT(), Types.DOUBLE(), Types.SQL_TIMESTAMP(), Types.SQL_DATE(), Types.BIG_DEC(),
            Types.SQL_TIME(), Types.LIST(Types.LONG()), Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.BIG_INT(),
        ],
    )  # fmt: skip
    stamp = datetime.datetime(2026, 1, 31, 10, 15, 0, 500_000)
    full = (True, -7, 1.5, stamp, stamp.date(), Decimal("1.50"), stamp.time(), [1, 2], b"a,b", 10**30)
    empty: tuple[Any, ...] = (None, None, None, None, None, None, None, [], b"", None)
    values = written(Writer(row_type).build(), [full, empty], row_type)
    assert values[1] == b",,,,,,,,,\n"
    rows, refused = rows_of(Reader(row_type).build(), values)
    assert not refused and rows == [full, empty]


def test_the_text_is_quoted_where_it_must_be() -> None:
    rows = [(1, "plain text"), (2, 'a"b'), (3, "a,b"), (None, None), (5, "")]
    assert written(Writer(ORDER).build(), rows) == [b"1,plain text\n", b'2,"a""b"\n', b'3,"a,b"\n', b",\n", b"5,\n"]
    with_null = Writer(ORDER).set_null_literal("n/a").set_line_delimiter("").build()
    values = written(with_null, [(1, None), (2, "n/a"), (None, "")])
    assert values == [b"1,n/a", b'2,"n/a"', b"n/a,"]
    assert rows_of(Reader(ORDER).set_null_literal("n/a").build(), values)[0] == [(1, None), (2, "n/a"), (None, "")]
    single = Types.ROW_NAMED(["a"], [Types.STRING()])
    assert written(Writer(single).set_line_delimiter("").build(), [("",)], single) == [b'""']
    assert with_null.serialize((7, "x")) == b"7,x"


def test_without_quotes_fields_are_escaped_or_refused() -> None:
    escaping = Writer(ORDER).disable_quote_character().set_escape_character("\\").set_line_delimiter("").build()
    assert written(escaping, [(1, 'a,b\\"')]) == [b'1,a\\,b\\\\"']
    with pytest.raises(SinkError, match=r"field 'item': 'a,b' cannot be written as CSV without quotes"):
        written(Writer(ORDER).disable_quote_character().build(), [(1, "ab"), (1, "a,b")])
    assert written(Writer(ORDER).disable_quote_character().build(), [(1, 'a"b')]) == [b'1,a"b\n']


def test_a_refused_message_names_its_field() -> None:
    values: list[bytes | None] = [b"1,a", b"x,b", b"", b"1,a\n2,b", b"1,a,b", b"1", b'2,"b', b"3,c\r\n", None]
    rows, refused = rows_of(Reader(ORDER).build(), values)
    assert rows == [(1, "a"), (3, "c")]
    assert refused == {
        1: "field 'id': 'x' is no LONG",
        2: "it is no single record: it is empty, or has a quote that is never closed",
        3: "it is no single record: it has a line break outside of quotes, or an open quote",
        4: "it has 3 fields, not 2",
        5: "it has 1 fields, not 2",
        6: "it is no single record: it is empty, or has a quote that is never closed",
    }
    assert decoder_of(Reader(ORDER).set_ignore_parse_errors(True).build()).skips_refused


def test_comments_before_a_record_are_left_out() -> None:
    values: list[bytes | None] = [b"# of today\n1,a", b"2,#", b"#"]
    rows, refused = rows_of(Reader(ORDER).set_allow_comments(True).build(), values)
    assert rows == [(1, "a"), (2, "#")] and list(refused) == [2]
    assert list(rows_of(Reader(ORDER).build(), values)[1]) == [0, 2]


def test_lists_have_a_delimiter_of_their_own() -> None:
    row_type = Types.ROW_NAMED(["n", "l"], [Types.LONG(), Types.LIST(Types.STRING())])
    schema = Reader(row_type).set_array_element_delimiter("|").build()
    assert rows_of(schema, [b"1,a|b"])[0] == [(1, ["a", "b"])]
    writer = Writer(row_type).set_array_element_delimiter("|").build()
    assert written(writer, [(1, ["a", "b"]), (2, None)], row_type) == [b"1,a|b\n", b"2,\n"]


def test_what_is_no_row_of_text_is_refused_when_it_is_built() -> None:
    with pytest.raises(TypeError, match="CSV rows need Types.ROW_NAMED"):
        Reader(Types.LONG())
    with pytest.raises(TypeError, match="no text of CSV stands for MAP"):
        Writer(Types.ROW_NAMED(["m"], [Types.MAP(Types.STRING(), Types.LONG())]))
    with pytest.raises(ValueError, match="must differ"):
        Reader(ORDER).set_quote_character(",").build()
    with pytest.raises(ValueError, match="a line delimiter is"):
        Writer(ORDER).set_line_delimiter(";")
    with pytest.raises(SinkError, match="declared as ROW.* but the stream's rows are LONG"):
        validate(Writer(ORDER).build(), Types.LONG(), "the value")
