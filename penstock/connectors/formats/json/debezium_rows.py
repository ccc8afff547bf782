"""Reads messages that are change events of Debezium in JSON, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.row_types.change_rows import ChangeRowType
from penstock.common.row_types.composite_types import RowType
from penstock.common.row_types.row import RowKind
from penstock.common.row_types.scalar_types import STRING
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.formats.json.json_lines import JsonLinesFormat
from penstock.connectors.formats.json.json_rows import JsonRows
from penstock.connectors.messages.decoding import ColumnarDeserializationSchema, MessageDecoder, RefusedMessage

_OPERATIONS = ("c", "r", "u", "d")


class DebeziumJsonDeserializationSchema(ColumnarDeserializationSchema):
    """Reads Debezium's change events as rows of a kind: `row.get_row_kind()`.

    What is created, or read in a snapshot, is INSERT; an update is two rows, UPDATE_BEFORE and UPDATE_AFTER; what is
    deleted is DELETE. Records without a value, which follow deletes, are left out.

    Make it with `DebeziumJsonDeserializationSchema.builder()`.
    """

    def __init__(self, row_type: RowType, *, includes_schema: bool, ignores_parse_errors: bool) -> None:
        self._type = ChangeRowType(row_type)
        self._includes_schema = includes_schema
        self._ignores_parse_errors = ignores_parse_errors

    @staticmethod
    def builder() -> DebeziumJsonDeserializationSchemaBuilder:
        """Return a builder of the schema."""
        return DebeziumJsonDeserializationSchemaBuilder()

    def get_produced_type(self) -> TypeInformation:
        return self._type

    def deserialize(self, message: bytes) -> Any:
        """Read one event.

        Args:
            message: The JSON text, in UTF-8.

        Returns:
            A list of its rows, which are two for an update.

        Raises:
            ValueError: It is no such event.
        """
        try:
            return self._type.decode(self.message_decoder().decode([message]))
        except RefusedMessage as error:
            raise ValueError(str(error)) from error

    def message_decoder(self) -> MessageDecoder:
        """Return the decoder of whole batches."""
        return _ChangeEvents(self._type, self._includes_schema, self._ignores_parse_errors)


class DebeziumJsonDeserializationSchemaBuilder:
    """Builds a `DebeziumJsonDeserializationSchema`."""

    def __init__(self) -> None:
        self._row_type: TypeInformation | None = None
        self._includes_schema = self._ignores_parse_errors = False

    def type_info(self, type_info: TypeInformation) -> DebeziumJsonDeserializationSchemaBuilder:
        """Set the type of the rows of the table.

        Args:
            type_info: `Types.ROW_NAMED([names], [types])`, as Debezium's JSON has them: dates, times and decimals are
                numbers or strings there.
        """
        self._row_type = type_info
        return self

    def schema_include(self, schema_include: bool = True) -> DebeziumJsonDeserializationSchemaBuilder:
        """Expect the event in a field `payload`, next to its schema, as Kafka Connect writes it by default.

        Args:
            schema_include: True, if the converter's `schemas.enable` is.
        """
        self._includes_schema = schema_include
        return self

    def ignore_parse_errors(self) -> DebeziumJsonDeserializationSchemaBuilder:
        """Leave out messages that cannot be read, and count them. The default is that they fail the job."""
        self._ignores_parse_errors = True
        return self

    def build(self) -> DebeziumJsonDeserializationSchema:
        """Return the schema.

        Returns:
            The schema.

        Raises:
            TypeError: The type is not set, is no type of rows with names, or has a field that JSON cannot represent.
        """
        if not isinstance(self._row_type, RowType):
            raise TypeError(
                "change events need type_info(Types.ROW_NAMED([names], [types])) of their table, "
                f"got {'nothing' if self._row_type is None else self._row_type}"
            )
        JsonLinesFormat.for_schema(_envelope(self._row_type))  # refuses types that JSON cannot represent
        return DebeziumJsonDeserializationSchema(
            self._row_type, includes_schema=self._includes_schema, ignores_parse_errors=self._ignores_parse_errors
        )


def _envelope(row_type: RowType) -> RowType:
    return RowType((row_type, row_type, STRING), ("before", "after", "op"))


class _ChangeEvents(MessageDecoder):
    rows_per_message_max = 2

    def __init__(self, change_type: ChangeRowType, includes_schema: bool, skips_refused: bool) -> None:
        self._type = change_type
        envelope = _envelope(change_type.row_type)
        self._includes_schema = includes_schema
        self._events = JsonRows(RowType((envelope,), ("payload",)) if includes_schema else envelope, False, False)
        self.skips_refused = skips_refused

    @property
    def produced_type(self) -> ChangeRowType:
        return self._type

    def decode(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        events = self._events.decode(values)
        before, after, operations = events.column(0).flatten() if self._includes_schema else events.columns
        is_known = pc.is_in(operations, pa.array(_OPERATIONS))
        if not pc.all(is_known, min_count=0).as_py():
            other = operations.filter(pc.invert(is_known))[0].as_py()
            raise RefusedMessage("it is no change event: it has no op" if other is None else f"its op is {other!r}")
        updates, deletes = (pc.equal(operations, op).to_numpy(zero_copy_only=False) for op in "ud")
        if (before.is_null().to_numpy(zero_copy_only=False) & (updates | deletes)).any():
            raise RefusedMessage(
                "it has no before, so the rows that it ends are not known. The database must log whole rows "
                "(PostgreSQL: ALTER TABLE ... REPLICA IDENTITY FULL)"
            )
        if (after.is_null().to_numpy(zero_copy_only=False) & ~deletes).any():
            raise RefusedMessage("it has no after")
        return self._rows(before, after, updates, deletes)

    def _rows(
        self, before: pa.Array, after: pa.Array, updates: npt.NDArray[np.bool_], deletes: npt.NDArray[np.bool_]
    ) -> pa.RecordBatch:
        count = len(updates)
        message = np.repeat(np.arange(count), np.where(updates, 2, 1))
        is_second = np.concatenate(([False], message[1:] == message[:-1])) if count else np.zeros(0, bool)
        is_before = deletes[message] | (updates[message] & ~is_second)
        kinds = np.select(
            [deletes[message], updates[message] & ~is_second, is_second],
            [RowKind.DELETE.value, RowKind.UPDATE_BEFORE.value, RowKind.UPDATE_AFTER.value],
            RowKind.INSERT.value,
        )
        images = pa.concat_arrays([before, after]).take(pa.array(np.where(is_before, message, count + message)))
        return pa.RecordBatch.from_arrays([*images.flatten(), pa.array(kinds, pa.int8())], schema=self._type.schema)

    def messages_of(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        kinds = rows.column(rows.num_columns - 1).to_numpy()
        found: npt.NDArray[np.int64] = np.cumsum(kinds != RowKind.UPDATE_AFTER.value) - 1
        return found
