"""Runs any source under the interruptions that it must survive.

A source is read with snapshot, loss and restore at every pause: after every read a snapshot is taken, some more is
read, everything is discarded as by a killed process, and new readers continue from the snapshot. Every row
must come exactly once, whatever `rows_max` is, and the rows of each split in their order and under the same split id.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Iterable, Sequence

import cloudpickle
import pyarrow as pa

from penstock.common.row_types.scalar_types import PICKLED
from penstock.connectors.base import NotReady, ReaderContext, Source, SourceReader
from penstock.connectors.testing._compared_rows import assert_same_rows, first_difference

_IDLE_ROUNDS_MAX = 100_000
_WAIT_S_MAX = 0.001


@dataclass
class SourceSnapshot:
    """Holds a source's part of a checkpoint: the enumerator's state, and the splits of every reader."""

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
        self._discover()
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
        """Return the number of unreadable rows that the readers have left out."""
        return sum(reader.skipped_rows for reader in self._readers)

    def _gather_rejected(self, reader: SourceReader) -> None:
        rejected = reader.take_rejected()
        if rejected is not None:
            assert self._rejected_type is not None, "rejected rows of a source without a type for them"
            self.rejected += self._rejected_type.decode(rejected)

    def _discover(self) -> None:
        self._discovery_number = self._enumerator.discovery_number
        if self._enumerator.discovers:
            for subtask, splits in self._enumerator.on_discovered(self._enumerator.discover()).items():
                self._readers[subtask].add_splits(splits)

    def _ask_for_splits(self, subtask: int) -> None:
        splits = self._enumerator.next_splits(subtask)
        if self._enumerator.discovery_number != self._discovery_number:
            self._discover()
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
                assert rows == list(expected), f"{label}: {first_difference(rows, list(expected))}"
            assert_same_rows(rows, expected, label)
            assert_same_rows(reading.rejected, undisturbed.rejected, f"{label}, rejected rows")
            assert reading.splits.keys() == undisturbed.splits.keys(), f"{label}: splits changed their ids"
            for split, found in reading.splits.items():
                assert found == undisturbed.splits[split], (
                    f"{label}, split {split}: {first_difference(found, undisturbed.splits[split])}"
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
