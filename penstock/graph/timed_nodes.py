"""Finds the origins of event time, the streams that have it, and the inputs whose watermarks never come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.graph.logical import Input, LogicalGraph, Node, OperatorKind

WINDOW_KINDS = (OperatorKind.WINDOW, OperatorKind.WINDOW_COLUMNS)


def is_event_time_window(node: Node) -> bool:
    """Return whether an operator has windows that end by event time, so that its rows need it."""
    return node.kind in WINDOW_KINDS and getattr(node.function, "is_event_time", True)


class Timed(Enum):
    """Tells which of a stream's rows have a timestamp."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


def strategy_of(node: Node) -> WatermarkStrategy | None:
    """Return the strategy that gives this operator's rows their time; None: they have the event time of their inputs,
    if any."""
    if node.kind is OperatorKind.TIMESTAMPS:
        declared: WatermarkStrategy = node.function
        return declared
    strategy = node.watermark_strategy
    return strategy if strategy is not None and _gives_time(strategy) else None


def nodes_with_event_time(graph: LogicalGraph) -> set[Node]:
    """Return the operators whose rows have event time. If only some inputs have it, some rows have none."""
    found: set[Node] = set()
    for node in graph.nodes:
        strategy = strategy_of(node)
        given = strategy is not None and _gives_time(strategy)
        if given or any(i.node in found for i in node.inputs):
            found.add(node)
    return found


def _gives_time(strategy: WatermarkStrategy) -> bool:
    # A strategy that only marks idleness still matters to operators that wait for this stream's watermarks.
    return strategy.generates_watermarks or strategy.assigns_timestamps or strategy.idle_timeout is not None


# ---- timestamps -----------------------------------------------------------------------------------------------------


def timed_rows(graph: LogicalGraph) -> dict[Node, Timed]:
    """Return which rows of each operator's output have a timestamp."""
    found: dict[Node, Timed] = {}
    for node in graph.nodes:
        strategy = strategy_of(node)
        own = strategy is not None and getattr(node.function, "has_timestamps", False)
        if is_event_time_window(node) or own or (strategy is not None and strategy.assigns_timestamps):
            found[node] = Timed.ALL
        else:
            found[node] = _timed_output([timed_union(found, given) for given in _by_index(node)])
    return found


def timed_input(found: dict[Node, Timed], given: Input) -> Timed:
    """Return which rows of an input have a time. Those that a source could not read, its side output, have none
    whatever its strategy is.
    """
    from_source = given.side_output is not None and given.node.kind is OperatorKind.SOURCE
    return Timed.NONE if from_source else found[given.node]


def timed_union(found: dict[Node, Timed], union: Sequence[Input]) -> Timed:
    parts = {timed_input(found, i) for i in union}
    return parts.pop() if len(parts) == 1 else Timed.SOME


def untimed_union(found: dict[Node, Timed], node: Node) -> tuple[list[Input], list[Input]] | None:
    """Find the nearest union before an operator that mixes rows with and without a timestamp. Returns the inputs that
    have time and those that have none (or not for all rows); None if there is no such union.
    """
    for given in _by_index(node):
        if timed_union(found, given) is Timed.SOME:
            timed = [i for i in given if timed_input(found, i) is Timed.ALL]
            untimed = [i for i in given if timed_input(found, i) is not Timed.ALL]
            if timed:
                return timed, untimed
            for before in untimed:
                if (mixed := untimed_union(found, before.node)) is not None:
                    return mixed
    return None


def _by_index(node: Node) -> list[list[Input]]:
    """Return the inputs of an operator; several of one index are a union."""
    return [[i for i in node.inputs if i.index == index] for index in sorted({i.index for i in node.inputs})]


def _timed_output(inputs: Iterable[Timed]) -> Timed:
    given = set(inputs)
    if given == {Timed.ALL, Timed.NONE}:
        # A function of two inputs decides itself which rows it makes from which: often only those of the first.
        return Timed.ALL
    return given.pop() if len(given) == 1 else (Timed.SOME if given else Timed.NONE)


# ---- watermarks -----------------------------------------------------------------------------------------------------


def hears_watermarks(graph: LogicalGraph) -> set[Node]:
    """Return the operators that a watermark may reach before the end of the data."""
    found: set[Node] = set()
    for node in graph.nodes:
        strategy = strategy_of(node)
        if any(i.node in found for i in node.inputs) if strategy is None else strategy.generates_watermarks:
            found.add(node)
    return found


def silent_origins(graph: LogicalGraph) -> dict[Node, list[Node]]:
    """Return, for each operator, those before it (or itself) that never send a watermark, an end, or idleness: an
    operator that waits for their watermarks waits for ever.
    """
    found: dict[Node, list[Node]] = {}
    endless: set[Node] = set()
    for node in graph.nodes:
        is_source = node.kind is OperatorKind.SOURCE
        if not getattr(node.function, "bounded", True) if is_source else any(i.node in endless for i in node.inputs):
            endless.add(node)
        strategy = strategy_of(node)
        if is_source or strategy is not None:
            speaks = strategy is not None and (strategy.generates_watermarks or strategy.idle_timeout is not None)
            found[node] = [] if speaks or node not in endless else [node]
        else:
            found[node] = list(dict.fromkeys(origin for i in node.inputs for origin in found[i.node]))
    return found
