"""Fits restored state to the type that it is declared with now, as the rules of `penstock.common.type_evolution` say.

A restore converts all entries of a state whose type has changed, and the first checkpoint after it stores the state
whole: so all runs of a chain have one type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Callable

import pyarrow as pa

from penstock.common.columns import ColumnType
from penstock.common.type_evolution import WAY_OUT, Convert, IncompatibleType, evolution, evolved_columns
from penstock.common.type_texts import parse_type
from penstock.common.typeinfo import TypeInformation
from penstock.state.backend import StateSchemaError

OTHER_KIND = "declare it as before, or give the new state another name"


@dataclass(frozen=True)
class Declared:
    """Describes how a state is declared: its kind, and the type of what it stores. `kind_text`: for messages."""

    kind: str
    type: TypeInformation
    kind_text: str


class ConvertedBatches(Sequence[pa.RecordBatch]):
    """Converts batches when they are read, so that they take no memory before."""

    def __init__(self, batches: Sequence[pa.RecordBatch], convert: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        self._batches = batches
        self._convert = convert

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: Any) -> Any:
        return self._convert(self._batches[index])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return map(self._convert, self._batches)


class Evolution:
    """Converts batches of one stored type to the declared one. The columns behind those of the type stay."""

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


def evolution_of(described: str, stored: tuple[str, str], stored_text: str, declared: Declared) -> Evolution | None:
    """Return how entries of a restored state are converted; None: they are as declared. `stored`: its kind and the text
    of its type; `stored_text`: the kind, for messages. Raises `StateSchemaError` if they do not survive.
    """
    kind, text = stored
    if (kind, text) == (declared.kind, str(declared.type)):
        return None
    told = (
        f"{described} is declared as {declared.kind_text} of {declared.type}, but in the checkpoint that is being "
        f"restored it is {stored_text} of {text}"
    )
    if kind != declared.kind:
        raise StateSchemaError(f"{told}: {OTHER_KIND}")
    before = parse_type(text)
    if before is None or not isinstance(declared.type, ColumnType):
        raise StateSchemaError(f"{told}, a type that cannot be changed: {OTHER_KIND}")
    try:
        return Evolution(before, declared.type, evolution(before, declared.type))
    except IncompatibleType as error:
        raise StateSchemaError(f"{told}: {error}; {WAY_OUT}") from None
