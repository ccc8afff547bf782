"""Receives everything that arrives for one owner, in order: frames, messages, and wake-ups."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Callable

_WAIT_S_MAX = 3600.0
"""A lock cannot wait for ever by a number: some limits are options that mean "never"."""


class Mailbox:
    """Lets many threads post, and one owner take. `post` never blocks; `wait` returns at once when there is mail.

    A deque and a bare lock: measured, the cheapest hand-over between threads that can also time out.
    """

    __slots__ = ("mail", "_bell", "is_silent", "take")

    def __init__(self) -> None:
        self.mail: deque[Any] = deque()
        """The messages that have come, for the owner to look at."""
        self.take: Callable[[], Any] = self.mail.popleft
        """Return the next item. Raises IndexError if there is none."""
        self._bell = threading.Lock()
        self._bell.acquire()
        self.is_silent: Callable[[], bool] = self._bell.locked
        """Return True if no wake-up is pending: for a scheduler that drives owners instead of letting them wait."""

    def post(self, item: Any) -> None:
        self.mail.append(item)
        self.wake()

    def wake(self) -> None:
        """Wake the owner without mail."""
        if self.is_silent():
            try:
                self._bell.release()
            except RuntimeError:
                pass  # another thread has just set it

    def clear_wakeup(self) -> bool:
        """Clear the wake-up flag; return whether it was set."""
        return self._bell.acquire(False)

    def __bool__(self) -> bool:
        return bool(self.mail)

    def wait(self, timeout_ms: float | None) -> None:
        """Wait for a wake-up, or for that long at most. May return early without mail."""
        if self.mail:
            return
        self._bell.acquire(timeout=-1 if timeout_ms is None else min(max(timeout_ms / 1000, 0.0), _WAIT_S_MAX))
