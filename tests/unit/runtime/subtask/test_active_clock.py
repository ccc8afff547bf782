"""A subtask's rates leave out the time in which it could not have consumed anything."""

from __future__ import annotations

import pytest

from penstock.protocol.channel.flow_control import BoundSizer
from penstock.runtime.subtask.active_clock import ActiveClock
from tests.unit.runtime.jobs.small_job import ManualClock


def test_it_stands_still_between_pause_and_resume() -> None:
    clock = ManualClock()
    active = ActiveClock(clock)
    started_ms = active.now_ms()
    clock.now_ms += 5
    active.pause()
    clock.now_ms += 100
    active.pause()
    assert active.now_ms() - started_ms == 5
    clock.now_ms += 100
    active.resume()
    active.resume()
    clock.now_ms += 3
    assert active.now_ms() - started_ms == 8


def test_a_window_per_wait_does_not_shrink_the_window() -> None:
    """Beside busy processes both ends wait for a processor after each window. By the wall clock the rate is then a
    window per wait, and the bound follows it down to its least size."""
    sizes = {}
    for leaves_out_waits in (True, False):
        clock = ManualClock()
        active = ActiveClock(clock)
        sizer = BoundSizer(16_384, 4 << 20, 25.0)
        consumed_bytes = 0
        for _ in range(200):
            clock.now_ms += max(1.0, sizer.bound_bytes / 100_000)  # 100 MB/s while it works
            consumed_bytes += sizer.bound_bytes
            sizer.update(consumed_bytes, active.now_ms() if leaves_out_waits else clock.now_ms)
            active.pause()
            clock.now_ms += 100.0
            active.resume()
        sizes[leaves_out_waits] = sizer.bound_bytes
    assert sizes[False] == 16_384
    assert sizes[True] == pytest.approx(25 * 100_000, rel=0.01)
