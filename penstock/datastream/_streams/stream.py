"""Defines the base of all streams: the inputs of the next operator, and how it is appended."""

from __future__ import annotations

from typing import Any, Generic

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import PICKLED, TupleType
from penstock.datastream._streams.environment import Environment
from penstock.datastream._streams.node_settings import NodeSettings, check_type
from penstock.datastream._streams.schemas import field_type
from penstock.datastream._streams.stream_classes import S
from penstock.graph.logical import Input, Node, OperatorKind, Partitioner


class Stream(NodeSettings, Generic[S]):
    """Holds the inputs of the next operator and the type of its rows (None: pickles)."""

    _partitioner: Partitioner | None = None
    """The partitioner by which rows are keyed; None for streams that are not keyed."""

    def __init__(self, environment: Environment, inputs: list[Input], type_info: TypeInformation | None) -> None:
        whole = len(inputs) == 1 and inputs[0].partitioner is None and inputs[0].side_output is None
        super().__init__(environment, inputs[0].node if whole else None)
        self._inputs = inputs
        self._type = type_info

    def _output_of(self, node: Node, output_type: TypeInformation | None) -> S:
        """Return the stream of the rows that an operator emits."""
        raise NotImplementedError

    def _then(
        self,
        kind: OperatorKind,
        name: str,
        function: Any,
        output_type: TypeInformation | None,
        inputs: list[Input] | None = None,
    ) -> S:
        """Append an operator that reads this stream. `inputs`: what it reads instead of this stream's own inputs."""
        check_type(output_type, name)
        node = self._environment._add_node(kind, name, function, list(inputs or self._inputs), output_type)
        return self._output_of(node, output_type)

    def get_execution_environment(self) -> Any:
        """Return the `StreamExecutionEnvironment` that the stream was declared in."""
        return self._environment

    def get_type(self) -> TypeInformation:
        """Return the type of the rows; `Types.PICKLED_BYTE_ARRAY()` if none was declared."""
        return self._type or PICKLED

    @property
    def _key_type(self) -> TypeInformation:
        """Return the type of the keys of a keyed stream."""
        columns = self._partitioner.key_columns if self._partitioner is not None else None
        if columns is None:
            return (self._partitioner is not None and self._partitioner.key_type) or PICKLED
        types = tuple(field_type(self._type, column) for column in columns)
        return types[0] if len(types) == 1 else TupleType(types)
