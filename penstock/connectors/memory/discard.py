"""Discards rows."""

from __future__ import annotations

import pyarrow as pa

from penstock.connectors.base import Sink, SinkWriter, WriterContext


class DiscardingSink(Sink):
    """Takes every row and forgets it."""

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return _DiscardingWriter()


class _DiscardingWriter(SinkWriter):
    def write(self, batch: pa.RecordBatch) -> None:
        pass
