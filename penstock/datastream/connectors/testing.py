"""Runs any source or sink under the interruptions that it must survive.

A source is read with snapshot, loss and restore at every pause: after every read a snapshot is taken, some more is
read, everything is discarded as by a killed process, and new readers continue from the snapshot. Every row
must come exactly once, whatever `rows_max` is, and the rows of each split in their order and under the same split id.

A sink is written over several checkpoints, and its writers and committer are killed at every point between writing
and the second commit of the same thing. What can be read at the end must be what was written, exactly once.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Callable, Iterable, Sequence

import cloudpickle
import pyarrow as pa

from penstock.common.scalar_types import PICKLED
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connectors.base import (
    NotReady,
    ReaderContext,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    WriterContext,
)

_IDLE_ROUNDS_MAX = 100_000
_WAIT_S_MAX = 0.001


@dataclass
class SourceSnapshot:
    """Holds what a checkpoint keeps of a source: the enumerator's state, and the splits of every reader."""

    enumerator: bytes
    readers: list[list[bytes]]


class SourceRun:
    """Runs one attempt to read a source: all readers in one thread, in turn. Each has a pickled copy."""

    def __init__(self, source: Source, parallelism: int = 1, restored: SourceSnapshot | None = None) -> None:
        self._row_type = source.produced_type or PICKLED
        self._enumerator = source.create_enumerator(parallelism, restored.enumerator if restored else None)
        pickled = cloudpickle.dumps(source)
        self._readers: list[SourceReader] = []
        for subtask in range(parallelism):
            reader = cloudpickle.loads(pickled).create_reader(ReaderContext(subtask, parallelism, "source"))
            if restored is not None and restored.readers[subtask]:
                reader.add_splits(list(restored.readers[subtask]))
            self._readers.append(reader)
        if self._enumerator.discovers:
            for subtask, splits in self._enumerator.on_discovered(self._enumerator.discover()).items():
                self._readers[subtask].add_splits(splits)
        self._running = set(range(parallelism))
        self._turn = 0
        self.current_split = ""
        """The id of the split that the last batch came from."""
        self.finished_splits: set[str] = set()
        """The ids of all splits that readers have reported as finished."""
        self.rejected: list[Any] = []
        """The rows that readers have handed out for the side output of what cannot be read."""
        self._rejected_type = source.rejected_type

    def read(self, rows_max: int) -> tuple[int, list[Any]] | None:
        """Read the next batch.

        Args:
            rows_max: The largest number of rows.

        Returns:
            The subtask that read it, and its rows; None at the end of all input.

        Raises:
            AssertionError: A reader breaks a rule of `SourceReader.read`.
        """
        for _ in range(_IDLE_ROUNDS_MAX):
            if not self._running:
                return None
            subtask = self._turn
            self._turn = (self._turn + 1) % len(self._readers)
            if subtask not in self._running:
                continue
            reader = self._readers[subtask]
            batch = reader.read(rows_max)
            self._gather_rejected(reader)
            if isinstance(batch, pa.RecordBatch):
                self.current_split = reader.current_split
                assert self.current_split not in self.finished_splits, f"rows of {self.current_split} after its end"
            self.finished_splits.update(reader.finished_splits())
            if batch is None:
                self._running.discard(subtask)
            elif isinstance(batch, NotReady):
                if batch.wait_ms is None:
                    self._ask_for_splits(subtask)
                elif batch.wait_ms > 0:
                    time.sleep(min(batch.wait_ms / 1000, _WAIT_S_MAX))  # a server's answer is on its way
            else:
                assert 1 <= batch.num_rows <= rows_max, f"read({rows_max}) returned {batch.num_rows} rows"
                names = self._row_type.schema.names
                assert batch.schema.names[: len(names)] == names, f"columns {batch.schema.names} for {self._row_type}"
                return subtask, self._row_type.decode(batch)
        raise AssertionError(f"no reader returned a row or its end in {_IDLE_ROUNDS_MAX} calls")

    def snapshot(self) -> SourceSnapshot:
        """Take a snapshot of the enumerator and all readers."""
        return SourceSnapshot(self._enumerator.snapshot(), [reader.snapshot() for reader in self._readers])

    def close(self) -> None:
        """Close all readers."""
        for reader in self._readers:
            reader.close()

    @property
    def skipped_rows(self) -> int:
        """Return how many rows the readers have left out because they could not be read."""
        return sum(reader.skipped_rows for reader in self._readers)

    def _gather_rejected(self, reader: SourceReader) -> None:
        rejected = reader.take_rejected()
        if rejected is not None:
            assert self._rejected_type is not None, "rejected rows of a source without a type for them"
            self.rejected += self._rejected_type.decode(rejected)

    def _ask_for_splits(self, subtask: int) -> None:
        splits = self._enumerator.next_splits(subtask)
        if splits is None:
            self._readers[subtask].no_more_splits()
        elif splits:
            self._readers[subtask].add_splits(splits)


def read_all(source: Source, parallelism: int = 1, rows_max: int = 1000) -> list[Any]:
    """Read all rows of a bounded source, undisturbed.

    Args:
        source: The source.
        parallelism: The number of readers.
        rows_max: The largest number of rows of a batch.

    Returns:
        The rows.
    """
    run, rows = SourceRun(source, parallelism), []
    try:
        while (found := run.read(rows_max)) is not None:
            rows += found[1]
    finally:
        run.close()
    return rows


def verify_source(
    source: Source,
    expected: Sequence[Any],
    parallelism: int = 1,
    rows_max: Iterable[int] = (1, 3, 1000),
    reads_lost: Iterable[int] = (0, 1, 4),
) -> None:
    """Check that every row of a bounded source comes exactly once through a restore at every pause.

    The order must be that of `expected` at parallelism 1, and per split that of an undisturbed reading. Rejected rows
    must come exactly once, too. Raises AssertionError, which names the case and the first difference.

    Args:
        source: The source.
        expected: Its rows.
        parallelism: The number of readers.
        rows_max: Largest numbers of rows of a batch; each is tried.
        reads_lost: Numbers of reads that a kill takes back; each is tried.
    """
    source.validate()
    undisturbed = _read_with_restores(source, parallelism, 1000, None)
    for limit in rows_max:
        for lost in reads_lost:
            reading = _read_with_restores(source, parallelism, limit, lost)
            rows = reading.rows
            label = f"parallelism {parallelism}, rows_max {limit}, {lost} reads lost per restore"
            if parallelism == 1:
                assert rows == list(expected), f"{label}: {_first_difference(rows, list(expected))}"
            _assert_same_rows(rows, expected, label)
            _assert_same_rows(reading.rejected, undisturbed.rejected, f"{label}, rejected rows")
            assert reading.splits.keys() == undisturbed.splits.keys(), f"{label}: splits changed their ids"
            for split, found in reading.splits.items():
                assert found == undisturbed.splits[split], (
                    f"{label}, split {split}: {_first_difference(found, undisturbed.splits[split])}"
                )


@dataclass
class _Reading:
    rows: list[Any] = field(default_factory=list)
    splits: dict[str, list[Any]] = field(default_factory=dict)
    rejected: list[Any] = field(default_factory=list)


def _read_with_restores(source: Source, parallelism: int, rows_max: int, reads_lost: int | None) -> _Reading:
    """Read a source with a restore after each read. `reads_lost` None: without one."""
    reading = _Reading()
    run = SourceRun(source, parallelism)
    while True:
        found = run.read(rows_max)
        reading.rejected += run.rejected
        run.rejected = []
        if found is None:
            run.close()
            return reading
        reading.rows += found[1]
        reading.splits.setdefault(run.current_split, []).extend(found[1])
        if reads_lost is None:
            continue
        snapshot = run.snapshot()
        for _ in range(reads_lost):
            if run.read(rows_max) is None:
                break
        run.close()
        run = SourceRun(source, parallelism, snapshot)


class Kill(Enum):
    """Names when the processes of a sink's writers and committer end without warning."""

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

    def checkpoint(self, kill: Kill | None = None, *, is_given_up: bool = False) -> None:
        """Write the next batch and take a checkpoint.

        Args:
            kill: When all processes are killed; None: they are not.
            is_given_up: True: the checkpoint is aborted while the job continues; its committables go with the next one.
        """
        if self._next_batch < len(self.batches):
            self._write(self.batches[self._next_batch])
            self._next_batch += 1
        if kill is Kill.WRITING:
            self._restart()
            return
        self._checkpoint_id += 1
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
        """Write what is left, take the final checkpoint, and end as a job does."""
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
        _assert_same_rows(visible(), written, f"parallelism {parallelism}, checkpoint {at} given up")
    for kill in (None, *Kill):
        for at in range(len(batches)) if kill else (0,):
            sink, visible = make_sink()
            run = SinkRun(sink, batches, input_type, parallelism)
            for checkpoint in range(len(batches)):
                run.checkpoint(kill if checkpoint == at else None)
            run.finish()
            label = f"parallelism {parallelism}, killed {kill.value} at checkpoint {at}" if kill else "undisturbed"
            _assert_same_rows(visible(), written, label)


def _assert_same_rows(found: Sequence[Any], expected: Sequence[Any], label: str) -> None:
    missing = Counter(map(repr, expected)) - Counter(map(repr, found))
    extra = Counter(map(repr, found)) - Counter(map(repr, expected))
    assert not missing and not extra, (
        f"{label}: {missing.total()} rows missing {list(missing)[:3]}, {extra.total()} rows too many {list(extra)[:3]}"
    )


def _first_difference(found: list[Any], expected: list[Any]) -> str:
    for index, (here, there) in enumerate(zip(found, expected, strict=False)):
        if here != there:
            return f"row {index} is {here!r}, not {there!r}"
    return f"{len(found)} rows, not {len(expected)}"
