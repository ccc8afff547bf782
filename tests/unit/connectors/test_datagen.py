"""Generates rows by their index: each index comes once through restores, and rates hold over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.types import Types
from penstock.connectors.generators.rate import RateLimiter, RateLimiterStrategy
from penstock.connectors.testing import SourceRun, read_all, verify_source
from penstock.datastream.connectors.base import NotReady, ReaderContext, SourceError, SplitEnumerator
from penstock.datastream.connectors.datagen import BatchGeneratorSource, DataGeneratorSource

PAIR = Types.ROW_NAMED(["index", "key"], [Types.LONG(), Types.LONG()])


def pairs(first: int, count: int) -> pa.RecordBatch:
    index = np.arange(first, first + count, dtype=np.int64)
    return pa.RecordBatch.from_arrays([pa.array(index), pa.array(index * 7 % 10)], schema=PAIR.schema)


def as_tuples(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows]


def next_splits(enumerator: SplitEnumerator) -> list[bytes]:
    splits = enumerator.next_splits(0)
    assert splits is not None
    return splits


def batch_of(read: pa.RecordBatch | NotReady | None) -> pa.RecordBatch:
    assert isinstance(read, pa.RecordBatch)
    return read


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_by_index_come_once_through_restores(parallelism: int) -> None:
    row_type = Types.TUPLE([Types.LONG(), Types.STRING()])
    source = DataGeneratorSource(lambda index: (index, str(index)), 30, type_info=row_type)
    verify_source(source, [(i, str(i)) for i in range(30)], parallelism)


def test_an_untyped_generator() -> None:
    verify_source(DataGeneratorSource(lambda index: {"n": index}, 5), [{"n": i} for i in range(5)])


@given(count=st.integers(0, 50), parallelism=st.integers(1, 6), rows_max=st.integers(1, 60))
def test_columns_cover_every_index_once(count: int, parallelism: int, rows_max: int) -> None:
    rows = as_tuples(read_all(BatchGeneratorSource(pairs, count, PAIR), parallelism, rows_max))
    assert sorted(rows) == [(i, i * 7 % 10) for i in range(count)]


def test_a_generator_may_use_its_memory_again() -> None:
    """[Rows that wait to be sent are those of the generator's last call.]"""
    memory = np.empty(8, np.int64)

    def generate(first: int, count: int) -> pa.RecordBatch:
        memory[:count] = range(first, first + count)
        return pa.RecordBatch.from_arrays([pa.array(memory[:count])] * 2, schema=PAIR.schema)

    source = BatchGeneratorSource(generate, 40, PAIR)
    reader = source.create_reader(ReaderContext(0, 1, "source"))
    reader.add_splits(next_splits(source.create_enumerator(1, None)))
    batches = [batch_of(reader.read(8)) for _ in range(5)]
    assert [batch.column("index").to_pylist() for batch in batches] == [list(range(n, n + 8)) for n in range(0, 40, 8)]


def test_columns_survive_restores() -> None:
    rows = list(PAIR.decode(pairs(0, 40)))
    verify_source(BatchGeneratorSource(pairs, 40, PAIR), rows, parallelism=2)


@pytest.mark.parametrize(("count", "block"), [(500_000, 4096), (None, 65_536)])
def test_subtasks_stay_at_about_the_same_index(count: int | None, block: int) -> None:
    run = SourceRun(BatchGeneratorSource(pairs, count, PAIR), parallelism=3)
    newest = [0, 0, 0]
    for _ in range(60):
        read = run.read(1000)
        assert read is not None
        subtask, rows = read
        newest[subtask] = rows[-1][0]
    assert max(newest) - min(newest) < 3 * block * 2


def test_one_reader_takes_turns_between_the_splits_of_many() -> None:
    source = BatchGeneratorSource(pairs, 12_288 * 2, PAIR)
    enumerator = source.create_enumerator(3, None)
    reader = source.create_reader(ReaderContext(0, 1, "source"))
    for _ in range(3):
        reader.add_splits(next_splits(enumerator))
    firsts = [batch_of(reader.read(4096)).column(0)[0].as_py() for _ in range(6)]
    assert firsts == [n * 4096 for n in range(6)]


@pytest.mark.parametrize(
    ("generate", "message"),
    [
        (lambda first, count: pairs(first, count + 1), "returned 2 rows for the indices 0 to 0"),
        (lambda first, count: pairs(first, count).select(["key"]), "must begin with .*index, key"),
        (lambda first, count: {"index": [first]}, "dict, not a pyarrow.RecordBatch"),
        (
            lambda first, count: pa.record_batch({"index": pa.array([first]), "key": pa.array(["x"])}),
            "column 'key' is string, but the declared type has int64",
        ),
    ],
)
def test_a_generator_that_does_not_keep_its_word_is_refused_before_the_job_starts(
    generate: Callable[[int, int], pa.RecordBatch], message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        BatchGeneratorSource(generate, 10, PAIR).validate()


def test_a_generated_row_of_another_type_is_named_by_its_index() -> None:
    source = DataGeneratorSource(lambda index: index if index < 7 else "seven", 10, type_info=Types.LONG())
    source.validate()
    with pytest.raises(SourceError, match="row for index 7 .*'seven'"):
        read_all(source)


class TestRate:
    def test_rows_per_second_are_kept_over_time(self) -> None:
        now_s = 0.0
        limiter = RateLimiter(1000, lambda: now_s)
        rows = 0
        while now_s < 10:
            wait_ms = limiter.wait_ms()
            if wait_ms:
                now_s += wait_ms / 1000
            else:
                allowed = limiter.rows_allowed(5)
                limiter.take(allowed)
                rows += allowed
        assert 9_900 <= rows <= 10_010

    def test_a_stall_is_made_up_for_by_one_second_at_most(self) -> None:
        now_s = 0.0
        limiter = RateLimiter(100, lambda: now_s)
        limiter.wait_ms()
        now_s = 60.0
        assert limiter.wait_ms() == 0
        assert limiter.rows_allowed(10_000) == 100

    def test_a_slow_rate_waits_for_one_row(self) -> None:
        limiter = RateLimiter(0.5, lambda: 0.0)
        assert limiter.wait_ms() == pytest.approx(2000)

    def test_every_reader_takes_its_share(self) -> None:
        source = DataGeneratorSource(lambda i: i, 10, RateLimiterStrategy.per_second(10), Types.LONG())
        reader = source.create_reader(ReaderContext(0, 5, "source"))
        reader.add_splits(next_splits(source.create_enumerator(5, None)))
        waiting = reader.read(100)
        assert isinstance(waiting, NotReady)
        assert waiting.wait_ms == pytest.approx(500)

    @pytest.mark.parametrize("rate", [0, -1])
    def test_a_rate_that_never_gives_a_row_is_refused(self, rate: float) -> None:
        with pytest.raises(ValueError, match="rows_per_second"):
            BatchGeneratorSource(pairs, 10, PAIR, rows_per_second=rate)
