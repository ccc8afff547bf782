"""Remembers which checkpoints have ended, in a subtask or a slot."""

from __future__ import annotations

_BEFORE_THE_FIRST = 64
"""Bounds how many checkpoints before the first one that ended here may still be in progress."""
_OPEN_MAX = 1024


class EndedCheckpoints:
    """Holds the number of the newest checkpoint that has ended, and of each one below that has not. There are few of
    these, because the coordinator reports the end of every checkpoint to every slot.

    Without this: a subtask that is hundreds of checkpoints behind takes their barriers for new ones, and declines each,
    to the coordinator and to all consumers.
    """

    def __init__(self) -> None:
        self._end: int | None = None
        """One more than the newest checkpoint that has ended."""
        self._open: set[int] = set()
        """Those below that have not ended, as far as is known."""

    def __contains__(self, checkpoint_id: int) -> bool:
        return self._end is not None and checkpoint_id < self._end and checkpoint_id not in self._open

    def add(self, checkpoint_id: int) -> None:
        # 2.3b: every checkpoint is remembered as ended or open, however long ago.
        if self._end is None:
            self._end = max(0, checkpoint_id - _BEFORE_THE_FIRST)
        self._open.update(range(max(self._end, checkpoint_id - _OPEN_MAX), checkpoint_id))
        self._open.discard(checkpoint_id)
        self._end = max(self._end, checkpoint_id + 1)
        while len(self._open) > _OPEN_MAX:
            self._open.remove(min(self._open))
