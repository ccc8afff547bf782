"""What goes wrong in a subtask, told so that the user's own lines come first."""

from __future__ import annotations

import os
import traceback

import penstock
from penstock.datastream.connectors.base import SinkError, SourceError
from penstock.state.backend import StateError

_OURS = os.path.dirname(os.path.abspath(penstock.__file__)) + os.sep


class OperatorFailure(Exception):
    """An operator raised. `ours`: we found the fault (a row of the wrong type, a key of None, a damaged file): the
    message says it all, and there is no traceback of the user's to show."""

    def __init__(self, operator: str, error: BaseException, ours: bool = False) -> None:
        super().__init__(f"operator '{operator}': {type(error).__name__}: {error}")
        self.operator = operator
        self.error = error
        self.ours = ours or isinstance(error, (SourceError, SinkError, StateError))

    def user_traceback(self) -> str:
        """The traceback from the first line of the user's code on; of ours alone where there is none."""
        if self.ours:
            return f"{type(self.error).__name__}: {self.error}\n"
        frames = traceback.extract_tb(self.error.__traceback__)
        first = next((i for i, f in enumerate(frames) if not os.path.abspath(f.filename).startswith(_OURS)), 0)
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames[first:])]
        return "".join([*lines, *traceback.format_exception_only(self.error)])


def describe(error: BaseException) -> str:
    """A whole traceback as text, for failures that are not an operator's."""
    return "".join(traceback.format_exception(error))
