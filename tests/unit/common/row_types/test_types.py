"""Encodes rows of every type, and decodes them: no row comes back changed, and a wrong one is named by its number."""

from __future__ import annotations

import datetime
import decimal
import pickle
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.row_types.row import Row, RowKind
from penstock.common.row_types.type_information import TypeInformation
from penstock.common.time import Instant
from penstock.common.types import PICKLED, RowTypeError, Types

T = Types


def through(type_: TypeInformation, rows: list[Any]) -> list[Any]:
    batch = pa.RecordBatch.from_arrays(type_.encode(rows), schema=type_.schema)
    return type_.decode(batch)


ROUND_TRIPS: list[tuple[TypeInformation, list[Any]]] = [
    (T.BOOLEAN(), [True, False, None]),
    (T.BYTE(), [-128, 127, None]),
    (T.SHORT(), [-(2**15), 2**15 - 1]),
    (T.INT(), [-(2**31), 2**31 - 1]),
    (T.LONG(), [-(2**63), 2**63 - 1, None, 0]),
    (T.FLOAT(), [1.5, float("inf"), None]),
    (T.DOUBLE(), [1.1, -0.0, None, float("-inf")]),
    (T.STRING(), ["", "ä\0ß", None]),
    (T.PRIMITIVE_ARRAY(T.BYTE()), [b"", b"\xff\0", None]),
    (T.BIG_INT(), [10**40, -1, None]),
    (T.BIG_DEC(), [decimal.Decimal("1.10"), None]),
    (T.DECIMAL(38, 10), [decimal.Decimal("1.1000000000"), decimal.Decimal(-(10**27)), None]),
    (T.INSTANT(), [Instant(1_357_016_767, 8_000), Instant(-2, 999_999_000), None]),
    (T.SQL_DATE(), [datetime.date(2013, 1, 1), None]),
    (T.SQL_TIME(), [datetime.time(1, 2, 3, 4), None]),
    (T.SQL_TIMESTAMP(), [datetime.datetime(2013, 1, 1, 5, 6, 7, 8), None]),
    (T.LIST(T.LONG()), [[1, None, 2], [], None]),
    (T.BASIC_ARRAY(T.STRING()), [["a"], []]),
    (T.LIST(T.LIST(T.STRING())), [[["a"], None, []], None, [["b", "c"]]]),
    (T.MAP(T.STRING(), T.LONG()), [{"a": 1, "b": None}, {}, None]),
    (T.MAP(T.LONG(), T.LIST(T.TUPLE([T.LONG(), T.STRING()]))), [{1: [(1, "a"), None]}, {2: None}]),
    (T.TUPLE([T.LONG()]), [(1,), (None,)]),
    (T.TUPLE([T.STRING(), T.LONG()]), [("a", 1), (None, None)]),
    (T.TUPLE([T.TUPLE([T.LONG(), T.STRING()]), T.DOUBLE()]), [((1, "x"), 1.0), (None, 2.0)]),
    (T.ROW([T.LONG(), T.STRING()]), [Row(f0=1, f1="a")]),
    (T.ROW_NAMED(["id", "tags"], [T.LONG(), T.LIST(T.STRING())]), [Row(id=1, tags=["a"]), Row(id=2, tags=None)]),
    (T.TUPLE([T.PICKLED_BYTE_ARRAY(), T.LONG()]), [({1, 2}, 1), (None, 2)]),
    (PICKLED, [{"a": {1}}, None, 1.5, (1, "x")]),
]


@pytest.mark.parametrize("type_, rows", ROUND_TRIPS, ids=lambda v: str(v)[:50])
def test_rows_come_back_as_they_were(type_: TypeInformation, rows: list[Any]) -> None:
    assert through(type_, rows) == rows
    assert [type(r) for r in through(type_, rows)] == [type(r) for r in rows]


@pytest.mark.parametrize("type_, rows", ROUND_TRIPS, ids=lambda v: str(v)[:50])
def test_a_slice_of_a_batch_decodes_to_its_own_rows_only(type_: TypeInformation, rows: list[Any]) -> None:
    batch = pa.RecordBatch.from_arrays(type_.encode(rows * 3), schema=type_.schema)
    assert type_.decode(batch.slice(1, len(rows))) == (rows * 3)[1 : 1 + len(rows)]


@pytest.mark.parametrize("type_, rows", ROUND_TRIPS, ids=lambda v: str(v)[:50])
def test_no_rows_are_an_empty_batch(type_: TypeInformation, rows: list[Any]) -> None:
    assert through(type_, []) == []


@pytest.mark.parametrize("type_, rows", ROUND_TRIPS, ids=lambda v: str(v)[:50])
def test_a_frozen_row_is_encoded_like_the_row(type_: TypeInformation, rows: list[Any]) -> None:
    freeze = type_.freeze
    if freeze is not None:
        rows = [r for r in rows if r is not None]
        assert through(type_, [freeze(r) for r in rows]) == through(type_, rows)


@pytest.mark.parametrize("type_, rows", ROUND_TRIPS, ids=lambda v: str(v)[:50])
def test_types_are_values(type_: TypeInformation, rows: list[Any]) -> None:
    copy = pickle.loads(pickle.dumps(type_))
    assert copy == type_ and hash(copy) == hash(type_) and str(copy) == str(type_)


@pytest.mark.parametrize(
    "type_, row, says",
    [
        (T.LONG(), 1.5, "expected an int, got a float"),
        (T.LONG(), 1.0, "expected an int"),
        (T.LONG(), np.float64(2.5), "expected an int"),
        (T.LONG(), decimal.Decimal("1.5"), "expected an int"),
        (T.LONG(), True, "expected an int, got a bool"),
        (T.LONG(), "1", "expected an int, got a str"),
        (T.LONG(), 2**63, "too large"),
        (T.BYTE(), 300, "300"),
        (T.INT(), 2**31, str(2**31)),
        (T.FLOAT(), 1e300, "DOUBLE"),
        (T.DOUBLE(), "1.5", "str"),
        (T.DOUBLE(), 2**60 + 1, "exactly representable"),
        (T.BOOLEAN(), 1, "expected a bool, got an int"),
        (T.STRING(), 1, "int"),
        (T.STRING(), "\ud800", "surrogates"),
        (T.PRIMITIVE_ARRAY(T.BYTE()), "text", "expected bytes, got a str"),
        (T.PRIMITIVE_ARRAY(T.BYTE()), bytearray(b"x"), "expected bytes"),
        (T.SQL_DATE(), datetime.datetime(2020, 1, 1, 5), "datetime.date"),
        (T.SQL_TIMESTAMP(), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), "time zone"),
        (T.INSTANT(), datetime.datetime(2020, 1, 1), "no time zone"),
        (T.DECIMAL(5, 2), decimal.Decimal("1.555"), "data loss"),
        (T.DECIMAL(5, 2), decimal.Decimal("1234.5"), "precision"),
        (T.DECIMAL(5, 2), decimal.Decimal("NaN"), "no number"),
        (T.DECIMAL(5, 2), 0.5, "expected a decimal.Decimal"),
        (T.LIST(T.STRING()), "abc", "expected a list, got a str"),
        (T.LIST(T.LONG()), [1.5], "expected an int"),
        (T.MAP(T.STRING(), T.LONG()), {None: 1}, "key of the map is None"),
        (T.MAP(T.STRING(), T.LONG()), [("a", 1)], "expected a dict"),
        (T.TUPLE([T.LONG(), T.LONG()]), (1,), "1 fields, declared are 2"),
        (T.TUPLE([T.LONG(), T.LONG()]), [1, 2], "expected a tuple"),
        (T.TUPLE([T.LONG(), T.LONG()]), None, "expected a tuple"),
        (T.ROW([T.LONG()]), {"f0": 1}, "expected a Row"),
        (T.ROW_NAMED(["a"], [T.LONG()]), Row(b=1), "fields are b, declared are a"),
        (T.ROW([T.LONG()]), Row.of_kind(RowKind.DELETE, 1), "DELETE"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_row(type_: TypeInformation, row: object, says: str) -> None:
    good = [r for declared, rows in ROUND_TRIPS if declared == type_ for r in rows if r is not None]
    rows = good[:1] + [row]
    with pytest.raises(RowTypeError, match=says) as refused:
        type_.encode(rows)
    assert refused.value.row_index == len(rows) - 1
    assert type_.text in str(refused.value)


def test_the_error_names_row_and_field() -> None:
    type_ = T.ROW_NAMED(["id", "price"], [T.LONG(), T.DOUBLE()])
    rows = [Row(id=i, price=1.0) for i in range(5000)] + [Row(id=5000, price="free"), Row(id="x", price=1.0)]
    with pytest.raises(RowTypeError, match=r"row 5000, field 'price': 'free' \(str\) does not fit DOUBLE") as refused:
        type_.encode(rows)
    assert (refused.value.row_index, refused.value.field) == (5000, "price")


def test_rows_of_different_lengths_are_refused_wherever_they_stand() -> None:
    rows: list[tuple[int, ...]] = [(1, 2)] * 10_000
    rows[7_777] = (1, 2, 3)
    with pytest.raises(RowTypeError, match="3 fields, declared are 2") as refused:
        T.TUPLE([T.LONG(), T.LONG()]).encode(rows)
    assert refused.value.row_index == 7_777


def test_named_tuples_numpy_values_and_rows_in_place_of_tuples_are_taken() -> None:
    point = namedtuple("point", "x y")
    type_ = T.TUPLE([T.LONG(), T.DOUBLE()])
    rows = [point(1, 2.0), (np.int32(3), np.float32(4.0)), Row(5, 6.0)]
    assert through(type_, rows) == [(1, 2.0), (3, 4.0), (5, 6.0)]


def test_a_row_with_its_fields_in_another_order_is_taken_by_name() -> None:
    type_ = T.ROW_NAMED(["a", "b"], [T.LONG(), T.STRING()])
    assert through(type_, [Row(b="x", a=1), (2, "y")]) == [Row(a=1, b="x"), Row(a=2, b="y")]


def test_schema_names_the_columns() -> None:
    assert T.LONG().schema.names == ["value"]
    assert T.TUPLE([T.LONG(), T.STRING()]).schema == pa.schema([("f0", pa.int64()), ("f1", pa.string())])
    assert T.ROW_NAMED(["a"], [T.MAP(T.STRING(), T.LONG())]).schema.names == ["a"]
    assert PICKLED.schema == pa.schema([("value", pa.binary())])


def test_decoding_ignores_reserved_columns() -> None:
    type_ = T.TUPLE([T.LONG(), T.STRING()])
    batch = pa.RecordBatch.from_arrays(
        [*type_.encode([(1, "a")]), pa.array([5], pa.int64())], names=["f0", "f1", "__timestamp__"]
    )
    assert type_.decode(batch) == [(1, "a")]


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: T.ROW_NAMED(["a", "a"], [T.LONG(), T.LONG()]), "repeat"),
        (lambda: T.ROW_NAMED(["__key__"], [T.LONG()]), "reserved"),
        (lambda: T.ROW_NAMED(["a"], [T.LONG(), T.LONG()]), "1 field names for 2"),
        (lambda: T.TUPLE([]), "at least one"),
        (lambda: T.TUPLE([int]), "made by Types"),  # type: ignore[list-item]
        (lambda: T.LIST(int), "made by Types"),  # type: ignore[arg-type]
        (lambda: T.MAP(T.LONG(), str), "made by Types"),  # type: ignore[arg-type]
    ],
)
def test_a_type_that_makes_no_sense_is_refused_when_it_is_made(make: Callable[[], object], says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        make()


def frozen_as(type_: TypeInformation, row: object) -> object:
    freeze = type_.freeze
    assert freeze is not None
    return freeze(row)


def test_only_types_whose_rows_can_change_are_frozen() -> None:
    assert T.LONG().freeze is None and T.STRING().freeze is None and T.TUPLE([T.LONG(), T.STRING()]).freeze is None
    row = [1, [2]]
    frozen = frozen_as(T.LIST(T.LIST(T.LONG())), [[1], [2]])
    source = {"a": [1]}
    held = frozen_as(T.MAP(T.STRING(), T.LIST(T.LONG())), source)
    source["a"].append(2)
    assert held == {"a": [1]} and frozen == [[1], [2]]
    pickled = frozen_as(PICKLED, row)
    row.append(3)
    assert through(PICKLED, [pickled]) == [[1, [2]]]
    changed = Row(id=1, tags=["a"])
    kept = frozen_as(T.ROW_NAMED(["id", "tags"], [T.LONG(), T.LIST(T.STRING())]), changed)
    changed.tags.append("b")
    changed.id = 9
    assert kept == (1, ["a"])


def test_an_object_of_a_local_class_is_pickled_by_value() -> None:
    class Local:
        def __init__(self, x: int) -> None:
            self.x = x

    assert through(PICKLED, [Local(3)])[0].x == 3


def test_an_unpicklable_row_is_named() -> None:
    import threading

    with pytest.raises(RowTypeError, match="row 1 .*cannot be pickled|row 1 .*pickle") as refused:
        PICKLED.encode([1, threading.Lock()])
    assert refused.value.row_index == 1


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1) | st.none(),
            st.text(st.characters(codec="utf-8")),
            st.lists(st.floats(allow_nan=False), max_size=4) | st.none(),
        ),
        max_size=30,
    )
)
def test_tuples_of_anything_come_back(rows: list[tuple[int | None, str, list[float] | None]]) -> None:
    assert through(T.TUPLE([T.LONG(), T.STRING(), T.LIST(T.DOUBLE())]), rows) == rows


def test_types_of_rows_and_tuples_tell_their_fields() -> None:
    row: Any = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
    assert (row.get_field_names(), row.get_field_types()) == (["id", "name"], [Types.LONG(), Types.STRING()])
    pair: Any = Types.TUPLE([Types.LONG(), Types.STRING()])
    assert pair.get_field_types() == [Types.LONG(), Types.STRING()]


@pytest.mark.parametrize(
    "type_info, value, says",
    [
        (Types.STRING(), 3, r"3 \(int\): expected a str, got an int$"),
        (Types.LIST(Types.STRING()), [1], "expected a str, got an int$"),
        (Types.ROW_NAMED(["a"], [Types.STRING()]), (1.5,), r"field 'a': .*: expected a str, got a float \("),
        (Types.BOOLEAN(), "x", r"'x' \(str\): expected a bool, got a str$"),
        (Types.DOUBLE(), "a\nb", "expected a float, got a str$"),
    ],
)
def test_refusals_name_types_of_python(type_info: Any, value: Any, says: str) -> None:
    with pytest.raises(RowTypeError, match=says):
        type_info.encode([value])
