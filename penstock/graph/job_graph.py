"""Defines the job graph: vertices (chains of operators) and the edges between them, as they will run.

A chain is linear: an operator with more than one consumer ends its chain, and its consumers are in vertices of their
own behind forward edges (in the same slot, by reference), so that a snapshot never has to look inside a tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.graph.logical import OperatorKind, Partitioner, PartitionerKind
from penstock.protocol.values import topology


@dataclass(frozen=True)
class Operator:
    """Describes one operator. `uid`: 32 hex digits, stable over restarts: from the user's uid, else from the position
    in the graph.
    """

    uid: str
    name: str
    kind: OperatorKind
    function: Any
    input_type: TypeInformation | None
    output_type: TypeInformation | None
    user_uid: str | None = None
    timestamped: bool = False
    """True if its output rows have event time."""
    watermark_strategy: WatermarkStrategy | None = None
    """The strategy of a source, or of `assign_timestamps_and_watermarks`."""
    side_outputs: tuple[str, ...] = ()
    """Ids of the tags whose rows somebody reads; the others are dropped."""


@dataclass(frozen=True)
class Vertex:
    """Describes a chain of operators. `index` is its place in `JobGraph.vertices`, which is in topological order.
    `key_type`/`keyed`: whether its head reads keyed rows.
    """

    index: int
    name: str
    parallelism: int
    max_parallelism: int
    operators: tuple[Operator, ...]
    keyed: bool = False
    max_parallelism_given: bool = False
    """True if the program sets its max parallelism; else a checkpoint's max parallelism is kept."""

    @property
    def uid(self) -> str:
        return self.operators[0].uid

    @property
    def is_source(self) -> bool:
        return self.operators[0].kind is OperatorKind.SOURCE

    @property
    def columnar(self) -> bool:
        """Return whether batches pass as they are: no operator between source and sink, or columnar ones only."""
        ends = (OperatorKind.SOURCE, OperatorKind.TIMESTAMPS, OperatorKind.SINK)
        return all(o.kind.columnar for o in self.operators if o.kind not in ends)

    @property
    def clock(self) -> Operator | None:
        """Return the operator that generates this vertex's watermarks. None: they are what its inputs have reached. It
        comes first, or directly after a source, so that all the other operators of the vertex have one time.
        """
        return next((o for o in reversed(self.operators) if o.watermark_strategy is not None), None)


@dataclass(frozen=True)
class Edge:
    """Connects two vertices. `name` is stable over restarts: "<producer operator uid>-<consumer operator
    uid>-<input>-<ordinal>".

    `type` is the type of the rows (None: pickles). `input_index` is the consumer's logical input (0; two-input
    operators have 1, too); a union is several edges with one input index. `buffer_timeout_ms`: how long its rows wait
    for a fuller batch, if the producer sets it itself (-1: until it is full); None: the job's setting.
    """

    index: int
    name: str
    source: int
    target: int
    input_index: int
    partitioner: Partitioner
    type: TypeInformation | None
    source_parallelism: int
    target_parallelism: int
    buffer_timeout_ms: int | None = None
    timestamped: bool = False
    """True if its batches have a column of event times."""
    side_output: str | None = None
    """The id of the tag whose rows travel here; None: the producer's main output."""

    @property
    def keyed(self) -> bool:
        """Return whether the edge's rows carry keys. A keyed vertex may have inputs without keys: broadcast ones."""
        return self.partitioner.kind is PartitionerKind.HASH

    def consumers_of(self, producer: int) -> range:
        """Return the consumer subtasks that the given producer has a channel to."""
        pointwise = self.partitioner.pointwise
        return topology.consumers_of(pointwise, producer, self.source_parallelism, self.target_parallelism)

    def producers_of(self, consumer: int) -> range:
        """Return the producer subtasks that have a channel to the given consumer."""
        pointwise = self.partitioner.pointwise
        return topology.producers_of(pointwise, consumer, self.source_parallelism, self.target_parallelism)


@dataclass(frozen=True)
class JobGraph:
    name: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]

    def inputs_of(self, vertex: int) -> tuple[Edge, ...]:
        return tuple(e for e in self.edges if e.target == vertex)

    def outputs_of(self, vertex: int) -> tuple[Edge, ...]:
        return tuple(e for e in self.edges if e.source == vertex)

    @property
    def slots(self) -> int:
        """Return the number of slots: subtask i of every vertex lives in slot i."""
        return max((v.parallelism for v in self.vertices), default=0)
