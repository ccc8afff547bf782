"""Tests expressions over decimals with plain whole numbers in them, against Python's own decimals."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import acero

from penstock.common import Types
from penstock.datastream import SingleOutputStreamOperator, StreamExecutionEnvironment
from penstock.datastream._streams.schemas import bound

PRICES = [Decimal("100.00"), Decimal("99.99"), Decimal("-20.50"), None]
ROW = Types.ROW_NAMED(
    ["price", 'a "name"\n', "least", "n", "nested"],
    [
        Types.DECIMAL(10, 2),
        Types.DECIMAL(3, 0),
        Types.DECIMAL(38, 38),
        Types.LONG(),
        Types.ROW_NAMED(["x"], [Types.DECIMAL(4, 1)]),
    ],
)
TABLE = pa.table(
    [PRICES, [Decimal(1)] * 4, [Decimal("0.5")] * 4, [1, 2, 3, 4], [{"x": Decimal("1.5")}] * 4], schema=ROW.schema
)
PRICE = pc.field("price")


def evaluated(expression: pc.Expression) -> list[Any]:
    """Return the values, from the expression as the job's graph brings it to a slot."""
    typed, type = bound(expression, TABLE.schema, "filter()")
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(TABLE))
    project = acero.ProjectNodeOptions([pickle.loads(pickle.dumps(typed))], ["made"])
    made = acero.Declaration("project", project, [source]).to_table(use_threads=False).column(0)
    assert made.type == type
    values: list[Any] = made.to_pylist()
    return values


def expected(function: Callable[[Any], Any]) -> list[Any]:
    return [None if price is None else function(price) for price in PRICES]


@pytest.mark.parametrize("number", [0, 1, -1, 2, 100, -20, 10**8, 10**18, -(2**63), Decimal("1.5"), Decimal(100)])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "gt", "ge", "lt", "le", "eq", "ne"])
def test_numbers_next_to_decimals(name: str, number: Any) -> None:
    compute = getattr(operator, name)
    assert evaluated(compute(PRICE, number)) == expected(lambda price: compute(price, number))
    assert evaluated(compute(pc.scalar(number), PRICE)) == expected(lambda price: compute(number, price))


@pytest.mark.parametrize("number", [1, 10**18, -1])
def test_comparisons_that_need_more_than_38_digits(number: int) -> None:
    assert evaluated(pc.field("least") > number) == [Decimal("0.5") > number] * 4


def test_numbers_deep_in_an_expression() -> None:
    even = pc.scalar(3) * PRICE - 1 < pc.field("n") + 1
    both = ((PRICE * 2 + 1) > 100) & ((pc.field("n") > 1) | even)
    n = iter(TABLE.column("n").to_pylist())
    assert evaluated(both) == expected(lambda p: p * 2 + 1 > 100 and ((k := next(n)) > 1 or 3 * p - 1 < k + 1))
    assert evaluated(pc.field("nested", "x") * 2) == [Decimal(3)] * 4
    assert evaluated(pc.field('a "name"\n') * 2) == [Decimal(2)] * 4
    assert evaluated(pc.round(PRICE * 3, 0) + 1) == expected(lambda price: round(price * 3) + 1)


def test_choices() -> None:
    assert evaluated(pc.coalesce(PRICE, 0)) == [*PRICES[:3], Decimal(0)]
    assert evaluated(pc.coalesce(PRICE, 10**12)) == [*PRICES[:3], Decimal(10**12)]
    assert evaluated(pc.if_else(PRICE > 99, PRICE, 0)) == [*PRICES[:2], Decimal(0), None]
    assert evaluated(pc.max_element_wise(PRICE, 50)) == [*PRICES[:2], Decimal(50), Decimal(50)]
    chosen = pc.case_when(pc.make_struct(PRICE > 99, pc.field("n") > 3), 1, PRICE, 0)
    assert evaluated(chosen) == [Decimal(1), Decimal(1), Decimal(0), None]


@pytest.mark.parametrize(
    "numbers", [[100], [100, 10**15], [Decimal("99.990"), Decimal("1.234")], [], [100, None]], ids=str
)
def test_isin(numbers: list[Any]) -> None:
    assert evaluated(PRICE.isin(pa.array(numbers))) == [price in numbers for price in PRICES]


@pytest.mark.parametrize(
    "expression", [pc.scalar(2) + 3, pc.field("n") * 2, PRICE * 1.5, PRICE > 1.5, ~PRICE.is_null()]
)
def test_other_expressions_stay_as_they_are(expression: pc.Expression) -> None:
    typed, _ = bound(expression, TABLE.schema, "filter()")
    assert typed.equals(expression)


@pytest.fixture
def prices(env: StreamExecutionEnvironment) -> SingleOutputStreamOperator:
    return env.from_collection([], ROW).map(lambda row: row, ROW)


def test_types_are_known_when_declared(prices: SingleOutputStreamOperator) -> None:
    made = prices.with_columns(double=PRICE * 2, net=pc.scalar(1) - PRICE).filter(pc.field("double") > 100)
    assert made.get_type().text.endswith(", double DECIMAL(12, 2), net DECIMAL(11, 2))")


@pytest.mark.parametrize(
    "expression",
    [
        pc.field("least") + 1,
        pc.field("least") * 2,
        PRICE * PRICE * PRICE * PRICE,
        pc.coalesce(pc.field("least"), 1),
    ],
    ids=str,
)
def test_results_of_more_than_38_digits_are_refused(
    prices: SingleOutputStreamOperator, expression: pc.Expression
) -> None:
    with pytest.raises(TypeError, match=r"(?s)^with_columns\(\): .* at most 38 digits: cast .*cast\(pa\.decimal128"):
        prices.with_columns(made=expression)
    with pytest.raises(TypeError, match=r"(?s)^filter\(\): .*(at most 38 digits: cast|is a condition)"):
        prices.filter(expression)
