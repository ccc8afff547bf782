"""Prints an uncaught error with the user's own lines only.

Python's excepthook would begin with our frames between `env.execute()` and the job that failed, and would end the
program by SIGINT after Ctrl-C, although everything has been closed in order.
"""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType

import penstock
from penstock.common.job_execution import JobExecutionError

EXIT_INTERRUPTED = 130
_REFUSALS = (("penstock.jobmaster.identity", "RestoreSourceError"), ("penstock.storage.store", "StoreError"))
_FAILURES = (("penstock.storage.store", "StoreAway"), ("penstock.spark.session", "SessionError"))
"""What is nobody's mistake in a program: which line of it has started the job says nothing, either."""
_OURS = os.path.dirname(os.path.abspath(penstock.__file__)) + os.sep


def format_uncaught(error: BaseException, first_file: str = "") -> str:
    """Format an error that ends the program, with the user's own lines only.

    Args:
        error: The error.
        first_file: The user's main file: frames above the first one in it are left out. "": none are.

    Returns:
        The text to print, with a line end. Frames of ours at the end are left out if the error's message says it all.
    """
    if is_refused_path(error) or _is_a(error, _FAILURES):
        return f"penstock: {error}\n"
    begins_with_the_users = type(error).__module__.startswith("penstock.") and str(error).startswith("Traceback")
    if isinstance(error, JobExecutionError) or begins_with_the_users:
        return f"{error}\n"
    shown = traceback.TracebackException.from_exception(error)
    frames = list(shown.stack)
    begin = next((i for i, frame in enumerate(frames) if frame.filename == first_file), 0)
    end = len(frames)
    ours = type(error).__module__.startswith("penstock.")
    if ours:
        shown.__cause__ = shown.__context__ = None
    if ours or _is_raised_by_us(frames):
        while end > begin and os.path.abspath(frames[end - 1].filename).startswith(_OURS):
            end -= 1
    shown.stack = traceback.StackSummary.from_list(frames[begin:end] or frames)
    return "".join(shown.format())


def is_refused_path(error: BaseException) -> bool:
    """Test whether an error refuses a directory that `-s` or an option names.

    Such an error is printed without a traceback: the line of the program that started the job explains nothing. (A
    class of errors that has not been imported was not raised.)

    Args:
        error: Any error.

    Returns:
        True if it does.
    """
    return _is_a(error, _REFUSALS) and not _is_a(error, _FAILURES)


def _is_a(error: BaseException, kinds: tuple[tuple[str, str], ...]) -> bool:
    return any(
        module in sys.modules and isinstance(error, getattr(sys.modules[module], name)) for module, name in kinds
    )


def is_interactive() -> bool:
    """Test whether the program is typed at a prompt, so that an error ends a statement and not the interpreter.

    Returns:
        Whether it is: in `python`, `python -i`, `pyspark` and `code.interact()`, for example.
    """
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or bool(os.environ.get("PYTHONINSPECT"))


def _is_raised_by_us(frames: list[traceback.FrameSummary]) -> bool:
    """Return True if a statement of ours refuses what the program gave, with an error of Python's own kinds."""
    last = frames[-1] if frames else None
    is_ours = last is not None and os.path.abspath(last.filename).startswith(_OURS)
    return is_ours and last is not None and (last.line or "").startswith("raise ")


def install_excepthook() -> None:
    """Install an excepthook that prints uncaught errors without Penstock's frames. A hook of the user's own stays."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_uncaught


def _print_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, KeyboardInterrupt):
        if is_interactive():
            sys.stderr.write("KeyboardInterrupt\n")  # the prompt comes back
            return
        raise SystemExit(EXIT_INTERRUPTED)
    sys.stderr.write(format_uncaught(error.with_traceback(trace)))
