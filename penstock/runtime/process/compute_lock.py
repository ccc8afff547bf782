"""Lets one subtask of the process at a time compute on columns.

numpy and Arrow release the interpreter's lock in each call. Two subtasks that compute at once therefore hand it to and
fro a hundred times in a slice, and each time wait for a thread to be scheduled. A Spark task has one core, so nothing
is won by that; when whole slices alternate, the same rows take less time (docs/internals/slices-and-windows.md).

Waiting for the lock has a limit: user code that blocks (a `map_batches` that asks a server, a disk) holds up its
neighbours once, after which they run without the lock until it is released. A holder that itself waits for a processor,
on a busy machine, is waited for longer: two that compute at once would only slow each other down.
"""

from __future__ import annotations

import threading

_PATIENCE_MS_MAX = 20.0
_PATIENCE_MS_MIN = 0.05
_HELD_UP_MS_MAX = 200.0
"""The longest wait for a holder that waits for a processor itself: some time slices of busy neighbours."""


class ComputeLock:
    """Implements a lock that waiters give up on: a thread that times out runs without it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._patience_ms = _PATIENCE_MS_MAX
        self._holder = 0

    def held(self) -> _Held:
        """Return a context that one thread enters for each slice; entering returns whether the lock is held."""
        return _Held(self)

    def begin(self) -> bool:
        """Acquire the lock; return whether it is held, then call `end`. Each wait in vain halves the patience, each
        success doubles it.
        """
        alone = self._lock.acquire(blocking=False) or self._wait()
        if alone:
            self._holder = threading.get_native_id()
        self._patience_ms = (
            min(2 * self._patience_ms, _PATIENCE_MS_MAX) if alone else max(self._patience_ms / 2, _PATIENCE_MS_MIN)
        )
        return alone

    def _wait(self) -> bool:
        """Wait for the lock as long as patience lasts, and longer while the holder waits for a processor."""
        waited_ms, queued_ns = 0.0, _queued_ns(self._holder)
        while waited_ms < _HELD_UP_MS_MAX:
            if self._lock.acquire(timeout=self._patience_ms / 1000):
                return True
            waited_ms += self._patience_ms
            before_ns, queued_ns = queued_ns, _queued_ns(self._holder)
            if queued_ns - before_ns < self._patience_ms * 1e6 / 2:
                return False
        return False

    def end(self) -> None:
        self._lock.release()


def _queued_ns(thread: int) -> int:
    """Return the time that a thread of this process has waited for a processor so far (Linux reports it; 0
    elsewhere)."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
            return int(file.read().split()[1])
    except OSError:
        return 0


class _Held:
    """Enters and leaves the lock. It is a class, because `@contextmanager` costs three times as much and this is
    entered per slice.
    """

    __slots__ = ("_compute_lock", "_alone")

    def __init__(self, lock: ComputeLock) -> None:
        self._compute_lock = lock
        self._alone = False

    def __enter__(self) -> bool:
        self._alone = self._compute_lock.begin()
        return self._alone

    def __exit__(self, *raised: object) -> None:
        if self._alone:
            self._compute_lock.end()


COMPUTE_LOCK = ComputeLock()
"""The lock of this process, as the interpreter's lock is."""
