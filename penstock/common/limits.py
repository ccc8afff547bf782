"""Holds the sizes at which the runtime cuts its work: slices, frames, turns, batches, ranges."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Holds sizes that no result may depend on. None: the size that the part itself has chosen.

    They are no options: a user has nothing to gain from them. A simulated run makes them small, so that a job of a few
    rows reaches what only a large one would.

    Args:
        pulled_at_once: Output rows of a chain between two checks of its outputs' room.
        rows_between_clocks: Input rows of a chain between two looks at the clock.
        joined_frame_bytes: Bytes up to which neighbouring rows of a queue leave as one frame.
        joined_flush_bytes: Bytes at which a queue is sent although its producer makes more.
        quantum_bytes: Bytes of a channel's turn at an input gate.
        state_entries_per_batch: Entries of row state that are encoded at once.
        fired_at_once: Results of columnar windows between two looks at barriers.
        columnar_range_bytes: Bytes of columnar state in one range, and of a segment in memory.
        held_rows: Rows that wait to be aggregated before a window.
        grouped_rows: Rows from which on they are aggregated before a window.
        repeats: Rows of a key from which on aggregating before a window pays.
        log_entries: Entries of a job's log that are kept.
        state_range_bytes: Bytes of row state in one range.
        recovered_bytes: Bytes of recovered rows in a subtask's memory.
        consolidated_bytes: Bytes of a stored state's beginning from which on it is consolidated.
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


USUAL = Limits()
"""Every part has the sizes that it has chosen."""
