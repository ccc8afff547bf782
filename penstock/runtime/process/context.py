"""Remembers the subtask of each thread, whose number is printed before each line of its user code."""

from __future__ import annotations

import threading

_of_thread = threading.local()


def set_current(subtask: int | None) -> None:
    _of_thread.subtask = subtask


def current_subtask() -> int | None:
    """Return the current thread's subtask; None in threads that belong to none."""
    return getattr(_of_thread, "subtask", None)
