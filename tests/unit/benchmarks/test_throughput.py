"""Compares what the throughput benchmark must emit with counting by hand, for our rows and for the peer's."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

import throughput
import udf
from sinks import Counted
from throughput import NAMED, Generate


@pytest.mark.parametrize("first", [0, 999, 3_000_000_000])
def test_rows_are_those_of_the_peer(first: int) -> None:
    batch = Generate(10_000, NAMED.schema)(first, 5)
    expected = [(i * 2654435761 % 10_000, 1, i // 1000) for i in range(first, first + 5)]
    assert list(zip(*(column.to_pylist() for column in batch.columns))) == expected


def by_hand(workload: str, rows: int, keys: int, rows_per_window: int) -> Counted:
    sums: Counter[int] = Counter()
    windows: defaultdict[tuple[int, int], int] = defaultdict(int)
    rolling = 0
    for i in range(rows):
        key = i * 2654435761 % keys
        sums[key] += 1
        rolling += sums[key]
        windows[i // rows_per_window, key] += 1
    return Counted(rows, rolling) if workload == "reduce" else Counted(len(windows), sum(windows.values()))


@pytest.mark.parametrize("workload", ["reduce", "window"])
@pytest.mark.parametrize(("rows", "keys"), [(0, 3), (5, 7), (2000, 7), (2500, 900)])
def test_what_must_come_out_is_what_counting_by_hand_says(
    workload: str, rows: int, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throughput, "WINDOW_MS", 1)
    assert throughput.expected(workload, rows, keys) == by_hand(workload, rows, keys, 1000)


def test_row_functions_put_out_rolling_counts_per_key() -> None:
    assert udf.expected("udf", 25_000) == by_hand("reduce", 25_000, 10_007, 1)
    assert udf.expected("map", 25_000) == Counted(25_000, 25_000)
