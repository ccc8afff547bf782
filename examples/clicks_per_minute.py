"""Clicks per page and minute of the day, in event time; those that come too late go to an output of their own.

    penstock run examples/clicks_per_minute.py

Clicks come up to three seconds late, as the strategy says; some (a phone that was in a tunnel) come minutes late.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.datastream import (
    AggregateFunction,
    DataStream,
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TimeWindow,
    TumblingEventTimeWindows,
)
from penstock.datastream.connectors.datagen import DataGeneratorSource

CLICKS = 50_000
START_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC
PAGES = ("home", "search", "basket", "order")

CLICK = Types.ROW_NAMED(["page", "at"], [Types.STRING(), Types.LONG()])
COUNT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
LATE = OutputTag("late", CLICK)


def click(index: int) -> tuple[str, int]:
    """A hundred clicks per second, seeded by the index, so that a restored job sees the same ones."""
    dice = random.Random(index)
    delay_ms = 5 * 60_000 if dice.random() < 0.001 else dice.randrange(3_000)
    return dice.choices(PAGES, weights=(8, 4, 2, 1))[0], START_MS + index * 10 - delay_ms


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: tuple[str, int], accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator


class WithMinute(ProcessWindowFunction[int, tuple[str, int, int], str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[int]
    ) -> Iterator[tuple[str, int, int]]:
        for count in elements:
            yield key, context.window().start, count


def counts_and_late_clicks(env: StreamExecutionEnvironment, clicks: int = CLICKS) -> tuple[DataStream, DataStream]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(3)).with_timestamp_column("at")
    source = env.from_source(DataGeneratorSource(click, clicks, type_info=CLICK), strategy, "clicks")
    counts = (
        source.key_by(lambda row: row.page, Types.STRING())
        .window(TumblingEventTimeWindows.of(Duration.of_minutes(1)))
        .side_output_late_data(LATE)
        .aggregate(Count(), WithMinute(), accumulator_type=Types.LONG(), output_type=COUNT)
        .name("Clicks per minute")
    )
    return counts, counts.get_side_output(LATE)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    counts, late = counts_and_late_clicks(env)
    counts.print()
    late.print("late")
    env.execute("clicks per minute")
