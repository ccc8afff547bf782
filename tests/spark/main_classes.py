"""Keeps objects of its own classes everywhere, and checks in each place that they are of the classes it has now.

The arguments are a version, and the directory of a savepoint that the job is stopped with. Without the second it runs
to its end.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from penstock.common import JobStatus, Types, WatermarkStrategy
from penstock.connectors.generators.rate import RateLimiterStrategy
from penstock.datastream import (
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

VERSION = sys.argv[1]
ROWS, PER_SECOND, KEYS = 6000, 1500, 50


class Color(Enum):
    RED = 1
    BLUE = 2

    def version(self) -> str:
        return VERSION


@dataclass
class Order:
    number: int
    color: Color
    tags: list[str] = field(default_factory=list)

    def version(self) -> str:
        return VERSION


class Outer:
    class Inner:
        pass


class Point(NamedTuple):
    x: int
    y: int


class Refused(ValueError):
    pass


def local() -> type:
    class Local:
        pass

    return Local


Local = local()


def objects(number: int) -> list[Any]:
    return [Color.RED, Order(number, Color.BLUE), Outer.Inner(), Point(1, 2), Refused("no"), Local()]


def check(where: str, found: list[Any]) -> None:
    for value, kind in zip(found, (Color, Order, Outer.Inner, Point, Refused, Local)):
        assert type(value) is kind and isinstance(value, kind), (where, value, type(value), kind)
    assert found[0] is Color.RED and found[0] in (Color.RED,) and found[1] == Order(found[1].number, Color.BLUE), where
    assert found[0].version() == found[1].version() == VERSION, where


class Keep(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.objects = runtime_context.get_state(ValueStateDescriptor("objects", Types.PICKLED_BYTE_ARRAY()))
        self.by_color = runtime_context.get_map_state(MapStateDescriptor("by_color"))

    def process_element(self, row: Any, ctx: Any) -> Any:
        check("in flight", row[1])
        if self.objects.value() is not None:
            check("keyed state", self.objects.value())
            assert next(iter(self.by_color.keys())) is Color.RED and self.by_color.contains(Color.RED)
        self.objects.update(row[1])
        self.by_color.put(Color.RED, row[0])
        yield row[0]


class Remember(MapFunction, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        self.list = context.get_operator_state_store().get_list_state(ListStateDescriptor("objects"))
        for found in self.list.get():
            check("operator state", found)
            print("operator state is restored")

    def snapshot_state(self, context: Any) -> None:
        self.list.update([objects(0)])

    def map(self, value: int) -> int:
        return value


RULES = MapStateDescriptor("rules", Types.STRING())


class Rules(KeyedBroadcastProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        if (found := ctx.get_broadcast_state(RULES).get("rule")) is not None:
            check("broadcast state", found)
        return []

    def process_broadcast_element(self, value: int, ctx: Any) -> Any:
        if (found := ctx.get_broadcast_state(RULES).get("rule")) is not None:
            check("broadcast state", found)
        ctx.get_broadcast_state(RULES).put("rule", objects(value))
        return []


def numbers(env: StreamExecutionEnvironment, name: str, share: int) -> Any:
    rate = RateLimiterStrategy.per_second(PER_SECOND / share)
    source = DataGeneratorSource(lambda number: number, ROWS // share, rate, Types.LONG())
    return env.from_source(source, WatermarkStrategy.no_watermarks(), name, Types.LONG()).uid(name)


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.enable_checkpointing(300)
    rows = numbers(env, "numbers", 1).map(lambda number: (number, objects(number))).uid("objects")
    kept = rows.key_by(lambda row: row[0] % KEYS).process(Keep(), Types.LONG()).uid("keep")
    remembered = kept.map(Remember(), Types.LONG()).uid("remember")
    rules = numbers(env, "rules", 10).broadcast(RULES)
    ruled = remembered.key_by(lambda number: number % KEYS).connect(rules).process(Rules(), Types.LONG()).uid("ruled")
    ruled.print().uid("print")
    client = env.execute_async("main classes")
    if len(sys.argv) > 2:
        while client.get_job_status().result() is not JobStatus.RUNNING:
            pass
        saved = client.stop_with_savepoint(False, sys.argv[2]).result()
        print(f"saved {saved}")
    else:
        client.get_job_execution_result().result()
        print("finished")


if __name__ == "__main__":
    main()
