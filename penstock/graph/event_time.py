"""Where event time comes from, and which streams have it."""

from __future__ import annotations

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.graph.logical import LogicalGraph, Node, OperatorKind

WINDOW_KINDS = (OperatorKind.WINDOW, OperatorKind.WINDOW_COLUMNS)


def strategy_of(node: Node) -> WatermarkStrategy | None:
    """What gives this operator's rows their time; None: they have that of their inputs, if any."""
    if node.kind is OperatorKind.TIMESTAMPS:
        return node.function  # type: ignore[no-any-return]
    strategy = node.watermark_strategy
    return strategy if strategy is not None and _gives_time(strategy) else None


def nodes_with_event_time(graph: LogicalGraph) -> set[Node]:
    """The operators whose rows have event time. Of one whose inputs have it only in part, some rows have none."""
    found: set[Node] = set()
    for node in graph.nodes:
        strategy = strategy_of(node)
        given = strategy is not None and _gives_time(strategy)
        if given or any(i.node in found for i in node.inputs):
            found.add(node)
    return found


def _gives_time(strategy: WatermarkStrategy) -> bool:
    # One that only tells idleness has something to say to those who wait for this stream's watermarks.
    return strategy.generates_watermarks or strategy.assigns_timestamps or strategy.idle_timeout is not None
