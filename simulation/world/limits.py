"""Makes sizes small that a small job would never reach: the limits of slices, frames, batches and turns.

User functions and the protocol must not depend on such limits, so a run may move them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Iterator

from penstock.operators import disk_batches
from penstock.operators.rows import chain
from penstock.operators.windows import column_windows, partial_aggregates
from penstock.protocol.channel import ends as channel
from penstock.protocol.log import job_log
from penstock.runtime.input import deficit_round_robin
from penstock.runtime.output import result_partition
from penstock.state import chains
from penstock.state.columnar import table_view
from penstock.state.heap import hash_map_snapshot
from penstock.storage import segments


@dataclass(frozen=True)
class Scale:
    """Holds the sizes of a run. None: as the runtime has it.

    `pulled_at_once`: output rows of a chain between two looks at the room. `joined_*_bytes`: how much leaves as one
    frame, and when it leaves while more is being made. `quantum_bytes`: a channel's turn at a gate. `fired_at_once`:
    results of columnar windows between two looks at barriers; `columnar_range_bytes`: of columnar state in one range,
    and of a segment in memory; `state_range_bytes`: of row state in one range. `held_rows`: how many wait to be added
    up before a window; `grouped_rows`, `repeats`: from how many on that is done, and how often keys have to repeat for
    it. `recovered_bytes`: of recovered rows in memory. `consolidated_bytes`: of what a chain of stored state begins
    with, from how many on it is consolidated.
    """

    pulled_at_once: int | None = None
    rows_between_clocks: int | None = None
    joined_frame_bytes: int | None = None
    joined_flush_bytes: int | None = None
    quantum_bytes: int | None = None
    state_entries_per_batch: int | None = None
    fired_at_once: int | None = None
    columnar_range_bytes: int | None = None
    held_rows: int | None = None
    grouped_rows: int | None = None
    repeats: int | None = None
    log_entries: int | None = None
    state_range_bytes: int | None = None
    recovered_bytes: int | None = None
    consolidated_bytes: int | None = None


SMALL = Scale(
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


def random_scale(random: Random) -> Scale:
    if random.random() < 0.3:
        return Scale()
    scale = Scale(
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
    apart = Random(repr(scale))
    held_rows, repeats = apart.choice((1, 6, 40, 65_536)), apart.choice((0, 0, 4))
    scale = replace(scale, held_rows=held_rows, grouped_rows=apart.choice((1, 1, 4)), repeats=repeats)
    scale = replace(scale, log_entries=apart.choice((1, 2, 8)))
    scale = replace(scale, state_range_bytes=apart.choice((1, 1_500, 16 * 1024 * 1024)))
    scale = replace(scale, recovered_bytes=apart.choice((0, 2_000, 16 * 1024 * 1024)))
    return replace(scale, consolidated_bytes=apart.choice((0, 300, None)))


@contextmanager
def scaled(scale: Scale) -> Iterator[None]:
    """Make the runtime of this process work with these sizes meanwhile."""
    places: list[tuple[Any, str, int | None]] = [
        (chain, "_PULLED_AT_ONCE", scale.pulled_at_once),
        (chain, "_ROWS_BETWEEN_CLOCKS", scale.rows_between_clocks),
        (channel, "JOINED_FRAME_BYTES", scale.joined_frame_bytes),
        (result_partition, "JOINED_FLUSH_BYTES", scale.joined_flush_bytes),
        (deficit_round_robin, "QUANTUM_BYTES", scale.quantum_bytes),
        (hash_map_snapshot, "ENTRIES_PER_BATCH", scale.state_entries_per_batch),
        (hash_map_snapshot, "BYTES_PER_RANGE", scale.state_range_bytes),
        (column_windows, "ROWS_PER_FIRED_GROUP", scale.fired_at_once),
        (table_view, "BLOCK_BYTES", scale.columnar_range_bytes),
        (partial_aggregates, "HELD_ROWS_MAX", scale.held_rows),
        (partial_aggregates, "REPEATS_MIN", scale.repeats),
        (partial_aggregates, "GROUPED_ROWS_MIN", scale.grouped_rows),
        (job_log, "ENTRIES_KEPT", scale.log_entries),
        (segments, "COLLECTED_BYTES_MAX", scale.columnar_range_bytes),
        (disk_batches, "MEMORY_BYTES_MAX", scale.recovered_bytes),
        (chains, "CONSOLIDATED_BYTES_MIN", scale.consolidated_bytes),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in places]
    try:
        for module, name, value in places:
            if value is not None:
                setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
