"""Changes the graph of a simulated job from one driver to the next.

Identity maps, one in two of them with operator state, are inserted on edges and removed again, and chains are broken
and joined; with other parallelisms, chains change by themselves. What is removed leaves its state unclaimed. None of
that changes what is expected of the job. A change has a random source of its own, so that jobs whose graph never
changes stay what they were.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from penstock.graph.logical import ChainingStrategy, Input, LogicalGraph, Node, OperatorKind
from simulation.jobs import simulated_functions as f

_PLACES_MAX = 4


@dataclass(frozen=True)
class Place:
    """Names an input of a node, in the graph as it was declared."""

    node: int
    input: int


@dataclass(frozen=True)
class GraphState:
    """Lists the places of inserted maps, and the nodes that begin a chain."""

    inserted: frozenset[Place]
    heads: frozenset[int]


class GraphChanges:
    """Changes a logical graph in place. Every node gets a uid, because others are named by their position."""

    def __init__(self, random: Random, graph: LogicalGraph) -> None:
        self._random = random
        self._graph = graph
        self._nodes = list(graph.nodes)
        self._inputs = {node.id: list(node.inputs) for node in graph.nodes}
        for node in self._nodes:
            node.uid = node.uid or f"node {node.id}"
        self._places = [
            Place(node.id, position)
            for node in self._nodes
            for position, given in enumerate(node.inputs)
            if given.side_output is None and node.kind is not OperatorKind.TIMESTAMPS
        ]
        heads = frozenset(n.id for n in self._nodes if n.chaining is ChainingStrategy.HEAD)
        self.state = GraphState(frozenset(), heads)

    def draw(self) -> bool:
        """Change the graph in some places. Returns whether anything was changed; `apply` carries it out."""
        random = self._random
        before = self.state
        inserted, heads = set(before.inserted), set(before.heads)
        if self._places and random.random() < 0.7:
            for place in random.sample(self._places, min(random.randint(1, _PLACES_MAX), len(self._places))):
                inserted ^= {place}
        if random.random() < 0.7:
            inner = [n.id for n in self._nodes if n.inputs]
            for node in random.sample(inner, min(random.randint(1, _PLACES_MAX), len(inner))):
                heads ^= {node}
        self.state = GraphState(frozenset(inserted), frozenset(heads))
        return self.state != before

    def apply(self) -> None:
        """Give the graph the chains and maps that `state` says. A map has the parallelism of what is before it."""
        nodes: list[Node] = []
        for node in self._nodes:
            node.chaining = ChainingStrategy.HEAD if node.id in self.state.heads else ChainingStrategy.ALWAYS
            node.inputs = [self._input(nodes, node, position) for position in range(len(self._inputs[node.id]))]
            nodes.append(node)
        self._graph.nodes[:] = nodes

    def _input(self, nodes: list[Node], node: Node, position: int) -> Input:
        given = self._inputs[node.id][position]
        if Place(node.id, position) not in self.state.inserted:
            return given
        before = given.node
        number = 1_000_000 + node.id * 10 + position
        inserted = Node(
            number,
            OperatorKind.MAP,
            f"inserted {node.id}.{position}",
            (f.Pass if node.id % 2 else f.Tally)(0.01),
            [Input(before)],
            before.output_type,
            parallelism=before.parallelism,
            uid=f"inserted {node.id}.{position}",
        )
        nodes.append(inserted)
        return replace(given, node=inserted)
