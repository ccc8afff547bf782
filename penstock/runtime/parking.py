"""A hint for latency: after its snapshot a subtask leaves the interpreter to the threads that write it."""

from __future__ import annotations

from typing import Protocol


class _Snapshots(Protocol):
    snapshot_taken: int | None
    """The newest checkpoint that went unaligned here; reset by who takes note of it."""


class Parking:
    def __init__(self, ms_max: float) -> None:
        self._ms_max = ms_max
        self._for: int | None = None
        self.until_ms = 0.0

    def begin(self, snapshots: _Snapshots, now_ms: float) -> None:
        if snapshots.snapshot_taken is not None:
            self._for, snapshots.snapshot_taken = snapshots.snapshot_taken, None
            self.until_ms = now_ms + self._ms_max

    def lasts(self, now_ms: float) -> bool:
        if self._for is not None and now_ms >= self.until_ms:
            self._for = None
        return self._for is not None

    def left_ms(self, now_ms: float) -> float | None:
        """How long it may last at the most; None: nobody rests."""
        return None if self._for is None else self.until_ms - now_ms

    def end(self, checkpoint_id: int, snapshots: _Snapshots) -> None:
        """It has been written, or is over."""
        if self._for is not None and self._for <= checkpoint_id:
            self._for = None
        taken = snapshots.snapshot_taken
        if taken is not None and taken <= checkpoint_id:
            snapshots.snapshot_taken = None  # written before we came to rest for it
