"""Checks watermark strategies as they are attached to a stream, and event time once a program is complete."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import pyarrow.types as kinds

from penstock.common.typeinfo import TypeInformation
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream._streams.schemas import columns_of, unknown_column
from penstock.datastream.functions import KeyedBroadcastProcessFunction, KeyedCoProcessFunction, KeyedProcessFunction
from penstock.graph.declared_functions import BroadcastSpec
from penstock.graph.logical import LogicalGraph, Node
from penstock.graph.timed_nodes import Timed, hears_watermarks, is_event_time_window, silent_origins

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class EventTimeWarning(UserWarning):
    """Warns of a program that runs, but whose event time does not advance."""


def check_source_name(source_name: Any) -> None:
    """Check that the arguments of `from_source()` are in their order. Raises TypeError."""
    if isinstance(source_name, WatermarkStrategy):
        raise TypeError("from_source() takes a source, its WatermarkStrategy and its name, in this order")


def check_strategy(strategy: Any, type_info: TypeInformation | None, where: str, timed: Timed) -> None:
    """Check that a strategy can give rows of this type their time.

    Raises TypeError or ValueError, which begin with `where`. Warns of a strategy for rows that have no timestamps:
    Flink accepts it, and event time does not advance. `timed` is which rows have a timestamp already.
    """
    if not isinstance(strategy, WatermarkStrategy):
        raise TypeError(
            f"{where}: it takes a WatermarkStrategy, e.g. WatermarkStrategy.for_monotonous_timestamps(); "
            f"got {strategy!r}"
        )
    if strategy.timestamp_column is not None:
        _check_column(strategy.timestamp_column, type_info, where)
    elif strategy.generates_watermarks and not strategy.assigns_timestamps and timed is not Timed.ALL:
        which = "the rows" if timed is Timed.NONE else "some of the rows (of a part of the union)"
        said = (
            f"{where}: WatermarkStrategy.{strategy.name} reads timestamps, and {which} have none, so they do not "
            "advance event time before the end of the stream: add .with_timestamp_assigner(TimestampAssigner) or "
            ".with_timestamp_column(column)"
        )
        warnings.warn(said, EventTimeWarning, stacklevel=level_of_program())


def _check_column(column: str, type_info: TypeInformation | None, where: str) -> None:
    schema = columns_of(type_info, f"{where}: with_timestamp_column({column!r})")
    if column not in schema.names:
        raise unknown_column(f"{where}: with_timestamp_column()", column, schema)
    arrow = schema.field(column).type
    if not (kinds.is_timestamp(arrow) or kinds.is_int64(arrow)):
        raise TypeError(
            f"{where}: with_timestamp_column({column!r}): timestamps are whole milliseconds (LONG) or "
            f"SQL_TIMESTAMP, the column is of type {arrow}; use with_timestamp_assigner()"
        )


def warn_of_silence(graph: LogicalGraph) -> None:
    """Warn, at the user's line, of operators whose event time cannot advance.

    These are windows and event-time timers that wait for watermarks of an endless input which sends none. For an input
    that ends they wait until its end, which may be meant.
    """
    hears, silent = hears_watermarks(graph), silent_origins(graph)
    waiting = [
        node
        for node in graph.nodes
        if silent[node] and (is_event_time_window(node) or (node in hears and _has_timers(node)))
    ]
    if waiting:
        origins = dict.fromkeys(origin for node in waiting for origin in silent[node])
        said = (
            f"event time stands still for {_names(waiting)}: windows and event-time timers wait for the watermarks "
            f"of all their inputs, and none ever come from {_names(origins)}, which has no end. Call "
            "assign_timestamps_and_watermarks(strategy) behind it, with a strategy that makes watermarks; or, so "
            "that others go on while it has no rows, WatermarkStrategy.no_watermarks().with_idleness(...)"
        )
        warnings.warn(said, EventTimeWarning, stacklevel=level_of_program())


def _has_timers(node: Node) -> bool:
    """Return True if the function overrides `on_timer`; only then can it register timers."""
    function = node.function.process if isinstance(node.function, BroadcastSpec) else node.function
    for base in (KeyedProcessFunction, KeyedCoProcessFunction, KeyedBroadcastProcessFunction):
        if isinstance(function, base):
            return type(function).on_timer is not base.on_timer
    return False


def _names(nodes: Iterable[Node]) -> str:
    return ", ".join(repr(node.name) for node in nodes)


def level_of_program() -> int:
    """Return the `stacklevel` of the innermost frame that is not ours, for a warning that our caller gives."""
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    return level + 1
