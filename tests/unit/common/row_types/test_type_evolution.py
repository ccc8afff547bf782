"""Tests the rules of changed types: a table of what values survive, and of what is refused, by the field's name."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.row import Row
from penstock.common.row_types.type_evolution import IncompatibleType, evolution, evolved_columns
from penstock.common.row_types.type_texts import parse_type
from penstock.common.types import Types

LONG, INT, SHORT, BYTE = Types.LONG(), Types.INT(), Types.SHORT(), Types.BYTE()
FLOAT, DOUBLE, STRING = Types.FLOAT(), Types.DOUBLE(), Types.STRING()
BIG_INT, BIG_DEC, BYTES = Types.BIG_INT(), Types.BIG_DEC(), Types.PRIMITIVE_ARRAY(BYTE)


def named(**fields: ColumnType) -> ColumnType:
    return Types.ROW_NAMED(list(fields), list(fields.values()))


def evolved(stored: ColumnType, declared: ColumnType, values: list[Any]) -> list[Any]:
    """Store values, and read them as the declared type; of a longer batch, too, whose offsets do not begin with 0."""
    convert = evolution(stored, declared)
    found = _decoded(stored, declared, pa.RecordBatch.from_arrays(stored.encode(values), schema=stored.schema), convert)
    long = pa.RecordBatch.from_arrays(stored.encode([*values, *values]), schema=stored.schema)
    assert repr(_decoded(stored, declared, long.slice(len(values)), convert)) == repr(found)
    return found


def _decoded(stored: ColumnType, declared: ColumnType, batch: pa.RecordBatch, convert: Any) -> list[Any]:
    columns = evolved_columns(batch.columns, stored, convert)
    made = pa.RecordBatch.from_arrays(columns, schema=declared.schema)
    made.validate(full=True)
    return declared.decode(made)


WIDENED: list[tuple[ColumnType, list[ColumnType]]] = [
    (BYTE, [SHORT, INT, LONG, BIG_INT, BIG_DEC, FLOAT, DOUBLE]),
    (SHORT, [INT, LONG, BIG_INT, BIG_DEC, FLOAT, DOUBLE]),
    (INT, [LONG, BIG_INT, BIG_DEC, DOUBLE]),
    (LONG, [BIG_INT, BIG_DEC]),
    (BIG_INT, [BIG_DEC]),
    (FLOAT, [DOUBLE]),
]
SCALARS = [
    Types.BOOLEAN(), BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, STRING, BYTES, BIG_INT, BIG_DEC, Types.SQL_DATE(),
    Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.PICKLED_BYTE_ARRAY(),
]  # fmt: skip
EXTREMES: dict[ColumnType, list[Any]] = {
    BYTE: [-(2**7), 2**7 - 1],
    SHORT: [-(2**15), 2**15 - 1],
    INT: [-(2**31), 2**31 - 1],
    LONG: [-(2**63), 2**63 - 1],
    BIG_INT: [-(2**70), 2**70],
    FLOAT: [0.5, 3.4028234663852886e38],
}


@pytest.mark.parametrize(("stored", "declared"), [(a, b) for a, wider in WIDENED for b in wider], ids=str)
def test_a_number_keeps_its_value_in_a_wider_type(stored: ColumnType, declared: ColumnType) -> None:
    values = [*EXTREMES[stored], 0, None]
    found = evolved(stored, declared, values)
    assert found == values
    kind = {FLOAT: float, DOUBLE: float, BIG_DEC: Decimal}.get(declared, int)
    assert {type(value) for value in found[:-1]} == {kind}


@pytest.mark.parametrize("stored", SCALARS, ids=str)
@pytest.mark.parametrize("declared", SCALARS, ids=str)
def test_every_other_change_of_a_scalar_is_refused(stored: ColumnType, declared: ColumnType) -> None:
    if stored == declared or declared in dict(WIDENED).get(stored, []):
        evolution(stored, declared)
        return
    with pytest.raises(IncompatibleType) as raised:
        evolution(named(a=STRING, b=stored), named(b=declared))
    assert str(raised.value) == f"field 'b' was {stored}, which cannot become {declared}"


ALLOWED: list[tuple[ColumnType, ColumnType, Any, Any]] = [
    (named(a=LONG, b=STRING), named(a=LONG), Row(a=1, b="x"), Row(a=1)),
    (named(a=LONG), named(b=STRING, a=LONG), Row(a=1), Row(b=None, a=1)),
    (named(a=LONG, b=STRING), named(b=STRING, a=LONG), Row(a=1, b="x"), Row(b="x", a=1)),
    (named(a=INT, b=FLOAT), named(c=LONG, b=DOUBLE, a=LONG), Row(a=1, b=0.5), Row(c=None, b=0.5, a=1)),
    (Types.ROW([INT, STRING]), Types.ROW([LONG]), Row(1, "x"), Row(f0=1)),
    (Types.TUPLE([INT, STRING]), Types.TUPLE([LONG, STRING, LONG]), (1, "x"), (1, "x", None)),
    (Types.TUPLE([INT, STRING]), Types.TUPLE([DOUBLE]), (1, "x"), (1.0,)),
    (
        named(n=named(a=INT, b=LONG), k=STRING),
        named(k=STRING, n=named(c=STRING, a=LONG)),
        Row(n=Row(a=1, b=2), k="k"),
        Row(k="k", n=Row(c=None, a=1)),
    ),
    (named(n=named(a=INT), k=LONG), named(n=named(a=LONG), k=LONG), Row(n=None, k=1), Row(n=None, k=1)),
    (Types.LIST(INT), Types.LIST(LONG), [1, 2], [1, 2]),
    (Types.BASIC_ARRAY(INT), Types.LIST(LONG), [1, None], [1, None]),
    (Types.LIST(named(a=LONG)), Types.LIST(named(a=LONG, b=LONG)), [Row(a=1), None], [Row(a=1, b=None), None]),
    (named(l=Types.LIST(INT), k=LONG), named(l=Types.LIST(LONG)), Row(l=None, k=1), Row(l=None)),
    (Types.MAP(INT, FLOAT), Types.MAP(LONG, DOUBLE), {1: 0.5, 2: None}, {1: 0.5, 2: None}),
    (
        Types.MAP(STRING, Types.LIST(Types.TUPLE([INT]))),
        Types.MAP(STRING, Types.LIST(Types.TUPLE([LONG, STRING]))),
        {"a": [(1,), (2,)], "b": []},
        {"a": [(1, None), (2, None)], "b": []},
    ),
    (
        Types.TUPLE([named(p=Types.PICKLED_BYTE_ARRAY(), a=LONG)]),
        Types.TUPLE([named(p=Types.PICKLED_BYTE_ARRAY())]),
        (Row(p={1, 2}, a=1),),
        (Row(p={1, 2}),),
    ),
]


@pytest.mark.parametrize(("stored", "declared", "value", "expected"), ALLOWED, ids=str)
def test_what_survives(stored: ColumnType, declared: ColumnType, value: Any, expected: Any) -> None:
    found = evolved(stored, declared, [value, value])
    assert repr(found) == repr([expected, expected])
    assert evolved(stored, declared, []) == []


REFUSED: list[tuple[ColumnType, ColumnType, str]] = [
    (named(a=LONG), named(a=INT), "field 'a' was LONG, which cannot become INT"),
    (LONG, STRING, "the values were LONG, which cannot become STRING"),
    (named(a=LONG), named(b=LONG), "the values were ROW(a LONG), and ROW(b LONG) has none of its fields"),
    (named(n=named(a=LONG)), named(n=named(b=LONG)), "field 'n' was ROW(a LONG), and ROW(b LONG) has none of its"),
    (named(n=named(a=LONG)), named(n=named(a=INT)), "field 'n.a' was LONG"),
    (named(n=Types.LIST(named(a=LONG))), named(n=Types.LIST(named(a=STRING))), "field 'n[].a' was LONG"),
    (Types.LIST(LONG), Types.LIST(STRING), "the elements were LONG, which cannot become STRING"),
    (Types.MAP(LONG, LONG), Types.MAP(LONG, STRING), "the map's values were LONG, which cannot become STRING"),
    (Types.MAP(LONG, LONG), Types.MAP(STRING, LONG), "the map's keys were LONG, which cannot become STRING"),
    (named(m=Types.MAP(LONG, LONG)), named(m=Types.MAP(LONG, INT)), r"field 'm(value)' was LONG"),
    (
        Types.MAP(Types.TUPLE([LONG, LONG]), LONG),
        Types.MAP(Types.TUPLE([LONG]), LONG),
        "the map's keys were TUPLE(LONG, LONG), and keys of a map stay as they are, but for the width of numbers",
    ),
    (Types.TUPLE([LONG]), Types.ROW([LONG]), "the values were TUPLE(LONG), which cannot become ROW(f0 LONG)"),
    (Types.ROW([LONG]), LONG, "the values were ROW(f0 LONG), which cannot become LONG"),
    (Types.LIST(BYTE), BYTES, r"the values were LIST(BYTE), which cannot become PRIMITIVE_ARRAY(BYTE)"),
    (Types.TUPLE([LONG, STRING]), Types.TUPLE([STRING]), "field 'f0' was LONG, which cannot become STRING"),
]


@pytest.mark.parametrize(("stored", "declared", "told"), REFUSED, ids=str)
def test_what_is_refused(stored: ColumnType, declared: ColumnType, told: str) -> None:
    with pytest.raises(IncompatibleType) as raised:
        evolution(stored, declared)
    assert str(raised.value).startswith(told)


@pytest.mark.parametrize("type", [t for row in ALLOWED for t in row[:2]], ids=str)
def test_a_type_is_read_from_its_text(type: ColumnType) -> None:
    assert parse_type(type.text) == type


def test_decimals_widen_only_if_all_their_digits_stay() -> None:
    given = pa.array([Decimal("1.50"), None], pa.decimal128(10, 2))
    assert evolution(Types.DECIMAL(10, 2), Types.DECIMAL(12, 3))(given).to_pylist() == [Decimal("1.500"), None]
    assert evolution(Types.DECIMAL(10, 2), BIG_DEC)(given).to_pylist() == ["1.50", None]
    assert evolution(LONG, Types.DECIMAL(21, 2))(pa.array([-(2**63)])).to_pylist() == [Decimal(-(2**63))]
    for stored, declared in ((Types.DECIMAL(10, 2), Types.DECIMAL(10, 3)), (LONG, Types.DECIMAL(20, 2))):
        with pytest.raises(IncompatibleType, match="cannot become DECIMAL"):
            evolution(stored, declared)
    nested = Types.ROW_NAMED(["a b"], [Types.MAP(Types.INSTANT(), Types.LIST(Types.DECIMAL(38, 0)))])
    assert parse_type(nested.text) == nested
