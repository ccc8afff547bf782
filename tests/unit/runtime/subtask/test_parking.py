"""Tests how long a subtask may pause for its snapshots."""

from __future__ import annotations

import pytest

from penstock.runtime.subtask.parking import Parking


def paused_ms(written_after_ms: int, interval_ms: int, lasts_ms: int = 4000) -> int:
    """Count the ms in which a subtask pauses that takes a snapshot each `interval_ms`."""
    parking, paused = Parking(20.0), 0
    for now_ms in range(lasts_ms):
        number, since_ms = divmod(now_ms, interval_ms)
        if since_ms == 0:
            parking.on_snapshot(number)
        if parking.is_due:
            parking.begin(now_ms)
        if since_ms == written_after_ms:
            parking.end(number)
        paused += parking.lasts(now_ms)
    return paused


@pytest.mark.parametrize(("written_after_ms", "interval_ms"), [(15, 16), (15, 30), (19, 19), (5, 6), (30, 25)])
def test_pauses_take_a_quarter_of_the_time_at_most(written_after_ms: int, interval_ms: int) -> None:
    assert paused_ms(written_after_ms, interval_ms) <= 4000 * 0.25 + 20


def test_a_pause_lasts_until_the_segment_is_written() -> None:
    assert paused_ms(7, 500) == 8 * 7


def test_a_second_snapshot_does_not_prolong_a_pause() -> None:
    parking = Parking(20.0)
    for number, now_ms in enumerate((0, 9, 18)):
        parking.on_snapshot(number)
        parking.begin(now_ms)
        assert parking.lasts(now_ms)
    assert not parking.lasts(20)
