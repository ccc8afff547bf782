"""Orders in many currencies, each with the exchange rate that held when it was placed.

    penstock run examples/orders_in_euros.py

Two streams are connected by currency. An order waits in state until event time has passed it. Then every rate that
could be its own has been seen, so the result does not depend on which stream happened to be faster.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from penstock.common import Duration, Row, Types, WatermarkStrategy
from penstock.datastream import (
    DataStream,
    KeyedCoProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.datagen import DataGeneratorSource

ORDERS = 20_000
START_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC
CURRENCIES = ("USD", "GBP", "CHF", "JPY")

LONG, STRING, DOUBLE = Types.LONG(), Types.STRING(), Types.DOUBLE()
ORDER = Types.ROW_NAMED(["number", "currency", "amount", "at"], [LONG, STRING, DOUBLE, LONG])
RATE = Types.ROW_NAMED(["currency", "euros", "at"], [STRING, DOUBLE, LONG])
CONVERTED = Types.TUPLE([LONG, STRING, DOUBLE])
LATE = OutputTag("late orders", ORDER)


def order(index: int) -> tuple[int, str, float, int]:
    dice = random.Random(index)
    return index, dice.choice(CURRENCIES), dice.randrange(100, 50_000) / 100, START_MS + index * 50


def rate(index: int) -> tuple[str, float, int]:
    """Each currency has a new rate every four seconds, from before the first order on."""
    dice = random.Random(-index - 1)
    return CURRENCIES[index % 4], round(dice.uniform(0.5, 1.5), 4), START_MS - 4_000 + index * 1_000


class Convert(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.rates = runtime_context.get_map_state(MapStateDescriptor("rates", LONG, DOUBLE))
        self.orders = runtime_context.get_list_state(ListStateDescriptor("orders", ORDER))

    def process_element1(self, value: Row, ctx: KeyedCoProcessFunction.Context) -> Iterator[object]:
        timers = ctx.timer_service()
        if value.at <= timers.current_watermark():
            yield LATE, value
        else:
            self.orders.add(value)
            timers.register_event_time_timer(value.at)

    def process_element2(self, value: Row, ctx: KeyedCoProcessFunction.Context) -> None:
        self.rates.put(value.at, value.euros)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[object]:
        held_since = max(at for at in self.rates if at <= timestamp)
        waiting = []
        for order in self.orders.get():
            if order.at <= timestamp:
                yield order.number, order.currency, round(order.amount * self.rates.get(held_since), 2)
            else:
                waiting.append(order)
        self.orders.update(waiting)
        for at in [at for at in self.rates if at < held_since]:
            self.rates.remove(at)


def converted_orders(env: StreamExecutionEnvironment, orders: int = ORDERS) -> DataStream:
    by_column = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1)).with_timestamp_column("at")
    rates = orders // 20 + 4
    placed = env.from_source(DataGeneratorSource(order, orders, type_info=ORDER), by_column, "orders")
    quoted = env.from_source(DataGeneratorSource(rate, rates, type_info=RATE), by_column, "rates")
    return (
        placed.connect(quoted)
        .key_by(lambda row: row.currency, lambda row: row.currency, STRING)
        .process(Convert(), CONVERTED)
        .name("Convert")
    )


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    converted = converted_orders(env)
    converted.print()
    converted.get_side_output(LATE).print("late")
    env.execute("orders in euros")
