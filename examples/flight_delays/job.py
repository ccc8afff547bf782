"""Delay statistics per carrier and hour of the day, with the plane and the weather of each flight.

A program as a user writes it. The demo runs it four times under different settings; it also runs alone:

    penstock run examples/flight_delays/job.py FLIGHTS_DIR OUTPUT_DIR
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from flights import FlightFiles, prepare
from penstock.common import Row, Types, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, MapFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import (
    FileSink,
    FileSource,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor

NO_WEATHER, FAIR, RAIN, FOG, WIND = range(5)
WEATHER_NAMES = ("no_weather", "fair", "rain", "fog", "wind")
FOG_VISIBILITY = 30  # 1/10 mile
WIND_SPEED = 200  # 1/10 mph
DELAYED_MINUTES = 15

Totals = tuple[int, ...]

LONG = Types.LONG()
STRING = Types.STRING()

JOINED = Types.ROW_NAMED(
    ["flight_id", "carrier", "hour", "dep_delay", "arr_delay", "seats", "weather"],
    [LONG, STRING, LONG, LONG, LONG, LONG, LONG],
)
TOTALS = ("cancelled", "delayed", "dep_delay_sum", "dep_delay_min", "dep_delay_max", "arr_delay_sum", "seats_sum")
STATISTICS = Types.ROW_NAMED(
    ["flight_id", "carrier", "hour", "seats", "weather", "flights", *TOTALS, *WEATHER_NAMES],
    [LONG, STRING] + [LONG] * (4 + len(TOTALS) + len(WEATHER_NAMES)),
)


def weather_bin(rain: int | None, visibility: int | None, wind: int | None) -> int:
    if rain:
        return RAIN
    if visibility is not None and visibility < FOG_VISIBILITY:
        return FOG
    return WIND if wind is not None and wind >= WIND_SPEED else FAIR


class JoinPlaneAndWeather(MapFunction):
    """Looks both up in tables that each subtask loads once, when it opens."""

    def __init__(self, planes: str, weather: str) -> None:
        self.planes = planes
        self.weather = weather

    def open(self, runtime_context: RuntimeContext) -> None:
        planes = pq.read_table(self.planes)
        self.seats_of = dict(zip(planes["tailnum"].to_pylist(), planes["seats"].to_pylist(), strict=True))
        columns = pq.read_table(self.weather).to_pydict()
        places = zip(columns["origin"], columns["hour_ms"], strict=True)
        bins = map(weather_bin, columns["rain"], columns["visibility"], columns["wind"])
        self.weather_of = dict(zip(places, bins, strict=True))

    def map(self, flight: Row) -> Row:
        return Row(
            flight_id=flight.flight_id,
            carrier=flight.carrier,
            hour=flight.hour,
            dep_delay=flight.dep_delay,
            arr_delay=flight.arr_delay,
            seats=self.seats_of.get(flight.tailnum, 0),
            weather=self.weather_of.get((flight.origin, flight.hour_ms), NO_WEATHER),
        )


class DelayStatistics(KeyedProcessFunction):
    """One row of running totals for each flight. `pause_us` stands for a model or a service that takes its time."""

    def __init__(self, pause_us: int) -> None:
        self.pause_us = pause_us

    def open(self, runtime_context: RuntimeContext) -> None:
        self.totals = runtime_context.get_state(ValueStateDescriptor("totals", Types.TUPLE([LONG] * (1 + len(TOTALS)))))
        self.weather = runtime_context.get_map_state(MapStateDescriptor("flights by weather", LONG, LONG))

    def process_element(self, flight: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        totals = advance(self.totals.value(), flight.dep_delay, flight.arr_delay, flight.seats)
        self.totals.update(totals)
        self.weather.put(flight.weather, (self.weather.get(flight.weather) or 0) + 1)
        if self.pause_us:
            time.sleep(self.pause_us / 1e6)
        by_weather = [self.weather.get(kind) or 0 for kind in range(len(WEATHER_NAMES))]
        yield Row(flight.flight_id, flight.carrier, flight.hour, flight.seats, flight.weather, *totals, *by_weather)


def advance(before: Totals | None, dep_delay: int | None, arr_delay: int | None, seats: int) -> Totals:
    """(flights, *TOTALS) with one flight more. A cancelled flight has no departure delay and moves no extreme."""
    flights, cancelled, delayed, dep_sum, dep_min, dep_max, arr_sum, seats_sum = before or (0, 0, 0, 0, 0, 0, 0, 0)
    departed_before = flights - cancelled
    if dep_delay is None:
        cancelled += 1
    else:
        delayed += dep_delay > DELAYED_MINUTES
        dep_sum += dep_delay
        dep_min = min(dep_min, dep_delay) if departed_before else dep_delay
        dep_max = max(dep_max, dep_delay) if departed_before else dep_delay
    return flights + 1, cancelled, delayed, dep_sum, dep_min, dep_max, arr_sum + (arr_delay or 0), seats_sum + seats


def declare(env: StreamExecutionEnvironment, files: FlightFiles, output: Path, pause_us: int) -> None:
    """Adds the whole job to the environment; it runs with `env.execute(...)`."""
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), str(files.flights)).build()
    sink = FileSink.for_bulk_format(str(output), ParquetBulkWriters.for_row_type(STATISTICS)).build()
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "flights")
        .map(JoinPlaneAndWeather(str(files.planes), str(files.weather)), output_type=JOINED)
        .name("plane and weather")
        .key_by(lambda flight: (flight.carrier, flight.hour), key_type=Types.TUPLE([STRING, LONG]))
        .process(DelayStatistics(pause_us), output_type=STATISTICS)
        .name("delay statistics")
        .sink_to(sink)
        .name("statistics files")
    )


def main(arguments: list[str]) -> None:
    if len(arguments) != 2:
        sys.exit(f"usage: penstock run {Path(__file__).name} FLIGHTS_DIR OUTPUT_DIR")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    env.get_checkpoint_config().enable_unaligned_checkpoints()
    declare(env, prepare(Path(arguments[0])), Path(arguments[1]), pause_us=0)
    env.execute("flight delays")


if __name__ == "__main__":
    main(sys.argv[1:])
