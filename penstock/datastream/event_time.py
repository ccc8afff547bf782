"""What is checked where a watermark strategy is attached to a stream."""

from __future__ import annotations

from typing import Any

import pyarrow.types as kinds

from penstock.common.typeinfo import TypeInformation
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.columnar import columns_of, unknown_column


def check_strategy(strategy: Any, type_info: TypeInformation | None, where: str, has_timestamps: bool) -> None:
    """Raises TypeError or ValueError, beginning with `where`, for what cannot give the rows of this type their time.

    `has_timestamps`: whether the rows have some already."""
    if not isinstance(strategy, WatermarkStrategy):
        raise TypeError(f"{where}: it takes a WatermarkStrategy, e.g. WatermarkStrategy.for_monotonous_timestamps(); "
                        f"got {strategy!r}")
    if strategy.timestamp_column is not None:
        _check_column(strategy.timestamp_column, type_info, where)
    elif strategy.generates_watermarks and not strategy.assigns_timestamps and not has_timestamps:
        raise ValueError(f"{where}: WatermarkStrategy.{strategy.name} needs timestamps, and the rows have none: add "
                         ".with_timestamp_assigner(TimestampAssigner) or .with_timestamp_column(column)")


def _check_column(column: str, type_info: TypeInformation | None, where: str) -> None:
    schema = columns_of(type_info, f"{where}: with_timestamp_column({column!r})")
    if column not in schema.names:
        raise unknown_column(f"{where}: with_timestamp_column()", column, schema)
    arrow = schema.field(column).type
    if not (kinds.is_timestamp(arrow) or kinds.is_int64(arrow)):
        raise TypeError(f"{where}: with_timestamp_column({column!r}): timestamps are whole milliseconds (LONG) or "
                        f"SQL_TIMESTAMP, the column is of type {arrow}; use with_timestamp_assigner()")
