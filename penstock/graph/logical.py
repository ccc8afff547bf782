"""Defines the logical graph: one node per declared operation, appended by `penstock.datastream`, never executed
itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Callable

from penstock.common.typeinfo import TypeInformation
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.graph.two_phases import PartialAggregates


class PartitionerKind(Enum):
    FORWARD = "forward"
    REBALANCE = "rebalance"
    RESCALE = "rescale"
    SHUFFLE = "shuffle"
    BROADCAST = "broadcast"
    GLOBAL = "global"
    CUSTOM = "custom"
    HASH = "hash"


@dataclass(frozen=True)
class Partitioner:
    """Decides which consumer a row goes to.

    `key_selector` (row -> key) for HASH and CUSTOM; `key_type` is the declared type of the key or None (then it is
    encoded canonically, see `penstock.protocol.values.keys`); `custom` is (key, number of partitions) -> partition.
    `key_columns` instead of a selector: HASH by columns of the row's type, without touching a row in Python; `partial`:
    what the producer makes of its rows before they leave.
    """

    kind: PartitionerKind
    key_selector: Callable[[Any], Any] | None = None
    key_type: TypeInformation | None = None
    custom: Callable[[Any, int], int] | None = None
    key_columns: tuple[str, ...] | None = None
    partial: PartialAggregates | None = None

    @property
    def pointwise(self) -> bool:
        return self.kind in (PartitionerKind.FORWARD, PartitionerKind.RESCALE)


class OperatorKind(Enum):
    SOURCE = "source"
    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    PROCESS = "process"
    KEYED_PROCESS = "keyed_process"
    REDUCE = "reduce"
    WINDOW = "window"
    CO_MAP = "co_map"
    CO_FLAT_MAP = "co_flat_map"
    CO_PROCESS = "co_process"
    KEYED_CO_PROCESS = "keyed_co_process"
    BROADCAST_PROCESS = "broadcast_process"
    KEYED_BROADCAST_PROCESS = "keyed_broadcast_process"
    ASYNC_WAIT = "async_wait"
    TIMESTAMPS = "timestamps"
    MAP_BATCHES = "map_batches"
    PROJECT = "project"
    FILTER_COLUMNS = "filter_columns"
    AGGREGATE_COLUMNS = "aggregate_columns"
    WINDOW_COLUMNS = "window_columns"
    SINK = "sink"

    @property
    def columnar(self) -> bool:
        """Return whether operators of this kind work on whole batches. A chain holds either these or row functions."""
        return self in _COLUMNAR

    @property
    def keyed(self) -> bool:
        """Return whether operators of this kind may use keyed state: each reads a keyed stream and heads its chain."""
        return self in _KEYED

    @property
    def two_inputs(self) -> bool:
        return self in _TWO_INPUTS


_COLUMNAR = frozenset(
    {OperatorKind.MAP_BATCHES, OperatorKind.PROJECT, OperatorKind.FILTER_COLUMNS, OperatorKind.AGGREGATE_COLUMNS,
     OperatorKind.WINDOW_COLUMNS}
)  # fmt: skip
_KEYED = frozenset(
    {OperatorKind.KEYED_PROCESS, OperatorKind.REDUCE, OperatorKind.WINDOW, OperatorKind.KEYED_CO_PROCESS,
     OperatorKind.KEYED_BROADCAST_PROCESS, OperatorKind.AGGREGATE_COLUMNS, OperatorKind.WINDOW_COLUMNS}
)  # fmt: skip
_TWO_INPUTS = frozenset(
    {OperatorKind.CO_MAP, OperatorKind.CO_FLAT_MAP, OperatorKind.CO_PROCESS, OperatorKind.KEYED_CO_PROCESS,
     OperatorKind.BROADCAST_PROCESS, OperatorKind.KEYED_BROADCAST_PROCESS}
)  # fmt: skip


class ChainingStrategy(Enum):
    ALWAYS = "always"
    HEAD = "head"
    NEVER = "never"


@dataclass(frozen=True)
class Input:
    """Describes one input edge of a node. `partitioner` None: decided when the job graph is built (forward if the
    parallelism is equal, rebalance otherwise), as in Flink. `side_output`: the rows that the node emits under this
    `OutputTag`'s id, with `type`, instead of its main ones. `index`: which input of a two-input operator.
    """

    node: "Node"
    partitioner: Partitioner | None = None
    side_output: str | None = None
    side_type: TypeInformation | None = None
    index: int = 0


@dataclass(eq=False)
class Node:
    """Describes one declared operation. `function`: by `kind` the user's MapFunction, FlatMapFunction, FilterFunction,
    (Keyed)(Co)ProcessFunction, ReduceFunction, Source or Sink; a WatermarkStrategy (TIMESTAMPS); a
    `penstock.graph.declared_functions.WindowSpec` (WINDOW); a `penstock.graph.declared_functions.BroadcastSpec`
    (broadcast kinds); an `AsyncSpec` from there (ASYNC_WAIT); one of `penstock.graph.declared_columns` (columnar
    kinds). `output_type` None: an untyped stream (one binary column of pickles). `watermark_strategy`: a source's
    strategy.
    """

    id: int
    kind: OperatorKind
    name: str
    function: Any
    inputs: list[Input]
    output_type: TypeInformation | None
    parallelism: int | None = None
    max_parallelism: int | None = None
    uid: str | None = None
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS
    watermark_strategy: WatermarkStrategy | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class LogicalGraph:
    nodes: list[Node] = field(default_factory=list)

    def add(self, node: Node) -> Node:
        """Append a node, after those of its inputs that the graph lacks because an earlier job declared them."""
        for given in node.inputs:
            self.include(given.node)
        self.nodes.append(node)
        return node

    def include(self, node: Node) -> None:
        """Add a node, and all that it reads, unless it is here already."""
        if node not in self.nodes:
            self.add(node)
