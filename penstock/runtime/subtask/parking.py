"""Pauses a subtask after its snapshot, for latency: the threads that write the snapshot have the interpreter alone.

That helps if little is to be written. A writer that knows that it has much ends the pause at once. If a pause times
out before the segment is written, the pause is skipped for the next 1, 2, 4, ... checkpoints. Where checkpoints follow
each other closely, pauses take a quarter of the time at most, so that the subtask works for the rest.
"""

from __future__ import annotations

import msgspec

_SKIPPED_MAX = 128
_WORK_PER_PAUSE = 3.0
"""The time without a pause that follows one, as a multiple of its length."""


class Unpark(msgspec.Struct, frozen=True):
    """Ends the pause of a subtask: the slot's snapshot writer no longer needs the interpreter for itself."""

    checkpoint_id: int


class Parking:
    """Decides about pauses, for one subtask. `ms_max`: the longest pause."""

    def __init__(self, ms_max: float) -> None:
        self._ms_max = ms_max
        self._taken: int | None = None
        """The newest checkpoint with an unaligned snapshot here, until a pause begins or is skipped for it."""
        self._for: int | None = None
        self._to_skip = 0
        self._timed_out = 0
        self.until_ms = 0.0
        self._began_ms: float | None = None
        """The time at which the last pause began, until its end has been noticed."""
        self._not_before_ms = 0.0

    def on_snapshot(self, checkpoint_id: int) -> None:
        """Note that an unaligned snapshot has been taken here."""
        self._taken = checkpoint_id

    @property
    def is_due(self) -> bool:
        """Return True after a snapshot: then call `begin`."""
        return self._taken is not None

    def begin(self, now_ms: float) -> None:
        """Begin the pause for the newest snapshot, or skip it."""
        self._notice_end(now_ms)
        if self._for is not None:
            self._for = self._taken  # a pause is not longer for two checkpoints
        elif self._to_skip:
            self._to_skip -= 1
        elif now_ms >= self._not_before_ms:
            self._for = self._taken
            # 7.3: a pause has an end, whatever the writer does.
            self.until_ms = now_ms + self._ms_max
            self._began_ms = now_ms
        self._taken = None

    def lasts(self, now_ms: float) -> bool:
        """Return whether the subtask pauses now."""
        if self._for is not None and now_ms >= self.until_ms:
            self._for = None
            self._to_skip = min(1 << self._timed_out, _SKIPPED_MAX)
            self._timed_out += 1
        self._notice_end(now_ms)
        return self._for is not None

    def _notice_end(self, now_ms: float) -> None:
        if self._for is None and self._began_ms is not None:
            self._not_before_ms = now_ms + _WORK_PER_PAUSE * (now_ms - self._began_ms)
            self._began_ms = None

    def left_ms(self, now_ms: float) -> float | None:
        """Return the maximum remaining pause, in ms; None if there is none."""
        return None if self._for is None else self.until_ms - now_ms

    def end(self, checkpoint_id: int) -> None:
        """End the pause: the checkpoint's segment has been written, is given up, or is too large to be waited for."""
        if self._for is not None and self._for <= checkpoint_id:
            self._for = None
            self._timed_out = 0
        if self._taken is not None and self._taken <= checkpoint_id:
            self._taken = None  # written before the pause began
