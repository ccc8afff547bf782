"""Tests the metrics that functions ask for: their values by name, and their way to reports and results."""

from __future__ import annotations

import logging
from copy import copy
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest

import penstock.metrics
from penstock.common import Configuration, Types
from penstock.common.metrics import MetricGroup
from penstock.datastream import FlatMapFunction, MapFunction, SinkFunction, SourceFunction, StreamExecutionEnvironment
from penstock.operators.user_metrics import UserMetrics
from penstock.protocol.values.messages import ReachedEndOfData
from tests.unit.runtime.jobs.small_job import CommittedRows, SmallJob, graph_of
from tests.unit.runtime.jobs.test_small_jobs import SMALL, finish


class Clock:
    now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def test_values_by_name() -> None:
    metrics = UserMetrics(Clock())
    group = metrics.group("Map")
    lines = group.add_group("lines")
    bad = lines.counter("bad")
    bad.inc()
    bad.inc(4)
    bad.dec(2)
    assert lines.counter("bad") is bad and bad.get_count() == 3
    group.add_group("city", "Vienna").counter("seen").inc()
    group.gauge("size", lambda: 7)
    group.gauge("state", lambda: "open")
    sizes = group.distribution("sizes")
    for value in (4, 1, 7):
        sizes.update(value)
    group.distribution("none")
    metrics.group("Filter").add_group("lines").counter("bad").inc(10)
    assert metrics.values() == {
        "Map.lines.bad": 3, "Map.city.Vienna.seen": 1, "Map.size": 7, "Map.state": "open", "Filter.lines.bad": 10,
        "Map.sizes_count": 3, "Map.sizes_sum": 12, "Map.sizes_min": 1, "Map.sizes_max": 7, "Map.sizes_mean": 4.0,
        "Map.none_count": 0, "Map.none_sum": 0, "Map.none_min": 0, "Map.none_max": 0, "Map.none_mean": 0.0,
    }  # fmt: skip
    assert metrics.totals() == {"lines.bad": 13, "city.Vienna.seen": 1}


def test_a_meter_shows_the_rate_of_its_time_span() -> None:
    clock = Clock()
    metrics = UserMetrics(clock)
    meter = metrics.group("Map").meter("events", 10)
    assert metrics.values() == {"Map.events": 0.0}
    rate: Any = None
    for second in range(1, 31):
        clock.now_ms = 1000.0 * second
        meter.mark_event(2 if second <= 15 else 6)
        rate = metrics.values()["Map.events"]
        if second == 5:
            assert rate == 2.0
    assert rate == 6.0 and meter.get_count() == 120


def test_what_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    metrics = UserMetrics(Clock())
    group = metrics.group("Map")
    group.counter("a")
    with pytest.raises(ValueError, match="the metric Map.a is there already, as a Counter"):
        group.meter("a")
    with pytest.raises(ValueError, match="time_span_in_seconds is more than 0"):
        group.meter("b", 0)
    with pytest.raises(TypeError, match="takes a function without parameters, got 5"):
        group.gauge("c", 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="have a name"):
        group.add_group("")
    group.gauge("broken", lambda: 1 / 0)
    with caplog.at_level(logging.WARNING):
        assert metrics.values() == metrics.values() == {"Map.a": 0}
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "the gauge Map.broken cannot be read: ZeroDivisionError: division by zero"


def test_figures_of_any_numbers_can_be_sent() -> None:
    class Level(IntEnum):
        HIGH = 3

    class Name(str):
        pass

    metrics = UserMetrics(Clock())
    group = metrics.group("Map")
    counts: dict[str, Any] = {"rows": np.int64(3), "many": 2**80, "part": Fraction(5, 2)}
    for name, value in counts.items():
        group.counter(name).inc(value)
    events: Any = np.int32(4)
    group.meter("rate").mark_event(events)
    sizes: Any = group.distribution("sizes")
    for value in (np.float32(1.5), np.int64(4), 2**70):
        sizes.update(value)
    gauges: dict[str, Any] = {
        "float": np.float64(0.5), "int": np.int64(-7), "bool": True, "many": -(2**80), "nan": float("nan"),
        "level": Level.HIGH, "name": Name("x"), "exact": Decimal("1.5"), "none": None, "array": np.array([1, 2]),
    }  # fmt: skip
    for name, value in gauges.items():
        group.add_group("gauges").gauge(name, partial(copy, value))
    values = metrics.values()
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(values), type=dict[str, int | float | str])
    assert sent["Map.rows"] == 3 and sent["Map.many"] == 2**63 - 1 and sent["Map.sizes_max"] == 2**63 - 1
    assert sent["Map.gauges.float"] == 0.5 and sent["Map.gauges.int"] == -7 and sent["Map.gauges.many"] == -(2**63)
    assert (
        sent["Map.gauges.level"] == 3
        and sent["Map.gauges.bool"] == 1
        and sent["Map.gauges.array"] == "[1 2]"
        and sent["Map.gauges.none"] == "None"
    )
    totals = metrics.totals()
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(totals)) == {"rows": 3, "many": 2**63 - 1, "part": 2}


class Count(MapFunction):
    def open(self, runtime_context: Any) -> None:
        group = runtime_context.get_metrics_group()
        assert isinstance(group, MetricGroup) and isinstance(group, penstock.metrics.MetricGroup)
        self.rows = group.counter("rows")
        group.gauge("subtask", runtime_context.get_index_of_this_subtask)

    def map(self, value: Any) -> Any:
        self.rows.inc()
        return value


class Twice(FlatMapFunction):
    def open(self, runtime_context: Any) -> None:
        self.rows = runtime_context.get_metrics_group().counter("rows")

    def flat_map(self, value: Any) -> Any:
        self.rows.inc()
        yield value


class Numbers(SourceFunction):
    def open(self, runtime_context: Any) -> None:
        self.made = runtime_context.get_metrics_group().counter("made")

    def run(self) -> Any:
        for number in range(10):
            self.made.inc()
            yield number


class Taken(SinkFunction):
    def open(self, runtime_context: Any) -> None:
        self.taken = runtime_context.get_metrics_group().counter("taken")

    def invoke(self, value: Any) -> None:
        self.taken.inc()


def test_statuses_carry_them_from_functions_sources_and_sinks() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Numbers(), "numbers", Types.LONG())
        counted = numbers.rebalance().map(Count(), Types.LONG()).name("count")
        keyed = counted.key_by(lambda n: n % 3, Types.LONG()).flat_map(Twice(), Types.LONG()).name("twice")
        keyed.add_sink(Taken())
        keyed.sink_to(CommittedRows())

    job = SmallJob(graph_of(build, 2), Configuration(SMALL))
    finish(job, 1)
    ended = [message.status for message in job.messages if isinstance(message, ReachedEndOfData)]
    statuses = [status for status in ended if status is not None]
    assert {"Source: numbers.made": 10} in [status.metrics for status in statuses]
    counted = [status for status in statuses if "count.rows" in status.metrics]
    assert sorted(status.metrics["count.subtask"] for status in counted) == [0, 1]
    totals: dict[str, int] = {}
    for status in statuses:
        for name, count in status.accumulators.items():
            totals[name] = totals.get(name, 0) + count
    assert totals == {"made": 10, "rows": 20, "taken": 10}
    job.close()
