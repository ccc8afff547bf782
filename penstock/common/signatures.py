"""Whether a function that a program gave can be called as it will be: asked when it is declared, not in a slot."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Callable


def check_call(where: str, function: Callable[..., Any], parameters: Sequence[str]) -> None:
    """Raises TypeError, beginning with `where`, if `function` cannot be called with so many arguments. `parameters`:
    what they are, for the message. What tells nothing of its parameters, like some built-ins, is let through."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*parameters)
    except TypeError as error:
        name = getattr(function, "__qualname__", None) or type(function).__name__
        raise TypeError(f"{where} calls {name} with ({', '.join(parameters)}), and it is defined with {signature}: "
                        f"{error}") from None


def parameters_of(method: Callable[..., Any]) -> list[str]:
    """The names of a method's parameters but `self`."""
    return list(inspect.signature(method).parameters)[1:]
