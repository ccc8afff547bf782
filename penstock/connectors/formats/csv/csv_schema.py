"""Describes the columns of CSV files, and the characters between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.common.missing_names import AdvisesOnMissing
from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, RowType
from penstock.common.row_types.scalar_types import BasicType, BigType
from penstock.common.types import Types


@dataclass(frozen=True)
class CsvSchema:
    """Describes the columns of CSV files, and the characters between them.

    `CsvSchema.builder()` makes one; `CsvSchema.of(row_type)` makes one with the usual characters.
    """

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
        """Return a builder without columns."""
        return CsvSchemaBuilder()

    @staticmethod
    def of(row_type: RowType) -> CsvSchema:
        """Make the schema with a column for each field of a row type.

        Args:
            row_type: Made by `Types.ROW_NAMED`.

        Returns:
            The schema. Raises TypeError for a field whose values cannot be written as text.
        """
        builder = CsvSchemaBuilder()
        for name, column_type in zip(row_type.field_names, row_type.field_types, strict=True):
            if isinstance(column_type, ListType):
                builder.add_array_column(name, element_type=column_type.element_type)
            else:
                builder.add_column(name, column_type)
        return builder.build()

    @property
    def row_type(self) -> RowType:
        """Return the type of the rows."""
        return RowType(tuple(kind for _, kind in self.columns), tuple(name for name, _ in self.columns))

    @property
    def names(self) -> list[str]:
        """Return the names of the columns."""
        return [name for name, _ in self.columns]

    def array_separator(self, name: str) -> str:
        """Return the text between the elements of an array column.

        Args:
            name: The column.

        Returns:
            The separator.
        """
        return dict(self.array_separators)[name]

    def size(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


class CsvSchemaBuilder(AdvisesOnMissing):
    """Builds a `CsvSchema`. Every method returns the builder; `build()` ends.

    Example:
        CsvSchema.builder().add_string_column("user").add_number_column("amount").set_use_header().build()
    """

    def __init__(self) -> None:
        self._columns: list[tuple[str, ColumnType]] = []
        self._separators: dict[str, str] = {}
        self._schema = CsvSchema(())

    def build(self) -> CsvSchema:
        """Return the schema.

        Raises:
            ValueError: Characters contradict each other, names repeat, or there is no column.
        """
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
        """Add a column of a type whose values are one word of text.

        These are numbers, STRING, BOOLEAN, SQL_DATE ("2026-01-31"), SQL_TIME ("10:15:00.5"), SQL_TIMESTAMP ("2026-01-31
        10:15:00.5"), and bytes as they are.

        Args:
            name: The name of the column.
            column_type: The type of its values.

        Raises:
            TypeError: Values of the type are no word of text.
        """
        if not isinstance(column_type, BasicType):
            raise TypeError(f"column {name!r}: no text of CSV stands for {column_type}; use a type such as STRING")
        self._columns.append((name, column_type))
        return self

    def add_array_column(self, name: str, separator: str = ";", element_type: Any = None) -> CsvSchemaBuilder:
        """Add a column of lists.

        Args:
            name: The name of the column.
            separator: The text between two elements.
            element_type: The type of an element: a number, BOOLEAN, STRING or date. None: STRING.

        Raises:
            TypeError: The elements are of another type.
            ValueError: The separator is empty.
        """
        element = Types.STRING() if element_type is None else element_type
        if not isinstance(element, BasicType) or isinstance(element, BigType) or element == Types.SQL_TIME():
            raise TypeError(f"column {name!r}: elements of arrays are numbers, BOOLEAN, STRING or dates, not {element}")
        if not separator:
            raise ValueError(f"column {name!r}: the separator of array elements is empty")
        self._columns.append((name, Types.LIST(element)))
        self._separators[name] = separator
        return self

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of booleans.

        Args:
            name: The name of the column.

        Returns:
            This builder.
        """
        return self.add_column(name, Types.BOOLEAN())

    def add_number_column(self, name: str, number_type: Any = None) -> CsvSchemaBuilder:
        """Add a column of numbers.

        Args:
            name: The name of the column.
            number_type: A type such as `Types.DOUBLE()` or `Types.BIG_DEC()`. None: LONG.

        Returns:
            This builder.
        """
        return self.add_column(name, Types.LONG() if number_type is None else number_type)

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of strings.

        Args:
            name: The name of the column.

        Returns:
            This builder.
        """
        return self.add_column(name, Types.STRING())

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """Add all columns of another schema.

        Args:
            schema: The schema.
        """
        self._columns += schema.columns
        self._separators.update(schema.array_separators)
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Remove all columns."""
        self._columns.clear()
        self._separators.clear()
        return self

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the text between two elements, of all array columns added so far.

        Args:
            separator: The text.
        """
        self._separators = dict.fromkeys(self._separators, separator)
        return self

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """Set the character between two fields. The default is a comma.

        Args:
            char: An ASCII character. Raises ValueError for another.

        Returns:
            This builder.
        """
        return self._set(column_separator=_one_byte("column separator", char))

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character around fields that may contain separators and line breaks. Written twice it means itself.

        Args:
            char: An ASCII character; the default is '"'. Raises ValueError for another.

        Returns:
            This builder.
        """
        return self._set(quote_char=_one_byte("quote char", char))

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Take quotes as text. Then no field contains a line break, so several subtasks can read one file."""
        return self._set(quote_char=None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character that takes the meaning from the one behind it. By default there is none.

        Args:
            char: An ASCII character. Raises ValueError for another.

        Returns:
            This builder.
        """
        return self._set(escape_char=_one_byte("escape char", char))

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """Take escape characters as text, the default."""
        return self._set(escape_char=None)

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the line end to write: LF (the default) or CR LF. Both are recognized in reading.

        Args:
            separator: The line end.

        Returns:
            This builder.

        Raises:
            ValueError: It is neither.
        """
        if separator not in ("\n", "\r\n"):
            raise ValueError(f"line separator {separator!r} is neither LF nor CR LF")
        return self._set(line_separator=separator)

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """Set the text that means null in all columns, unless it is quoted.

        By default an empty field is null, except in columns of STRING, where it is an empty string.

        Args:
            null_value: The text.

        Returns:
            This builder.
        """
        return self._set(null_value=null_value)

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Expect, or write, the names of the columns in the first row of each file.

        In reading it is skipped, unless `set_strict_headers` or `set_reorder_columns` use it.

        Args:
            use: False: there is no header, the default.

        Returns:
            This builder.
        """
        return self._set(use_header=use)

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Require that the header has the names of the schema only, in its order unless columns are reordered.

        Args:
            strict: False: the header is not compared, the default.

        Returns:
            This builder.
        """
        return self._set(strict_headers=strict)

    def set_reorder_columns(self, reorder: bool = True) -> CsvSchemaBuilder:
        """Find columns by their names in the header; others of the file are skipped.

        Args:
            reorder: False: columns have the order of the schema, the default.

        Returns:
            This builder.
        """
        return self._set(reorder_columns=reorder)

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Skip the first row behind the header.

        Args:
            skip: False: it is read, the default.

        Returns:
            This builder.
        """
        return self._set(skip_first_data_row=skip)

    def size(self) -> int:
        """Return the number of columns so far."""
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
