"""Defines types made of other types: tuples and rows have a column for each field, lists and maps have one column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from penstock.common.row_types.columns import ENCODING_ERRORS, ColumnType, RefusedValue, integers, reason, shown, whole
from penstock.common.row_types.row import Row, RowKind
from penstock.common.row_types.type_information import RESERVED_COLUMNS, RowTypeError

_CHUNK_ROWS = 4096
"""zip(*rows) takes every row as an argument; more of them at once leave the processor's caches."""


class _FieldsType(ColumnType):
    """Implements tuples and rows. A stream's row is a column per field, a nested one a struct column."""

    field_names: tuple[str, ...]
    field_types: tuple[ColumnType, ...]

    def _check_fields(self) -> None:
        if not self.field_types:
            raise ValueError(f"{type(self).__name__} needs at least one field")
        for name, field_type in zip(self.field_names, self.field_types, strict=True):
            if not isinstance(name, str) or not name:
                raise TypeError(f"a field name is a non-empty string, got {shown(name)}")
            if name in RESERVED_COLUMNS:
                raise ValueError(f"the field name {name!r} is reserved for Penstock's own columns; choose another")
            if not isinstance(field_type, ColumnType):
                raise TypeError(
                    f"the type of field {name!r} is made by Types, e.g. Types.LONG(); got {shown(field_type)}"
                )
        if len(set(self.field_names)) != len(self.field_names):
            raise ValueError(f"field names repeat: {', '.join(self.field_names)}")

    def _as_tuples(self, values: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        """Raises `RefusedValue` for what is no row of this type."""
        raise NotImplementedError

    def _from_tuples(self, values: list[tuple[Any, ...]]) -> list[Any]:
        raise NotImplementedError

    @cached_property
    def arrow_type(self) -> pa.DataType:
        """Return the Arrow struct type of nested tuples or rows."""
        return pa.struct([(n, t.arrow_type) for n, t in zip(self.field_names, self.field_types)])

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the schema of the stream's batches: a column for each field."""
        return pa.schema([(n, t.arrow_type) for n, t in zip(self.field_names, self.field_types)])

    def _columns(self, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        rows = self._as_tuples(values)
        if 0 < len(rows) <= _CHUNK_ROWS:
            return self._fields(rows)
        columns: list[list[Any]] = [[] for _ in self.field_types]
        for start in range(0, len(rows), _CHUNK_ROWS):
            for column, part in zip(columns, self._fields(rows[start : start + _CHUNK_ROWS])):
                column.extend(part)
        return columns

    def _fields(self, rows: Sequence[tuple[Any, ...]]) -> Sequence[Sequence[Any]]:
        fields = list(zip(*rows, strict=True))
        if len(fields) != len(self.field_types):
            raise RefusedValue(f"it has {len(fields)} fields, declared are {len(self.field_types)}")
        return fields

    def encode(self, rows: Sequence[Any]) -> list[pa.Array]:
        try:
            return [whole(t.encode_column(c)) for t, c in zip(self.field_types, self._columns(rows))]
        except ENCODING_ERRORS as error:
            raise self._refusal(rows, error) from error

    def _refusal(self, rows: Sequence[Any], error: BaseException) -> RowTypeError:
        for index, row in enumerate(rows):
            try:
                fields = self._columns([row])
            except ENCODING_ERRORS as cause:
                return RowTypeError(
                    f"row {index} does not fit its declared type {self}: {shown(row)}: {reason(cause)}", index
                )
            for name, field_type, column in zip(self.field_names, self.field_types, fields):
                try:
                    field_type.encode_column(column)
                except ENCODING_ERRORS as cause:
                    return RowTypeError(
                        f"row {index}, field {name!r}: {shown(column[0])} does not fit {field_type}: {reason(cause)} "
                        f"(the row's declared type is {self})",
                        index,
                        name,
                    )
        return RowTypeError(f"the rows do not fit their declared type {self}: {reason(error)}", 0)

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        columns: Sequence[Sequence[Any]]
        if type(None) in set(map(type, values)):
            nothing = (None,) * len(self.field_types)
            columns = self._columns_with_missing(values, nothing)
            mask = pa.array([v is None for v in values])
        else:
            columns, mask = self._columns(values), None
        arrays = [whole(t.encode_column(c)) for t, c in zip(self.field_types, columns)]
        return pa.StructArray.from_arrays(arrays, fields=list(self.arrow_type), mask=mask)

    def _columns_with_missing(self, values: Sequence[Any], nothing: tuple[Any, ...]) -> list[list[Any]]:
        present = iter(self._as_tuples([v for v in values if v is not None]))
        rows = [nothing if v is None else next(present) for v in values]
        columns: list[list[Any]] = [[] for _ in self.field_types]
        for row in rows:
            for column, field in zip(columns, row, strict=True):
                column.append(field)
        return columns

    def decode(self, batch: pa.RecordBatch) -> list[Any]:
        columns = [t.decode_column(batch.column(i)) for i, t in enumerate(self.field_types)]
        return self._from_tuples(list(zip(*columns)))

    def decode_column(self, array: pa.Array) -> list[Any]:
        columns = [t.decode_column(c) for t, c in zip(self.field_types, array.flatten())]
        rows = self._from_tuples(list(zip(*columns)))
        if array.null_count:
            return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist())]
        return rows


@dataclass(frozen=True, repr=False)
class TupleType(_FieldsType):
    """Describes Python tuples, named ones too, of a fixed length. The columns are called f0, f1, ..."""

    field_types: tuple[ColumnType, ...]

    if TYPE_CHECKING:  # PyFlink's TupleTypeInfo takes a list

        def __init__(self, field_types: Sequence[ColumnType]) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "field_types", tuple(self.field_types))
        self._check_fields()

    @property
    def field_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return the names of the columns: f0, f1, ..."""
        return _numbered(len(self.field_types))

    def get_field_types(self) -> list[ColumnType]:
        """Return the types of the fields, in their order."""
        return list(self.field_types)

    def _as_tuples(self, values: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        kinds = set(map(type, values))
        if kinds <= {tuple} or all(issubclass(kind, tuple) for kind in kinds):
            return values
        for kind in kinds:
            if not issubclass(kind, (tuple, Row)):
                raise RefusedValue(f"expected a tuple of {len(self.field_types)} fields, got a {kind.__name__}")
        return [v.to_tuple() if isinstance(v, Row) else v for v in values]

    def _from_tuples(self, values: list[tuple[Any, ...]]) -> list[Any]:
        return values

    @property
    def freeze(self) -> Callable[[Any], Any] | None:
        freezers = [t.freeze for t in self.field_types]
        if not any(freezers):
            return None
        return lambda row: _frozen_fields(row, freezers) if isinstance(row, tuple) else row

    @property
    def text(self) -> str:
        """Return "TUPLE(STRING, LONG)"."""
        return f"TUPLE({', '.join(t.text for t in self.field_types)})"

    def __repr__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(repr, self.field_types))})"


@dataclass(frozen=True, repr=False)
class RowType(_FieldsType):
    """Describes `Row` objects. A tuple is taken by position, a named `Row` with another order of fields by name."""

    field_types: tuple[ColumnType, ...]
    field_names: tuple[str, ...] = ()

    if TYPE_CHECKING:  # PyFlink's RowTypeInfo takes lists

        def __init__(self, field_types: Sequence[ColumnType], field_names: Sequence[str] | None = None) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "field_types", tuple(self.field_types))
        names = tuple(self.field_names or ()) or _numbered(len(self.field_types))
        object.__setattr__(self, "field_names", names)
        if len(self.field_names) != len(self.field_types):
            raise ValueError(f"{len(self.field_names)} field names for {len(self.field_types)} field types")
        self._check_fields()

    def get_field_names(self) -> list[str]:
        """Return the names of the fields, in their order."""
        return list(self.field_names)

    def get_field_index(self, field_name: str) -> int:
        """Return the position of a field.

        Args:
            field_name: Its name.

        Returns:
            The position, from 0.

        Raises:
            ValueError: There is no such field.
        """
        if field_name not in self.field_names:
            raise ValueError(f"{self} has no field {field_name!r}")
        return self.field_names.index(field_name)

    def get_field_types(self) -> list[ColumnType]:
        """Return the types of the fields, in their order."""
        return list(self.field_types)

    def _as_tuples(self, values: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        names = self.field_names
        return [
            tuple(v._values)
            if type(v) is Row and v._row_kind is RowKind.INSERT and (v._fields is None or v._fields == names)
            else self._as_tuple(v)
            for v in values
        ]

    def _as_tuple(self, row: Any) -> tuple[Any, ...]:
        if isinstance(row, tuple):
            return row
        if not isinstance(row, Row):
            hint = "; of a dict, make one with Row(**fields)" if isinstance(row, dict) else ""
            raise RefusedValue(f"expected a Row of {len(self.field_types)} fields, got a {type(row).__name__}{hint}")
        if row.get_row_kind() is not RowKind.INSERT:
            raise RefusedValue(f"its kind is {row.get_row_kind().name}, and a stream of rows carries only INSERT")
        names = row.get_field_names()
        if names is None or names == self.field_names:
            return row.to_tuple()
        if set(names) == set(self.field_names):
            return tuple(row[name] for name in self.field_names)
        raise RefusedValue(f"its fields are {', '.join(names)}, declared are {', '.join(self.field_names)}")

    def _from_tuples(self, values: list[tuple[Any, ...]]) -> list[Any]:
        make, names = Row.of_fields, self.field_names
        return [make(names, v) for v in values]

    @property
    def freeze(self) -> Callable[[Any], Any]:
        freezers = [t.freeze for t in self.field_types]
        nested = any(freezers)

        def frozen(row: Any) -> Any:
            fields = self._as_tuple(row) if isinstance(row, Row) else row
            return _frozen_fields(fields, freezers) if nested and isinstance(fields, tuple) else fields

        return frozen

    @property
    def text(self) -> str:
        """Return "ROW(user STRING, amount LONG)"."""
        return f"ROW({', '.join(f'{n} {t.text}' for n, t in zip(self.field_names, self.field_types))})"

    def __repr__(self) -> str:
        if self.field_names == _numbered(len(self.field_types)):
            return f"RowTypeInfo({', '.join(map(repr, self.field_types))})"
        return f"RowTypeInfo({', '.join(f'{n}: {t!r}' for n, t in zip(self.field_names, self.field_types))})"


def _numbered(fields: int) -> tuple[str, ...]:
    return tuple(f"f{i}" for i in range(fields))


def _frozen_fields(row: tuple[Any, ...], freezers: list[Callable[[Any], Any] | None]) -> tuple[Any, ...]:
    if len(row) != len(freezers):
        return row  # `encode` says what is wrong with it
    return tuple(v if f is None or v is None else f(v) for f, v in zip(freezers, row))


def _lengths(values: Sequence[Any], allowed: tuple[type, ...], expected: str) -> tuple[pa.Array, pa.Array | None]:
    """Return the offsets of a list or map column, and the mask of its nulls (None: there are none)."""
    kinds = set(map(type, values))
    for kind in kinds:
        if kind is not type(None) and not issubclass(kind, allowed):
            raise RefusedValue(f"expected a {expected}, got a {kind.__name__}")
    mask = None
    lengths: Iterable[int] = map(len, values)
    if type(None) in kinds:
        mask = pa.array([v is None for v in values])
        lengths = (0 if v is None else len(v) for v in values)
    try:
        return integers(list(accumulate(lengths, initial=0)), pa.int32()), mask
    except OverflowError:
        raise OverflowError("one batch holds more than 2^31 elements of this column; make its rows smaller") from None


@dataclass(frozen=True, repr=False)
class ListType(ColumnType):
    """Describes lists of any length. Tuples and NumPy arrays are taken as lists; lists come back."""

    element_type: ColumnType
    label: str = "LIST"

    def __post_init__(self) -> None:
        if not isinstance(self.element_type, ColumnType):
            raise TypeError(f"{self.label} needs an element type made by Types, got {shown(self.element_type)}")

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.list_(self.element_type.arrow_type)

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        offsets, mask = _lengths(values, (list, tuple, np.ndarray), "list")
        elements = list(chain.from_iterable(v for v in values if v is not None))
        child = whole(self.element_type.encode_column(elements))
        return pa.ListArray.from_arrays(offsets, child, type=self.arrow_type, mask=mask)

    def decode_column(self, array: pa.Array) -> list[Any]:
        first, last, cuts = _cuts(array)
        elements = self.element_type.decode_column(array.values.slice(first, last - first))
        return [None if cut is None else elements[cut] for cut in cuts]

    @property
    def freeze(self) -> Callable[[Any], Any]:
        inner = self.element_type.freeze
        if inner is None:
            return lambda value: list(value) if isinstance(value, (list, np.ndarray)) else value
        return lambda value: (
            [None if v is None else inner(v) for v in value] if isinstance(value, (list, tuple, np.ndarray)) else value
        )

    @property
    def text(self) -> str:
        """Return "LIST(STRING)"."""
        return f"{self.label}({self.element_type.text})"

    @property
    def elem_type(self) -> ColumnType:
        """Return the type of an element, by PyFlink's name."""
        return self.element_type

    def __repr__(self) -> str:
        return f"{_PYFLINK_LISTS[self.label]}<{self.element_type!r}>"


_PYFLINK_LISTS = {
    "LIST": "ListTypeInfo",
    "PRIMITIVE_ARRAY": "PrimitiveArrayTypeInfo",
    "BASIC_ARRAY": "BasicArrayTypeInfo",
    "OBJECT_ARRAY": "ObjectArrayTypeInfo",
}


@dataclass(frozen=True, repr=False)
class MapType(ColumnType):
    """Describes dicts whose keys are not None. They come back as dicts in the same order."""

    key_type: ColumnType
    value_type: ColumnType

    def __post_init__(self) -> None:
        for kind in (self.key_type, self.value_type):
            if not isinstance(kind, ColumnType):
                raise TypeError(f"MAP needs key and value types made by Types, got {shown(kind)}")

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.map_(self.key_type.arrow_type, self.value_type.arrow_type)

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        offsets, mask = _lengths(values, (dict,), "dict")
        present = [v for v in values if v is not None]
        keys = list(chain.from_iterable(present))
        if None in keys:
            raise RefusedValue("a key of the map is None")
        items = list(chain.from_iterable(v.values() for v in present))
        return pa.MapArray.from_arrays(
            offsets,
            whole(self.key_type.encode_column(keys)),
            whole(self.value_type.encode_column(items)),
            type=self.arrow_type,
            mask=mask,
        )

    def decode_column(self, array: pa.Array) -> list[Any]:
        first, last, cuts = _cuts(array)
        keys = self.key_type.decode_column(array.keys.slice(first, last - first))
        items = self.value_type.decode_column(array.items.slice(first, last - first))
        return [None if cut is None else dict(zip(keys[cut], items[cut])) for cut in cuts]

    @property
    def freeze(self) -> Callable[[Any], Any]:
        inner = self.value_type.freeze
        if inner is None:
            return lambda value: dict(value) if isinstance(value, dict) else value
        return lambda value: (
            {k: None if v is None else inner(v) for k, v in value.items()} if isinstance(value, dict) else value
        )

    @property
    def text(self) -> str:
        """Return "MAP(STRING, LONG)"."""
        return f"MAP({self.key_type.text}, {self.value_type.text})"

    def __repr__(self) -> str:
        return f"MapTypeInfo<{self.key_type!r}, {self.value_type!r}>"


def _cuts(array: pa.Array) -> tuple[int, int, list[slice | None]]:
    """Return the first and last element of a list or map column, and each row's part of them (None: null)."""
    offsets = array.offsets.to_numpy().tolist()
    first, last = offsets[0], offsets[-1]
    cuts: list[slice | None] = [slice(a - first, b - first) for a, b in zip(offsets, offsets[1:])]
    if array.null_count:
        cuts = [cut if valid else None for cut, valid in zip(cuts, array.is_valid().to_pylist())]
    return first, last, cuts
