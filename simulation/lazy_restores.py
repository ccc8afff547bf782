"""Decides how long the parts of lazy restores take, from a source of chance of their own."""

from __future__ import annotations

from random import Random

_LONGEST_MS = (0.5, 5.0, 50.0)


class LazyRestores:
    """Counts the parts that were loaded next to their subtasks in a run, in `parts`."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"lazy restores of {seed}")
        self._longest_ms = self._random.choice(_LONGEST_MS)
        self.parts = 0

    def next_ms(self) -> float:
        """Return how long the next part takes."""
        self.parts += 1
        return self._random.random() * self._longest_ms
