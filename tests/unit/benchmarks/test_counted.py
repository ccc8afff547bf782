"""Checks that counted output is called exact in any order, and that lost, doubled and changed rows are seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counted import is_exact
from measuring import keys_of

ROWS = 30_000


def right() -> pa.Table:
    indices = np.arange(ROWS)
    keys = keys_of(indices)
    seen: dict[int, int] = {}
    counts = []
    for key in keys.tolist():
        seen[key] = seen.get(key, 0) + 1
        counts.append(seen[key])
    return pa.table({"index": indices, "key": keys, "count": pa.array(counts, pa.int64())})


def changed(table: pa.Table, column: str, row: int, value: int) -> pa.Table:
    values = table[column].to_pylist()
    values[row] = value
    return table.set_column(table.column_names.index(column), column, pa.array(values, pa.int64()))


def write(folder: Path, table: pa.Table) -> Path:
    order = np.random.default_rng(1).permutation(table.num_rows)
    pq.write_table(table.take(order), folder / "part.parquet")
    return folder


def test_the_right_rows_in_any_order_are_exact(tmp_path: Path) -> None:
    assert is_exact(write(tmp_path, right()), ROWS)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda t: t.slice(1), id="a row is missing"),
        pytest.param(lambda t: pa.concat_tables([t, t.slice(5, 1)]), id="a row came twice"),
        pytest.param(lambda t: pa.concat_tables([t.slice(1), t.slice(5, 1)]), id="one twice, one missing"),
        pytest.param(lambda t: changed(t, "count", 20_000, 1), id="a key was counted from the start again"),
        pytest.param(lambda t: changed(t, "key", 3, 5), id="a row has another key"),
    ],
)
def test_damage_is_seen(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    assert not is_exact(write(tmp_path, damage(right())), ROWS)
