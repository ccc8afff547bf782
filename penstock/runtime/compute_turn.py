"""Whose turn it is to compute on columns in this process.

numpy and Arrow let go of the interpreter's lock in each call. Two subtasks that compute at once therefore hand it to
and fro a hundred times in a slice, each time waiting for a thread to be scheduled. A Spark task has one core, so
nothing is won by that; when whole slices take turns, the same rows take less time (ARCHITECTURE.md, decision 14).

A turn is waited for with patience only: user code that blocks (a `map_batches` that asks a server, a disk) holds up
its neighbours once, after which they go on without a turn until it is given back.
"""

from __future__ import annotations

import threading

_PATIENCE_MS_MAX = 20.0
_PATIENCE_MS_MIN = 0.05


class ComputeTurn:
    """Held by one thread at a time, but for those whose patience was over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._patience_ms = _PATIENCE_MS_MAX

    def held(self) -> _Held:
        """A context, to be entered for each slice by one thread, that says whether the turn is ours alone."""
        return _Held(self)

    def begin(self) -> bool:
        """Whether the turn is ours; then `end` follows. Each wait in vain halves the patience, each turn doubles it."""
        alone = self._lock.acquire(timeout=self._patience_ms / 1000)
        self._patience_ms = (
            min(2 * self._patience_ms, _PATIENCE_MS_MAX) if alone else max(self._patience_ms / 2, _PATIENCE_MS_MIN)
        )
        return alone

    def end(self) -> None:
        self._lock.release()


class _Held:
    """A class, for it is entered for slices of a row or two as well, and costs a third of a generator."""

    __slots__ = ("_turn", "_alone")

    def __init__(self, turn: ComputeTurn) -> None:
        self._turn = turn
        self._alone = False

    def __enter__(self) -> bool:
        self._alone = self._turn.begin()
        return self._alone

    def __exit__(self, *raised: object) -> None:
        if self._alone:
            self._turn.end()


COMPUTE_TURN = ComputeTurn()
"""Of this process, as the interpreter's lock is."""
