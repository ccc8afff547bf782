"""Lets no kind of work keep a subtask from the others.

A step looks for some kinds of work before others. With several checkpoints in progress, the next barrier may be there
before the last one is handled. And a timer of processing time that sets the next one may take longer than until that is
due. A subtask that always takes these first does nothing else any more: its time does not advance, or no row and no
barrier is taken.
"""

from __future__ import annotations

from typing import Callable


class Turns:
    """Remembers a subtask's last kind of work. `channels`: the number of input channels."""

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self._barriers = 0
        """The number of barriers that were taken one after the other."""
        self._is_inputs = False
        """True if it is the input's turn."""

    def take_barrier(self, take: Callable[[], bool]) -> bool:
        """Take a barrier if it is its turn and one is there; return whether it was taken. It is the turn of the other
        work after as many in a row as there are channels, each of which has one barrier per checkpoint.
        """
        if self._barriers < self._channels and take():
            self._barriers += 1
            return True
        self._barriers = 0
        return False

    def act_on_time(self, act: Callable[[], bool]) -> bool:
        """Do the work that a clock has made due if it is its turn; return whether there was any. Then it is the input's
        turn.
        """
        # 5.5c: after timers of processing time it is the input's turn.
        self._is_inputs = not self._is_inputs and act()
        return self._is_inputs
