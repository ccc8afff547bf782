"""Tests inputs of which all are silent, and subtasks of a source that have no split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.configuration import Configuration
from penstock.common.types import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.base import FixedSplitEnumerator
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.base import NotReady, ReaderContext, Source, SourceReader
from tests.unit.connectors.hybrid_parts import hybrid
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_event_time_jobs import FREQUENT
from tests.unit.runtime.jobs.test_idleness import TIMEOUT_MS, NoneIsLate, bounded, run_for


class Silent(Source):
    """Its splits have the rows `rows`, and then nothing. Each belongs to one subtask."""

    bounded = False

    def __init__(self, *rows: list[tuple[int, int]]) -> None:
        self.rows = rows

    @property
    def produced_type(self) -> Any:
        return Types.LONG()

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> Any:
        given = range(len(self.rows))
        return _Waiting(
            {
                split % parallelism: [b"%d" % s for s in given if s % parallelism == split % parallelism]
                for split in given
            }
        )

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _Silent(self.rows)


class Ended(Silent):
    """Ends with its rows."""

    bounded = True

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> Any:
        return _Ending(super().create_enumerator(parallelism, restored).owned)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _Ended(self.rows)


class _Waiting(FixedSplitEnumerator):
    def __init__(self, owned: dict[int, list[bytes]]) -> None:
        super().__init__([])
        self.owned = owned

    def next_splits(self, subtask: int) -> list[bytes] | None:
        return self.owned.pop(subtask, [])


class _Ending(_Waiting):
    def next_splits(self, subtask: int) -> list[bytes] | None:
        return self.owned.pop(subtask, None)


class _Silent(SourceReader):
    """Reads each row at its time, in ms: (time, timestamp)."""

    def __init__(self, rows: tuple[list[tuple[int, int]], ...]) -> None:
        self.rows, self.reads = rows, 0
        self.splits: list[tuple[str, list[tuple[int, int]]]] = []
        self.current = ""

    def add_splits(self, splits: list[bytes]) -> None:
        self.splits += [(split.decode(), list(self.rows[int(split)])) for split in splits]

    def no_more_splits(self) -> None: ...

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        if not self.splits:
            return NotReady(None)
        self.reads += 1
        for name, rows in self.splits:
            if rows and rows[0][0] <= self.reads:
                self.current = name
                return pa.RecordBatch.from_arrays([pa.array(np.array([rows.pop(0)[1]]))], schema=Types.LONG().schema)
        return NotReady(1.0)

    @property
    def current_split(self) -> str:
        return self.current

    def splits_in_hand(self) -> list[str]:
        return [name for name, _ in self.splits]

    def snapshot(self) -> list[bytes]:
        return []


class _Ended(_Silent):
    has_all = False

    def no_more_splits(self) -> None:
        self.has_all = True

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        if any(rows for _, rows in self.splits):
            return super().read(rows_max)
        return None if self.has_all else NotReady(None)


def silent_job(source: Source, strategy: WatermarkStrategy, parallelism: int) -> SmallJob:
    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_source(source, strategy, "silent").set_parallelism(parallelism)
        rows.key_by(lambda x: x % 7, Types.LONG()).process(NoneIsLate()).set_parallelism(1).sink_to(CommittedRows())

    return SmallJob(graph_of(build), Configuration(FREQUENT))


def time_behind(job: SmallJob) -> int:
    """Return the time of the subtask behind the source."""
    return next(s for s in job.subtasks.values() if not s.vertex.is_source).event_time.time.current_ms


AHEAD, BEHIND = [(1, 70)], [(1, 10), (15, 11), (30, 12)]


@pytest.mark.parametrize("parallelism", [1, 2], ids=["of one reader", "of two"])
@pytest.mark.parametrize("splits", [(AHEAD, BEHIND), (BEHIND, AHEAD), (AHEAD, BEHIND, []), ([], BEHIND, AHEAD)])
def test_when_all_splits_are_silent_the_greatest_watermark_counts(
    splits: tuple[list[tuple[int, int]], ...], parallelism: int
) -> None:
    """The split that is ahead becomes silent first. Without this: windows that it has passed do not fire until another
    one has a row."""
    job = silent_job(Silent(*splits), bounded(), parallelism)
    run_for(job, 8 * TIMEOUT_MS)
    assert time_behind(job) == 70 - 1 - 1
    job.close()


@pytest.mark.parametrize("parallelism", [2, 3, 5])
def test_a_subtask_without_a_split_holds_no_time_back(parallelism: int) -> None:
    job = silent_job(Silent(AHEAD), bounded(None), parallelism)
    run_for(job, 50)
    assert time_behind(job) == 70 - 1 - 1
    job.close()


def test_splits_that_are_silent_without_a_timeout_hold_time_back_beside_subtasks_without_any() -> None:
    job = silent_job(Silent(AHEAD, BEHIND), bounded(None), 3)
    run_for(job, 50)
    assert time_behind(job) == 12 - 1 - 1
    job.close()


@pytest.mark.parametrize("first", [[[(1, 5)]], [[(1, 5)], [(1, 6)]]], ids=["of one", "of both"])
def test_who_has_read_earlier_sources_and_has_no_split_of_the_last_one_holds_no_time_back(first: Any) -> None:
    """Without this: it waits for splits that continue its former ones, and they never come."""
    job = silent_job(hybrid(Ended(*first), Silent(AHEAD)), bounded(None), 2)
    run_for(job, 50)
    assert time_behind(job) == 70 - 1 - 1
    job.close()
