"""Runs any sink under the interruptions that it must survive.

A sink is written over several checkpoints, and its writers and committer are killed at every point between writing
and the second commit of the same thing. What can be read at the end must be what was written, exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Callable, Sequence

import cloudpickle
import pyarrow as pa

from penstock.common.row_types.scalar_types import PICKLED
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.connectors.testing._compared_rows import assert_same_rows


class Kill(Enum):
    """Names the moments at which the processes of a sink's writers and committer end without warning."""

    WRITING = "after some rows, before the next barrier"
    PREPARED = "after prepare_commit, before the log entry: the checkpoint never was"
    LOGGED = "after the log entry, before any commit"
    COMMITTING = "after the first of several commits"
    COMMITTED = "after the commit, which recovery repeats"


@dataclass
class SinkRun:
    """Runs writers, committer and a log in one thread.

    `batches[n]` is written between checkpoints n and n + 1, dealt out to the subtasks in turn. Every kill starts the
    next generation from the newest checkpoint of the log.
    """

    sink: Sink
    batches: Sequence[pa.RecordBatch]
    input_type: TypeInformation | None
    parallelism: int = 1
    checkpointing: bool = True
    job_id: str = "job"
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._generation = 0
        self._next_batch = 0
        self._writer_states: list[list[bytes]] = [[] for _ in range(self.parallelism)]
        self._restored_batch = 0
        self._checkpoint_id = 0
        self._newest: list[bytes] = []
        self._newest_id = self._confirmed_id = 0
        self._unconfirmed: list[bytes] = []
        self._dead: list[SinkWriter] = []
        self.sink.validate(self.input_type)
        self._start()

    def checkpoint(self, kill: Kill | None = None, *, is_given_up: bool = False, is_stop: bool = False) -> None:
        """Write the next batch and take a checkpoint.

        Args:
            kill: When all processes are killed; None: they are not.
            is_given_up: True: the checkpoint is aborted while the job continues; its committables go with the next one.
            is_stop: True: it is the savepoint that a job stops with.
        """
        if self._next_batch < len(self.batches):
            self._write(self.batches[self._next_batch])
            self._next_batch += 1
        if kill is Kill.WRITING:
            self._restart()
            return
        self._checkpoint_id += 1
        for writer in self._writers if is_stop else ():
            writer.before_stop()
        prepared = [c for w in self._writers for c in w.prepare_commit(self._checkpoint_id)]
        committables = self._unconfirmed + prepared
        states = [writer.snapshot() for writer in self._writers]
        if kill is Kill.PREPARED:
            self._restart()
            return
        self._unconfirmed = committables if is_given_up else []
        if is_given_up:
            return
        self._newest, self._writer_states, self._restored_batch = committables, states, self._next_batch
        self._newest_id = self._checkpoint_id
        if self._confirmed_id:
            for writer in self._writers:
                writer.commits_confirmed(self._confirmed_id)
        if kill is Kill.LOGGED:
            self._restart()
            return
        if kill is Kill.COMMITTING:
            self._commit(committables[:1])
            self._restart()
            return
        self._commit(committables)
        self._confirmed_id = self._newest_id
        if kill is Kill.COMMITTED:
            self._restart()

    def finish(self) -> None:
        """Write the remaining rows, take the final checkpoint, and end as a job does."""
        if self.checkpointing:
            while self._next_batch < len(self.batches):
                self.checkpoint()
        else:
            for batch in self.batches[self._next_batch :]:
                self._write(batch)
            self._next_batch = len(self.batches)
        for writer in self._writers:
            writer.finish()
        self.checkpoint()
        for writer in self._writers:
            writer.close()

    def _start(self) -> None:
        self._generation += 1
        sink = cloudpickle.loads(cloudpickle.dumps(self.sink))
        self._committer = self.sink.create_committer()
        self._writers = [
            sink.create_writer(self._context(subtask), self._writer_states[subtask])
            for subtask in range(self.parallelism)
        ]

    def _restart(self) -> None:
        # Kept from the garbage collector: a killed process does not close its files.
        self._dead += self._writers
        self._next_batch = self._restored_batch
        self._unconfirmed = []
        self._start()
        self._commit(self._newest)
        self._confirmed_id = self._newest_id

    def _commit(self, committables: list[bytes]) -> None:
        if self._committer is not None:
            self._committer.commit(self._newest_id, committables)

    def _write(self, batch: pa.RecordBatch) -> None:
        for subtask, writer in enumerate(self._writers):
            part = batch.take(pa.array(range(subtask, batch.num_rows, self.parallelism), pa.int64()))
            if part.num_rows:
                writer.write(part)

    def _context(self, subtask: int) -> WriterContext:
        return WriterContext(
            subtask=subtask,
            parallelism=self.parallelism,
            operator_name="sink",
            operator_uid="0123456789abcdef0123456789abcdef",
            incarnation=f"test.{self._generation}",
            checkpointing=self.checkpointing,
            input_type=self.input_type,
            emit=self.lines.extend,
            job_id=self.job_id,
            generation=(1, self._generation),
            pending=tuple(self._newest),
        )


def verify_sink(
    make_sink: Callable[[], tuple[Sink, Callable[[], Sequence[Any]]]],
    rows: Sequence[Sequence[Any]],
    input_type: TypeInformation | None,
    parallelism: int = 1,
) -> None:
    """Check that an exactly-once sink shows every row once, through every kill at, and the loss of, every checkpoint.

    Raises AssertionError, which names the case and the difference.

    Args:
        make_sink: Makes a new sink, and a function that reads what it has made visible.
        rows: What is written between two checkpoints, for each of them.
        input_type: The type of the rows; None: they are pickled.
        parallelism: The number of writers.
    """
    row_type = input_type or PICKLED
    batches = [pa.RecordBatch.from_arrays(row_type.encode(part), schema=row_type.schema) for part in rows]
    written = [row for part in rows for row in part]
    for at in range(len(batches)):
        sink, visible = make_sink()
        run = SinkRun(sink, batches, input_type, parallelism)
        for checkpoint in range(len(batches)):
            run.checkpoint(is_given_up=checkpoint == at)
        run.finish()
        assert_same_rows(visible(), written, f"parallelism {parallelism}, checkpoint {at} given up")
    for kill in (None, *Kill):
        for at in range(len(batches)) if kill else (0,):
            sink, visible = make_sink()
            run = SinkRun(sink, batches, input_type, parallelism)
            for checkpoint in range(len(batches)):
                run.checkpoint(kill if checkpoint == at else None)
            run.finish()
            label = f"parallelism {parallelism}, killed {kill.value} at checkpoint {at}" if kill else "undisturbed"
            assert_same_rows(visible(), written, label)
