"""Draws limits that are so small that a small job reaches them.

User functions and the protocol must not depend on such limits, so a run may move them.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from penstock.common.limits import Limits

SMALL = Limits(
    pulled_at_once=4,
    rows_between_clocks=1,
    joined_frame_bytes=1_200,
    joined_flush_bytes=600,
    quantum_bytes=600,
    state_entries_per_batch=2,
    fired_at_once=2,
    columnar_range_bytes=100,
    held_rows=12,
    grouped_rows=4,
    repeats=1,
    log_entries=2,
    state_range_bytes=100,
    recovered_bytes=600,
)


def random_limits(random: Random) -> Limits:
    if random.random() < 0.3:
        return Limits()
    limits = Limits(
        pulled_at_once=random.choice((1, 4, 16)),
        rows_between_clocks=random.choice((1, 4)),
        joined_frame_bytes=random.choice((1, 1_200, 4_000)),
        joined_flush_bytes=random.choice((1, 600, 4_000)),
        quantum_bytes=random.choice((1, 600, 4_000)),
        state_entries_per_batch=random.choice((1, 2, 16)),
        fired_at_once=random.choice((1, 3, 16_384)),
        columnar_range_bytes=random.choice((1, 200, 16 * 1024 * 1024)),
    )
    # Drawn from a random source of its own, so that everything else that a seed means, and schedules found by it, stay.
    # The name in it is the one that the class had when seeds got their meaning.
    apart = Random(repr(limits).replace("Limits(", "Scale(", 1))
    held_rows, repeats = apart.choice((1, 6, 40, 65_536)), apart.choice((0, 0, 4))
    limits = replace(limits, held_rows=held_rows, grouped_rows=apart.choice((1, 1, 4)), repeats=repeats)
    limits = replace(limits, log_entries=apart.choice((1, 2, 8)))
    limits = replace(limits, state_range_bytes=apart.choice((1, 1_500, 16 * 1024 * 1024)))
    limits = replace(limits, recovered_bytes=apart.choice((0, 2_000, 16 * 1024 * 1024)))
    return replace(limits, consolidated_bytes=apart.choice((0, 300, None)))
