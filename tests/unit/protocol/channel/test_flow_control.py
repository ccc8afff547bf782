"""Windows and queues follow what is consumed: up at once, down slowly, and always within their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.channel.flow_control import BoundSizer

MIN, MAX, TARGET_MS = 1_000, 1_000_000, 10.0


def bounds(rates: Sequence[float], step_ms: float = 10.0) -> list[int]:
    """The bound after each interval in which so many bytes per ms were consumed."""
    sizer = BoundSizer(MIN, MAX, TARGET_MS)
    now_ms = consumed = 0.0
    sizer.update(0, now_ms)
    found = []
    for rate in rates:
        now_ms += step_ms
        consumed += rate * step_ms
        before = sizer.bound_bytes
        assert sizer.update(int(consumed), now_ms) == (sizer.bound_bytes != before)
        found.append(sizer.bound_bytes)
    return found


def test_it_begins_small_and_rises_to_the_rate_times_the_target() -> None:
    assert bounds([5_000] * 5) == [4_000, 16_000, 50_000, 50_000, 50_000]


def test_it_falls_slowly_to_what_is_consumed_now() -> None:
    found = bounds([5_000] * 5 + [0] * 40)
    assert found[5] == 40_000
    assert all(b <= a for a, b in pairwise(found[4:]))
    assert found[-1] == MIN


def test_a_pause_of_one_interval_costs_a_fifth() -> None:
    found = bounds([5_000] * 5 + [0, 5_000])
    assert found[-2:] == [40_000, 50_000]


@pytest.mark.parametrize("target_ms", [0.0, -1.0])
def test_without_a_target_the_bound_is_fixed(target_ms: float) -> None:
    sizer = BoundSizer(MIN, MAX, target_ms)
    assert sizer.bound_bytes == MAX
    assert not sizer.update(0, 0.0) and not sizer.update(10**9, 1_000.0)
    assert sizer.bound_bytes == MAX


def test_a_least_size_above_the_greatest_is_the_greatest() -> None:
    assert BoundSizer(5_000, 2_000, TARGET_MS).bound_bytes == 2_000


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(-5.0, 1e6)), max_size=30))
@settings(max_examples=60, deadline=None)
def test_it_stays_within_its_bounds_whatever_clock_and_counter_do(steps: list[tuple[int, float]]) -> None:
    sizer = BoundSizer(MIN, MAX, TARGET_MS)
    now_ms, consumed = 0.0, 0
    for more, passed_ms in steps:
        now_ms += passed_ms
        consumed += more
        sizer.update(consumed, now_ms)
        assert MIN <= sizer.bound_bytes <= MAX


# Flink's own test of its threshold: (throughput in bytes/s, size), with a target of 1 s and one sample.
@pytest.mark.parametrize(
    "steps",
    [
        [(500, 500), (1_000, 1_000), (2_000, 1_100), (2_000, 1_100)],
        [(60, 60), (60, 60), (40, 50), (40, 50)],
    ],
)
def test_small_changes_are_left_out_except_to_the_least_and_greatest_size(steps: list[tuple[int, int]]) -> None:
    sizer = BoundSizer(50, 1_100, 1_000.0, samples=1, threshold=0.25)
    consumed, sizer._wanted, sizer.bound_bytes = 0, 1_100.0, 1_100
    sizer.update(0, 0.0)
    for second, (rate, size_bytes) in enumerate(steps, 1):
        consumed += rate
        before = sizer.bound_bytes
        assert sizer.update(consumed, second * 1_000.0) == (size_bytes != before)
        assert sizer.bound_bytes == size_bytes


def test_changes_below_the_threshold_add_up() -> None:
    sizer = BoundSizer(MIN, MAX, TARGET_MS, samples=9, threshold=0.5)
    sizer.update(0, 0.0)
    consumed = 0
    found = []
    for step in range(1, 40):
        consumed += (5_000 if step < 6 else 2_000) * 10
        sizer.update(consumed, step * 10.0)
        found.append(sizer.bound_bytes)
    assert found[4] == 50_000
    assert set(found[5:]) >= {50_000} and found[-1] < 26_000, "half of it, though no step was that large"
