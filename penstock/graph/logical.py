"""The logical graph: one node per declared operation, appended by `penstock.datastream`, never executed itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Callable

from penstock.common.typeinfo import TypeInformation


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
    """Which consumer a row goes to.

    `key_selector` (row -> key) for HASH and CUSTOM; `key_type` is the declared type of the key or None (then it is
    encoded canonically, see `penstock.protocol.keys`); `custom` is (key, number of partitions) -> partition.
    """

    kind: PartitionerKind
    key_selector: Callable[[Any], Any] | None = None
    key_type: TypeInformation | None = None
    custom: Callable[[Any, int], int] | None = None

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
    SINK = "sink"


class ChainingStrategy(Enum):
    ALWAYS = "always"
    HEAD = "head"
    NEVER = "never"


@dataclass(frozen=True)
class Input:
    """One input edge of a node. `partitioner` None: decided when the job graph is built (forward where the
    parallelism is equal, rebalance otherwise), as in Flink."""

    node: "Node"
    partitioner: Partitioner | None = None


@dataclass(eq=False)
class Node:
    """`function`: MapFunction, FlatMapFunction, FilterFunction, (Keyed)ProcessFunction, ReduceFunction, Source or
    Sink, by `kind`. `output_type` None: an untyped stream (one binary column of pickles)."""

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
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class LogicalGraph:
    nodes: list[Node] = field(default_factory=list)

    def add(self, node: Node) -> Node:
        self.nodes.append(node)
        return node
