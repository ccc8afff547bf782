"""The demo's verdict must be able to say no: what a correct job writes passes, each kind of damage is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from flights import FlightFiles, prepare
from job import STATISTICS, WEATHER_NAMES, JoinPlaneAndWeather, Totals, advance
from penstock.common import Row
from tests.shared_spark import own_substrate
from verify import verify

ROWS = 3000

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    own_substrate(2)
    return SparkSession.builder.getOrCreate()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> FlightFiles:
    return prepare(tmp_path_factory.mktemp("flights"), ROWS)


@pytest.fixture(scope="module")
def right(files: FlightFiles) -> pa.Table:
    """Return what the job writes, by its own functions, without its runtime."""
    join = JoinPlaneAndWeather(str(files.planes), str(files.weather))
    join.open(None)  # type: ignore[arg-type]
    totals: dict[tuple[str, int], Totals] = {}
    weather: dict[tuple[str, int], Counter[int]] = {}
    rows = []
    for flight in pq.read_table(files.flights).to_pylist():
        joined = join.map(Row(**flight))
        key = (joined.carrier, joined.hour)
        totals[key] = advance(totals.get(key), joined.dep_delay, joined.arr_delay, joined.seats)
        kinds = weather.setdefault(key, Counter())
        kinds[joined.weather] += 1
        by_weather = [kinds[kind] for kind in range(len(WEATHER_NAMES))]
        rows.append((joined.flight_id, *key, joined.seats, joined.weather, *totals[key], *by_weather))
    names = STATISTICS.schema.names
    return pa.table({name: list(column) for name, column in zip(names, zip(*rows))}, schema=STATISTICS.schema)


def written(folder: Path, table: pa.Table) -> Path:
    half = table.num_rows // 2
    pq.write_table(table.slice(half), folder / "part-0.parquet")
    pq.write_table(table.slice(0, half), folder / "part-1.parquet")
    return folder


def with_value(table: pa.Table, column: str, row: int, value: int) -> pa.Table:
    values = table[column].to_pylist()
    values[row] = value
    index = table.column_names.index(column)
    return table.set_column(index, table.schema.field(index), pa.array(values, table.schema.field(index).type))


def test_the_right_result_is_exact(spark: SparkSession, files: FlightFiles, right: pa.Table, tmp_path: Path) -> None:
    verdict = verify(spark, files, written(tmp_path, right))
    assert verdict.differences == ()
    assert (verdict.exact, verdict.rows) == (True, ROWS)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(lambda t: t.slice(1), "2999 rows were written", id="lost"),
        pytest.param(lambda t: pa.concat_tables([t, t.slice(9, 1)]), "was written 2 times", id="doubled"),
        pytest.param(lambda t: with_value(t, "seats", 7, 3), "flights: not expected", id="another plane"),
        pytest.param(lambda t: with_value(t, "rain", t.num_rows - 1, 9), "final statistics: not expected", id="state"),
    ],
)
def test_damage_is_named(
    spark: SparkSession,
    files: FlightFiles,
    right: pa.Table,
    tmp_path: Path,
    damage: Callable[[pa.Table], pa.Table],
    said: str,
) -> None:
    verdict = verify(spark, files, written(tmp_path, damage(right)))
    assert not verdict.exact
    assert any(said in difference for difference in verdict.differences), verdict.differences
