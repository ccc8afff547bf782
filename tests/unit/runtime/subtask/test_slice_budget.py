"""Tests how many rows a slice has: what is expected to finish in time, whatever batches look like."""

from __future__ import annotations

import pytest

from penstock.runtime.subtask.slice_budget import SliceBudget

ROOM = 1 << 30


def run(
    budget: SliceBudget,
    slices: int,
    cost_ms: float,
    available: int = 1 << 30,
    output_bytes: int = 0,
    fixed_ms: float = 0.0,
) -> int:
    """Run slices that cost `fixed_ms` and `cost_ms` per row. Returns the rows of the last one."""
    rows = 0
    for _ in range(slices):
        rows = min(budget.rows(ROOM), available)
        budget.measured(rows, fixed_ms + rows * cost_ms, rows * output_bytes)
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


def test_a_call_that_costs_the_same_for_any_number_of_rows_is_given_many() -> None:
    """A `map_batches` of 5 ms per call got one row per call for ever, because one row already took too long."""
    budget, calls, rows = SliceBudget(2.0), 0, 400_000
    while rows > 0:
        taken = min(budget.rows(ROOM), rows)
        budget.measured(taken, 5.0, 0)
        calls, rows = calls + 1, rows - taken
    assert calls <= 30


@pytest.mark.parametrize(("fixed_ms", "cost_ms"), [(5.0, 0.0025), (5.0, 0.05), (100.0, 0.01), (1.5, 0.001)])
def test_slices_with_a_large_fixed_cost_take_twice_as_long_as_it(fixed_ms: float, cost_ms: float) -> None:
    rows = run(SliceBudget(2.0), 40, cost_ms, fixed_ms=fixed_ms)
    assert rows == pytest.approx(fixed_ms / cost_ms, rel=0.1)


def test_slices_with_a_small_fixed_cost_fill_the_target() -> None:
    assert run(SliceBudget(2.0), 20, 0.001, fixed_ms=0.1) == pytest.approx(1_900, rel=0.01)


def test_one_slice_that_was_held_up_is_forgotten() -> None:
    budget = SliceBudget(2.0)
    run(budget, 12, 0.001)
    run(budget, 1, 1.0)
    assert run(budget, 1, 0.001) == 2
    assert run(budget, 1, 0.001) == 2_000


def test_a_cost_that_moves_from_rows_to_the_call_is_found_again() -> None:
    """Probes look for it: slices of one size do not tell the two apart."""
    budget = SliceBudget(2.0)
    run(budget, 20, 10.0)
    assert run(budget, 1, 10.0) == 1
    assert run(budget, 200, 0.0, fixed_ms=10.0) == 65_536
