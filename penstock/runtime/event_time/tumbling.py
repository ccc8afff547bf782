"""Which tumbling window a timestamp lies in: the one that starts at the last multiple of its size, shifted by its
offset, that is not after it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Milliseconds = npt.NDArray[np.int64]


def only_start(timestamps: Milliseconds, size_ms: int, offset_ms: int) -> int | None:
    """Where the one window starts that all of them lie in; None: they lie in several. Most slices lie in one, and a
    division for each row is what windows would cost most."""
    least, most = int(timestamps.min()), int(timestamps.max())
    start = least - (least - offset_ms) % size_ms
    return start if most < start + size_ms else None


def starts_of(timestamps: Milliseconds, size_ms: int, offset_ms: int) -> Milliseconds:
    starts: Milliseconds = timestamps - np.mod(timestamps - offset_ms, size_ms)
    return starts
