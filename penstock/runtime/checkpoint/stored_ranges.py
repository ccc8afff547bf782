"""Reports stored ranges to state backends, so that later checkpoints reference them instead of writing them again.

A range keeps all of its segment alive, and with it what nobody names any more. As long as the segments of a checkpoint
are together no longer than twice what it names of them, backends learn of all ranges. Else they do not of those in the
segments of which the smallest shares are named: what lies there is written again. To look at each segment alone would
cost more: a state of gigabytes would be written again because of a short segment in the middle of its chain, of which
the other states do not name their parts any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from penstock.protocol.values.metadata import Segment, StateRange
from penstock.state.backend import StoredState


def stored_states(
    ranges: Sequence[StateRange], segments: Sequence[Segment], worth: frozenset[int]
) -> list[StoredState]:
    """Return the locations of the ranges that later checkpoints may reference. `segments`: by the ranges' numbers.
    `worth`: the numbers of those that are worth keeping.
    """
    return [
        StoredState(r.operator, r.name, r.entries, segments[r.segment], r.offset, r.length_bytes, r.crc, r.bounds)
        for r in ranges
        if r.segment in worth
    ]


def worth_keeping(ranges: Iterable[StateRange], segments: Sequence[Segment]) -> frozenset[int]:
    """Return the numbers of the segments to keep of those that these ranges lie in. The kept segments together are at
    most twice as long as their named ranges.
    """
    # 11.18c: segments of which little is named are given up.
    named = Counter[int]()
    for range_ in ranges:
        named[range_.segment] += range_.length_bytes
    spare_bytes = sum(2 * size - segments[number].length_bytes for number, size in named.items())
    by_share = sorted(named, key=lambda number: (named[number] / max(segments[number].length_bytes, 1), number))
    given_up = 0
    while spare_bytes < 0:
        number = by_share[given_up]
        spare_bytes -= 2 * named[number] - segments[number].length_bytes
        given_up += 1
    return frozenset(by_share[given_up:])
