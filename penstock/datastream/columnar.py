"""Offers the aggregates of columns. Operators over whole Arrow batches are methods of the streams.

    stream.filter(pc.field("amount") > 0) \\
        .with_columns(euros=pc.field("amount") * pc.field("rate")) \\
        .key_by("user") \\
        .aggregate(total=sum_("euros"), orders=count())

A stream has columns if it has a type: `Types.ROW_NAMED([...], [...])`, a tuple (f0, f1, ...), or one value (one column,
"value"). All columns and types are known, and checked, when an operator is declared. Expressions are those of
`pyarrow.compute`: `pc.field("name")`, operators, functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.declared_columns import AggregateFunctionName

__all__ = ["ColumnAggregate", "count", "max_", "mean", "min_", "sum_"]


@dataclass(frozen=True)
class ColumnAggregate:
    """Describes an aggregate of a column. `sum_`, `count`, `min_`, `max_` and `mean` make them."""

    function: AggregateFunctionName
    column: str | None

    @property
    def default_name(self) -> str:
        """Return the name of the result's column if none is given: "count", "sum_amount"."""
        return self.function if self.column is None else f"{self.function}_{self.column}"


def sum_(column: str) -> ColumnAggregate:
    """Sum a column of numbers.

    The sum of whole numbers is a LONG, that of decimals a DECIMAL of 38 digits, and the job fails if it does not fit;
    the sum of floats is a DOUBLE. Nulls are skipped; the sum of nothing but nulls is null.

    Args:
        column: The name of the column.

    Returns:
        The aggregate.
    """
    return ColumnAggregate("sum", column)


def count(column: str | None = None) -> ColumnAggregate:
    """Count rows, as a LONG.

    Args:
        column: Count only rows in which this column is not null. None: all rows.

    Returns:
        The aggregate.
    """
    return ColumnAggregate("count", column)


def min_(column: str) -> ColumnAggregate:
    """Find the minimum of a column of numbers, dates, times or timestamps. Nulls are skipped.

    Args:
        column: The name of the column.

    Returns:
        The aggregate, of the type of the column.
    """
    return ColumnAggregate("min", column)


def max_(column: str) -> ColumnAggregate:
    """Find the maximum of a column of numbers, dates, times or timestamps. Nulls are skipped.

    Args:
        column: The name of the column.

    Returns:
        The aggregate, of the type of the column.
    """
    return ColumnAggregate("max", column)


def mean(column: str) -> ColumnAggregate:
    """Compute the mean of a column of numbers, as a DOUBLE. Nulls are skipped.

    Args:
        column: The name of the column.

    Returns:
        The aggregate.
    """
    return ColumnAggregate("mean", column)
