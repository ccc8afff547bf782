"""How many rows a slice has: what is expected to finish in time, whatever batches look like."""

from __future__ import annotations

import pytest

from penstock.runtime.slice_budget import SliceBudget

ROOM = 1 << 30


def run(budget: SliceBudget, slices: int, cost_ms: float, available: int = 1 << 30, output_bytes: int = 0) -> int:
    """Rows of the last slice."""
    rows = 0
    for _ in range(slices):
        rows = min(budget.rows(ROOM), available)
        budget.measured(rows, rows * cost_ms, rows * output_bytes)
    return rows


def test_it_begins_with_one_row_and_grows_to_the_target() -> None:
    budget = SliceBudget(2.0)
    sizes = [run(budget, 1, 0.01) for _ in range(8)]
    assert sizes[:5] == [1, 4, 16, 64, 200]
    assert sizes[-1] == 200


@pytest.mark.parametrize("cost_ms", [1.0, 2.5, 100.0])
def test_slow_rows_come_one_or_two_at_a_time(cost_ms: float) -> None:
    assert run(SliceBudget(2.0), 20, cost_ms) == max(1, int(2.0 / cost_ms))


def test_rows_that_become_slow_are_few_at_once() -> None:
    budget = SliceBudget(2.0)
    run(budget, 10, 0.01)
    run(budget, 1, 10.0)
    assert run(budget, 1, 10.0) == 1


def test_the_rest_of_a_batch_does_not_make_the_next_slices_small() -> None:
    """Batches of 1,000 rows end in a slice of a few rows; the next batch starts as large as time allows."""
    budget = SliceBudget(2.0)
    run(budget, 12, 0.001)
    assert run(budget, 1, 0.001, available=3) == 3
    assert run(budget, 1, 0.001) == 2_000


def test_a_trickle_of_single_rows_is_not_taken_for_slowness() -> None:
    budget = SliceBudget(2.0)
    run(budget, 12, 0.001)
    run(budget, 50, 0.001, available=1)
    assert run(budget, 1, 0.001) == 2_000


def test_a_slice_of_unknown_cost_stays_within_growth() -> None:
    """Costs below the clock's grain say nothing; neither does a first row from a warm cache."""
    budget = SliceBudget(2.0)
    assert [run(budget, 1, 0.0) for _ in range(5)] == [1, 4, 16, 64, 256]
    assert run(budget, 20, 0.0) == 65_536


def test_room_limits_rows_by_what_they_put_out_but_never_to_none() -> None:
    budget = SliceBudget(2.0)
    run(budget, 12, 0.001, output_bytes=100)
    assert budget.rows(5_000) == 50
    assert budget.rows(50) == budget.rows(0) == budget.rows(-10_000) == 1
