"""Declares a job that has every kind of edge, and what its output must be, whatever dies on the way.

Run as a program it takes: output directory, rows, rows per second. Options come with `penstock run -D` or the
environment's configuration.
"""

from __future__ import annotations

import collections
import os
import sys
import time

from penstock.common import Encoder, Types, WatermarkStrategy
from penstock.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink

KEYS = 17
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class Tag(MapFunction):
    """Names the edge that a row came on; slow now and then, so that something is always in flight."""

    def __init__(self, name: str) -> None:
        self.name = name

    def map(self, value: int) -> tuple[str, int]:
        if value % 50 == 0:
            time.sleep(0.002)
        return (self.name, value)


class NumberPerKey(KeyedProcessFunction):
    """Counts per key: the numbers 1 to n come out once each exactly if nothing is lost and nothing counts twice."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value: tuple[str, int], ctx: KeyedProcessFunction.Context):  # type: ignore[no-untyped-def]
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if count % 40 == 0:
            time.sleep(0.003)
        yield (f"keyed {ctx.get_current_key()}", count)


def build(
    env: StreamExecutionEnvironment,
    output: str,
    rows: int,
    rows_per_second: float,
    parallelism: int,
    broadcasts: bool = True,
) -> None:
    """`broadcasts` False: every edge but that, whose output depends on the parallelism."""
    env.set_parallelism(parallelism)
    numbers = env.from_source(
        DataGeneratorSource(lambda i: i, rows, type_info=Types.LONG(), rows_per_second=rows_per_second),
        WatermarkStrategy.no_watermarks(),
        "numbers",
        Types.LONG(),
    )
    edges = {
        "forward": numbers.forward(),
        "rebalance": numbers.rebalance(),
        "rescale": numbers.rescale(),
        "shuffle": numbers.shuffle(),
        "broadcast": numbers.broadcast(),
        "global": numbers.global_(),
        "custom": numbers.partition_custom(lambda key, n: key % n, lambda value: value),
    }
    if not broadcasts:
        del edges["broadcast"]
    tagged = {name: edge.map(Tag(name), PAIR).name(name) for name, edge in edges.items()}
    first, *others = tagged.values()
    union = first.union(*others)
    keyed = union.key_by(lambda row: row[1] % KEYS, Types.LONG()).process(NumberPerKey(), PAIR).name("number per key")
    keyed.union(*tagged.values()).map(lambda row: f"{row[0]},{row[1]}", Types.STRING()).name("line").sink_to(
        FileSink.for_row_format(output, Encoder.simple_string_encoder()).build()
    )


def violations(output: str, rows: int, parallelism: int) -> list[str]:
    """Return what is wrong with the committed files; empty if the output is exact. `parallelism` 0: it had no
    broadcast."""
    found: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for folder, _, names in os.walk(output):
        for name in names:
            if not name.startswith((".", "_")):
                with open(os.path.join(folder, name)) as part:
                    for line in part:
                        edge, value = line.rstrip("\n").rsplit(",", 1)
                        found[edge][int(value)] += 1
    wrong = []
    copies = {"broadcast": parallelism}
    for edge in ("forward", "rebalance", "rescale", "shuffle", "broadcast", "global", "custom"):
        expected = copies.get(edge, 1)
        if expected == 0:
            continue
        bad = [(v, found[edge][v]) for v in range(rows) if found[edge][v] != expected]
        if bad or len(found[edge]) != rows:
            wrong.append(f"{edge}: {len(bad)} of {rows} values not {expected} times: {bad[:5]}")
    per_value = 6 + parallelism
    for key in range(KEYS):
        expected = per_value * len(range(key, rows, KEYS))
        counted = found[f"keyed {key}"]
        if counted != collections.Counter(range(1, expected + 1)):
            missing = expected - len(counted)
            twice = [v for v, n in counted.items() if n > 1][:5]
            wrong.append(f"key {key}: expected 1..{expected}; {missing} missing, twice: {twice}")
    return wrong


if __name__ == "__main__":
    environment = StreamExecutionEnvironment.get_execution_environment()
    build(environment, sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), environment.get_parallelism())
    environment.execute("every edge")
