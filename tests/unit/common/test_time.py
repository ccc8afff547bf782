"""Reads durations as Flink writes them, and refuses by name what is none."""

from __future__ import annotations

import datetime

import pytest

from penstock.common.time import Duration, Time


@pytest.mark.parametrize(
    "text, nanoseconds",
    [("500 ms", 500 * 10**6), ("500ms", 500 * 10**6), ("10 min", 600 * 10**9), ("1 d", 86400 * 10**9), ("7", 7 * 10**6),
     ("2 hours", 7200 * 10**9), ("3 S", 3 * 10**9), ("5 µs", 5000), ("9 nanos", 9), ("0", 0),
     (" 1 minute ", 60 * 10**9)],
)  # fmt: skip
def test_flink_writes_durations_like_this(text: str, nanoseconds: int) -> None:
    duration = Duration.parse(text)
    assert duration.nanoseconds == nanoseconds
    assert Duration.parse(str(duration)) == duration


@pytest.mark.parametrize("text", ["", "ms", "-1 s", "1.5 s", "10 parsecs", "1 s 5 ms"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        Duration.parse(text)


def test_plain_equivalents() -> None:
    assert Duration.of(1500) == Duration.of(datetime.timedelta(seconds=1.5)) == Duration.of("1500 ms")
    assert Duration.of(Time.seconds(2)) == Duration.of_seconds(2)
    assert Duration.of_millis(0.5).nanoseconds == 500_000
    assert Duration.of_seconds(1) > Duration.of_millis(999)
    assert (Duration.of_minutes(1).ms, Duration.of_minutes(1).seconds, Duration.of_hours(1).to_millis()) == (
        60_000.0,
        60.0,
        3_600_000,
    )
    with pytest.raises(ValueError, match="not negative"):
        Duration.of(-1)
