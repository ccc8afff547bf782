"""Reads sequences of numbers: each number comes once through restores, up to the largest of 64 bits."""

from __future__ import annotations

import pytest

from penstock.connectors.testing import read_all, verify_source
from penstock.datastream.connectors.number_seq import NumberSequenceSource


@pytest.mark.parametrize("parallelism", [1, 2, 7])
def test_every_number_comes_once_through_restores(parallelism: int) -> None:
    verify_source(NumberSequenceSource(-5, 20), list(range(-5, 21)), parallelism)


def test_more_subtasks_than_numbers() -> None:
    assert sorted(read_all(NumberSequenceSource(1, 2), parallelism=5)) == [1, 2]


def test_the_largest_numbers() -> None:
    last = 2**63 - 1
    verify_source(NumberSequenceSource(last - 4, last), list(range(last - 4, last + 1)), rows_max=(2,))


def test_every_subtask_gets_its_own_range_though_another_asks_first() -> None:
    enumerator = NumberSequenceSource(0, 9).create_enumerator(2, None)
    first, second = enumerator.next_splits(1), enumerator.next_splits(1)
    assert first is not None and b'"split":1' in first[0]
    assert second is not None and b'"split":0' in second[0]
    assert enumerator.next_splits(0) is None


def test_returned_splits_are_handed_out_again() -> None:
    enumerator = NumberSequenceSource(0, 9).create_enumerator(1, None)
    splits = enumerator.next_splits(0)
    assert splits is not None and enumerator.next_splits(0) is None
    enumerator.return_splits(splits)
    restored = NumberSequenceSource(0, 9).create_enumerator(1, enumerator.snapshot())
    assert restored.next_splits(0) == splits


@pytest.mark.parametrize(("start", "end"), [(2, 1), (0, 2**63), (-(2**63) - 1, 0)])
def test_bounds_that_make_no_sequence_are_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="NumberSequenceSource"):
        NumberSequenceSource(start, end)
