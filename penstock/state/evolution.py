"""Fits restored state to the type that it is declared with now, as the rules of `type_evolution.py` say.

A restore converts all entries of a state whose type has changed, and the first checkpoint after it stores the state
whole: so all runs of a chain have one type.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.type_evolution import WAY_OUT, Convert, IncompatibleType, evolution, evolved_columns
from penstock.common.row_types.type_texts import parse_type
from penstock.common.typeinfo import TypeInformation
from penstock.state.backend import StateSchemaError

OTHER_KIND = "declare it as before, or give the new state another name"


class Evolution:
    """Converts batches of one stored type to the declared one. Further columns, such as the key group, stay."""

    def __init__(self, stored: ColumnType, declared: TypeInformation, convert: Convert) -> None:
        self._stored = stored
        self._declared = declared
        self._convert = convert

    def converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the declared type."""
        count = len(self._stored.schema)
        columns = evolved_columns(batch.columns[:count], self._stored, self._convert)
        fields = [*self._declared.schema, *list(batch.schema)[count:]]
        return pa.RecordBatch.from_arrays([*columns, *batch.columns[count:]], schema=pa.schema(fields))

    def converted_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of deleted keys: keys stay as they are."""
        return batch


def changed_text(described: str, declared: str, stored: str) -> str:
    """Return the beginning of messages about a state that was stored with another type."""
    return f"{described} is declared as {declared}, but in the checkpoint that is being restored it is {stored}"


def evolution_of(told: str, stored: str, declared: TypeInformation) -> Evolution:
    """Return the conversion of values of a stored type, given as text. `told`: the beginning of messages. Raises
    `StateSchemaError` if they do not survive.
    """
    before = parse_type(stored)
    if before is None or not isinstance(declared, ColumnType):
        raise StateSchemaError(f"{told}, a type that cannot be changed: {OTHER_KIND}")
    try:
        return Evolution(before, declared, evolution(before, declared))
    except IncompatibleType as error:
        raise StateSchemaError(f"{told}: {error}; {WAY_OUT}") from None
