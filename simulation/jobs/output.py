"""Implements an exactly-once sink whose pending and committed output is in the world, with the order of commits.

Pending output is durable from `prepare_commit` on, and visible after the commit, as with `FileSink`.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.connectors.base import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.kafka.transactional_ids import TransactionalIds
from penstock.connectors.kafka.transactions import End
from penstock.operators.batches import row_type
from simulation.world import world_hooks
from simulation.world.transaction_broker import TransactionBroker
from simulation.world.world_hooks import Pending, Row


@dataclass
class Output:
    """Holds all output. `committed` holds names in the order of their first commit."""

    pending: dict[str, Pending] = field(default_factory=dict)
    committed: dict[str, None] = field(default_factory=dict)
    repeated: int = 0
    confirmed: set[str] = field(default_factory=set)
    """Holds what writers know to be committed for good."""
    broker: TransactionBroker = field(default_factory=TransactionBroker)

    def commit_transaction(self, name: str) -> str | None:
        """Commit a prepared transaction, as `KafkaCommitter` does. Returns what is wrong with it."""
        pending = self.pending[name]
        if pending.transaction is None:
            return None
        end, rows = self.broker.end(*pending.transaction, commits=True)
        if rows and rows != pending.rows:
            return f"the commit of {name} makes {len(rows)} rows of another transaction visible"
        if end is not End.DONE and name not in self.committed:
            return f"the transaction of {name} was aborted before its commit: {len(pending.rows)} rows lost"
        return None

    def of(self, sink: str) -> list[Pending]:
        return [self.pending[name] for name in self.committed if self.pending[name].sink == sink]


class WorldSink(Sink):
    """Writes to the world. `held_rows_max`: the number of rows that a writer keeps in its state, instead of preparing
    them at each barrier. `is_transactional`: each part is a transaction, as with `KafkaSink`.
    """

    def __init__(self, name: str, held_rows_max: int, is_transactional: bool = False) -> None:
        self.name = name
        self.held_rows_max = held_rows_max
        self.is_transactional = is_transactional

    def create_writer(self, context: WriterContext, restored: list[bytes]) -> SinkWriter:
        return (_TransactionalWriter if self.is_transactional else _Writer)(self, context, restored)

    def create_committer(self) -> Committer:
        return _Committer()


class _Writer(SinkWriter):
    def __init__(self, sink: WorldSink, context: WriterContext, restored: list[bytes]) -> None:
        self._sink = sink
        self._context = context
        self._type = row_type(context.input_type)
        self._rows: list[Row] = [tuple(row) for part in restored for row in pickle.loads(part)]
        self._is_finished = False
        self._parts = 0
        self._prepared: dict[str, int] = {}
        self._newest_checkpoint = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += self._type.decode(batch)

    def prepare_commit(self, checkpoint_id: int) -> list[bytes]:
        if checkpoint_id <= self._newest_checkpoint:
            world_hooks.current().violate(f"snapshot of {checkpoint_id} after that of {self._newest_checkpoint}")
        self._newest_checkpoint = checkpoint_id
        if not self._rows or (len(self._rows) <= self._sink.held_rows_max and not self._is_finished):
            return []
        self._parts += 1
        name = f"{self._sink.name}/{self._context.subtask}/{self._context.incarnation}/{checkpoint_id}-{self._parts}"
        world_hooks.current().prepare(name, self._pending(checkpoint_id))
        self._rows = []
        self._prepared[name] = checkpoint_id
        return [name.encode()]

    def _pending(self, checkpoint_id: int) -> Pending:
        return Pending(self._sink.name, self._context.subtask, self._rows)

    def snapshot(self) -> list[bytes]:
        return [pickle.dumps(self._rows)] if self._rows else []

    def commits_confirmed(self, checkpoint_id: int) -> None:
        for name in [name for name, prepared_for in self._prepared.items() if prepared_for <= checkpoint_id]:
            del self._prepared[name]
            world_hooks.current().confirm(name)

    def finish(self) -> None:
        self._is_finished = True


class _TransactionalWriter(_Writer):
    """Writes in transactions, with the ids that `KafkaSink` would use."""

    def __init__(self, sink: WorldSink, context: WriterContext, restored: list[bytes]) -> None:
        super().__init__(sink, context, restored)
        self._broker = world_hooks.current().broker()
        self._ids = TransactionalIds(f"{sink.name}-{context.incarnation}-{context.subtask}")
        self._open: tuple[str, int] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        super().write(batch)
        if self._open is None:
            name = self._ids.take()
            self._open = name, self._broker.start(name)
        self._broker.write(*self._open, self._type.decode(batch))

    def _pending(self, checkpoint_id: int) -> Pending:
        transaction, self._open = self._open, None
        assert transaction is not None
        self._ids.prepared(transaction[0], checkpoint_id)
        return Pending(self._sink.name, self._context.subtask, self._rows, transaction)

    def commits_confirmed(self, checkpoint_id: int) -> None:
        super().commits_confirmed(checkpoint_id)
        self._ids.commits_confirmed(checkpoint_id)


class _Committer(Committer):
    def commit(self, checkpoint_id: int, committables: list[bytes]) -> None:
        for name in committables:
            world_hooks.current().commit(name.decode())
