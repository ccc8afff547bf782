"""Reports stored objects that cannot be unpickled: by the name of the class that is gone, and by their state."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.common.program.failures import summary
from penstock.common.program.program_classes import missing_class
from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, MapType, RowType, TupleType
from penstock.common.row_types.scalar_types import PickledType
from penstock.common.typeinfo import TypeInformation
from penstock.state.backend import MissingStateClass, StateError
from penstock.state.ttl import StampedType


def unpickled(data: bytes, described: str, key: Any = None) -> Any:
    """Return an object of a state. Raises `MissingStateClass`, `StateError`."""
    try:
        return pickle.loads(data)
    except Exception as error:  # catches whatever a user's class raises when it is unpickled
        raise _failure(data, described, key, error) from error


def decoded(type: TypeInformation, batch: pa.RecordBatch, described: str) -> list[Any]:
    """Return the values of a batch. Raises `MissingStateClass`, `StateError`."""
    try:
        return type.decode(batch)
    except Exception as error:  # catches whatever a user's class raises when it is unpickled
        for column, of_type in zip(batch.columns, _column_types(type)):
            for data in _pickles(column, of_type):
                unpickled(data, described)
        raise StateError(f"{described}: values cannot be read as {type}: {summary(error)}") from error


def _failure(data: bytes, described: str, key: Any, error: Exception) -> StateError:
    holds = f"the value of key {key!r:.80}" if key is not None else "a value"
    if (missing := missing_class(data)) is not None:
        name, why = missing
        return MissingStateClass(
            f"{described}: {holds} holds an object of class {name}, which cannot be imported ({why}): keep a class of "
            "this name where it was, at least until a checkpoint without such objects has completed; or replace the "
            "values of a savepoint with SavepointWriter; or give the new state another name"
        )
    return StateError(f"{described}: {holds} cannot be unpickled: {summary(error)}")


def _column_types(type: TypeInformation) -> tuple[ColumnType, ...]:
    if isinstance(type, StampedType):
        return _column_types(type.type)
    if isinstance(type, TupleType | RowType):
        return type.field_types
    return (type,) if isinstance(type, ColumnType) else ()


def _pickles(array: pa.Array, type: ColumnType) -> Iterator[bytes]:
    match type:
        case PickledType():
            yield from (data for data in array.to_pylist() if data is not None)
        case TupleType() | RowType():
            for column, field_type in zip(array.flatten(), type.field_types):
                yield from _pickles(column, field_type)
        case ListType():
            yield from _pickles(array.flatten(), type.element_type)
        case MapType():
            start, count = array.offsets[0].as_py(), array.offsets[len(array)].as_py() - array.offsets[0].as_py()
            yield from _pickles(array.keys.slice(start, count), type.key_type)
            yield from _pickles(array.items.slice(start, count), type.value_type)
