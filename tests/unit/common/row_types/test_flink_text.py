"""Tests what print() and simple_string_encoder write. The expected texts are what PyFlink 2.3 printed for the same
values."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

from penstock.common import Row, Types
from penstock.common.row_types.flink_text import printed, text_of

AT = datetime.datetime(2018, 3, 11, 3, 0, 0)
NESTED = Types.TUPLE([Types.INT(), Types.LIST(Types.INT()), Types.TUPLE([Types.STRING(), Types.DOUBLE()])])
MIXED = Types.ROW([Types.STRING(), Types.INT(), Types.BOOLEAN(), Types.DOUBLE(), Types.LIST(Types.INT())])

JAVA: list[tuple[Any, Any, str]] = [
    (("hi", 1), Types.TUPLE([Types.STRING(), Types.INT()]), "(hi,1)"),
    ((1, [1, 2], ("x", 2.0)), NESTED, "(1,[1, 2],(x,2.0))"),
    ((b"ab", None, AT), Types.TUPLE([Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.STRING(), Types.SQL_TIMESTAMP()]),
     "([97, 98],null,2018-03-11 03:00:00.0)"),
    (1e10, Types.DOUBLE(), "1.0E10"), (1e-5, Types.DOUBLE(), "1.0E-5"), (0.1, Types.DOUBLE(), "0.1"),
    (100.0, Types.DOUBLE(), "100.0"), (1234567.0, Types.DOUBLE(), "1234567.0"), (0.0, Types.DOUBLE(), "0.0"),
    (-0.0, Types.DOUBLE(), "-0.0"), (12345678.0, Types.DOUBLE(), "1.2345678E7"), (1e-3, Types.DOUBLE(), "0.001"),
    (9.999e-4, Types.DOUBLE(), "9.999E-4"), (1.5e300, Types.DOUBLE(), "1.5E300"), (-2.5, Types.DOUBLE(), "-2.5"),
    (float("nan"), Types.DOUBLE(), "NaN"), (float("-inf"), Types.DOUBLE(), "-Infinity"),
    (110.0999984741211, Types.FLOAT(), "110.1"), (1e10, Types.FLOAT(), "1.0E10"),
    (True, Types.BOOLEAN(), "true"), (7, Types.LONG(), "7"), (None, Types.LONG(), "null"),
    (decimal.Decimal("1.50"), Types.BIG_DEC(), "1.50"), (10**30, Types.BIG_INT(), "1" + 30 * "0"),
    (datetime.date(2014, 9, 13), Types.SQL_DATE(), "2014-09-13"),
    (datetime.time(12, 0, 5), Types.SQL_TIME(), "12:00:05"),
    (datetime.datetime(2018, 3, 11, 3, 0, 0, 123000), Types.SQL_TIMESTAMP(), "2018-03-11 03:00:00.123"),
    ({"a": 1, "b": 2}, Types.MAP(Types.STRING(), Types.INT()), "{a=1, b=2}"),
    (b"fl\xff", Types.PRIMITIVE_ARRAY(Types.BYTE()), "[102, 108, -1]"),
    (("py", 1), None, "('py', 1)"), ({"a": 1}, None, "{'a': 1}"), ("s", None, "s"),
    (Row(a=1, b="x"), None, "Row(a=1, b='x')"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "type_info", "expected"), JAVA, ids=[expected for *_, expected in JAVA])
def test_values_are_written_as_java_writes_them(value: Any, type_info: Any, expected: str) -> None:
    assert text_of(type_info)(value) == expected
    assert printed(type_info)(value) == expected


def test_a_row_in_a_file_is_written_by_java() -> None:
    assert text_of(MIXED)(Row("hi", None, True, 1e10, [1, 2])) == "+I[hi, null, true, 1.0E10, [1, 2]]"
    assert text_of(Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()]))(Row("hi", 1)) == "+I[hi, 1]"


def test_a_row_on_the_terminal_is_written_by_python() -> None:
    assert printed(Types.ROW([Types.STRING(), Types.INT()]))(Row("hi", 1)) == "+I[hi,1]"
    inner = Types.ROW([Types.STRING(), Types.BOOLEAN()])
    nested = Types.ROW([Types.INT(), Types.PRIMITIVE_ARRAY(Types.DOUBLE()), Types.PRIMITIVE_ARRAY(Types.BYTE()), inner])
    row = Row(1, [1.5], b"ab", Row(f0="x", f1=True))
    assert printed(nested)(row) == "+I[1,[1.5],b'ab',Row(f0='x', f1=True)]"
    assert printed(Types.ROW([Types.FLOAT(), Types.INT()]))(Row(110.0999984741211, None)) == "+I[110.1,None]"
