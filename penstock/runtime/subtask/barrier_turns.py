"""Lets barriers go before other work, but not for ever.

With several checkpoints in progress, one barrier may have come before the last one is handled. Whoever takes all that
are there first does nothing else any more. So after as many in a row as there are channels, each of which has one per
checkpoint, it is the turn of the other work.
"""

from __future__ import annotations

from typing import Callable


class BarrierTurns:
    """Counts the barriers that were taken one after the other. `channels`: the number of input channels."""

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self._in_a_row = 0

    def take(self, take_barrier: Callable[[], bool]) -> bool:
        """Take a barrier, if it is its turn and one is there; return whether it was taken."""
        if self._in_a_row < self._channels and take_barrier():
            self._in_a_row += 1
            return True
        self._in_a_row = 0
        return False
