"""Writes rows as records of CSV: each column becomes a column of texts, and those are joined to records."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.row_types.composite_types import ListType
from penstock.connectors.base import SinkError
from penstock.connectors.formats.csv.csv_schema import CsvSchema

_SHOWN_BYTES = 100


class CsvTexts:
    """Writes batches in the columns of a schema. Each record ends with `line_delimiter`."""

    def __init__(self, schema: CsvSchema, line_delimiter: str) -> None:
        self._schema = schema
        self._line_delimiter = line_delimiter.encode()
        self._null = (schema.null_value or "").encode()
        given = (schema.column_separator, schema.quote_char, schema.escape_char, "\r", "\n")
        special = "".join(f"\\x{ord(c):02x}" for c in given if c is not None)
        self._special = f"[{special}]"

    def of(self, batch: pa.RecordBatch) -> list[bytes]:
        """Write a batch.

        Args:
            batch: The rows.

        Returns:
            A record for each.
        """
        fields = [self._field(name, batch.column(index)) for index, name in enumerate(self._schema.names)]
        records = pc.binary_join_element_wise(*fields, self._schema.column_separator.encode())
        if self._line_delimiter:
            records = pc.binary_join_element_wise(records, self._line_delimiter, b"")
        found: list[bytes] = records.to_pylist()
        return found

    def _field(self, name: str, column: pa.Array) -> pa.Array:
        kind = dict(self._schema.columns)[name]
        if isinstance(kind, ListType):
            column = pc.binary_join(column.cast(pa.list_(pa.string())), self._schema.array_separator(name))
        is_text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
        texts = column.cast(pa.binary() if is_text else pa.string()).cast(pa.binary())
        if is_text:
            texts = self._marked(name, texts)
        return pc.coalesce(texts, self._null)

    def _marked(self, name: str, texts: pa.Array) -> pa.Array:
        """Wrap texts in quotes, or escape them, if they would be read as something else."""
        schema = self._schema
        marks = pc.match_substring_regex(texts.cast(pa.large_binary()), self._special)
        if schema.quote_char is None:
            return texts if not pc.any(marks).as_py() else self._escaped(name, texts, marks)
        if schema.null_value is not None:
            marks = pc.or_(marks, pc.equal(texts, self._null))
        if len(schema) == 1:
            marks = pc.or_(marks, pc.equal(texts, b""))  # else the record would be an empty line
        if not pc.any(marks).as_py():
            return texts
        quote = schema.quote_char.encode()
        inside = texts
        if schema.escape_char is not None:
            escape = schema.escape_char.encode()
            inside = pc.replace_substring(inside, escape, 2 * escape)
        inside = pc.replace_substring(inside, quote, 2 * quote)
        return pc.if_else(marks, pc.binary_join_element_wise(quote, inside, quote, b""), texts)

    def _escaped(self, name: str, texts: pa.Array, marks: pa.Array) -> pa.Array:
        if self._schema.escape_char is None:
            first = texts.filter(marks)[0].as_py()[:_SHOWN_BYTES].decode(errors="replace")
            raise SinkError(
                f"field {name!r}: {first!r} cannot be written as CSV without quotes and escape characters: it contains "
                "a delimiter or a line break. Leave the quote character on, or set_escape_character(...)"
            )
        escape = self._schema.escape_char.encode()
        for char in (escape, self._schema.column_separator.encode(), b"\r", b"\n"):
            texts = pc.replace_substring(texts, char, escape + char)
        return texts
