"""Rows on the driver's terminal."""

from __future__ import annotations

import pyarrow as pa

from penstock.common.scalar_types import PICKLED
from penstock.datastream.connectors.base import Sink, SinkWriter, WriterContext


class PrintSink(Sink):
    """Prints `str(row)` as Flink does: `identifier:subtask> row`, without what is not needed (the subtask at
    parallelism 1, the identifier where there is none). Subtasks are counted from 1. Rows are printed when they
    arrive, so a restart prints some of them again.
    """

    def __init__(self, identifier: str | None = None) -> None:
        self._identifier = identifier or ""

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return _PrintWriter(self._identifier, context)


class _PrintWriter(SinkWriter):
    def __init__(self, identifier: str, context: WriterContext) -> None:
        self._row_type = context.input_type or PICKLED
        self._emit = context.emit
        subtask = [str(context.subtask + 1)] if context.parallelism > 1 else []
        parts = ([identifier] if identifier else []) + subtask
        self._prefix = ":".join(parts) + "> " if parts else ""

    def write(self, batch: pa.RecordBatch) -> None:
        prefix = self._prefix
        text = "\n".join([f"{prefix}{row}" for row in self._row_type.decode(batch)])
        self._emit(text.split("\n"))
