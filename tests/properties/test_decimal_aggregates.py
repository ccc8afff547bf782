"""Tests sums, minima and maxima of decimals against Python's own decimals, over batches with any borders."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.program.failures import OperatorFailure
from penstock.common.typeinfo import KEY_GROUP_COLUMN
from penstock.common.types import Types
from penstock.graph.declared_columns import Aggregate, AggregateSpec, WindowAggregateSpec
from penstock.graph.job_graph import Operator, Vertex
from penstock.graph.logical import OperatorKind
from penstock.operators.batches import TIMESTAMP_FIELD
from penstock.operators.columns.columnar_chain import ColumnarChain
from penstock.operators.columns.columnar_functions import columnar_operators
from penstock.operators.windows.assigners.tumbling import Tumbling
from penstock.protocol.values.elements import WATERMARK_MAX_MS
from penstock.state.columnar.columnar_backend import ColumnarStateBackend
from tests.properties.columnar_backends import KINDS, ColumnarBackends

AGGREGATES = (
    Aggregate("sum", "sum", "amount"), Aggregate("least", "min", "amount"), Aggregate("most", "max", "amount"),
    Aggregate("mean", "mean", "amount"),
)  # fmt: skip
KEYS = 3


def chain_of(precision: int, scale: int, is_windowed: bool, backend: Any = None) -> Any:
    amount = Types.DECIMAL(precision, scale)
    row = Types.ROW_NAMED(["key", "amount"], [Types.LONG(), amount])
    results = [Types.DECIMAL(38, scale), amount, amount, Types.DOUBLE()]
    further = ["window_start", "window_end"] if is_windowed else []
    names = ["key", *further, *(a.name for a in AGGREGATES)]
    made = Types.ROW_NAMED(names, [Types.LONG()] * (1 + len(further)) + results)
    spec: Any = (
        WindowAggregateSpec(("key",), AGGREGATES, Tumbling(10), 0, None)
        if is_windowed
        else AggregateSpec(("key",), AGGREGATES)
    )
    kind = OperatorKind.WINDOW_COLUMNS if is_windowed else OperatorKind.AGGREGATE_COLUMNS
    operator = Operator("uid", "the operator", kind, spec, row, made, timestamped=True)
    vertex = Vertex(0, "vertex", 1, 128, (operator,), keyed=True)
    chain = ColumnarChain(vertex, columnar_operators(vertex, backend or ColumnarStateBackend()), lambda: 0.0)
    chain.open()
    return chain, row.schema.append(TIMESTAMP_FIELD).append(pa.field(KEY_GROUP_COLUMN, pa.uint16()))


def batch_of(rows: list[tuple[int, Any]], wire: pa.Schema) -> pa.RecordBatch:
    keys, amounts = zip(*rows)
    columns = (keys, amounts, [5] * len(rows), [key % 8 for key in keys])
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, wire)], schema=wire)


def expected(amounts: list[Decimal]) -> tuple[Any, ...]:
    if not amounts:
        return None, None, None
    with localcontext() as context:
        context.prec = 100
        return sum(amounts, Decimal(0)), min(amounts), max(amounts)


def numbers(scale: int, digits: int) -> st.SearchStrategy[Any]:
    most = 10**digits - 1
    return st.one_of(
        st.none(), st.integers(-most, most), st.integers(-3, 3), st.sampled_from([most, -most, 2**32, -(2**32)])
    ).map(lambda number: None if number is None else Decimal(max(-most, min(most, number))).scaleb(-scale))


SIZES = [(38, 10, 36), (38, 0, 37), (10, 2, 10), (18, 18, 18), (20, 5, 20)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("precision", "scale", "digits"), SIZES)
def test_decimals_are_added_and_compared_exactly(precision: int, scale: int, digits: int, kind: str) -> None:
    row = st.tuples(st.integers(0, KEYS - 1), numbers(scale, digits))

    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.lists(row, min_size=1, max_size=9), min_size=1, max_size=4))
    def holds(batches: list[list[tuple[int, Any]]]) -> None:
        with ColumnarBackends(kind) as backends:
            check(batches, backends)

    def check(batches: list[list[tuple[int, Any]]], backends: ColumnarBackends) -> None:
        chain, wire = chain_of(precision, scale, False, backends.new())
        windowed, _ = chain_of(precision, scale, True, backends.new())
        so_far: dict[int, list[Decimal]] = {key: [] for key in range(KEYS)}
        for rows in batches:
            found = [r for b in outputs(lambda: chain.run(batch_of(rows, wire))) for r in b.to_pylist()]
            outputs(lambda: windowed.run(batch_of(rows, wire)))
            for (key, amount), made in zip(rows, found, strict=True):
                so_far[key] += [] if amount is None else [amount]
                assert (made["sum"], made["least"], made["most"]) == expected(so_far[key])
                assert made["key"] == key and (made["mean"] is None) == (not so_far[key])
        fired = [r for b in outputs(lambda: windowed.on_watermark(WATERMARK_MAX_MS)) for r in b.to_pylist()]
        assert {r["key"] for r in fired} == {key for rows in batches for key, _ in rows}
        for made in fired:
            assert (made["sum"], made["least"], made["most"]) == expected(so_far[made["key"]])

    holds()


def outputs(call: Callable[[], Any]) -> list[pa.RecordBatch]:
    return [batch for _, batch in (made if isinstance(made, tuple) else (None, made) for made in call())]


@pytest.mark.parametrize("is_windowed", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_of_more_than_38_digits_fails_and_names_the_key(is_windowed: bool, sign: int) -> None:
    chain, wire = chain_of(38, 0, is_windowed)
    most = Decimal(sign * (10**38 - 1))
    outputs(lambda: chain.run(batch_of([(1, most), (1, Decimal(0)), (2, most)], wire)))
    with pytest.raises(OperatorFailure, match=r"sum\('amount'\) of the key key = 1 does not fit in 38 digits"):
        outputs(lambda: chain.run(batch_of([(1, Decimal(sign))], wire)))
