"""A hint for latency: after its snapshot a subtask leaves the interpreter to the threads that write it.

That helps where little is to be written. Where the writer knows that it has much, it ends the rest at once. Where the
rest ended before the writing did it was in vain, and the next checkpoint is written beside the stream; after the next
such rest two are, then four, and so on.
"""

from __future__ import annotations

from typing import Protocol

_SKIPPED_MAX = 128


class _Snapshots(Protocol):
    snapshot_taken: int | None
    """The newest checkpoint that went unaligned here; reset by who takes note of it."""


class Parking:
    def __init__(self, ms_max: float) -> None:
        self._ms_max = ms_max
        self._for: int | None = None
        self._to_skip = 0
        self._in_vain = 0
        self.until_ms = 0.0

    def begin(self, snapshots: _Snapshots, now_ms: float) -> None:
        if snapshots.snapshot_taken is None:
            return
        if self._to_skip:
            self._to_skip -= 1
        else:
            self._for = snapshots.snapshot_taken
            self.until_ms = now_ms + self._ms_max
        snapshots.snapshot_taken = None

    def lasts(self, now_ms: float) -> bool:
        if self._for is not None and now_ms >= self.until_ms:
            self._for = None
            self._to_skip = min(1 << self._in_vain, _SKIPPED_MAX)
            self._in_vain += 1
        return self._for is not None

    def left_ms(self, now_ms: float) -> float | None:
        """How long it may last at the most; None: nobody rests."""
        return None if self._for is None else self.until_ms - now_ms

    def end(self, checkpoint_id: int, snapshots: _Snapshots) -> None:
        """It has been written, is over, or is too large to be waited for."""
        if self._for is not None and self._for <= checkpoint_id:
            self._for = None
            self._in_vain = 0
        taken = snapshots.snapshot_taken
        if taken is not None and taken <= checkpoint_id:
            snapshots.snapshot_taken = None  # written before we came to rest for it
