"""Builds the job graph from the logical graph: parallelism, partitioners, chains, ids, edges.

Chains are linear. Two operators are chained if a row can be handed over by a call. That needs a forward edge between
operators of the same parallelism and max parallelism, which is the only one out of the first and into the second, and
neither operator may have chaining disabled. An edge by key never is one, because its rows must change their subtask. A
chain works on rows or on batches, never on both. An operator that generates watermarks begins a chain, alone or after a
source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.common.configuration import Configuration
from penstock.common.options import ParallelismOptions, PipelineOptions
from penstock.common.typeinfo import TypeInformation
from penstock.graph.job_graph import Edge, JobGraph, Operator, Vertex
from penstock.graph.logical import (
    ChainingStrategy,
    Input,
    LogicalGraph,
    Node,
    OperatorKind,
    Partitioner,
    PartitionerKind,
)
from penstock.graph.operator_ids import assign_uids, check_all_given
from penstock.graph.parallelism import max_parallelism_of, parallelism_of
from penstock.graph.timed_nodes import (
    Timed,
    is_event_time_window,
    nodes_with_event_time,
    strategy_of,
    timed_input,
    timed_rows,
    untimed_union,
)

_NEUTRAL_KINDS = (OperatorKind.SOURCE, OperatorKind.TIMESTAMPS, OperatorKind.SINK)

FORWARD = Partitioner(PartitionerKind.FORWARD)
REBALANCE = Partitioner(PartitionerKind.REBALANCE)


class GraphError(ValueError):
    """Signals a program that cannot run as it is declared; the message names the operators."""


@dataclass(frozen=True, eq=False)
class _Link:
    """Holds one input of a node, with its partitioner decided."""

    source: Node
    target: Node
    partitioner: Partitioner
    index: int
    side_output: str | None
    type: TypeInformation | None


def build_job_graph(graph: LogicalGraph, configuration: Configuration, name: str) -> JobGraph:
    """Build the job graph. Raises `GraphError`, `DuplicateUid` or ValueError if the program makes no sense."""
    if not graph.nodes:
        raise GraphError("no operators are declared, so there is nothing to execute; begin with env.from_source(...)")
    default_parallelism = configuration.get(ParallelismOptions.DEFAULT_PARALLELISM)
    default_max = configuration.get(PipelineOptions.MAX_PARALLELISM)
    chaining = configuration.get(PipelineOptions.OPERATOR_CHAINING)

    parallelism = {n: parallelism_of(n, default_parallelism) for n in graph.nodes}
    max_parallelism = {n: max_parallelism_of(n, parallelism[n], default_max) for n in graph.nodes}
    links = [_link(i, n, parallelism) for n in graph.nodes for i in n.inputs]
    uids = assign_uids(graph)
    if not configuration.get(PipelineOptions.AUTO_GENERATE_UIDS):
        check_all_given(graph)

    timestamped = nodes_with_event_time(graph)
    _check_windows(graph)
    side_outputs: dict[Node, list[str]] = {}
    for link in links:
        if link.side_output is not None and link.side_output not in side_outputs.setdefault(link.source, []):
            side_outputs[link.source].append(link.side_output)

    # Nodes are declared after their inputs, so the order of heads is a topological one of the vertices, too.
    head_of = _heads(graph, links, max_parallelism) if chaining else {n: n for n in graph.nodes}
    chains: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        chains.setdefault(head_of[node], []).append(node)
    index_of = {head: index for index, head in enumerate(chains)}
    keyed = {link.target for link in links if link.partitioner.kind is PartitionerKind.HASH}
    vertices = tuple(
        Vertex(
            index=index_of[head],
            name=" -> ".join(n.name for n in chain),
            parallelism=parallelism[head],
            max_parallelism=max_parallelism[head],
            operators=tuple(_operator(n, uids[n], n in timestamped, side_outputs.get(n, [])) for n in chain),
            keyed=head in keyed,
            max_parallelism_given=default_max != -1 or any(n.max_parallelism is not None for n in chain),
        )
        for head, chain in chains.items()
    )
    edges: list[Edge] = []
    ordinals: Counter[tuple[Node, Node, int]] = Counter()
    for link in links:
        if head_of[link.target] is not link.target:
            continue
        ends = (link.source, link.target, link.index)
        ordinal = ordinals[ends]
        ordinals[ends] += 1
        edges.append(
            Edge(
                index=len(edges),
                name=f"{uids[link.source]}-{uids[link.target]}-{link.index}-{ordinal}",
                source=index_of[head_of[link.source]],
                target=index_of[link.target],
                input_index=link.index,
                partitioner=link.partitioner,
                type=link.type,
                source_parallelism=parallelism[link.source],
                target_parallelism=parallelism[link.target],
                buffer_timeout_ms=link.source.options.get("buffer_timeout_ms"),
                timestamped=link.source in timestamped,
                side_output=link.side_output,
            )
        )
    return JobGraph(name, vertices, tuple(edges))


def _link(given: Input, target: Node, parallelism: dict[Node, int]) -> _Link:
    source, partitioner = given.node, given.partitioner
    equal = parallelism[source] == parallelism[target]
    if partitioner is None:
        partitioner = FORWARD if equal else REBALANCE
    elif partitioner.kind is PartitionerKind.FORWARD and not equal:
        raise GraphError(
            f"forward() from operator {source.name!r} (parallelism {parallelism[source]}) to operator "
            f"{target.name!r} (parallelism {parallelism[target]}): it needs equal parallelism; set it, or use "
            "rescale() or rebalance()"
        )
    return _Link(source, target, partitioner, given.index, given.side_output, _input_type(given))


def _input_type(given: Input) -> TypeInformation | None:
    if given.partitioner is not None and given.partitioner.partial is not None:
        return given.partitioner.partial.row_type
    return given.node.output_type if given.side_output is None else given.side_type


def _check_windows(graph: LogicalGraph) -> None:
    timed = timed_rows(graph)
    for node in graph.nodes:
        if not is_event_time_window(node):
            continue
        if all(timed_input(timed, i) is Timed.NONE for i in node.inputs):
            raise GraphError(
                f"operator {node.name!r}: a window in event time, but the rows from {_names(node.inputs)} have no "
                "event time; call assign_timestamps_and_watermarks(strategy) before key_by(), or give from_source() "
                "such a strategy: one that makes watermarks and reads the time of rows, e.g. "
                "WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column('at')"
            )
        mixed = untimed_union(timed, node)
        if mixed is not None:
            raise GraphError(
                f"operator {node.name!r}: a window in event time, but its rows come from a union of which only a part "
                f"has event time: {_names(mixed[0])} has, {_names(mixed[1])} has not; call "
                f"assign_timestamps_and_watermarks(strategy) on {_names(mixed[1])} before union(), or on the union"
            )


def _names(inputs: Sequence[Input]) -> str:
    named = [repr(i.node.name) + ("" if i.side_output is None else f" (side output {i.side_output!r})") for i in inputs]
    return " and ".join(dict.fromkeys(named))


def _heads(graph: LogicalGraph, links: list[_Link], max_parallelism: dict[Node, int]) -> dict[Node, Node]:
    """Return the head of each operator's chain."""
    outputs = Counter(link.source for link in links)
    inputs = Counter(link.target for link in links)
    link_to = {link.target: link for link in links}
    head_of: dict[Node, Node] = {}
    columnar: dict[Node, bool] = {}
    """The form of each chain by its head, known from the first operator on that has rows or columns."""
    for node in graph.nodes:
        head_of[node] = node
        link = link_to.get(node)
        if (
            link is not None
            and inputs[node] == 1
            and outputs[link.source] == 1
            and max_parallelism[link.source] == max_parallelism[node]
            and _chainable(link)
            and (node.kind in _NEUTRAL_KINDS or columnar.get(head_of[link.source]) in (None, node.kind.columnar))
        ):
            head_of[node] = head_of[link.source]
        if node.kind not in _NEUTRAL_KINDS:
            columnar[head_of[node]] = node.kind.columnar
    return head_of


def _chainable(link: _Link) -> bool:
    if link.target.kind is OperatorKind.ASYNC_WAIT:
        return False  # It holds rows between its gate and its chain, and with them their watermarks.
    if link.target.kind is OperatorKind.TIMESTAMPS:
        # A vertex has one clock, and all its operators except a source come after it.
        if link.source.kind is not OperatorKind.SOURCE or strategy_of(link.source) is not None:
            return False
    return (
        link.partitioner.kind is PartitionerKind.FORWARD
        and link.side_output is None
        and link.source.chaining is not ChainingStrategy.NEVER
        and link.target.chaining is ChainingStrategy.ALWAYS
    )


def _operator(node: Node, uid: str, timestamped: bool, side_outputs: list[str]) -> Operator:
    return Operator(
        uid=uid,
        name=node.name,
        kind=node.kind,
        function=node.function,
        input_type=_input_type(node.inputs[0]) if node.inputs else None,
        output_type=None if node.kind is OperatorKind.SINK else node.output_type,
        user_uid=node.uid,
        timestamped=timestamped,
        watermark_strategy=strategy_of(node),
        side_outputs=tuple(side_outputs),
    )
