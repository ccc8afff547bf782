"""Tests event time over restores at another parallelism, also in the middle of draining: no row becomes late that was
not, no window fires twice or early, no timer is lost.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.runtime.subtask.subtask import Subtask
from tests.unit.runtime.jobs.test_event_time_jobs import FREQUENT, counted, expected_counts
from tests.unit.runtime.jobs.test_rescaled_jobs import TIMEOUTS, Cascade


class TimedCascade(Cascade):
    options = FREQUENT


@pytest.mark.parametrize("mode", TIMEOUTS)
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (1, 4), (4, 1)])
def test_every_window_fires_once_with_all_its_rows(before: int, after: int, mode: str) -> None:
    for seed in range(3):
        cascade = TimedCascade(counted, seed)
        cascade.start(before)
        cascade.crash_after(cascade.random.randrange(5, 60), TIMEOUTS[mode])
        cascade.start(after)
        assert sorted(cascade.finish()) == expected_counts(), f"seed {seed}"


@pytest.mark.parametrize("resumes", [True, False])
def test_a_subtask_is_not_idle_while_a_firing_that_it_resumes_waits_for_room(resumes: bool) -> None:
    """Its time is not behind, if the one whose keys it has got was further. The next distance was released, or a second
    step of a restore begun, while its timers still emitted."""
    reported: list[bool] = []
    subtask: Any = SimpleNamespace(
        _draining=SimpleNamespace(is_over=False, report=lambda applied, emitted, read, idle: reported.append(idle)),
        work=SimpleNamespace(flush_held=lambda: None, unfinished=False, resumes_firing=resumes),
        event_time=SimpleNamespace(time=SimpleNamespace(behind=False)),
        gate=SimpleNamespace(applied_by_edge=dict, layers_are_read=True),
        partitions=[],
        _waits_for_answers=False,
    )
    Subtask._report_empty(subtask)
    assert reported == [not resumes]


def test_windows_through_a_cascade() -> None:
    drained_again = 0
    for seed in range(8):
        cascade = TimedCascade(counted, 100 + seed)
        cascade.start(cascade.random.randrange(1, 5))
        for _ in range(4):
            cascade.crash_after(cascade.random.randrange(25), cascade.random.choice([0, 0, 0, None, 1]))
            cascade.start(cascade.random.randrange(1, 5))
        assert sorted(cascade.finish()) == expected_counts(), f"seed {seed}"
        drained_again += cascade.drained_again
    assert drained_again, "a checkpoint was taken while the job drained"
