"""Picks which participant goes next, by bytes: deficit round robin (Shreedhar and Varghese 1995), which may overdraw.

A participant keeps its turn while some of its share is left. One that has used more than its share, because a row was
larger than what was left, pays with its next turns, but only while another one waits.
"""

from __future__ import annotations

from typing import Callable

QUANTUM_BYTES = 32 * 1024


class DeficitRoundRobin:
    """Shares bytes fairly among participants 0 to `count` - 1, by turns of `quantum_bytes` (QUANTUM_BYTES)."""

    __slots__ = ("_left_bytes", "_quantum_bytes", "_turn")

    def __init__(self, count: int, quantum_bytes: int | None = None) -> None:
        self._quantum_bytes = QUANTUM_BYTES if quantum_bytes is None else quantum_bytes
        self._left_bytes = [0] * count
        self._turn = 0

    def next(self, waits: Callable[[int], bool]) -> int | None:
        """Return the next participant, or None if nobody waits for a turn. `waits(i)`: whether participant i does."""
        left, turn = self._left_bytes, self._turn
        if left and left[turn] > 0 and waits(turn):
            return turn
        count = len(left)
        waiting = []
        for at in range(turn + 1, turn + 1 + count):
            participant = at % count
            if waits(participant):
                waiting.append(participant)
            else:
                left[participant] = 0
        if not waiting:
            return None
        quantum_bytes = self._quantum_bytes
        rounds_nobody_can_go = min([-left[i] // quantum_bytes for i in waiting])
        for participant in waiting:
            left[participant] += rounds_nobody_can_go * quantum_bytes
        for participant in waiting:
            left[participant] += quantum_bytes
            if left[participant] > 0:
                self._turn = participant
                break
        return self._turn

    def used(self, participant: int, size_bytes: int) -> None:
        self._left_bytes[participant] -= size_bytes
