"""Describes errors of a subtask, beginning with the user's own lines."""

from __future__ import annotations

import os
import traceback

import penstock

_OURS = os.path.dirname(os.path.abspath(penstock.__file__)) + os.sep


class Fault(Exception):
    """Reports a fault that Penstock found itself, such as a damaged file or a row that does not fit its type.

    The message is all that a user needs; no traceback is shown.
    """


USER_ERRORS = (Exception, SystemExit, KeyboardInterrupt)
"""The exceptions that user code may raise; `sys.exit()` in a function is an error of it like any other."""


def summary(error: BaseException) -> str:
    """Format an error as `Type: message`, even if `str(error)` raises.

    Args:
        error: The error.

    Returns:
        The text.
    """
    try:
        text = str(error)
    except Exception as unspeakable:
        text = f"(its message cannot be had: {unspeakable!r:.200})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class OperatorFailure(Exception):
    """Reports that an operator failed.

    `ours`: Penstock found the fault, so there is no traceback of the user's code. `detail`: follows the error's text.
    """

    def __init__(self, operator: str, error: BaseException, ours: bool = False, detail: str = "") -> None:
        self.operator = operator
        self.error = error
        self.ours = ours or isinstance(error, Fault)
        said = str(error) if self.ours else summary(error)
        super().__init__(f"operator '{operator}': {said}{detail}")

    def user_traceback(self) -> str:
        """Return the traceback from the first line of the user's code; "" if Penstock found the fault."""
        return "" if self.ours else describe(self.error)


def describe(error: BaseException) -> str:
    """Format an error with its traceback from the first line of the user's code; the whole traceback if there is none.

    Args:
        error: The error.

    Returns:
        The text; "" if Penstock found the fault.
    """
    if isinstance(error, Fault):
        return ""
    shown = error.__traceback__
    while shown is not None and os.path.abspath(shown.tb_frame.f_code.co_filename).startswith(_OURS):
        shown = shown.tb_next
    return "".join(traceback.format_exception(type(error), error, shown or error.__traceback__))
