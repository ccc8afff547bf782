"""Chooses the implementation of a column's aggregate."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as kinds

from penstock.graph.declared_columns import Aggregate
from penstock.operators.columns.columnar_aggregates import Accumulator, Count, Extreme, FloatSum, IntegerSum, Mean
from penstock.operators.columns.decimal_aggregates import DecimalExtreme, DecimalSum


def accumulators(aggregates: Sequence[Aggregate], schema: pa.Schema) -> list[Accumulator]:
    """Return the accumulators for input columns of this schema; types were checked when the operator was declared."""
    made: list[Accumulator] = []
    first = 0
    for aggregate in aggregates:
        type = schema.field(aggregate.column).type if aggregate.column is not None else None
        made.append(_accumulator_class(aggregate, type)(aggregate, type, first))
        first += len(made[-1].columns)
    return made


def _accumulator_class(aggregate: Aggregate, type: pa.DataType | None) -> type[Accumulator]:
    match aggregate.function:
        case "count":
            return Count
        case "mean":
            return Mean
        case "sum":
            if kinds.is_decimal(type):
                return DecimalSum
            return FloatSum if kinds.is_floating(type) else IntegerSum
        case _:
            return DecimalExtreme if kinds.is_decimal(type) else Extreme
