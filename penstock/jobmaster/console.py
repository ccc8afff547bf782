"""Prints a job's lines: what user code printed, and warnings of ours."""

from __future__ import annotations

import sys
from typing import Protocol


class Console(Protocol):
    """Declares where a job's lines go."""

    def line(self, subtask: int, text: str, is_error: bool) -> None:
        """Print one line that a subtask (counted from 0) printed, without its end."""

    def warning(self, text: str) -> None:
        """Print a failure that the job survives, or something that the user should look at. It may have several
        lines.
        """


class StandardConsole:
    """Prints as Flink's print sink does: the subtask's number, counted from 1, before each line."""

    def line(self, subtask: int, text: str, is_error: bool) -> None:
        print(f"{subtask + 1}> {text}", file=sys.stderr if is_error else sys.stdout, flush=True)

    def warning(self, text: str) -> None:
        print(f"penstock: {text}", file=sys.stderr, flush=True)
