"""Compares the expected sums of the DataFrame benchmark with counting by hand: a wrong sum would pass a wrong job."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataframe import expected, is_exact

ROWS, KEYS = 5000, 70


def sums() -> dict[int, int]:
    by_key: dict[int, int] = {}
    for i in range(ROWS):
        key = i * 2654435761 % KEYS
        by_key[key] = by_key.get(key, 0) + i
    return by_key


def test_expected_sums_are_those_of_counting_by_hand() -> None:
    assert expected(ROWS, KEYS).tolist() == [sum for _, sum in sorted(sums().items())]


@pytest.mark.parametrize(
    ("change", "exact"),
    [
        pytest.param(lambda found: found, True, id="right"),
        pytest.param(lambda found: {**found, 3: found[3] + 1}, False, id="a row counted twice"),
        pytest.param(lambda found: {k: v for k, v in found.items() if k != 3}, False, id="a key is missing"),
        pytest.param(lambda found: {**found, KEYS: 1}, False, id="a key too many"),
    ],
)
def test_a_table_of_sums_is_judged(tmp_path: Path, change, exact: bool) -> None:  # type: ignore[no-untyped-def]
    found = change(sums())
    table = pa.table({"key": list(found), "sum_value": list(found.values())})
    pq.write_table(table, tmp_path / "part.parquet")
    pq.write_table(pa.table({"key": [3], "sum_value": [1]}), tmp_path / "earlier.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert is_exact(tmp_path, ROWS, KEYS) is exact
