"""Computes the tumbling window of a timestamp.

It starts at the last multiple of its size, shifted by its offset, that is not after the timestamp. Call `only_start`
first: `starts_of` does not check its timestamps again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Milliseconds = npt.NDArray[np.int64]

_INT64_END = 2**63


class NoWindow(ValueError):
    """Signals a timestamp so far from the epoch that its window does not fit into int64: it cannot be meant."""

    def __init__(self, timestamp_ms: int, row: object = None) -> None:
        shown = "" if row is None else f"; the row was {row!r:.200}"
        super().__init__(
            f"a row's timestamp is {timestamp_ms} ms, of which no window fits in 64 bits: give it one in milliseconds "
            f"since the epoch, or filter such rows out before{shown}"
        )


def only_start(timestamps: Milliseconds, size_ms: int, offset_ms: int) -> int | None:
    """Return the start (ms) of the one window that all of them lie in; None if they lie in several. Most slices lie in
    one, and a division for each row would be the largest cost of windows. Raises `NoWindow`.
    """
    least, most = int(timestamps.min()), int(timestamps.max())
    margin_ms = 2 * size_ms  # the offset is less than the size
    if least < margin_ms - _INT64_END or most >= _INT64_END - margin_ms:
        raise NoWindow(least if least < margin_ms - _INT64_END else most)
    start = least - (least - offset_ms) % size_ms
    return start if most < start + size_ms else None


def starts_of(timestamps: Milliseconds, size_ms: int, offset_ms: int) -> Milliseconds:
    starts: Milliseconds = timestamps - np.mod(timestamps - offset_ms, size_ms)
    return starts
