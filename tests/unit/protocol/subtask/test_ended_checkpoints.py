"""Compares which checkpoints have ended with a set of all that have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.subtask.ended_checkpoints import EndedCheckpoints


@given(st.integers(0, 10_000), st.lists(st.integers(-60, 500), max_size=60))
def test_it_holds_what_was_added_and_nothing_behind_the_first(first: int, others: list[int]) -> None:
    ended = EndedCheckpoints()
    added = set()
    for checkpoint_id in [first, *(first + other for other in others if first + other >= 0)]:
        ended.add(checkpoint_id)
        added.add(checkpoint_id)
    known = range(max(0, first - 60), first + 600)
    assert {number for number in known if number in ended} == {number for number in added if number in known}


def test_what_is_far_behind_the_newest_has_ended() -> None:
    ended = EndedCheckpoints()
    ended.add(1_000_000)
    assert 5 in ended and 1_000_000 in ended and 999_999 not in ended and 1_000_001 not in ended
    for checkpoint_id in range(1_000_001, 1_000_500):
        ended.add(checkpoint_id)
    assert 1_000_007 in ended and 999_999 not in ended


def test_memory_is_bounded_and_the_oldest_count_as_ended() -> None:
    ended = EndedCheckpoints()
    for checkpoint_id in range(0, 10_000, 2):
        ended.add(checkpoint_id)
    assert len(ended._open) <= 1024
    assert 1 in ended and 9_997 not in ended
    ended.add(50_000_000)
    assert len(ended._open) <= 1024 and 49_999_999 not in ended
