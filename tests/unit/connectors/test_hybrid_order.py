"""A hybrid source reads its sources one after the other: each row once, none before all of the source before."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from penstock.connectors.base import decode_split
from penstock.connectors.testing import SourceRun, read_all, verify_source
from penstock.datastream.connectors.base import (
    NotReady,
    ReaderContext,
    Source,
    SourceError,
    SourceReader,
)
from tests.unit.connectors.hybrid_parts import Binary, BinaryReader, Discovered, hybrid, listed, numbers

# ---- every row once, in the order of the sources --------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_every_row_comes_once_through_restores(parallelism: int) -> None:
    source = hybrid(numbers(0, 6), listed(7, 11), Binary(12, 15), Discovered(16, 20, 1), numbers(21, 24))
    verify_source(source, list(range(25)), parallelism, rows_max=(1, 3, 1000), reads_lost=(0, 1, 4, 9))


class Job:
    """Readers and an enumerator with messages on the way between them, in an order that `chance` draws.

    What is handed out before a snapshot reaches its reader before the reader's snapshot, as on the real connection.
    """

    def __init__(self, source: Source, parallelism: int, chance: Random, restored: Any = None) -> None:
        self.source, self.chance, self.parallelism = source, chance, parallelism
        self.enumerator = source.create_enumerator(parallelism, restored and restored[0])
        self.readers: list[SourceReader] = []
        self.to_readers: list[deque[tuple[list[bytes], bool]]] = [deque() for _ in range(parallelism)]
        self.requests: deque[int] = deque()
        self.waiting: set[int] = set()
        self.asked = [False] * parallelism
        self.ended = [False] * parallelism
        self.found: Any = None
        self.is_discovering = False
        splits = restored[1] if restored else []
        for subtask in range(parallelism):
            reader = cloudpickle.loads(cloudpickle.dumps(source)).create_reader(ReaderContext(subtask, parallelism, ""))
            if own := splits[subtask::parallelism]:
                reader.add_splits(own)
            self.readers.append(reader)

    def step(self) -> list[int]:
        """Do one thing. Returns the rows that it has read."""
        subtask = self.chance.randrange(self.parallelism)
        action = self.chance.randrange(5)
        if action == 0:
            self._discover()
        elif action == 1 and self.requests:
            self._answer(self.requests.popleft())
        elif action == 2 and self.waiting:
            self._answer(self.chance.choice(sorted(self.waiting)))
        elif action == 3 and self.to_readers[subtask]:
            self._deliver(subtask)
        elif not self.ended[subtask]:
            return self._read(subtask)
        return []

    def _discover(self) -> None:
        if self.is_discovering:
            self.is_discovering = False
            for subtask, splits in self.enumerator.on_discovered(self.found).items():
                self.to_readers[subtask].append((splits, False))
        elif self.enumerator.discovers:
            self.is_discovering, self.found = True, self.enumerator.discover()

    def _answer(self, subtask: int) -> None:
        splits = self.enumerator.next_splits(subtask)
        self.waiting.discard(subtask)
        if splits is not None and not splits:
            self.waiting.add(subtask)
        else:
            self.to_readers[subtask].append((splits or [], splits is None))

    def _deliver(self, subtask: int) -> None:
        splits, no_more = self.to_readers[subtask].popleft()
        self.asked[subtask] = False
        self.readers[subtask].add_splits(splits)
        if no_more:
            self.readers[subtask].no_more_splits()

    def _read(self, subtask: int) -> list[int]:
        got = self.readers[subtask].read(self.chance.randint(1, 3))
        if isinstance(got, pa.RecordBatch):
            return got.column(0).to_pylist()  # type: ignore[no-any-return]
        self.ended[subtask] = got is None
        if got == NotReady(None) and not self.asked[subtask]:
            self.asked[subtask] = True
            self.requests.append(subtask)
        return []

    def snapshot(self) -> tuple[bytes, list[bytes]]:
        enumerator = self.enumerator.snapshot()
        for subtask in range(self.parallelism):
            while self.to_readers[subtask]:
                self._deliver(subtask)
        return enumerator, [split for reader in self.readers for split in reader.snapshot()]


@pytest.mark.parametrize("seed", range(150))
def test_no_source_begins_before_all_readers_have_finished_the_one_before(seed: int) -> None:
    chance = Random(seed)
    parts, expected = list[Source](), list[int]()
    for number in range(chance.randint(2, 4)):
        kind: Any = chance.choice((numbers, listed, Discovered, Binary))
        first, last = 100 * number, 100 * number + chance.randint(0, 12)
        parts.append(kind(first, last))
        expected += range(first, last + 1)
    source = hybrid(*parts)
    job, rows, completed = Job(source, chance.randint(1, 4), chance), list[int](), None
    for _ in range(100_000):
        read = job.step()
        rows += read
        if read:
            last = len(parts) - 1
            assert [row // 100 for row in rows] == sorted(row // 100 for row in rows)
            assert job.enumerator.is_processing_backlog == (decode_split(job.enumerator.snapshot())["source"] <= last)
            assert job.enumerator.is_processing_backlog or rows[-1] // 100 == last
        if chance.random() < 0.02:
            completed = (job.snapshot(), list(rows))
        elif chance.random() < 0.01:
            state, rows = (None, []) if completed is None else (completed[0], list(completed[1]))
            job = Job(source, chance.randint(1, 4), chance, state)
        if all(job.ended):
            break
    assert all(job.ended), "the job does not end"
    assert sorted(rows) == expected


def test_a_reader_that_has_finished_gets_nothing_until_the_others_have() -> None:
    enumerator = hybrid(numbers(0, 3), numbers(10, 13)).create_enumerator(2, None)
    for subtask in (0, 1):
        assert b'"source":1' in (enumerator.next_splits(subtask) or [b""])[0]
    end = enumerator.next_splits(0)
    assert end is not None and decode_split(end[0]) == {"source": 1, "ends": True}
    assert enumerator.next_splits(0) == [] and enumerator.next_splits(0) == []
    assert enumerator.is_processing_backlog
    assert enumerator.next_splits(1) == end and enumerator.is_processing_backlog, "it has its last split to read"
    second = enumerator.next_splits(1)
    assert second is not None and decode_split(second[0]) == {"source": 2, "is": {"end": 13, "next": 12, "split": 1}}
    assert not enumerator.is_processing_backlog


def test_a_reader_asks_behind_the_mark_of_the_end_only_when_it_has_read_all() -> None:
    class Impatient(BinaryReader):
        """Asks for splits again and again."""

        def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
            self.asks = not getattr(self, "asks", False)
            return NotReady(None) if self.asks else super().read(rows_max)

    class Impatiently(Binary):
        def create_reader(self, context: ReaderContext) -> SourceReader:
            return Impatient(self.produced_type.schema)

    assert sorted(read_all(hybrid(Impatiently(0, 5), numbers(6, 9)), 2)) == list(range(10))
    reader = hybrid(Impatiently(0, 5), numbers(6, 9)).create_reader(ReaderContext(0, 1, ""))
    enumerator = hybrid(Impatiently(0, 0), numbers(6, 9)).create_enumerator(1, None)
    reader.add_splits(enumerator.next_splits(0) or [])
    assert reader.read(1) == NotReady(None)
    reader.add_splits(enumerator.next_splits(0) or [])
    assert isinstance(reader.read(1), pa.RecordBatch)
    asked_early = reader.read(1)
    assert isinstance(asked_early, NotReady) and asked_early.wait_ms is not None
    assert not reader.waits_for_others
    assert reader.read(1) == NotReady(None) and reader.waits_for_others


def test_splits_return_to_their_source() -> None:
    source = hybrid(numbers(0, 3), numbers(10, 13))
    enumerator = source.create_enumerator(1, None)
    splits = enumerator.next_splits(0)
    assert splits is not None
    enumerator.return_splits(splits)
    restored = source.create_enumerator(1, enumerator.snapshot())
    assert restored.next_splits(0) == splits
    strange = [splits[0].replace(b'"source":1', b'"source":2')]
    with pytest.raises(SourceError, match="a split of source 2 of a HybridSource came back while source 1 is read"):
        restored.return_splits(strange)


def test_ids_of_splits_name_the_source_and_end_with_it() -> None:
    source = hybrid(listed(0, 1), Binary(2, 3), numbers(4, 5))
    run = SourceRun(source)
    while run.read(1) is not None:
        assert run.current_split.startswith(("1/", "2/", "3/"))
    assert run.finished_splits == {"1/", "2/2", "2/3", "3/0"}


def test_a_source_that_names_one_split_does_not_name_it_behind_its_end() -> None:
    """Without this: its watermark generator begins again, gets no row, and holds the watermark back for ever."""
    source = hybrid(listed(0, 0), numbers(1, 2))
    reader, enumerator = source.create_reader(ReaderContext(0, 1, "")), source.create_enumerator(1, None)
    assert reader.splits_in_hand() == []
    reader.add_splits(enumerator.next_splits(0) or [])
    assert reader.splits_in_hand() == ["1/"]
    assert isinstance(reader.read(9), pa.RecordBatch) and reader.read(9) == NotReady(None)
    assert reader.finished_splits() == ["1/"]
    reader.add_splits(enumerator.next_splits(0) or [])
    assert reader.splits_in_hand() == []
