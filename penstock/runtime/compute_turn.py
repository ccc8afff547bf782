"""Whose turn it is to compute on columns in this process.

numpy and Arrow let go of the interpreter's lock in each call. Two subtasks that compute at once therefore hand it to
and fro a hundred times in a slice, each time waiting for a thread to be scheduled. A Spark task has one core, so
nothing is won by that; when whole slices take turns, the same rows take less time (ARCHITECTURE.md, decision 14).

A turn is waited for with patience only: user code that blocks (a `map_batches` that asks a server, a disk) holds up
its neighbours once, after which they go on without a turn until it is given back.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Iterator

_PATIENCE_MS_MAX = 20.0
_PATIENCE_MS_MIN = 0.05


class ComputeTurn:
    """Held by one thread at a time, but for those whose patience was over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._patience_ms = _PATIENCE_MS_MAX

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Yields whether it is ours alone. Each wait in vain halves the patience, each turn doubles it."""
        alone = self._lock.acquire(timeout=self._patience_ms / 1000)
        self._patience_ms = (
            min(2 * self._patience_ms, _PATIENCE_MS_MAX) if alone else max(self._patience_ms / 2, _PATIENCE_MS_MIN)
        )
        try:
            yield alone
        finally:
            if alone:
                self._lock.release()


COMPUTE_TURN = ComputeTurn()
"""Of this process, as the interpreter's lock is."""
