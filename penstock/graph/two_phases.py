"""Splits windows into two phases (Flink's name for it: local-global aggregation).

A producer aggregates a batch's rows per key and window before they leave, so that the window's operator gets a row for
each key instead of each row. That is done only if the results are the same to the last bit, however rows fall into
batches. So not for sums of floats and means, which depend on the order of the rows, and not if late rows are emitted.
The window's state is the same as in one phase, so a program may be restored from one into the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow.types as kinds

from penstock.common.row_types import scalar_types as scalar
from penstock.common.row_types.columns import ColumnType
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import RowType
from penstock.graph.declared_columns import Aggregate, WindowAggregateSpec
from penstock.operators.windows.assigners.assigner import Assigner

_ROWS_COLUMN = "rows"


@dataclass(frozen=True)
class PartialAggregates:
    """Describes the first phase: from rows of `given_type` to `row_type`, which has the keys, a column for each
    aggregate under its name, and `rows_column`, the number of aggregated rows. Its event time is the event time of any
    of these rows.
    """

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    assigner: Assigner
    given_type: TypeInformation
    row_type: RowType
    rows_column: str


def in_two_phases(
    spec: WindowAggregateSpec, rows: TypeInformation, key_types: list[ColumnType], result_types: list[ColumnType]
) -> tuple[PartialAggregates, WindowAggregateSpec] | None:
    """Return the aggregates of the first phase, and the specification of the second one, which the window's operator
    runs. `spec`: the specification for one phase, over `rows`. None: one phase is needed.
    """
    if spec.late_tag is not None or not all(_exact(aggregate, rows) for aggregate in spec.aggregates):
        return None
    names = [*spec.keys, *(a.name for a in spec.aggregates)]
    rows_column = _ROWS_COLUMN
    while rows_column in names:
        rows_column = f"_{rows_column}"
    row_type = RowType((*key_types, *result_types, scalar.LONG), (*names, rows_column))
    first = PartialAggregates(spec.keys, spec.aggregates, spec.assigner, rows, row_type, rows_column)
    merged = tuple(Aggregate(a.name, a.function, a.name, a.column, a.function == "count") for a in spec.aggregates)
    return first, replace(spec, aggregates=merged, rows_column=rows_column)


def _exact(aggregate: Aggregate, rows: TypeInformation) -> bool:
    if aggregate.function == "count" or aggregate.column is None:
        return True
    column = rows.schema.field(aggregate.column).type
    if aggregate.function == "sum":
        return bool(kinds.is_signed_integer(column))
    ordered = kinds.is_signed_integer(column) or kinds.is_date(column) or kinds.is_timestamp(column)
    return aggregate.function in ("min", "max") and ordered
