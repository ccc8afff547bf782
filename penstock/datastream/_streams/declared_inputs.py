"""Checks the arguments of streams with several inputs, windows and ends."""

from __future__ import annotations

from typing import Any, Sequence

from penstock.common.types import PICKLED
from penstock.datastream._streams.function_wrappers import (
    AllWindows,
    ProcessAllWindows,
    as_function,
    refuse_callable,
)
from penstock.datastream._streams.stream import Stream
from penstock.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from penstock.datastream.state import MapStateDescriptor
from penstock.graph.logical import LogicalGraph, OperatorKind

AnyWindowFunction = WindowFunction[Any, Any, Any, Any] | ProcessWindowFunction[Any, Any, Any, Any]
AnyAllWindowFunction = AllWindowFunction[Any, Any, Any] | ProcessAllWindowFunction[Any, Any, Any]


def check_merge(aggregate: AggregateFunction) -> None:
    """Check that a function can be used in windows that are merged. Raises TypeError."""
    if type(aggregate).merge is AggregateFunction.merge:
        raise TypeError(
            f"aggregate() of sessions needs {type(aggregate).__name__}.merge(acc_a, acc_b): a row may join two "
            "sessions (or windows of another kind that are merged), and then their accumulators are merged"
        )


def any_window_function(given: Any, method: str) -> Any:
    """Return a function of windows of either kind. Raises TypeError."""
    if isinstance(given, WindowFunction):
        return given
    refuse = refuse_callable(f"{method}() of a windowed stream", "WindowFunction or a ProcessWindowFunction")
    return as_function(given, ProcessWindowFunction, refuse, method)


def any_all_window_function(given: Any, method: str) -> Any:
    """Return a function of windows over all rows, of either kind, as one of a key's windows. Raises TypeError."""
    if isinstance(given, AllWindowFunction):
        return AllWindows(as_function(given, AllWindowFunction, _no_callable(method), method))
    return ProcessAllWindows(as_function(given, ProcessAllWindowFunction, _no_callable(method), method))


def _no_callable(method: str) -> Any:
    return refuse_callable(f"{method}() of windows over all rows", "AllWindowFunction or a ProcessAllWindowFunction")


def check_keys(stream1: Stream, stream2: Stream, operator: str) -> None:
    """Check that both inputs of an operator have keys of one type. Raises TypeError."""
    first, second = stream1._key_type, stream2._key_type
    if first != second:
        shown = [("no declared type" if t == PICKLED else t.text) for t in (first, second)]
        way_out = "say key_by(..., key_type=...) for both"
        keyed = [stream._partitioner for stream in (stream1, stream2)]
        if any(partitioner is not None and partitioner.key_columns for partitioner in keyed):
            way_out = (
                "give both columns one type, e.g. with_columns(id=pc.field('id').cast('string')), or key "
                "both by selectors with a key_type"
            )
        raise TypeError(
            f"operator {operator!r}: the keys of both inputs have one type, got {shown[0]} and {shown[1]}; {way_out}"
        )


def checked_descriptors(descriptors: Sequence[Any]) -> tuple[MapStateDescriptor, ...]:
    """Return the descriptors that `broadcast()` was given. Raises TypeError or ValueError."""
    for descriptor in descriptors:
        if not isinstance(descriptor, MapStateDescriptor):
            raise TypeError(
                "broadcast() takes MapStateDescriptors, e.g. MapStateDescriptor('rules', Types.STRING(), "
                f"Types.LONG()); got {descriptor!r}"
            )
    names = [descriptor.get_name() for descriptor in descriptors]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"broadcast(): two descriptors have the name {name!r}; give each state its own")
    return tuple(descriptors)


def endless_source(graph: LogicalGraph) -> str | None:
    """Return the name of a source that has no end; None if all have one."""
    sources = [node for node in graph.nodes if node.kind is OperatorKind.SOURCE]
    return next((node.name for node in sources if not node.function.bounded), None)
