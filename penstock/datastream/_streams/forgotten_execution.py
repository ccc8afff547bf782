"""Warns, when a program ends, of operators that it has declared and never executed."""

from __future__ import annotations

import atexit
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_OURS = Path(__file__).parents[2]
_INSTALLED = tuple({f"{folder}/" for folder in (sys.prefix, sys.base_prefix, _OURS)})


@dataclass
class Declared:
    """Counts the operators that one environment holds. `is_used`: it has been executed, or its plan was asked for."""

    operators: int = 0
    is_used: bool = False


_declared: list[Declared] = []


def follow_environment() -> Declared:
    """Return the count for a new environment. It is looked at when the process ends, if a program made it: a script,
    not an interactive interpreter or an installed command such as a test runner.
    """
    declared = Declared()
    if _is_in_program(sys._getframe(1)):
        if not _declared:
            atexit.register(_warn)
        _declared.append(declared)
    return declared


def _is_in_program(frame: FrameType | None) -> bool:
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return False
    while frame is not None:
        file = frame.f_globals.get("__file__")
        if frame.f_globals.get("__name__") == "__main__" and file and not file.startswith(_INSTALLED):
            return True
        frame = frame.f_back
    return False


def _warn() -> None:
    has_failed = hasattr(sys, "last_type")  # then its traceback says why nothing was executed
    forgotten = [declared.operators for declared in _declared if declared.operators and not declared.is_used]
    if forgotten and not has_failed:
        print(
            f"penstock: the program has declared {sum(forgotten)} operators and ended without executing them, so "
            "nothing has run: end it with env.execute()",
            file=sys.stderr,
        )
