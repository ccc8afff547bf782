"""Checks that a machine which becomes slower changes no ratio of runs with and without checkpoints."""

from __future__ import annotations

import pytest

from overhead import Block, cpu, ratio_of, wall


def test_a_drift_of_speed_falls_on_both_sides() -> None:
    speeds = (100, 110, 120, 130)
    for first in (True, False):
        order = (first, not first, not first, first)
        assert ratio_of([Block(on, speed, 1.0, 1.0) for on, speed in zip(order, speeds)], wall) == pytest.approx(1.0)


def test_the_ratio_is_rows_with_checkpoints_over_rows_without_each_by_its_time() -> None:
    quad = [Block(True, 90, 1, 2), Block(False, 300, 3, 2), Block(False, 100, 1, 2), Block(True, 180, 2, 2)]
    assert ratio_of(quad, wall) == pytest.approx(0.9)
    assert ratio_of(quad, cpu) == pytest.approx(270 / 400)
