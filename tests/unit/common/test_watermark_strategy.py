"""Checks what strategies generate, also from their snapshots: a watermark too high would make rows late."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable

import cloudpickle
import pytest

from penstock.common import Configuration, Duration, ExecutionConfig, OptionError, Time
from penstock.common.watermark_strategy import (
    NO_TIMESTAMP,
    MaxTimestampGenerator,
    TimestampAssigner,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)


class Heard(WatermarkOutput):
    def __init__(self) -> None:
        self.said: list[int | str] = []

    def emit_watermark(self, watermark: Watermark) -> None:
        self.said.append(watermark.timestamp)

    def mark_idle(self) -> None:
        self.said.append("idle")

    def mark_active(self) -> None:
        self.said.append("active")


class Second(TimestampAssigner):
    def extract_timestamp(self, value: tuple[str, int], record_timestamp: int) -> int:
        return value[1]


class Punctuated(WatermarkGenerator):
    def on_event(self, event: object, event_timestamp: int, output: WatermarkOutput) -> None:
        if event == "mark":
            output.emit_watermark(Watermark(event_timestamp))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


def largest(strategy: WatermarkStrategy) -> MaxTimestampGenerator:
    generator = strategy.create_generator()
    assert isinstance(generator, MaxTimestampGenerator)
    return generator


def periodic(generator: WatermarkGenerator) -> list[int | str]:
    heard = Heard()
    generator.on_periodic_emit(heard)
    return heard.said


def test_every_method_returns_another_strategy() -> None:
    plain = WatermarkStrategy.for_monotonous_timestamps()
    assigned = plain.with_timestamp_assigner(Second())
    idle = assigned.with_idleness(Duration.of_seconds(5))
    by_column = idle.with_timestamp_column("at")
    assert (plain.timestamp_assigner, plain.idle_timeout, plain.assigns_timestamps) == (None, None, False)
    assert assigned.idle_timeout is None and assigned.assigns_timestamps
    assert (
        idle.extract_timestamp is not None
        and idle.extract_timestamp(("a", 7), NO_TIMESTAMP) == 7
        and idle.idle_timeout == Duration.of_seconds(5)
    )
    assert by_column.timestamp_assigner is None and by_column.extract_timestamp is None
    assert by_column.timestamp_column == "at" and by_column.idle_timeout == idle.idle_timeout
    with pytest.raises(AttributeError):
        plain.timestamp_column = "at"  # type: ignore[misc]


def test_strategies_that_say_the_same_are_equal() -> None:
    bounded = WatermarkStrategy.for_bounded_out_of_orderness
    assert bounded(Duration.of_seconds(2)) == bounded(Time.seconds(2)) == bounded("2 s") == bounded(2000)
    assert bounded(2000) != bounded(2001) and bounded(0) != WatermarkStrategy.for_monotonous_timestamps()


@pytest.mark.parametrize("strategy, generates", [
    (WatermarkStrategy.no_watermarks(), False),
    (WatermarkStrategy.for_monotonous_timestamps(), True),
    (WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(3)), True),
    (WatermarkStrategy.for_generator(Punctuated), True),
])  # fmt: skip
def test_only_no_watermarks_generates_none(strategy: WatermarkStrategy, generates: bool) -> None:
    assert strategy.generates_watermarks is generates
    assert pickle.loads(cloudpickle.dumps(strategy)).create_generator() is not strategy.create_generator()


def test_a_callable_is_an_assigner() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, before: row + before)
    assert pickle.loads(cloudpickle.dumps(strategy)).extract_timestamp(1, 2) == 3


def test_what_a_strategy_is_called() -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(20))
    assert str(strategy) == "for_bounded_out_of_orderness(20 s)"
    assert str(strategy.with_timestamp_column("at").with_idleness(Duration.of_minutes(1))) == (
        "for_bounded_out_of_orderness(20 s), timestamps from column 'at', idle after 1 min"
    )


@pytest.mark.parametrize("call, error, says", [
    (lambda s: s.for_bounded_out_of_orderness(Time.seconds(-1)), ValueError, "the bound is a Duration of 0 ms or more"),
    (lambda s: s.for_bounded_out_of_orderness(-1), ValueError, "got -1"),
    (lambda s: s.for_bounded_out_of_orderness(None), ValueError, "got None"),
    (lambda s: s.with_idleness(0), ValueError, "more than 0 ms"),
    (lambda s: s.with_idleness(-3), ValueError, "got -3"),
    (lambda s: s.with_timestamp_assigner(Second), TypeError, r"give it an object: Second\(\)"),
    (lambda s: s.with_timestamp_assigner("at"), TypeError, "takes a TimestampAssigner or a callable .* got 'at'"),
    (lambda s: s.with_timestamp_assigner(None), TypeError, "got None"),
    (lambda s: s.with_timestamp_column(3), TypeError, "name of a column, got 3"),
    (lambda s: s.for_generator(Punctuated()), TypeError, "every subtask has its own"),
    (lambda s: s.for_generator("x"), TypeError, "got 'x'"),
    (lambda s: s.for_generator(Second), TypeError, "Second is no WatermarkGenerator"),
    (lambda s: s.for_generator(lambda: 5).create_generator(), TypeError, "for_generator: the callable returned 5"),
    (lambda s: Watermark(1.5), TypeError, "whole number of milliseconds, got 1.5"),  # type: ignore[arg-type]
])  # fmt: skip
def test_what_cannot_be_is_said_at_once(
    call: Callable[[WatermarkStrategy], object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        call(WatermarkStrategy.for_monotonous_timestamps())


def test_bounded_out_of_orderness_follows_the_largest_timestamp() -> None:
    generator = largest(WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(10)))
    assert periodic(generator) == []
    generator.on_max(100)
    generator.on_max(50)
    assert periodic(generator) == [89] == periodic(generator)
    generator.on_event("row", 200, Heard())
    assert periodic(generator) == [189]


def test_monotonous_timestamps_leave_room_for_the_same_one() -> None:
    generator = largest(WatermarkStrategy.for_monotonous_timestamps())
    generator.on_max(100)
    assert periodic(generator) == [99]


def test_the_smallest_timestamps_do_not_leave_64_bits() -> None:
    generator = largest(WatermarkStrategy.for_bounded_out_of_orderness(5))
    generator.on_max(NO_TIMESTAMP + 2)
    assert periodic(generator) == [NO_TIMESTAMP]


def test_generators_go_on_where_their_snapshot_was_taken() -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(5)
    before, after, fresh = (largest(strategy) for _ in range(3))
    before.on_max(1000)
    after.restore(before.snapshot())
    assert periodic(after) == [994]
    fresh.restore(strategy.create_generator().snapshot())
    assert periodic(fresh) == []
    with pytest.raises(struct.error):
        fresh.restore(b"damaged")


def test_a_generator_of_the_users() -> None:
    strategy = WatermarkStrategy.for_generator(Punctuated)
    generator, heard = strategy.create_generator(), Heard()
    generator.on_event("row", 5, heard)
    generator.on_event("mark", 7, heard)
    assert heard.said == [7] and generator.snapshot() == b""
    generator.restore(b"")
    assert periodic(WatermarkStrategy.no_watermarks().create_generator()) == []


def test_the_interval_is_an_option() -> None:
    config = ExecutionConfig(Configuration())
    assert config.get_auto_watermark_interval() == 200
    assert config.set_auto_watermark_interval(50).get_auto_watermark_interval() == 50
    written = Configuration({"pipeline.auto-watermark-interval": "1 s"})
    assert ExecutionConfig(written).get_auto_watermark_interval() == 1000
    with pytest.raises(OptionError, match="pipeline.auto-watermark-interval"):
        config.set_auto_watermark_interval(-1)
