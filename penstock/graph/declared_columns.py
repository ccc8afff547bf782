"""Describes columnar operators as they were declared, before they run.

Expressions are `pyarrow.compute` expressions over the columns of the input type; they have been bound against it when
the operator was declared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import TIMESTAMP_COLUMN
from penstock.operators.windows.assigners.assigner import Assigner
from penstock.protocol.values.metadata import WindowsShape

AggregateFunctionName = Literal["sum", "count", "min", "max", "mean"]

WINDOW_START = "window_start"
WINDOW_END = "window_end"


@dataclass(frozen=True)
class MapBatchesSpec:
    """Describes a `map_batches`. `wrapped`: RecordBatch -> RecordBatch, the user's. `schema`: what it returns, as it
    was declared or found. `batch_size`: rows per call, for which a row waits `max_latency_ms` at most; None: any
    number.
    """

    wrapped: Callable[[pa.RecordBatch], pa.RecordBatch]
    schema: pa.Schema
    batch_size: int | None = None
    max_latency_ms: int = 0


@dataclass(frozen=True)
class ProjectSpec:
    """Lists the output's columns in their order: an input column's name, or an expression."""

    columns: tuple[tuple[str, str | pc.Expression], ...]


@dataclass(frozen=True)
class FilterSpec:
    """Describes a filter. Rows for which the predicate is null are dropped, as in SQL."""

    predicate: pc.Expression


@dataclass(frozen=True)
class Aggregate:
    """Describes one aggregate of a group of rows. `column` None: `count` of all rows. Nulls are ignored; of nulls
    alone, all but `count` are null. `declared_column`: what the user calls it, if `column` is the result of a first
    phase. `merges_counts`: `column` holds what a first phase has counted.
    """

    name: str
    function: AggregateFunctionName
    column: str | None
    declared_column: str | None = None
    merges_counts: bool = False


@dataclass(frozen=True)
class AggregateSpec:
    """Describes rolling aggregates per key: each row emits its key's aggregates, itself included."""

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True)
class WindowAggregateSpec:
    """Describes aggregates per key and window. `late_tag`: the id of the side output for late rows; None: they are
    counted and dropped. `rows_column`: how many rows each row represents, if it is the result of a first phase.
    """

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    assigner: Assigner
    allowed_lateness_ms: int
    late_tag: str | None
    rows_column: str | None = None

    @property
    def shape(self) -> WindowsShape:
        """Return the description of the windows for a checkpoint's metadata."""
        return self.assigner.shape()

    @property
    def is_event_time(self) -> bool:
        """Return whether the windows end by event time."""
        return True


def schema_difference(made: Any, declared: pa.Schema, timestamped: bool) -> str | None:
    """Return the problem of a `map_batches` function's result, column by column; None: nothing. On a `timestamped`
    stream the event times, int64, are allowed, too. The order of columns does not matter.
    """
    if not isinstance(made, pa.RecordBatch):
        found = "nothing (None)" if made is None else f"a {type(made).__module__}.{type(made).__qualname__}"
        return f"the function must return a pyarrow.RecordBatch, it returned {found}"
    expected: dict[str, pa.DataType] = {f.name: f.type for f in declared}
    if timestamped and TIMESTAMP_COLUMN in made.schema.names:
        expected[TIMESTAMP_COLUMN] = pa.int64()
    names = made.schema.names
    found_types: dict[str, pa.DataType] = {f.name: f.type for f in made.schema}
    problems = [f"column {n!r} is there {names.count(n)} times" for n in found_types if names.count(n) > 1]
    for name, expected_type in expected.items():
        found_type = found_types.get(name)
        if found_type != expected_type:
            problems.append(f"column {name!r}: expected {expected_type}, found {found_type or 'no such column'}")
    problems += [
        f"column {n!r}: expected no such column, found {t}" for n, t in found_types.items() if n not in expected
    ]
    if not problems:
        return None
    return f"the function returned another schema than declared: {'; '.join(problems)}"
