"""Remembers an error of work on state that was done for somebody else, so that it fails the subtask in any case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class FirstFailure:
    """Holds the first error. State is read while the user's code asks for it, and this code may catch the error and
    continue, with a default in place of what is stored; or it is loaded in the background, where nobody sees the error.
    """

    def __init__(self) -> None:
        self._error: Exception | None = None

    @property
    def is_there(self) -> bool:
        return self._error is not None

    def note(self, error: Exception) -> None:
        if self._error is None:
            self._error = error

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Record an exception and raise it again."""
        try:
            yield
        except Exception as error:
            self.note(error)
            raise

    def check(self) -> None:
        """Raise the error again, if there is one."""
        if self._error is not None:
            raise self._error
