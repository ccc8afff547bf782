"""Defines DataStreamSink, the end of a stream."""

from __future__ import annotations

from penstock.datastream._streams.environment import Environment
from penstock.datastream._streams.node_settings import NodeSettings
from penstock.graph.logical import Node


class DataStreamSink(NodeSettings):
    """Represents the sink at the end of a stream, whose name, uid and parallelism can be set."""

    def __init__(self, environment: Environment, node: Node) -> None:
        super().__init__(environment, node)
