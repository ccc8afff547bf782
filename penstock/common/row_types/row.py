"""Defines Row and RowKind."""

from __future__ import annotations

from enum import Enum
from typing import Any, Iterator


class RowKind(Enum):
    """Names the kinds of change that a row may be. Streams of change events carry all, other streams only INSERT."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return {"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}[self.name]


class Row:
    """Holds the fields of a row, which may have names.

    Fields are read and changed by position (`row[0]`), by name (`row["id"]`) or as attributes (`row.id`).

    Example:
        Row(1, "a")
        Row(id=1, name="a")
        Person = Row("id", "name"); Person(1, "a")
    """

    __slots__ = ("_fields", "_values", "_row_kind")
    _fields: tuple[str, ...] | None
    _values: list[Any]
    _row_kind: RowKind

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not kwargs:
            _set_fields(self, None)
            _set_values(self, [*args])
        elif not args:
            _set_fields(self, tuple(kwargs))
            _set_values(self, [*kwargs.values()])
        else:
            raise ValueError("Can not use both args and kwargs to create Row")
        _set_row_kind(self, _INSERT)

    @classmethod
    def of_kind(cls, row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """Make a row of a kind.

        Args:
            row_kind: The kind.
            args: The values of the fields, by position; or
            kwargs: the values by name.

        Returns:
            The row.
        """
        row = cls(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    @classmethod
    def of_fields(cls, names: tuple[str, ...] | None, values: Any) -> Row:
        """Make a row of the names and values of its fields.

        Args:
            names: The names, or None. They are not checked against the number of values.
            values: An iterable of the values.

        Returns:
            The row.
        """
        row = cls.__new__(cls)
        _set_fields(row, names)
        _set_values(row, [*values])
        _set_row_kind(row, _INSERT)
        return row

    def __call__(self, *args: Any) -> Row:
        """Return a row with this one's values as its field names."""
        if len(args) > len(self._values):
            raise ValueError(
                f"Can not create Row with fields {self._values}, expected {len(self._values)} values but got {args}"
            )
        if not all(isinstance(name, str) for name in self._values):
            raise TypeError("a Row that is called holds field names, which are strings")
        return Row.of_fields(tuple(self._values), args)

    def get_row_kind(self) -> RowKind:
        """Return the kind of the row."""
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Set the kind of the row.

        Args:
            row_kind: The kind.
        """
        _set_row_kind(self, row_kind)

    def get_field_names(self) -> tuple[str, ...] | None:
        """Return the names of the fields, or None."""
        return self._fields

    def set_field_names(self, field_names: list[str] | tuple[str, ...]) -> None:
        """Name the fields.

        Args:
            field_names: A name for each field.

        Raises:
            ValueError: There are more or fewer names than fields.
        """
        if len(field_names) != len(self._values):
            raise ValueError(f"{len(field_names)} names for {len(self._values)} fields")
        _set_fields(self, tuple(field_names))

    def get_fields_by_names(self, names: list[str] | tuple[str, ...]) -> list[Any]:
        """Return the values of some fields, in the order of their names.

        Args:
            names: The names. A row without names gives all its values.

        Returns:
            The values.

        Raises:
            KeyError: A field is missing.
        """
        return list(self._values) if self._fields is None else [self[name] for name in names]

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the values of the fields as a tuple."""
        return tuple(self._values)

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the values of the fields by name.

        Args:
            recursive: True: nested named rows become dicts, too, also in lists and dicts.

        Returns:
            The dict.

        Raises:
            TypeError: The row has no field names.
        """
        if self._fields is None:
            raise TypeError("Cannot convert a Row without field names to a dict")

        def plain(value: Any) -> Any:
            if isinstance(value, Row) and value._fields is not None:
                return value.as_dict(True)
            if isinstance(value, list):
                return [plain(v) for v in value]
            if isinstance(value, dict):
                return {k: plain(v) for k, v in value.items()}
            return value

        return {n: plain(v) if recursive else v for n, v in zip(self._fields, self._values)}

    def _index(self, name: str) -> int:
        try:
            return (self._fields or ()).index(name)
        except ValueError:
            raise KeyError(self._missing(name)) from None

    def _missing(self, name: str) -> str:
        known = ", ".join(self._fields) if self._fields else "it has no field names"
        return f"no field {name!r} in this Row ({known})"

    def __getitem__(self, item: int | slice | str) -> Any:
        return self._values[self._index(item) if isinstance(item, str) else item]

    def __setitem__(self, item: int | str, value: Any) -> None:
        self._values[self._index(item) if isinstance(item, str) else item] = value

    def __getattr__(self, name: str) -> Any:
        if name == "_fields":  # a Row that is being made has none yet
            raise AttributeError(name)
        try:
            return self._values[self._fields.index(name)]  # type: ignore[union-attr]
        except (ValueError, AttributeError):
            if name.startswith("_"):
                raise AttributeError(name) from None
            raise AttributeError(self._missing(name)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            self._values[self._index(name)] = value
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, item: Any) -> bool:
        """Return whether there is a field of this name; in a Row without names, whether a field has this value."""
        return item in (self._values if self._fields is None else self._fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row) or self._row_kind is not other._row_kind:
            return False
        if self._fields and other._fields and self._fields != other._fields:
            return False
        return self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(self._values))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._fields, tuple(self._values), self._row_kind)

    def __repr__(self) -> str:
        if self._fields:
            return f"Row({', '.join(f'{n}={v!r}' for n, v in zip(self._fields, self._values))})"
        return f"<Row({', '.join(map(repr, self._values))})>"


# Slots are set by their descriptors: a Row's own __setattr__ sets fields, and a stream makes many Rows.
_set_fields = vars(Row)["_fields"].__set__
_set_values = vars(Row)["_values"].__set__
_set_row_kind = vars(Row)["_row_kind"].__set__
_INSERT = RowKind.INSERT


def _restored(fields: tuple[str, ...] | None, values: tuple[Any, ...], kind: RowKind) -> Row:
    row = Row.of_fields(fields, values)
    row.set_row_kind(kind)
    return row
