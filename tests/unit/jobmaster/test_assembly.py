"""Tests which checkpoint a commit belongs to, and from when on no restore repeats it."""

from __future__ import annotations

import pytest

from penstock.protocol.driver.commit_order import committables_of, confirmed_id
from penstock.protocol.values.metadata import Committable, Metadata, SubtaskSnapshot


def metadata(checkpoint_id: int, own: list[Committable], unconfirmed: list[Committable]) -> Metadata:
    snapshot = SubtaskSnapshot(0, 0, [], [], [], [], [], [], own)
    return Metadata(1, "job", "job", checkpoint_id, 1, 1, "i", 0, False, [], [], [], [snapshot], [], unconfirmed)


def test_each_commit_keeps_the_checkpoint_that_named_it_first() -> None:
    own = [Committable("s", b"given up", 5), Committable("s", b"new", 6)]
    found = committables_of(metadata(6, own, [Committable("s", b"old", 3, 4)]))
    assert [(c.data, c.checkpoint_id) for c in found] == [
        (b"old", 4),
        (b"given up", 6),
        (b"new", 6),
    ]


@pytest.mark.parametrize(
    ("own", "unconfirmed", "confirmed"),
    [([], [], 6), ([6], [], 5), ([5, 6], [], 4), ([6], [3], 2), ([], [5], 4)],
)
def test_what_a_checkpoint_names_is_not_confirmed(own: list[int], unconfirmed: list[int], confirmed: int) -> None:
    prepared = [Committable("s", b"", at) for at in own], [Committable("s", b"", at, at) for at in unconfirmed]
    assert confirmed_id(metadata(6, *prepared)) == confirmed
