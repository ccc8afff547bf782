"""An alert for every sensor that has been silent for 30 seconds, and how long it was, once it is back.

    penstock run examples/silent_sensors.py

All of it happens in timers, and timers fire in the order of event time: whether the job is live, catches up after a
failure, or reads last year's data, the alerts are the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from penstock.common import Duration, Row, Types, WatermarkStrategy
from penstock.datastream import (
    DataStream,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from penstock.datastream.connectors.datagen import DataGeneratorSource

READINGS = 40_000
SENSORS = 100
START_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC
SILENCE_MS = 30_000

LONG = Types.LONG()
READING = Types.ROW_NAMED(["sensor", "at", "celsius"], [LONG, LONG, Types.DOUBLE()])
ALERT = Types.TUPLE([LONG, LONG])
BACK = OutputTag("back", Types.TUPLE([LONG, LONG]))


def reading(index: int) -> tuple[int, int, float]:
    """Sensors report in turns, each once in 5 seconds. In place of one that is silent its neighbour reports."""
    dice = random.Random(index)
    sensor, turn = index % SENSORS, index // SENSORS
    silent = random.Random(f"{sensor}/{turn // 10}").random() < 0.05
    return (sensor + 1) % SENSORS if silent else sensor, START_MS + index * 50, round(dice.gauss(20, 3), 1)


class Watch(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.heard = runtime_context.get_map_state(MapStateDescriptor("heard", LONG, Types.BOOLEAN()))
        self.last_heard = runtime_context.get_state(ValueStateDescriptor("last heard", LONG))
        self.silent = runtime_context.get_state(ValueStateDescriptor("silent", Types.BOOLEAN()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> None:
        """Readings arrive in any order. Each waits for its time, so that they are looked at in theirs."""
        self.heard.put(value.at, True)
        ctx.timer_service().register_event_time_timer(value.at)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[object]:
        sensor, last_heard = ctx.get_current_key(), self.last_heard.value()
        if self.heard.contains(timestamp):
            self.heard.remove(timestamp)
            if self.silent.value() and last_heard is not None:
                self.silent.clear()
                yield BACK, (sensor, timestamp - last_heard)
            self.last_heard.update(timestamp)
            ctx.timer_service().register_event_time_timer(timestamp + SILENCE_MS)
        elif last_heard == timestamp - SILENCE_MS:
            self.silent.update(True)
            yield sensor, last_heard


def alerts_and_returns(env: StreamExecutionEnvironment, readings: int = READINGS) -> tuple[DataStream, DataStream]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2)).with_timestamp_column("at")
    source = env.from_source(DataGeneratorSource(reading, readings, type_info=READING), strategy, "readings")
    alerts = source.key_by(lambda row: row.sensor, LONG).process(Watch(), ALERT).name("Watch")
    return alerts, alerts.get_side_output(BACK)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    alerts, back = alerts_and_returns(env)
    alerts.print("silent since")
    back.print("back after ms")
    env.execute("silent sensors")
