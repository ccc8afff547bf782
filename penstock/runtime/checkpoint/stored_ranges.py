"""Tells state backends where their ranges lie, so that later checkpoints name them instead of writing them again.

A range keeps all of its segment alive, and with it what nobody names any more. So backends only learn of ranges in
segments of which the checkpoint names at least half: what lies in others is written again. What is named is therefore
never more than twice of what the predecessor has, together with what was written since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from penstock.protocol.values.metadata import Segment, StateRange
from penstock.state.backend import StoredState


def stored_states(
    ranges: Sequence[StateRange], segments: Sequence[Segment], worth: frozenset[int]
) -> list[StoredState]:
    """Return where the ranges lie, as far as later checkpoints may name them. `segments`: by the ranges' numbers.
    `worth`: the numbers of those that are worth keeping.
    """
    return [
        StoredState(r.operator, r.name, r.entries, segments[r.segment], r.offset, r.length_bytes, r.crc, r.bounds)
        for r in ranges
        if r.segment in worth
    ]


def worth_keeping(ranges: Iterable[StateRange], segments: Sequence[Segment]) -> frozenset[int]:
    """Return the numbers of the segments of which these ranges are at least half."""
    named = Counter[int]()
    for range_ in ranges:
        named[range_.segment] += range_.length_bytes
    return frozenset(number for number, size in named.items() if 2 * size >= segments[number].length_bytes)
