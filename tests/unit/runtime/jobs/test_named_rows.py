"""A reduce function may return a Row by position: its next call finds the names of the declared type."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from penstock.common import Row, Types, WatermarkStrategy
from penstock.common.configuration import Configuration
from penstock.common.time import Time
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ReducingStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_small_jobs import SMALL, finish

SALE = Types.ROW_NAMED(["shop", "amount"], [Types.STRING(), Types.LONG()])
SALES = [Row("a", 1), Row("b", 5), Row("a", 2), Row("a", 3)]


def by_position(first: Row, second: Row) -> Row:
    return Row(first.shop, first.amount + second.amount)


def as_tuple(first: Row, second: Row) -> tuple[Any, ...]:
    return first.shop, first.amount + second.amount


class Reducing(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.sums = runtime_context.get_reducing_state(ReducingStateDescriptor("sums", by_position, SALE))

    def process_element(self, value: Row, ctx: Any) -> Any:
        self.sums.add(value)
        yield self.sums.get()


def keyed(env: StreamExecutionEnvironment) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row.amount)
    return env.from_collection(SALES, SALE).assign_timestamps_and_watermarks(strategy).key_by("shop")


BUILDS: list[Callable[[Any], Any]] = [
    lambda stream: stream.reduce(by_position),
    lambda stream: stream.reduce(as_tuple),
    lambda stream: stream.window(TumblingEventTimeWindows.of(Time.milliseconds(100))).reduce(by_position),
    lambda stream: stream.process(Reducing(), SALE),
]


@pytest.mark.parametrize("build", BUILDS, ids=["reduce", "tuple", "window", "state"])
def test_results_have_the_names_of_their_type(build: Callable[[Any], Any]) -> None:
    job = SmallJob(graph_of(lambda env: build(keyed(env)).sink_to(CommittedRows())), Configuration(SMALL))
    rows = [row.to_tuple() for row in finish(job, 1)]
    assert ("a", 6) in rows and ("b", 5) in rows
    job.close()
