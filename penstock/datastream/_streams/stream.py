"""Defines the base of all streams: the inputs of the next operator."""

from __future__ import annotations

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import PICKLED, TupleType
from penstock.datastream._streams.environment import Environment
from penstock.datastream._streams.schemas import field_type
from penstock.datastream.operator_settings import OperatorSettings
from penstock.graph.logical import Input, Partitioner


class Stream(OperatorSettings):
    """Holds the inputs of the next operator and the type of its rows (None: pickles)."""

    _partitioner: Partitioner | None = None
    """The partitioner by which rows are keyed; None for streams that are not keyed."""

    def __init__(self, environment: Environment, inputs: list[Input], type_info: TypeInformation | None) -> None:
        whole = len(inputs) == 1 and inputs[0].partitioner is None and inputs[0].side_output is None
        super().__init__(environment, inputs[0].node if whole else None)
        self._inputs = inputs
        self._type = type_info

    @property
    def _key_type(self) -> TypeInformation:
        """Return the type of the keys of a keyed stream."""
        columns = self._partitioner.key_columns if self._partitioner is not None else None
        if columns is None:
            return (self._partitioner is not None and self._partitioner.key_type) or PICKLED
        types = tuple(field_type(self._type, column) for column in columns)
        return types[0] if len(types) == 1 else TupleType(types)
