"""Reads pickles of classes that may not be there: the job's code is not needed to look at its state."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import Any, Callable

import pyarrow as pa

from penstock.common.program.program_classes import MAIN, NoSuchClass, program_class
from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, MapType, RowType, TupleType
from penstock.common.row_types.scalar_types import PickledType

_IMPORT_ERRORS = (ImportError, AttributeError)


class MissingClass:
    """Takes the place of an object whose class cannot be imported here. `class_name` names it, `state` is what its
    pickle says of it.
    """

    class_name = ""

    def __new__(cls, *arguments: Any, **_: Any) -> MissingClass:
        made = super().__new__(cls)
        made.state = list(arguments)
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        self.state: Any

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        """Keep an item of a former list."""
        self.state = [*(self.state or []), item]

    def extend(self, items: Any) -> None:
        """Keep the items of a former list."""
        self.state = [*(self.state or []), *items]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.state = [*(self.state or []), (key, value)]

    def __call__(self, *arguments: Any, **_: Any) -> MissingClass:
        return self

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<{self.class_name}: the class cannot be imported>"


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == _BY_KEY:
            return _program_class
        try:
            found = super().find_class(module, name)
        except _IMPORT_ERRORS:
            return _missing(module, name)
        # This program's main module is another one than the job's: only a class that it defines itself can be meant.
        return found if module != MAIN or _is_defined_there(found) else _missing(module, name)


_BY_KEY = (program_class.__module__, program_class.__name__)


def _program_class(key: str) -> Any:
    try:
        return program_class(key)
    except NoSuchClass:
        module, _, name = key.partition(":")
        return _missing(module, name)


def _missing(module: str, name: str) -> type[MissingClass]:
    return type(name.rpartition(".")[2], (MissingClass,), {"class_name": f"{module}.{name}"})


def _is_defined_there(found: Any) -> bool:
    return isinstance(found, type) and found.__module__ == MAIN


@dataclass(frozen=True)
class UnreadablePickle:
    """Takes the place of an object that cannot be unpickled, for a reason that its own code has."""

    reason: str

    def __repr__(self) -> str:
        return f"<{self.reason}>"


def load(data: bytes) -> Any:
    """Return an object. A `MissingClass` takes the place of each part whose class cannot be imported."""
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except Exception as error:  # catches whatever a user's class raises when it is unpickled
        return UnreadablePickle(f"cannot be unpickled: {type(error).__name__}: {error}")


def class_of(value: Any) -> str:
    """Return the full name of an object's class, as its module has it."""
    if isinstance(value, MissingClass):
        return value.class_name
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class ReadablePickles(PickledType):
    """Describes pickles that are read with `load`."""

    def decode_column(self, array: pa.Array) -> list[Any]:
        return [None if data is None else load(data) for data in array.to_pylist()]


def readable(type: ColumnType) -> ColumnType:
    """Return the type with its pickles read with `load`."""
    match type:
        case PickledType():
            return ReadablePickles()
        case TupleType():
            return TupleType(tuple(map(readable, type.field_types)))
        case RowType():
            return RowType(tuple(map(readable, type.field_types)), type.field_names)
        case ListType():
            return ListType(readable(type.element_type), type.label)
        case MapType():
            return MapType(readable(type.key_type), readable(type.value_type))
    return type


def as_text(array: pa.Array, type: ColumnType) -> pa.Array:
    """Return a column with the text (`repr`) of each pickled object in place of its pickle."""
    return _converted(array, type, lambda pickles: pa.array(map(_text, pickles.to_pylist()), pa.string()))


def _text(data: bytes | None) -> str | None:
    return None if data is None else text_of(load(data))


def text_of(value: Any) -> str:
    """Return the text of an object, whose class may be the user's."""
    try:
        return repr(value)
    except Exception as error:  # catches whatever a user's __repr__ raises
        return f"<cannot be shown: {type(error).__name__}: {error}>"


def _converted(array: pa.Array, type: ColumnType, leaf: Callable[[pa.Array], pa.Array]) -> pa.Array:
    match type:
        case PickledType():
            return leaf(array)
        case TupleType() | RowType():
            columns = [_converted(c, t, leaf) for c, t in zip(array.flatten(), type.field_types)]
            mask = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(columns, names=list(type.field_names), mask=mask)
        case ListType():
            values = _converted(array.flatten(), type.element_type, leaf)
            return pa.ListArray.from_arrays(_offsets(array), values, mask=_mask(array))
        case MapType():
            start, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
            keys = _converted(array.keys.slice(start, end - start), type.key_type, leaf)
            items = _converted(array.items.slice(start, end - start), type.value_type, leaf)
            return pa.MapArray.from_arrays(_offsets(array), keys, items, mask=_mask(array))
    return array


def _offsets(array: pa.Array) -> pa.Array:
    numbers = array.offsets.to_numpy()
    return pa.array(numbers - numbers[0], pa.int32())


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
