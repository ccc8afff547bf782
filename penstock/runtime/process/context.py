"""Which subtask the current thread works for: the number before what user code prints."""

from __future__ import annotations

import threading

_of_thread = threading.local()


def set_current(subtask: int | None) -> None:
    _of_thread.subtask = subtask


def current_subtask() -> int | None:
    """None in threads that belong to no subtask."""
    return getattr(_of_thread, "subtask", None)
