"""Checks how gaps of the stream are found around a checkpoint: a gap that is cut off would hide a pause."""

from __future__ import annotations

import numpy as np

from measuring import scattered
from state import FEW_KEYS, FEW_KEYS_ROUNDS, Fill, longest_gaps

MS = 1_000_000


def test_the_longest_gap_of_a_span_counts_beyond_the_usual_one() -> None:
    writes = np.concatenate([np.arange(0, 100), np.arange(130, 200), np.arange(205, 300)]).astype(np.int64) * MS
    spans = [(95 * MS, 140 * MS), (150 * MS, 160 * MS), (190 * MS, 220 * MS)]
    assert longest_gaps(writes, spans) == [30.0, 0.0, 5.0]


def test_a_gap_that_begins_before_the_span_or_ends_behind_it_counts_whole() -> None:
    writes = np.concatenate([np.arange(0, 100), np.arange(130, 200)]).astype(np.int64) * MS
    assert longest_gaps(writes, [(110 * MS, 120 * MS), (120 * MS, 150 * MS), (80 * MS, 110 * MS)]) == [30.0] * 3


def test_nothing_is_said_of_a_span_without_a_write() -> None:
    writes = np.arange(10, dtype=np.int64) * MS
    assert longest_gaps(writes, [(20 * MS, 30 * MS)]) == []


def test_few_keys_come_first_and_then_each_key_once_per_turn() -> None:
    keys = 10_000
    early = Fill(keys)(0, FEW_KEYS_ROUNDS * keys).column(0).to_numpy()
    assert set(early.tolist()) == set(range(FEW_KEYS))
    for turn in (FEW_KEYS_ROUNDS, FEW_KEYS_ROUNDS + 1):
        later = Fill(keys)(turn * keys, keys).column(0).to_numpy()
        assert sorted(later.tolist()) == list(range(keys))
        assert later.tolist() == scattered(np.arange(turn * keys, (turn + 1) * keys), keys).tolist()
