"""Declares where a job's lines go: what user code printed, and warnings of ours."""

from __future__ import annotations

from typing import Protocol


class Console(Protocol):
    """Declares where a job's lines go."""

    def line(self, subtask: int, text: str, is_error: bool) -> None:
        """Print one line that a subtask (counted from 0) printed, without its end."""

    def warning(self, text: str) -> None:
        """Print a failure that the job survives, or something that the user should look at. It may have several
        lines.
        """
