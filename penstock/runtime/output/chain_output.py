"""Sends a chain's output to the writer of its sink, or to the output edges of its main and side outputs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.common.clock import Clock
from penstock.common.program.failures import OperatorFailure
from penstock.connectors.base import SinkWriter
from penstock.graph.job_graph import Operator
from penstock.operators.batches import with_timestamps, without_timestamps
from penstock.protocol.values.elements import InBandEvent
from penstock.protocol.values.metadata import Committable, OperatorPart
from penstock.runtime.output.result_partition import ResultPartition


class ChainOutput:
    """Takes a chain's output. `operator` is the chain's last one; `writer` is the sink's, if it is one."""

    def __init__(
        self,
        operator: Operator,
        partitions: list[ResultPartition],
        writer: SinkWriter | None,
        overdraft_bytes_max: int,
        clock: Clock,
    ) -> None:
        self.partitions = partitions
        self.writer = writer
        self.is_finished = False
        self.rows = self.emitted_bytes = self.overdraft_bytes = 0
        self._operator = operator
        self._overdraft_bytes_max = overdraft_bytes_max
        self._clock = clock
        self._by_tag: dict[str | None, list[ResultPartition]] = {}
        for partition in partitions:
            self._by_tag.setdefault(partition.edge.side_output, []).append(partition)
        self._unpublished: list[Committable] = []

    # ---- rows and events ----------------------------------------------------------------------------------------

    def emit(self, batch: pa.RecordBatch, rows: list[Any] | None, tag: str | None = None) -> None:
        """Emit a batch. `rows`: its rows as Python objects, if they exist already; `tag`: the id of a side output."""
        if not batch.num_rows:
            return
        if tag is None:
            self.rows += batch.num_rows
            if self.writer is not None:
                try:
                    self.writer.write(without_timestamps(batch))
                except Exception as error:
                    raise OperatorFailure(self._operator.name, error) from error
        partitions = self._by_tag.get(tag)
        if partitions is not None:
            # A batch that a chain of row functions has just encoded shares no buffers; `nbytes` takes far longer.
            batch_bytes = batch.nbytes if rows is None else batch.get_total_buffer_size()
            now_ms = self._clock.monotonic_ms()
            self.emitted_bytes += max([p.emit(batch, rows, now_ms, batch_bytes) for p in partitions])

    def emit_rejected(self, batch: pa.RecordBatch, tag: str | None) -> None:
        """Emit rows that a source could not read; they have no event time."""
        if tag is not None:
            self.emit(with_timestamps(batch, None) if self._operator.timestamped else batch, None, tag)

    def emit_event(self, event: InBandEvent) -> None:
        for partition in self.partitions:
            partition.emit_event(event)

    # ---- room ---------------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        return False not in [p.has_room for p in self.partitions]

    def may_overdraw(self) -> bool:
        self.overdraft_bytes = max(self.overdraft_bytes, self.queued_bytes)
        return all(p.queued_bytes < self._overdraft_bytes_max for p in self.partitions)

    @property
    def room_bytes(self) -> int:
        return min((p.room_bytes for p in self.partitions), default=1 << 30)

    @property
    def queued_bytes(self) -> int:
        return sum(p.queued_bytes for p in self.partitions)

    @property
    def bytes_out(self) -> int:
        return sum(p.bytes_out for p in self.partitions)

    def resize(self, now_ms: float) -> bool:
        """Return whether any queue's bound has grown."""
        grown = [partition.resize(now_ms) for partition in self.partitions]
        return any(grown)

    def flush(self, now_ms: float, idle: bool) -> float | None:
        """Send the rows that may leave; return the latest time to call again (None: nothing waits for time)."""
        next_ms: float | None = None
        for partition in self.partitions:
            due_ms = partition.flush(now_ms, idle)
            if due_ms is not None and (next_ms is None or due_ms < next_ms):
                next_ms = due_ms
        return next_ms

    # ---- the sink's writer --------------------------------------------------------------------------------------

    def prepare_commit(self, checkpoint_id: int, is_stop: bool) -> list[Committable]:
        """Return the committables of rows written since the last call, and those of checkpoints that were given up: the
        next one that is published commits it. `is_stop`: for the savepoint that the job stops with.
        """
        if self.writer is None:
            return []
        try:
            if is_stop:
                self.writer.before_stop()
            prepared = self.writer.prepare_commit(checkpoint_id)
        except Exception as error:
            raise OperatorFailure(self._operator.name, error) from error
        self._unpublished += [Committable(self._operator.uid, data, checkpoint_id) for data in prepared]
        return list(self._unpublished)

    def parts(self) -> list[OperatorPart]:
        """Return the writer's parts of a snapshot."""
        items = self.writer.snapshot() if self.writer is not None else []
        return [OperatorPart(self._operator.uid, "writer", items)] if items else []

    def on_published(self, checkpoint_id: int, confirmed: int = 0) -> None:
        """Note that a checkpoint is canonical, and that the commits up to `confirmed` are never repeated."""
        self._unpublished = [c for c in self._unpublished if c.prepared_for > checkpoint_id]
        if self.writer is not None and confirmed > 0:
            try:
                self.writer.commits_confirmed(confirmed)
            except Exception as error:
                raise OperatorFailure(self._operator.name, error) from error

    def finish(self) -> None:
        """Finish the output: the chain's data has ended, and the writer sees nothing more except barriers."""
        self.is_finished = True
        if self.writer is not None:
            try:
                self.writer.finish()
            except Exception as error:
                raise OperatorFailure(self._operator.name, error) from error

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
