"""Where a job's lines go: what user code printed, and what we have to say about it."""

from __future__ import annotations

import sys
from typing import Protocol


class Console(Protocol):
    def line(self, subtask: int, text: str, is_error: bool) -> None:
        """One line that a subtask (counted from 0) printed, without its end."""

    def warning(self, text: str) -> None:
        """A failure that the job survives, or something that the user should look at. May have several lines."""


class StandardConsole:
    """As Flink's print sink: the subtask's number, counted from 1, before each line."""

    def line(self, subtask: int, text: str, is_error: bool) -> None:
        print(f"{subtask + 1}> {text}", file=sys.stderr if is_error else sys.stdout, flush=True)

    def warning(self, text: str) -> None:
        print(f"penstock: {text}", file=sys.stderr, flush=True)
