"""Collects the rows of a stream under test, and takes back those that a restart emits again."""

from __future__ import annotations

import uuid
from typing import Any, Iterable

import pyarrow as pa

from penstock.common.row_types.scalar_types import PICKLED
from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.datastream.functions import ProcessFunction


class SeenRows:
    """Holds the rows of one stream in the order in which they came, with their timestamps."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.rows: list[tuple[Any, int | None]] = []
        self._rows_at: dict[int, int] = {}
        """The number of rows that came before the barrier of each checkpoint."""
        _SEEN[self.id] = self

    def cut(self, checkpoint_id: int) -> None:
        """Note that a checkpoint lies behind the rows that have come."""
        self._rows_at[checkpoint_id] = len(self.rows)

    def go_back_to(self, checkpoint_id: int | None) -> None:
        """Drop the rows behind a checkpoint; None: all."""
        del self.rows[0 if checkpoint_id is None else self._rows_at[checkpoint_id] :]

    def close(self) -> None:
        """Let the rows be forgotten."""
        _SEEN.pop(self.id, None)


_SEEN: dict[str, SeenRows] = {}
"""Sinks are pickled with the job, so they find their rows by id."""


class SeenSink(Sink):
    """Writes rows with their timestamps to `SeenRows`, in one subtask."""

    def __init__(self, seen: str) -> None:
        self._seen = seen

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return _SeenWriter(_SEEN[self._seen])


class _SeenWriter(SinkWriter):
    def __init__(self, seen: SeenRows) -> None:
        self._seen = seen

    def write(self, batch: pa.RecordBatch) -> None:
        self._seen.rows += PICKLED.decode(batch)

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        self._seen.cut(checkpoint_id)
        return []


class WithTimestamp(ProcessFunction):
    """Emits each row with its timestamp."""

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield (value, ctx.timestamp())
