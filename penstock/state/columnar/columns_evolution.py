"""Fits restored columnar state to the keys and aggregates that are declared now.

An aggregate is found by its name, and kept whole or not at all. One that was added begins, for the keys that there are,
as if all rows so far had had nulls. Keys stay, but for the width of whole numbers: equal numbers are one key.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.common.typeinfo import KEY_GROUP_COLUMN
from penstock.state.backend import StateSchemaError
from penstock.state.columnar.column_table import ValueColumn
from penstock.state.reading.declared_types import parse_columns

KEY_PREFIX, VALUE_PREFIX = "key.", "value."


class ColumnsEvolution:
    """Converts batches of stored columns to the declared ones."""

    def __init__(self, keys: pa.Schema, values: Sequence[ValueColumn]) -> None:
        self._keys = keys
        self._values = values

    def converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the declared columns."""
        names = batch.schema.names
        columns = self._key_columns(batch)
        fields = [f.with_name(KEY_PREFIX + f.name) for f in self._keys]
        for value in self._values:
            if VALUE_PREFIX + value.name in names:
                columns.append(batch.column(VALUE_PREFIX + value.name))
            else:
                columns.append(pa.array(np.full(batch.num_rows, value.initial_of_restored, value.dtype)))
            fields.append(pa.field(VALUE_PREFIX + value.name, columns[-1].type))
        return self._with_groups(batch, columns, fields)

    def converted_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of deleted keys as the declared ones."""
        return self._with_groups(
            batch, self._key_columns(batch), [f.with_name(KEY_PREFIX + f.name) for f in self._keys]
        )

    def _key_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(at).cast(field.type) for at, field in enumerate(self._keys)]

    @staticmethod
    def _with_groups(batch: pa.RecordBatch, columns: list[Any], fields: list[pa.Field]) -> pa.RecordBatch:
        groups = batch.schema.field(KEY_GROUP_COLUMN)
        return pa.RecordBatch.from_arrays(
            [*columns, batch.column(KEY_GROUP_COLUMN)], schema=pa.schema([*fields, groups])
        )


def columns_evolution(told: str, stored: str, keys: pa.Schema, values: Sequence[ValueColumn]) -> ColumnsEvolution:
    """Return the conversion of stored columns. `told`: the beginning of messages; `stored`: how they were declared.
    Raises `StateSchemaError` if they do not fit.
    """
    if (problem := _problem(parse_columns(stored), keys, values)) is not None:
        raise StateSchemaError(
            f"{told}: {problem}; aggregates may be added and removed. Declare the others as before, or give the "
            "operator another uid"
        )
    return ColumnsEvolution(keys, values)


def _problem(stored: pa.Schema, keys: pa.Schema, values: Sequence[ValueColumn]) -> str | None:
    old_keys = [f for f in stored if f.name.startswith(KEY_PREFIX)]
    old_names = [f.name.removeprefix(KEY_PREFIX) for f in old_keys]
    if old_names != keys.names:
        return f"the key was ({', '.join(old_names)}), and is ({', '.join(keys.names)})"
    for old, new in zip(old_keys, keys):
        if old.type != new.type and not _is_wider(old.type, new.type):
            return f"column '{new.name}' of the key was {old.type}, which cannot become {new.type}"
    before = _aggregates((f.name.removeprefix(VALUE_PREFIX), f.type) for f in stored if f.name.startswith(VALUE_PREFIX))
    now = _aggregates((v.name, pa.from_numpy_dtype(np.dtype(v.dtype))) for v in values)
    for name, parts in before.items():
        if name in now and parts != now[name]:
            return f"'{name}' was kept as {_told(parts)}, and is kept as {_told(now[name])}"
        if name not in now and "" in parts:
            return f"'{name}' was kept, and is not any more"
    return None


def _is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    return bool(kinds.is_signed_integer(old) and kinds.is_signed_integer(new) and old.bit_width < new.bit_width)


def _aggregates(columns: Any) -> dict[str, dict[str, pa.DataType]]:
    """Return the columns by aggregate and part; a column that belongs to none is one of its own, with the part ""."""
    found: dict[str, dict[str, pa.DataType]] = {}
    for name, type in columns:
        aggregate, _, part = name.rpartition(".")
        found.setdefault(aggregate or name, {})[part if aggregate else ""] = type
    return found


def _told(parts: dict[str, pa.DataType]) -> str:
    return ", ".join(f"{part} {type}".strip() for part, type in parts.items())
