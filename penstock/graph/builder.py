"""From the logical graph to the job graph: parallelism, partitioners, chains, ids, edges.

Chains are linear. Two operators are chained where a row can be handed over by a call: a forward edge between
operators of the same parallelism and max parallelism, the only one out of the first and into the second, and neither
of them told otherwise. An edge by key never is one, because its rows must change their subtask.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from penstock.common.configuration import Configuration
from penstock.common.options import ParallelismOptions, PipelineOptions
from penstock.graph.job_graph import Edge, JobGraph, Operator, Vertex
from penstock.graph.logical import ChainingStrategy, LogicalGraph, Node, OperatorKind, Partitioner, PartitionerKind
from penstock.graph.operator_ids import assign_uids
from penstock.graph.parallelism import max_parallelism_of, parallelism_of

FORWARD = Partitioner(PartitionerKind.FORWARD)
REBALANCE = Partitioner(PartitionerKind.REBALANCE)


class GraphError(ValueError):
    """A program that cannot run as it is declared; the message names the operators."""


@dataclass(frozen=True, eq=False)
class _Link:
    """One input of a node, with its partitioner decided."""

    source: Node
    target: Node
    partitioner: Partitioner


def build_job_graph(graph: LogicalGraph, configuration: Configuration, name: str) -> JobGraph:
    """Raises `GraphError`, `DuplicateUid` or ValueError where the program makes no sense."""
    if not graph.nodes:
        raise GraphError("no operators are declared, so there is nothing to execute; begin with env.from_source(...)")
    default_parallelism = configuration.get(ParallelismOptions.DEFAULT_PARALLELISM)
    default_max = configuration.get(PipelineOptions.MAX_PARALLELISM)
    chaining = configuration.get(PipelineOptions.OPERATOR_CHAINING)

    parallelism = {n: parallelism_of(n, default_parallelism) for n in graph.nodes}
    max_parallelism = {n: max_parallelism_of(n, parallelism[n], default_max) for n in graph.nodes}
    links = [_link(i.node, n, i.partitioner, parallelism) for n in graph.nodes for i in n.inputs]
    uids = assign_uids(graph)

    outputs = Counter(link.source for link in links)
    inputs = Counter(link.target for link in links)
    chained = {
        link.target: link.source
        for link in links
        if chaining
        and outputs[link.source] == 1
        and inputs[link.target] == 1
        and max_parallelism[link.source] == max_parallelism[link.target]
        and _chainable(link)
    }
    # Nodes are declared after their inputs, so the order of heads is a topological one of the vertices, too.
    chains: dict[Node, list[Node]] = {}
    head_of: dict[Node, Node] = {}
    for node in graph.nodes:
        head = head_of[node] = head_of[chained[node]] if node in chained else node
        chains.setdefault(head, []).append(node)
    index_of = {head: index for index, head in enumerate(chains)}
    keyed = {link.target for link in links if link.partitioner.kind is PartitionerKind.HASH}
    vertices = tuple(
        Vertex(
            index=index_of[head],
            name=" -> ".join(n.name for n in chain),
            parallelism=parallelism[head],
            max_parallelism=max_parallelism[head],
            operators=tuple(_operator(n, uids[n]) for n in chain),
            keyed=head in keyed,
        )
        for head, chain in chains.items()
    )
    edges: list[Edge] = []
    ordinals: Counter[tuple[Node, Node]] = Counter()
    for link in links:
        if link.target in chained:
            continue
        ordinal = ordinals[link.source, link.target]
        ordinals[link.source, link.target] += 1
        edges.append(
            Edge(
                index=len(edges),
                name=f"{uids[link.source]}-{uids[link.target]}-0-{ordinal}",
                source=index_of[head_of[link.source]],
                target=index_of[link.target],
                input_index=0,
                partitioner=link.partitioner,
                type=link.source.output_type,
                source_parallelism=parallelism[link.source],
                target_parallelism=parallelism[link.target],
                buffer_timeout_ms=link.source.options.get("buffer_timeout_ms"),
            )
        )
    return JobGraph(name, vertices, tuple(edges))


def _link(source: Node, target: Node, declared: Partitioner | None, parallelism: dict[Node, int]) -> _Link:
    equal = parallelism[source] == parallelism[target]
    if declared is None:
        return _Link(source, target, FORWARD if equal else REBALANCE)
    if declared.kind is PartitionerKind.FORWARD and not equal:
        raise GraphError(
            f"forward() from operator {source.name!r} (parallelism {parallelism[source]}) to operator "
            f"{target.name!r} (parallelism {parallelism[target]}): it needs equal parallelism; set it, or use "
            "rescale() or rebalance()"
        )
    return _Link(source, target, declared)


def _chainable(link: _Link) -> bool:
    return (
        link.partitioner.kind is PartitionerKind.FORWARD
        and link.source.chaining is not ChainingStrategy.NEVER
        and link.target.chaining is ChainingStrategy.ALWAYS
    )


def _operator(node: Node, uid: str) -> Operator:
    return Operator(
        uid=uid,
        name=node.name,
        kind=node.kind,
        function=node.function,
        input_type=node.inputs[0].node.output_type if node.inputs else None,
        output_type=None if node.kind is OperatorKind.SINK else node.output_type,
        user_uid=node.uid,
    )
