"""Prints rows on the driver's terminal."""

from __future__ import annotations

import pyarrow as pa

from penstock.common.row_types.flink_text import printed
from penstock.common.row_types.scalar_types import PICKLED
from penstock.connectors.base import Sink, SinkWriter, WriterContext


class PrintSink(Sink):
    """Prints rows on the driver's terminal, in the text that PyFlink gives them (`flink_text.py`).

    A line is `identifier:subtask> row`. The subtask, counted from 1, is left out at parallelism 1, and the identifier
    if there is none. Rows are printed when they arrive, so a restart prints some of them again.
    """

    def __init__(self, identifier: str | None = None) -> None:
        self._identifier = identifier or ""

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return _PrintWriter(self._identifier, context)


class _PrintWriter(SinkWriter):
    def __init__(self, identifier: str, context: WriterContext) -> None:
        self._row_type = context.input_type or PICKLED
        self._text = printed(context.input_type)
        self._emit = context.emit
        subtask = [str(context.subtask + 1)] if context.parallelism > 1 else []
        parts = ([identifier] if identifier else []) + subtask
        self._prefix = ":".join(parts) + "> " if parts else ""

    def write(self, batch: pa.RecordBatch) -> None:
        prefix, text_of_row = self._prefix, self._text
        text = "\n".join([f"{prefix}{text_of_row(row)}" for row in self._row_type.decode(batch)])
        self._emit(text.split("\n"))
