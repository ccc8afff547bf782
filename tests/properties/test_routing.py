"""Tests partitioners over whole batches: no row is lost or doubled, rows to one consumer keep their order, and equal
keys meet at the owner of their key group, however they are declared and whoever sends them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.program.failures import OperatorFailure
from penstock.common.typeinfo import KEY_COLUMN, KEY_GROUP_COLUMN, TypeInformation
from penstock.common.types import Types
from penstock.graph.job_graph import Edge
from penstock.graph.logical import Partitioner, PartitionerKind
from penstock.operators.batches import row_type
from penstock.protocol.values.keys import KeyDecoder, UnsupportedKey, key_group_range
from penstock.runtime.output.routing import create_router, split_by_target

Kind = PartitionerKind


def edge_of(partitioner: Partitioner, sources: int, targets: int, declared: TypeInformation | None = None) -> Edge:
    return Edge(0, "edge", 0, 1, 0, partitioner, declared, sources, targets)


def batch_of(rows: list[Any], declared: TypeInformation | None) -> pa.RecordBatch:
    kind = row_type(declared)
    return pa.RecordBatch.from_arrays(kind.encode(rows), schema=kind.schema)


def routed(edge: Edge, producer: int, batches: list[list[Any]], max_parallelism: int = 128) -> dict[int, list[Any]]:
    """consumer -> rows, in order."""
    router = create_router(edge, producer, max_parallelism, "op", seed=7)
    found: dict[int, list[Any]] = {}
    for rows in batches:
        for position, part in router.route(batch_of(rows, edge.type), rows):
            assert part.num_rows > 0, "an empty batch is no frame"
            found.setdefault(edge.consumers_of(producer)[position], []).extend(row_type(edge.type).decode(part))
    return found


@given(st.data(), st.sampled_from([1, 2, 7, 255, 256, 257, 1000]))
@settings(max_examples=80, deadline=None)
def test_splitting_keeps_all_rows_and_their_order(data: st.DataObject, consumers: int) -> None:
    targets = data.draw(st.lists(st.integers(0, consumers - 1), min_size=1, max_size=300))
    rows = list(range(len(targets)))
    parts = split_by_target(batch_of(rows, Types.LONG()), np.array(targets), consumers)
    assert len({target for target, _ in parts}) == len(parts)
    for target, part in parts:
        assert part.column(0).to_pylist() == [r for r in rows if targets[r] == target]
    assert sum(part.num_rows for _, part in parts) == len(rows)


ROWS = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40), max_size=6)


ONE_EACH = st.sampled_from([Kind.REBALANCE, Kind.RESCALE, Kind.SHUFFLE, Kind.GLOBAL])


@given(ROWS, st.integers(1, 5), st.integers(1, 5), ONE_EACH)
@settings(max_examples=80, deadline=None)
def test_each_row_goes_to_one_consumer_in_order(
    batches: list[list[int]], sources: int, targets: int, kind: Kind
) -> None:
    for producer in range(sources):
        numbered = [[(i, j) for j in range(len(rows))] for i, rows in enumerate(batches)]
        edge = edge_of(Partitioner(kind), sources, targets, Types.TUPLE([Types.LONG(), Types.LONG()]))
        found = routed(edge, producer, numbered)
        assert sorted(r for rows in found.values() for r in rows) == [r for rows in numbered for r in rows]
        assert all(rows == sorted(rows) for rows in found.values())
        assert set(found) <= set(edge.consumers_of(producer))
        if kind is Kind.GLOBAL:
            assert set(found) <= {0}


@given(ROWS, st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_broadcast_reaches_everybody_and_forward_its_neighbour(batches: list[list[int]], parallelism: int) -> None:
    rows = [row for batch in batches for row in batch]
    everybody = routed(edge_of(Partitioner(Kind.BROADCAST), 1, parallelism, Types.LONG()), 0, batches)
    assert all(everybody.get(c, []) == rows for c in range(parallelism))
    forward = edge_of(Partitioner(Kind.FORWARD), parallelism, parallelism, Types.LONG())
    assert routed(forward, parallelism - 1, batches) == ({parallelism - 1: rows} if rows else {})


@given(st.integers(1, 6), st.lists(st.integers(1, 30), min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_rebalance_is_even_over_many_batches(consumers: int, sizes: list[int]) -> None:
    found = routed(edge_of(Partitioner(Kind.REBALANCE), 1, consumers), 0, [list(range(n)) for n in sizes])
    shares = [len(found.get(c, [])) for c in range(consumers)]
    assert max(shares) - min(shares) <= len(sizes)
    one_by_one = routed(edge_of(Partitioner(Kind.REBALANCE), 1, consumers), 0, [[n] for n in range(60)])
    assert len(set(map(len, one_by_one.values()))) == 1


KEYS = st.one_of(
    st.integers(),
    st.text(max_size=6),
    st.binary(max_size=6),
    st.booleans(),
    st.floats(allow_nan=False),
    st.tuples(st.integers(-9, 9), st.text(max_size=2)),
)


@given(st.lists(KEYS, min_size=1, max_size=40), st.integers(1, 9), st.integers(9, 200))
@settings(max_examples=80, deadline=None)
def test_keys_meet_at_the_owner_of_their_key_group(keys: list[Any], targets: int, max_parallelism: int) -> None:
    edge = edge_of(Partitioner(Kind.HASH, key_selector=lambda row: row), 2, targets)
    where: dict[Any, int] = {}
    for producer in range(2):
        router = create_router(edge, producer, max_parallelism, "op", 0)
        decoder = KeyDecoder()
        for batch in (keys, keys[::-1]):
            for position, part in router.route(batch_of(batch, None), batch):
                groups = part.column(KEY_GROUP_COLUMN).to_pylist()
                assert set(groups) <= set(key_group_range(max_parallelism, targets, position))
                for key in decoder.decode(part.column(KEY_COLUMN).to_pylist()):
                    assert where.setdefault(key, position) == position, "equal keys, two consumers"
    assert set(where) == set(keys)


@pytest.mark.parametrize(
    ("declared", "keys"),
    [(Types.LONG(), [0, 1, -1, 2**63 - 1, -(2**63), 77]), (Types.STRING(), ["", "a", "ü", "x" * 100])],
)
def test_a_declared_key_goes_where_the_same_key_by_lambda_goes(declared: TypeInformation, keys: list[Any]) -> None:
    select = lambda row: row  # noqa: E731
    typed = routed(edge_of(Partitioner(Kind.HASH, select, declared), 1, 5), 0, [keys])
    by_lambda = routed(edge_of(Partitioner(Kind.HASH, select), 1, 5), 0, [keys])
    assert typed == by_lambda


def test_one_and_true_and_one_point_zero_are_one_key() -> None:
    found = routed(edge_of(Partitioner(Kind.HASH, lambda row: row[0]), 1, 97), 0, [[(1, "a"), (1.0, "b"), (True, "c")]])
    assert [[name for _, name in rows] for rows in found.values()] == [["a", "b", "c"]]


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=50), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_a_custom_partitioner_is_obeyed(rows: list[int], targets: int) -> None:
    custom = Partitioner(Kind.CUSTOM, key_selector=lambda row: row // 2, custom=lambda key, n: key % n)
    found = routed(edge_of(custom, 1, targets), 0, [rows])
    for consumer, received in found.items():
        assert received == [r for r in rows if (r // 2) % targets == consumer]
    assert sum(map(len, found.values())) == len(rows)


# ---- errors name operator and row ---------------------------------------------------------------------------------


def by_key(select: Any, key_type: TypeInformation | None = None) -> Partitioner:
    return Partitioner(Kind.HASH, key_selector=select, key_type=key_type)


def by(custom: Any) -> Partitioner:
    return Partitioner(Kind.CUSTOM, key_selector=lambda row: row, custom=custom)


@pytest.mark.parametrize(
    ("partitioner", "message"),
    [
        (by_key(lambda row: None if row == 2 else row), "the row was 2"),
        (by_key(lambda row: 1 // (row - 2)), "op (its key selector)"),
        (by_key(str, Types.LONG()), "the key is declared LONG; the row was 1"),
        (by(lambda key, n: n if key == 2 else 0), "must be an int in [0, 3)"),
        (by(lambda key, n: "0"), "the partitioner returned '0'"),
        (by(lambda key, n: 1 // (key - 2)), "op (its custom partitioner)"),
    ],
    ids=["a key of None", "a selector that raises", "a key of another type", "beyond", "no number", "raises"],
)
def test_a_bad_key_or_target_is_named(partitioner: Partitioner, message: str) -> None:
    router = create_router(edge_of(partitioner, 1, 3), 0, 128, "op", 0)
    with pytest.raises(OperatorFailure) as failure:
        router.route(batch_of([1, 2, 3], None), [1, 2, 3])
    assert message in str(failure.value)
    assert failure.value.operator.startswith("op")


def test_the_row_of_an_unsupported_key_is_shown() -> None:
    router = create_router(edge_of(Partitioner(Kind.HASH, key_selector=lambda r: r[1]), 1, 3), 0, 128, "op", 0)
    rows = [("x", 1), ("the bad one", None)]
    with pytest.raises(OperatorFailure, match="the bad one") as failure:
        router.route(batch_of(rows, None), rows)
    assert isinstance(failure.value.error, UnsupportedKey)
