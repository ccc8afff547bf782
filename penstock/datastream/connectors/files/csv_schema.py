"""The columns of CSV files, and the characters between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.common.columns import ColumnType
from penstock.common.composite_types import ListType, RowType
from penstock.common.scalar_types import BasicType, BigType
from penstock.common.types import Types


@dataclass(frozen=True)
class CsvSchema:
    """PyFlink's `CsvSchema`; made by `CsvSchema.builder()`, or `CsvSchema.of(row_type)` with the usual characters."""

    columns: tuple[tuple[str, ColumnType], ...]
    column_separator: str = ","
    array_separators: tuple[tuple[str, str], ...] = ()
    quote_char: str | None = '"'
    escape_char: str | None = None
    line_separator: str = "\n"
    null_value: str | None = None
    use_header: bool = False
    strict_headers: bool = False
    reorder_columns: bool = False
    skip_first_data_row: bool = False

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        return CsvSchemaBuilder()

    @staticmethod
    def of(row_type: RowType) -> CsvSchema:
        """A column per field of `Types.ROW_NAMED(...)`. Raises `TypeError` for fields that no text stands for."""
        builder = CsvSchemaBuilder()
        for name, column_type in zip(row_type.field_names, row_type.field_types, strict=True):
            if isinstance(column_type, ListType):
                builder.add_array_column(name, element_type=column_type.element_type)
            else:
                builder.add_column(name, column_type)
        return builder.build()

    @property
    def row_type(self) -> RowType:
        return RowType(tuple(kind for _, kind in self.columns), tuple(name for name, _ in self.columns))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.columns]

    def array_separator(self, name: str) -> str:
        return dict(self.array_separators)[name]

    def size(self) -> int:
        return len(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


class CsvSchemaBuilder:
    """PyFlink's `CsvSchemaBuilder`, and `add_column` for the types that PyFlink has no method for."""

    def __init__(self) -> None:
        self._columns: list[tuple[str, ColumnType]] = []
        self._separators: dict[str, str] = {}
        self._schema = CsvSchema(())

    def build(self) -> CsvSchema:
        """Raises `ValueError` where characters contradict each other, names repeat, or there is no column."""
        schema = replace(
            self._schema, columns=tuple(self._columns), array_separators=tuple(sorted(self._separators.items()))
        )
        _ = schema.row_type  # refuses repeated and reserved names
        characters = [schema.column_separator, schema.quote_char, schema.escape_char]
        given = [character for character in characters if character is not None]
        if len(set(given)) != len(given):
            raise ValueError(f"column separator, quote and escape character must differ, they are {given}")
        if schema.column_separator in self._separators.values():
            raise ValueError(f"the separator of array elements must not be the columns': {schema.column_separator!r}")
        if schema.reorder_columns and not schema.use_header:
            raise ValueError("set_reorder_columns() takes the order from the header: set_use_header(), too")
        return schema

    def add_column(self, name: str, column_type: ColumnType) -> CsvSchemaBuilder:
        """A column of a type whose values are one word of text: numbers, STRING, BOOLEAN, SQL_DATE ("2026-01-31"),
        SQL_TIME ("10:15:00.5"), SQL_TIMESTAMP ("2026-01-31 10:15:00.5"), bytes as they are."""
        if not isinstance(column_type, BasicType):
            raise TypeError(f"column {name!r}: no text of CSV stands for {column_type}; use a type such as STRING")
        self._columns.append((name, column_type))
        return self

    def add_array_column(self, name: str, separator: str = ";", element_type: Any = None) -> CsvSchemaBuilder:
        """A list, its elements of `element_type` (default STRING) with `separator` between them."""
        element = Types.STRING() if element_type is None else element_type
        if not isinstance(element, BasicType) or isinstance(element, BigType) or element == Types.SQL_TIME():
            raise TypeError(f"column {name!r}: elements of arrays are numbers, BOOLEAN, STRING or dates, not {element}")
        if not separator:
            raise ValueError(f"column {name!r}: the separator of array elements is empty")
        self._columns.append((name, Types.LIST(element)))
        self._separators[name] = separator
        return self

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        return self.add_column(name, Types.BOOLEAN())

    def add_number_column(self, name: str, number_type: Any = None) -> CsvSchemaBuilder:
        """
        :param number_type: `Types.LONG()` (the default), another whole number, `Types.DOUBLE()`, `Types.BIG_DEC()`...
        """
        return self.add_column(name, Types.LONG() if number_type is None else number_type)

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        return self.add_column(name, Types.STRING())

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        self._columns += schema.columns
        self._separators.update(schema.array_separators)
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        self._columns.clear()
        self._separators.clear()
        return self

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """For all array columns added so far."""
        self._separators = dict.fromkeys(self._separators, separator)
        return self

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        return self._set(column_separator=_one_byte("column separator", char))

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """A field that begins with it may hold separators and line breaks; it stands twice for itself. Default '"'."""
        return self._set(quote_char=_one_byte("quote char", char))

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """No field holds a line break then, so that several subtasks can read one file."""
        return self._set(quote_char=None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        return self._set(escape_char=_one_byte("escape char", char))

    def disable_escape_char(self) -> CsvSchemaBuilder:
        return self._set(escape_char=None)

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        r"""For writing: "\n" or "\r\n". Both are recognized in reading."""
        if separator not in ("\n", "\r\n"):
            raise ValueError(f"line separator {separator!r} is neither LF nor CR LF")
        return self._set(line_separator=separator)

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """The text that stands for null, where it is not quoted, in all columns. Where this is not set, an empty
        field is null, but in columns of STRING, where it is an empty string."""
        return self._set(null_value=null_value)

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Whether the first row of each file names its columns. In reading it is passed over, unless strict headers
        or the order of columns ask for more."""
        return self._set(use_header=use)

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """The names in the header must be those of the schema, in its order unless columns are reordered."""
        return self._set(strict_headers=strict)

    def set_reorder_columns(self, reorder: bool = True) -> CsvSchemaBuilder:
        """Columns are found by their names in the header; further ones of the file are left out."""
        return self._set(reorder_columns=reorder)

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        return self._set(skip_first_data_row=skip)

    def size(self) -> int:
        return len(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def _set(self, **settings: Any) -> CsvSchemaBuilder:
        self._schema = replace(self._schema, **settings)
        return self


def _one_byte(what: str, char: str) -> str:
    if len(char) != 1 or not char.isascii() or char in "\r\n":
        raise ValueError(f"the {what} must be a single ASCII character and no line break, got {char!r}")
    return char
