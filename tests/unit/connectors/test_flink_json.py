"""Compares what JSON values become with Flink 2.3, whose answers are in `flink_json_values.tsv`.

Each line has a type, a value of JSON, and what Flink's JsonRowDeserializationSchema makes of it as Java shows it; "-":
it fails.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.row_types.columns import ColumnType
from penstock.common.types import Types
from penstock.connectors.messages.decoding import decode_all, decoder_of
from penstock.datastream.formats.json import (
    DebeziumJsonDeserializationSchema,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

TYPES: dict[str, ColumnType] = {
    "BOOLEAN": Types.BOOLEAN(), "STRING": Types.STRING(), "BYTE": Types.BYTE(), "SHORT": Types.SHORT(),
    "INT": Types.INT(), "LONG": Types.LONG(), "FLOAT": Types.FLOAT(), "DOUBLE": Types.DOUBLE(),
    "BIG_DEC": Types.BIG_DEC(), "BIG_INT": Types.BIG_INT(), "SQL_DATE": Types.SQL_DATE(),
    "SQL_TIME": Types.SQL_TIME(), "SQL_TIMESTAMP": Types.SQL_TIMESTAMP(),
    "MAP": Types.MAP(Types.STRING(), Types.LONG()), "MAPL": Types.MAP(Types.LONG(), Types.STRING()),
    "LIST": Types.LIST(Types.LONG()), "BYTES": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "ROW": Types.ROW_NAMED(["b"], [Types.LONG()]),
}  # fmt: skip
WHOLE = ("BYTE", "SHORT", "INT", "LONG")
FACTS = [line.split("\t") for line in (Path(__file__).with_name("flink_json_values.tsv")).read_text().splitlines()]


def schema(kind: ColumnType) -> Any:
    return JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["a"], [kind])).build()


def read(kind: ColumnType, value: str) -> Any:
    return schema(kind).deserialize(f'{{"a": {value}}}'.encode()).a


def loses(kind: str, value: str, flink: str) -> bool:
    """Return whether Flink reads a value by losing something of it, which is refused here."""
    parsed = json.loads(value)
    if kind == "BOOLEAN":
        return not isinstance(parsed, bool) and str(parsed).strip().lower() not in ("true", "false")
    if kind.startswith("MAP"):
        return not isinstance(parsed, dict)
    if kind == "BYTES":
        return not isinstance(parsed, str) or parsed != parsed.strip()
    if kind == "LIST":
        return flink == "[1]" and parsed == [1.5]
    return kind in WHOLE and isinstance(parsed, float) and (parsed != int(parsed) or value == "1e-400")


def more_than_flink(kind: str, value: str) -> bool:
    """Return whether a value is read here although Flink refuses it: nothing is lost by that."""
    if kind in WHOLE:
        return value in ("1e3", "1.0", "1.00", "1E+5", "-0.0")
    if kind == "BIG_INT":
        return value in ("1e3", "1.0", "1.00", "1E+5", "-0.0", '"1e3"', "3.5e38", "1e400", '"1e400"')
    if kind == "SQL_TIME":
        return bool(re.match(r'"\d\d:\d\d(:\d\d)?(\.\d+)?Z?"', value))
    return kind == "SQL_TIMESTAMP" and bool(re.match(r'"2020-01-02(.03:04(:05)?(Z|\+0[01]:00)?)?"', value))


def shown(value: Any) -> Any:
    """Return a value as the facts show it."""
    if isinstance(value, list):
        return "[" + ", ".join(str(shown(item)) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={item}" for key, item in sorted(value.items())) + "}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return value


def is_same(kind: str, ours: Any, flink: str) -> bool:
    if ours is None or flink == "null":
        return ours is None and flink == "null"
    match kind:
        case "FLOAT" | "DOUBLE":
            expected = float(flink)
            are_nan = math.isnan(ours) and math.isnan(expected)
            return are_nan or math.isclose(ours, expected, rel_tol=1e-7 if kind == "FLOAT" else 0.0)
        case "BIG_DEC":
            return bool(ours == Decimal(flink)) and (str(ours) == flink or "E" in flink)
        case "BYTES":
            return bool([b - 256 if b > 127 else b for b in ours] == json.loads(flink.removeprefix("bytes")))
        case "SQL_TIMESTAMP":
            return bool(ours == datetime.datetime.fromisoformat(f"{flink[:26]}".ljust(26, "0")))
        case "SQL_DATE" | "SQL_TIME":
            return str(ours) == flink
        case "ROW":
            return f"+I[{shown(ours.b)}]" == flink
    return str(shown(ours)) == flink


@pytest.mark.parametrize("kind", TYPES)
def test_values_are_read_as_flink_reads_them(kind: str) -> None:
    wrong = []
    for name, value, flink in FACTS:
        if name != kind:
            continue
        try:
            ours = read(TYPES[kind], value)
        except ValueError as error:
            if flink != "-" and not loses(kind, value, flink):
                wrong.append(f"{value}: {flink} in Flink; {error}")
            continue
        if flink == "-":
            if not more_than_flink(kind, value):
                wrong.append(f"{value}: refused by Flink, here {ours!r}")
        elif kind == "STRING" and ours == value and is_longer_than_a_double(value):
            continue  # Flink rounds it
        elif not is_same(kind, ours, flink):
            wrong.append(f"{value}: {flink} in Flink, here {ours!r}")
    assert not wrong, "\n".join(wrong)


def is_longer_than_a_double(value: str) -> bool:
    return isinstance(json.loads(value), float) and Decimal(repr(float(value))) != Decimal(value)


def test_columns_are_read_value_by_value_only_where_arrow_refuses_them() -> None:
    """Both ways give the same rows, whatever stands next to each other in a batch."""
    kind = Types.ROW_NAMED(["a", "s"], [Types.LONG(), Types.STRING()])
    decoder = decoder_of(JsonRowDeserializationSchema.builder().type_info(kind).build())
    plain = [b'{"a": %d, "s": "x"}' % n for n in range(10)]
    assert len(decode_all(decoder, plain).rows) == 10
    mixed: list[bytes | None] = [*plain, b'{"a": "7", "s": 1.50}', b'{"a": "seven"}', b'\xef\xbb\xbf{"a": 1}', *plain]
    found = decode_all(decoder, mixed)
    rows = kind.decode(found.rows)
    assert list(found.refused) == [11] and "'seven' is no LONG" in found.refused[11]
    assert [(row.a, row.s) for row in rows[10:12]] == [(7, "1.5"), (1, None)]
    assert len(rows) == 22


def test_errors_that_are_ignored_make_fields_null_and_leave_out_what_is_no_object() -> None:
    kind = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LONG()])
    ignoring = JsonRowDeserializationSchema.builder().type_info(kind).ignore_parse_errors().build()
    found = decode_all(decoder_of(ignoring), [b'{"a": "x", "b": 1}', b'{"a"', b"[1]", b'{"a": 2, "b": 3}'])
    assert [(row.a, row.b) for row in kind.decode(found.rows)] == [(None, 1), (2, 3)]
    assert list(found.refused) == [1, 2]


def test_amounts_keep_all_their_digits_in_debezium_s_events_too() -> None:
    row_type = Types.ROW_NAMED(["amount", "labels"], [Types.BIG_DEC(), Types.MAP(Types.STRING(), Types.STRING())])
    events = DebeziumJsonDeserializationSchema.builder().type_info(row_type).build()
    message = b'\xef\xbb\xbf{"op": "c", "after": {"amount": 12345678901234567890.12345678901, "labels": {"x": 1}}}'
    (row,) = events.deserialize(message)
    assert row.amount == Decimal("12345678901234567890.12345678901") and row.labels == {"x": "1"}


def test_builders_have_the_names_of_pyflink() -> None:
    kind = Types.ROW_NAMED(["a"], [Types.LONG()])
    reading = JsonRowDeserializationSchema.Builder().type_info(kind).build()
    writing = JsonRowSerializationSchema.Builder().with_type_info(kind).build()
    assert reading.deserialize(writing.serialize((7,))).a == 7


def test_bytes_are_base64() -> None:
    assert read(TYPES["BYTES"], json.dumps(base64.b64encode(b"\x00\xff").decode())) == b"\x00\xff"


NUMBERS = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.integers(-(10**40), 10**40).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["1.50", "0.0", "-0.00", "100", "1e3", "1E-7", "12345678901234567890.123450"]),
)


@pytest.mark.parametrize("number", ["1e80", "7.4e54", "9" * 80, "-1E+77", '"1e80"', "5e9"])
@pytest.mark.parametrize("kind", [Types.BIG_INT(), Types.BIG_DEC(), Types.LIST(Types.BIG_INT())])
def test_numbers_beyond_arrow_s_decimals_are_not_others(kind: ColumnType, number: str) -> None:
    """Arrow returns the rest modulo 2**256 for those with an exponent."""
    is_list = kind == Types.LIST(Types.BIG_INT())
    ours = read(kind, f"[1, {number}]" if is_list else number)
    assert (ours[1] if is_list else ours) == Decimal(json.loads(number, parse_float=str, parse_int=str))


@settings(deadline=None)
@given(st.lists(st.tuples(NUMBERS, st.booleans()), max_size=8))
def test_amounts_in_columns_are_those_read_one_by_one(numbers: list[tuple[str, bool]]) -> None:
    kind = Types.ROW_NAMED(["a", "r"], [Types.BIG_DEC(), Types.ROW_NAMED(["b"], [Types.BIG_DEC()])])
    texts = [f'"{number}"' if is_text else number for number, is_text in numbers]
    messages: list[bytes | None] = [b'{"a": %s, "r": {"b": %s}}' % ((text.encode(),) * 2) for text in texts]
    schema = JsonRowDeserializationSchema.builder().type_info(kind).build()
    found = decode_all(decoder_of(schema), [*messages, b'{"a": 1}'])
    rows = kind.decode(found.rows)
    assert not found.refused and rows[-1].r is None
    for row, (number, is_text) in zip(rows, numbers, strict=False):
        assert row.a == row.r.b == Decimal(number)
        if is_text and "e" not in number.lower():
            assert Decimal(str(row.a)).as_tuple() == Decimal(number).as_tuple() or not row.a
