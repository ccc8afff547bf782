"""What goes wrong in a subtask, told so that the user's own lines come first."""

from __future__ import annotations

import os
import traceback

import penstock

_OURS = os.path.dirname(os.path.abspath(penstock.__file__)) + os.sep


class Fault(Exception):
    """Reports what we found ourselves (a damaged file, a row that does not fit): the message is all that a user needs,
    and no traceback is shown."""


USER_ERRORS = (Exception, SystemExit, KeyboardInterrupt)
"""What user code may raise; `sys.exit()` in a function is an error of it like any other."""


def summary(error: BaseException) -> str:
    """The type and what it says, whatever that does."""
    try:
        text = str(error)
    except Exception as unspeakable:
        text = f"(its message cannot be had: {unspeakable!r:.200})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class OperatorFailure(Exception):
    """An operator raised. `ours`: we found the fault (a row of the wrong type, a key of None, a damaged file): the
    message says it all, and there is no traceback of the user's to show."""

    def __init__(self, operator: str, error: BaseException, ours: bool = False) -> None:
        self.operator = operator
        self.error = error
        self.ours = ours or isinstance(error, Fault)
        said = str(error) if self.ours else summary(error)
        super().__init__(f"operator '{operator}': {said}")

    def user_traceback(self) -> str:
        """The traceback from the first line of the user's code on; "" where we found the fault."""
        return "" if self.ours else describe(self.error)


def describe(error: BaseException) -> str:
    """A traceback from the first line of the user's code on, or a whole one where there is none of his; "" where we
    found the fault."""
    if isinstance(error, Fault):
        return ""
    shown = error.__traceback__
    while shown is not None and os.path.abspath(shown.tb_frame.f_code.co_filename).startswith(_OURS):
        shown = shown.tb_next
    return "".join(traceback.format_exception(type(error), error, shown or error.__traceback__))
