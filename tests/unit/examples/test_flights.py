"""Checks the demo's rows: a whole year in order of departure, as often as it is prepared or interrupted."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from flights import FILES, FLIGHT_SCHEMA, FlightFiles, prepare


@pytest.fixture(scope="module")
def whole_year(tmp_path_factory: pytest.TempPathFactory) -> FlightFiles:
    return prepare(tmp_path_factory.mktemp("flights"))


def test_the_whole_year_is_there_in_the_order_of_departure(whole_year: FlightFiles) -> None:
    assert whole_year.rows == 336_776
    paths = sorted(whole_year.flights.iterdir())
    assert len(paths) == FILES
    table = pq.read_table(whole_year.flights)
    assert table.schema.equals(FLIGHT_SCHEMA)
    assert table["flight_id"].to_pylist() == list(range(whole_year.rows))
    times = table["event_time_ms"].to_numpy()
    assert (times[1:] >= times[:-1]).all()
    assert table["dep_delay"].null_count == 8255


def test_some_flights_have_no_plane_and_some_no_weather(whole_year: FlightFiles) -> None:
    flights = pq.read_table(whole_year.flights)
    planes, weather = pq.read_table(whole_year.planes), pq.read_table(whole_year.weather)
    with_plane = flights.join(planes, "tailnum", join_type="left outer")
    assert with_plane.num_rows == whole_year.rows, "a tail number is that of one plane"
    assert with_plane["seats"].null_count == 52_606
    with_weather = flights.select(["flight_id", "origin", "hour_ms"]).join(weather, ["origin", "hour_ms"])
    assert with_weather.num_rows == whole_year.rows, "an hour of an airport has one weather"
    assert with_weather["rain"].null_count == 1_556


def test_weather_is_in_integers(whole_year: FlightFiles) -> None:
    weather = pq.read_table(whole_year.weather)
    assert pc.max(weather["visibility"]).as_py() == 100
    assert pc.max(weather["rain"]).as_py() == 121
    assert weather["wind"].null_count == 4


def test_what_is_prepared_is_not_prepared_again_but_other_sizes_are(tmp_path: Path) -> None:
    first = prepare(tmp_path, rows=100)
    written = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.parquet")}
    assert prepare(tmp_path, rows=100) == first
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.parquet")} == written
    assert prepare(tmp_path, rows=60).rows == 60
    assert pq.read_table(tmp_path / "flights").num_rows == 60


def test_an_interrupted_preparation_starts_over(tmp_path: Path) -> None:
    prepare(tmp_path, rows=50)
    (tmp_path / "prepared.json").unlink()
    (tmp_path / "flights" / "flights-00.parquet").write_bytes(b"half a file")
    assert pq.read_table(prepare(tmp_path, rows=50).flights).num_rows == 50
