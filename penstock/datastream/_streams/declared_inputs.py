"""Checks the arguments of streams with several inputs, windows and ends."""

from __future__ import annotations

from typing import Any, Sequence

from penstock.common.types import PICKLED
from penstock.datastream._streams.function_wrappers import as_function, refuse_callable
from penstock.datastream._streams.stream import Stream
from penstock.datastream.functions import AggregateFunction, ProcessWindowFunction, WindowFunction
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.window import WindowAssigner
from penstock.graph.logical import LogicalGraph, OperatorKind

AnyWindowFunction = WindowFunction[Any, Any, Any, Any] | ProcessWindowFunction[Any, Any, Any, Any]


def check_assigner(window_assigner: Any) -> None:
    """Check the argument of `window()`. Raises TypeError."""
    if isinstance(window_assigner, type):
        raise TypeError(
            f"window() was given the class {window_assigner.__name__}; make an assigner, e.g. "
            "TumblingEventTimeWindows.of(Duration.of_seconds(10))"
        )
    if not isinstance(window_assigner, WindowAssigner):
        raise TypeError(
            f"window() takes a window assigner, e.g. TumblingEventTimeWindows.of(size, offset); got {window_assigner!r}"
        )


def check_merge(aggregate: AggregateFunction) -> None:
    """Check that a function can be used in windows that are merged. Raises TypeError."""
    if type(aggregate).merge is AggregateFunction.merge:
        raise TypeError(
            f"aggregate() of sessions needs {type(aggregate).__name__}.merge(acc_a, acc_b): a row may join two "
            "sessions, and then their accumulators are merged"
        )


def any_window_function(given: Any, method: str) -> Any:
    """Return a function of windows of either kind. Raises TypeError."""
    if isinstance(given, WindowFunction):
        return given
    refuse = refuse_callable(f"{method}() of a windowed stream", "WindowFunction or a ProcessWindowFunction")
    return as_function(given, ProcessWindowFunction, refuse, method)


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
