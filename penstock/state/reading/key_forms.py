"""Defines the form of keys in columns, in both directions: the same form writes a column back as the keys it was made
of.

A checkpoint stores keys canonically, and several types share an encoding. The form says which type a column has, and
which keys its texts represent: UUIDs, decimals and whole numbers over 64 bits are shown as text.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from penstock.common.row_types import scalar_types as scalars
from penstock.common.row_types.columns import ENCODING_ERRORS, ColumnType, whole
from penstock.common.row_types.composite_types import ListType, RowType, TupleType
from penstock.protocol.values.key_encoding import INT64_MAX, INT64_MIN

UNREADABLE_KEYS = (*ENCODING_ERRORS, ArithmeticError, pickle.UnpicklingError, EOFError)
"""Raised for a column of another type, and for a text or pickle that represents no key."""


class UnfitKeys(ValueError):
    """Signals keys that no single column can show, or a column that does not fit the keys."""


class KeyForm(ABC):
    """Describes a column of keys. `keys` returns the keys of a column that `column` has made."""

    @property
    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """Return the type of the column."""

    @abstractmethod
    def column(self, keys: Sequence[Any]) -> pa.Array:
        """Return the column of decoded keys. Raises one of `ENCODING_ERRORS` for a key that the column cannot hold."""

    @abstractmethod
    def keys(self, column: pa.Array) -> list[Any]:
        """Return the keys of a column. Raises one of `UNREADABLE_KEYS`."""


@dataclass(frozen=True)
class ScalarForm(KeyForm):
    """Describes keys that Arrow has a type for, and keys that are shown as text. `to_cell` and `to_key` convert a key;
    None: Arrow converts it without a change.
    """

    name: str
    arrow: pa.DataType
    to_cell: Callable[[Any], Any] | None = None
    to_key: Callable[[Any], Any] | None = None

    @property
    def arrow_type(self) -> pa.DataType:
        return self.arrow

    def column(self, keys: Sequence[Any]) -> pa.Array:
        convert = self.to_cell
        cells = keys if convert is None else [None if key is None else convert(key) for key in keys]
        return whole(pa.array(cells, self.arrow))

    def keys(self, column: pa.Array) -> list[Any]:
        cells: list[Any] = fitted(column, self.arrow).to_pylist()
        convert = self.to_key
        return cells if convert is None else [None if cell is None else convert(cell) for cell in cells]


def _decimal_text(key: Any) -> str:
    """Return a number exactly: the text of the float 0.1 would be that of another key."""
    return str(Decimal(key))


INT = ScalarForm("int", pa.int64())
FLOAT = ScalarForm("float", pa.float64())
STRING = ScalarForm("str", pa.string())
BYTES = ScalarForm("bytes", pa.binary())
BIG_INT = ScalarForm("int", pa.string(), str, int)
DECIMAL = ScalarForm("Decimal", pa.string(), _decimal_text, Decimal)
UUIDS = ScalarForm("UUID", pa.string(), str, UUID)
PICKLES = ScalarForm("pickle", pa.binary(), lambda key: pickle.dumps(key, 5), pickle.loads)
NOTHING = ScalarForm("None", pa.null())
DATE = ScalarForm("date", pa.date32())
DATETIME = ScalarForm("datetime", pa.timestamp("us"))
INSTANT = ScalarForm("datetime with a zone", pa.timestamp("us", "UTC"))
TIME = ScalarForm("time", pa.time64("us"))
DURATION = ScalarForm("timedelta", pa.duration("us"))
_OF_CLASS: dict[type, ScalarForm] = {
    float: FLOAT, str: STRING, bytes: BYTES, Decimal: DECIMAL, UUID: UUIDS, date: DATE, time: TIME, timedelta: DURATION,
}  # fmt: skip
_NUMBERS = (INT, BIG_INT, FLOAT, DECIMAL)


@dataclass(frozen=True)
class TupleForm(KeyForm):
    """Describes tuples of one length, as structs."""

    fields: tuple[KeyForm, ...]
    names: tuple[str, ...]

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.struct([(name, field.arrow_type) for name, field in zip(self.names, self.fields)])

    def column(self, keys: Sequence[Any]) -> pa.Array:
        for key in keys:
            if key is not None and (not isinstance(key, tuple) or len(key) != len(self.fields)):
                raise UnfitKeys(f"expected a tuple of {len(self.fields)} items")
        columns = [
            field.column([None if key is None else key[at] for key in keys]) for at, field in enumerate(self.fields)
        ]
        mask = pa.array([key is None for key in keys], pa.bool_())
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow_type), mask=mask)

    def keys(self, column: pa.Array) -> list[Any]:
        if not pa.types.is_struct(column.type) or column.type.num_fields != len(self.fields):
            raise UnfitKeys(f"expected {self.arrow_type}")
        items = zip(*(field.keys(part) for field, part in zip(self.fields, column.flatten())))
        found: list[Any] = list(items)
        if column.null_count:
            return [key if valid else None for key, valid in zip(found, column.is_valid().to_pylist())]
        return found


@dataclass(frozen=True)
class ItemsForm(KeyForm):
    """Describes sets, as lists, and tuples that were declared as lists."""

    items: KeyForm
    of_items: Callable[[list[Any]], Any]

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.list_(self.items.arrow_type)

    def column(self, keys: Sequence[Any]) -> pa.Array:
        lists = [None if key is None else self._ordered(key) for key in keys]
        offsets = [0]
        for of_key in lists:
            offsets.append(offsets[-1] + len(of_key or ()))
        values = self.items.column([item for of_key in lists for item in of_key or ()])
        mask = pa.array([of_key is None for of_key in lists], pa.bool_())
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=self.arrow_type, mask=mask)

    def keys(self, column: pa.Array) -> list[Any]:
        if not pa.types.is_list(column.type):
            raise UnfitKeys(f"expected {self.arrow_type}")
        offsets = column.offsets.to_pylist()
        items = self.items.keys(column.values.slice(offsets[0], offsets[-1] - offsets[0]))
        found = [self.of_items(items[a - offsets[0] : b - offsets[0]]) for a, b in zip(offsets, offsets[1:])]
        return [key if valid else None for key, valid in zip(found, column.is_valid().to_pylist())]

    def _ordered(self, key: Any) -> list[Any]:
        if not isinstance(key, (tuple, frozenset)):
            raise UnfitKeys("expected a set" if self.of_items is frozenset else "expected a list")
        return sorted(key, key=repr) if isinstance(key, frozenset) else list(key)


@dataclass(frozen=True)
class DeclaredForm(KeyForm):
    """Describes keys of a scalar type that was declared. Decoded keys are of the plainest type: 1 for True and 1.0."""

    type: ColumnType

    @property
    def arrow_type(self) -> pa.DataType:
        return self.type.arrow_type

    def column(self, keys: Sequence[Any]) -> pa.Array:
        return whole(self.type.encode_column([_as_declared(key, self.type) for key in keys]))

    def keys(self, column: pa.Array) -> list[Any]:
        return self.type.decode_column(fitted(column, self.arrow_type))


def _as_declared(key: Any, declared: ColumnType) -> Any:
    if isinstance(key, (int, float, Decimal)):
        if declared == scalars.BOOLEAN and key in (0, 1):
            return bool(key)
        if declared == scalars.BIG_DEC or isinstance(declared, scalars.DecimalType):
            return Decimal(key)  # the decimal 0.5 is stored as the float that is equal to it
        if declared in (scalars.DOUBLE, scalars.FLOAT):
            return float(key)
    return key


def form_of_type(declared: ColumnType) -> KeyForm:
    """Return the form of a declared type, whose name a column of the same keys has in a checkpoint."""
    match declared:
        case RowType() | TupleType():
            return TupleForm(tuple(map(form_of_type, declared.field_types)), tuple(declared.field_names))
        case ListType():
            return ItemsForm(form_of_type(declared.element_type), tuple)
        case scalars.PickledType():
            return PICKLES
        case scalars.FLOAT:
            return DeclaredForm(scalars.DOUBLE)  # keys are stored in double precision, whatever is declared
    return DeclaredForm(declared)


def form_of_keys(keys: Sequence[Any]) -> KeyForm:
    """Return the form that shows all of these decoded keys exactly. Raises `UnfitKeys`."""
    present = [key for key in keys if key is not None]
    found: dict[KeyForm | type, Any] = {}
    for key in present:
        found.setdefault(_form_of_key(key), key)
    if not found:
        return NOTHING
    if found.keys() <= {*_NUMBERS}:
        return _form_of_numbers(set(found))
    if len(found) > 1:
        one, other = list(found.values())[:2]
        raise UnfitKeys(f"{_shown(one)} and {_shown(other)} have no type in common")
    kind = next(iter(found))
    if kind is tuple:
        lengths = {len(key): key for key in present}
        if len(lengths) > 1:
            one, other = list(lengths.values())[:2]
            raise UnfitKeys(f"the tuples {one!r:.80} and {other!r:.80} are not of one length")
        fields = tuple(form_of_keys([key[at] for key in present]) for at in range(next(iter(lengths))))
        return TupleForm(fields, tuple(f"f{at}" for at in range(len(fields))))
    if kind is frozenset:
        return ItemsForm(form_of_keys([item for key in present for item in key]), frozenset)
    assert isinstance(kind, KeyForm)
    return kind


def _form_of_numbers(found: set[Any]) -> KeyForm:
    for form in (DECIMAL, FLOAT, BIG_INT):
        if form in found:
            # A float next to a whole number over 64 bits: only text shows both exactly.
            return DECIMAL if form is FLOAT and BIG_INT in found else form
    return INT


def _form_of_key(key: Any) -> KeyForm | type:
    kind = type(key)
    if kind is int:
        return INT if INT64_MIN <= key <= INT64_MAX else BIG_INT
    if kind is datetime:
        return DATETIME if key.tzinfo is None else INSTANT
    form: KeyForm | type = _OF_CLASS.get(kind, kind)
    return form


def _shown(key: Any) -> str:
    return f"{key!r:.80} ({type(key).__name__})"


def plain_keys(column: pa.Array) -> list[Any]:
    """Return keys of a column as Arrow's types say, if no form is known: structs are tuples."""
    if pa.types.is_struct(column.type):
        return list(zip(*(plain_keys(part) for part in column.flatten())))
    found: list[Any] = column.to_pylist()
    return found


def fitted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return a column as `wanted`, if it holds the same values in another width. Raises `UnfitKeys`."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == wanted:
        return column
    if _family(column.type) != _family(wanted) or _family(wanted) is None:
        raise UnfitKeys(f"expected {wanted}, got {column.type}")
    return column.cast(wanted)


def _family(type: pa.DataType) -> str | None:
    types = pa.types
    for name, tests in (
        ("number", (types.is_integer, types.is_floating)),
        ("decimal", (types.is_decimal,)),
        ("text", (types.is_string, types.is_large_string, types.is_string_view)),
        ("bytes", (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)),
        ("date", (types.is_date,)),
        ("time", (types.is_time,)),
        ("duration", (types.is_duration,)),
        ("boolean", (types.is_boolean,)),
        ("nothing", (types.is_null,)),
    ):
        if any(test(type) for test in tests):
            return name
    if types.is_timestamp(type):
        return "instant" if type.tz else "timestamp"
    return None
