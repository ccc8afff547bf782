"""Tests restores of columnar state whose keys and aggregates are declared otherwise, in memory and in RocksDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.graph.declared_columns import Aggregate
from penstock.operators.columns.accumulators import accumulators
from penstock.operators.columns.columnar_aggregates import Accumulator
from penstock.protocol.values.metadata import Segment
from penstock.state.backend import EncodedState, StateSchemaError, StoredState
from penstock.state.columnar.column_table import ValueColumn
from penstock.state.columnar.columnar_backend import ColumnarBackend
from tests.properties.columnar_backends import KINDS, ColumnarBackends

KEYS, WIDER = pa.schema([("user", pa.int32())]), pa.schema([("user", pa.int64())])
ROWS = pa.schema([("user", pa.int64()), ("amount", pa.int64()), ("price", pa.float64())])
KEY_GROUPS = range(8)
TOTAL, MOST = Aggregate("total", "sum", "amount"), Aggregate("most", "max", "price")
ROWS_SEEN, MEAN = Aggregate("rows", "count", None), Aggregate("mean", "mean", "price")
LEAST, ADDED = Aggregate("least", "min", "amount"), Aggregate("added", "sum", "price")


@pytest.fixture(params=KINDS)
def backends(request: pytest.FixtureRequest) -> Iterator[ColumnarBackends]:
    with ColumnarBackends(request.param, incremental=True) as made:
        yield made


class Aggregates:
    """Does with its table what a keyed aggregation does, without the stream."""

    def __init__(
        self, backend: ColumnarBackend[Any], *aggregates: Aggregate, keys: pa.Schema = KEYS, further: Any = ()
    ) -> None:
        self.accumulators: list[Accumulator] = accumulators(aggregates, ROWS)
        self.keys = keys
        values = [column for a in self.accumulators for column in a.columns] + list(further)
        self.table = backend.table("op", "sums", keys, values)
        for accumulator in self.accumulators:
            accumulator.restored(self.table)

    def fold(self, users: list[int], amounts: list[int | None], prices: list[float | None]) -> None:
        batch = pa.record_batch([pa.array(c, f.type) for c, f in zip((users, amounts, prices), ROWS)], schema=ROWS)
        given = [a.take(batch) for a in self.accumulators]
        slots = self.slots(users)
        self.table.touch(slots)
        for accumulator, values in zip(self.accumulators, given):
            accumulator.fold(self.table, slots, values)
            self.table.after_write(slots, accumulator.written)
        self.table.settle()

    def slots(self, users: list[int]) -> Any:
        groups = np.array([user % len(KEY_GROUPS) for user in users], np.uint16)
        return self.table.find_or_insert(self.table.rows([pa.array(users, self.keys.field(0).type)]), groups).slots

    def results(self, users: list[int]) -> dict[str, list[Any]]:
        slots = self.slots(users)
        return {a.aggregate.name: a.result(self.table, slots).to_pylist() for a in self.accumulators}


def restored(backends: ColumnarBackends, runs: list[EncodedState], key_groups: range = KEY_GROUPS) -> Any:
    backend = backends.new()
    for run in runs:
        backend.restore(run.operator, run.name, b"".join(bytes(part) for part in run.parts), key_groups)
    return backend


def encoded(backend: ColumnarBackend[Any]) -> list[EncodedState]:
    return taken(backend, 1, None)[0]


@pytest.fixture
def old(backends: ColumnarBackends) -> ColumnarBackend[Any]:
    backend = backends.new()
    Aggregates(backend, TOTAL, MOST).fold([1, 2, 1, 3], [10, 20, 5, None], [0.5, 1.5, 2.5, None])
    return backend


def test_aggregates_are_added_removed_and_reordered(backends: ColumnarBackends, old: ColumnarBackend[Any]) -> None:
    """Begins those that were added late: a key that was there before begins as if it had seen nulls only."""
    aggregates = Aggregates(restored(backends, encoded(old)), MEAN, MOST, LEAST, ADDED, ROWS_SEEN)
    nothing = [None, None, None]
    assert aggregates.results([1, 2, 3]) == {
        "mean": nothing, "most": [2.5, 1.5, None], "least": nothing, "added": nothing, "rows": [0, 0, 0]
    }  # fmt: skip
    aggregates.fold([1, 4], [7, 8], [-0.5, 9.0])
    assert aggregates.results([1, 2, 4]) == {
        "mean": [-0.5, None, 9.0],
        "most": [2.5, 1.5, 9.0],
        "least": [7, None, 8],
        "added": [-0.5, None, 9.0],
        "rows": [1, 0, 1],
    }


def test_a_key_may_become_a_wider_number(backends: ColumnarBackends, old: ColumnarBackend[Any]) -> None:
    aggregates = Aggregates(restored(backends, encoded(old), range(2)), TOTAL, keys=WIDER)
    assert aggregates.results([1]) == {"total": [15]}
    aggregates.fold([2**40, 1], [1, 1], [0.0, 0.0])
    assert aggregates.results([2**40, 1]) == {"total": [1, 16]}


def test_the_first_checkpoint_is_whole_and_later_ones_are_not(backends: ColumnarBackends) -> None:
    """The chain that is restored has a run of deleted keys, narrower ones."""
    backend = backends.new()
    old = Aggregates(backend, TOTAL)
    old.fold(list(range(20)), [1] * 20, [0.0] * 20)
    runs, stored = taken(backend, 1, None)
    old.table.remove(old.slots([3]))
    more, stored = taken(backend, 2, 1, stored)
    runs += more
    assert [run.entries for run in stored] == [20, 1]

    backend = backends.new()
    backend.on_restored(2, stored)
    for run in runs:
        backend.restore("op", "sums", b"".join(run.parts), KEY_GROUPS)
    now = Aggregates(backend, MOST, TOTAL, keys=WIDER)
    runs, stored = taken(backend, 3, 2)
    assert [run.entries for run in runs] == [run.entries for run in stored] == [19]
    now.fold([1], [1], [0.5])
    runs, stored = taken(backend, 4, 3, stored)
    assert [run.entries for run in stored] == [19, 1]
    last = Aggregates(restored(backends, runs), MOST, TOTAL, keys=WIDER)
    assert last.results([1]) == {"most": [0.5], "total": [2]}


def taken(
    backend: ColumnarBackend[Any], number: int, predecessor: int | None, named: Sequence[StoredState] = ()
) -> tuple[list[EncodedState], list[StoredState]]:
    """Store a checkpoint, which may name these runs. Return the new runs, and where all lie."""
    made: list[EncodedState] = []
    stored: list[StoredState] = []
    snapshot = backend.snapshot(number, predecessor)
    for run in snapshot.encode():
        if isinstance(run, StoredState):
            assert run in named
            stored.append(run)
            continue
        parts: list[bytes | memoryview] = [bytes(part) for part in run.parts]
        made.append(EncodedState(run.operator, run.name, run.entries, parts))
        segment = Segment(f"segment-{number}", 1000)
        stored.append(StoredState(run.operator, run.name, run.entries, segment, 0, sum(map(len, parts)), 0))
    snapshot.on_stored(stored)
    return made, stored


@pytest.mark.parametrize(
    ("aggregates", "keys", "told"),
    [
        (
            [Aggregate("total", "mean", "price"), MOST],
            KEYS,
            "'total' was kept as sum int64, seen bool, and is ",
        ),
        (
            [Aggregate("total", "sum", "price")],
            KEYS,
            "kept as sum int64, seen bool, and is kept as sum dou",
        ),
        ([TOTAL], pa.schema([("user", pa.string())]), "column 'user' of the key was int32, which cannot become string"),
        ([TOTAL], pa.schema([("user", pa.int16())]), "column 'user' of the key was int32, which cannot become int16"),
        ([TOTAL], pa.schema([("who", pa.int32())]), "the key was (user), and is (who)"),
        ([TOTAL], pa.schema([("user", pa.int32()), ("b", pa.int32())]), "the key was (user), and is (user, b)"),
    ],
)
def test_other_keys_and_functions_are_refused_by_name(
    backends: ColumnarBackends, old: ColumnarBackend[Any], aggregates: list[Aggregate], keys: pa.Schema, told: str
) -> None:
    again = restored(backends, encoded(old))
    again.restore_schema(old.snapshot().schemas[0], "totals")
    with pytest.raises(StateSchemaError) as raised:
        Aggregates(again, *aggregates, keys=keys)
    assert str(raised.value).startswith(
        "state 'sums' of operator 'Sums' (uid 'totals') is declared as columns state of"
    )
    assert told in str(raised.value)


def test_a_column_of_no_aggregate_may_come_but_not_go(backends: ColumnarBackends, old: ColumnarBackend[Any]) -> None:
    """Refuses to lose a mark: with an allowed lateness a window says whether it has fired; without the mark it would
    fire again."""
    fired = [ValueColumn("fired", np.bool_, False)]
    with_mark = restored(backends, encoded(old))
    assert Aggregates(with_mark, TOTAL, further=fired).table.all_true(2) is False
    with pytest.raises(StateSchemaError, match="'fired' was kept, and is not any more"):
        Aggregates(restored(backends, encoded(with_mark)), TOTAL)
