"""Says which changes of a declared type values survive, and converts stored columns.

The rules are Flink's for POJOs, with the part of Avro's promotions that changes no number: fields of rows are found by
name and those of tuples by position; removed fields are dropped, added ones are None; a number may become one of a type
that holds every value of the old one. What is nested follows the same rules.
"""

from __future__ import annotations

from typing import Callable, Sequence

import pyarrow as pa

from penstock.common.row_types import scalar_types as scalars
from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, MapType, RowType, TupleType

Convert = Callable[[pa.Array], pa.Array]

_WHOLE = (scalars.BYTE, scalars.SHORT, scalars.INT, scalars.LONG)
_WHOLE_VALUES = {
    "": "the values were",
    "[]": "the elements were",
    "(key)": "the map's keys were",
    "(value)": "the map's values were",
}
_EXACT_IN_FLOAT = (scalars.BYTE, scalars.SHORT)
_EXACT_IN_DOUBLE = (scalars.BYTE, scalars.SHORT, scalars.INT, scalars.FLOAT)

WAY_OUT = (
    "fields may be added and removed, and numbers widened (INT to LONG, FLOAT to DOUBLE); declare nothing else "
    "otherwise, or give the new state another name, or convert what a savepoint holds with SavepointWriter"
)


class IncompatibleType(ValueError):
    """Reports a change of a type that stored values do not survive. The message names the field and both types."""


def evolution(stored: ColumnType, declared: ColumnType) -> Convert:
    """Make the conversion of stored columns to those of the declared type.

    Args:
        stored: The type of the values as they were stored.
        declared: The type as it is declared now.

    Returns:
        A function of an array of the stored type, which returns one of the declared type.

    Raises:
        IncompatibleType: Not every value survives.
    """
    return _evolution(stored, declared, "")


def evolved_columns(columns: Sequence[pa.Array], stored: ColumnType, convert: Convert) -> list[pa.Array]:
    """Convert the columns of a batch, which are several if the type has fields.

    Args:
        columns: Those of `stored.schema`.
        stored: The type of the values as they were stored.
        convert: What `evolution` has returned.

    Returns:
        The columns of the declared type's schema.
    """
    if not isinstance(stored, TupleType | RowType):
        return [convert(columns[0])]
    rows = pa.StructArray.from_arrays(list(columns), fields=list(stored.arrow_type))
    found: list[pa.Array] = convert(rows).flatten()
    return found


def _evolution(stored: ColumnType, declared: ColumnType, path: str) -> Convert:
    if stored == declared:
        return _unchanged
    match stored, declared:
        case RowType(), RowType():
            return _fields_evolution(stored, declared, path)
        case TupleType(), TupleType():
            return _fields_evolution(stored, declared, path)
        case ListType(), ListType():
            return _list_evolution(stored, declared, path)
        case MapType(), MapType():
            return _map_evolution(stored, declared, path)
    if (convert := _widening(stored, declared)) is None:
        raise IncompatibleType(f"{_told(path)} {stored}, which cannot become {declared}")
    return convert


def _told(path: str) -> str:
    return _WHOLE_VALUES.get(path, f"field '{path}' was")


def _unchanged(array: pa.Array) -> pa.Array:
    return array


def _widening(stored: ColumnType, declared: ColumnType) -> Convert | None:
    """Return the conversion of numbers to a type that holds all numbers of the stored type; None if the declared one
    does not."""
    if stored in _WHOLE:
        if declared in _WHOLE[_WHOLE.index(stored) :] or declared in (scalars.BIG_INT, scalars.BIG_DEC):
            return lambda array: array.cast(declared.arrow_type)
        if declared == scalars.FLOAT and stored in _EXACT_IN_FLOAT:
            return lambda array: array.cast(declared.arrow_type)
    if declared == scalars.DOUBLE and stored in _EXACT_IN_DOUBLE:
        return lambda array: array.cast(declared.arrow_type)
    if isinstance(declared, scalars.DecimalType):
        digits = _whole_digits(stored)
        scale = stored.scale if isinstance(stored, scalars.DecimalType) else 0
        if digits is None or digits > declared.precision - declared.scale or scale > declared.scale:
            return None
        return lambda array: array.cast(declared.arrow_type)
    if isinstance(stored, scalars.DecimalType) and declared == scalars.BIG_DEC:
        return lambda array: array.cast(declared.arrow_type)
    if (stored, declared) == (scalars.BIG_INT, scalars.BIG_DEC):
        return _unchanged  # both are decimal text
    return None


def _whole_digits(stored: ColumnType) -> int | None:
    """Return the largest number of digits before the point; None if it is no number of a fixed size."""
    if isinstance(stored, scalars.DecimalType):
        return stored.precision - stored.scale
    return len(str(2 ** (stored.arrow_type.bit_width - 1))) if stored in _WHOLE else None


def _fields_evolution(stored: RowType | TupleType, declared: RowType | TupleType, path: str) -> Convert:
    # 8.5: fields of rows are found by their names.
    before = dict(zip(stored.field_names, enumerate(stored.field_types)))
    sources: list[tuple[int, Convert] | None] = []
    for name, field_type in zip(declared.field_names, declared.field_types):
        if name not in before:
            sources.append(None)
            continue
        place, old = before[name]
        sources.append((place, _evolution(old, field_type, f"{path}.{name}" if path else name)))
    if not any(sources):
        raise IncompatibleType(f"{_told(path)} {stored}, and {declared} has none of its fields")
    fields = list(declared.arrow_type)

    def convert(array: pa.Array) -> pa.Array:
        columns = array.flatten()
        made = [
            pa.nulls(len(array), field.type) if source is None else source[1](columns[source[0]])
            for field, source in zip(fields, sources)
        ]
        return pa.StructArray.from_arrays(made, fields=fields, mask=_mask(array))

    return convert


def _list_evolution(stored: ListType, declared: ListType, path: str) -> Convert:
    element = _evolution(stored.element_type, declared.element_type, f"{path}[]")

    def convert(array: pa.Array) -> pa.Array:
        offsets, first, count = _offsets(array)
        values = element(array.values.slice(first, count))
        return pa.ListArray.from_arrays(offsets, values, type=declared.arrow_type, mask=_mask(array))

    return convert


def _map_evolution(stored: MapType, declared: MapType, path: str) -> Convert:
    key = _evolution(stored.key_type, declared.key_type, f"{path}(key)")
    if stored.key_type != declared.key_type and _widening(stored.key_type, declared.key_type) is None:
        # Without a field, two keys might become one.
        told = f"{_told(f'{path}(key)')} {stored.key_type}"
        raise IncompatibleType(f"{told}, and keys of a map stay as they are, but for the width of numbers")
    value = _evolution(stored.value_type, declared.value_type, f"{path}(value)")

    def convert(array: pa.Array) -> pa.Array:
        offsets, first, count = _offsets(array)
        keys, items = key(array.keys.slice(first, count)), value(array.items.slice(first, count))
        return pa.MapArray.from_arrays(offsets, keys, items, type=declared.arrow_type, mask=_mask(array))

    return convert


def _offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Return offsets that begin with 0, the place of the first element, and the number of elements."""
    numbers = array.offsets.to_numpy()
    first = int(numbers[0])
    return pa.array(numbers - first, pa.int32()), first, int(numbers[-1]) - first


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
