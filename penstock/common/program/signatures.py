"""Checks that a function of the program can be called as it will be, when it is declared and not in a slot."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Callable


def check_call(where: str, function: Callable[..., Any], parameters: Sequence[str]) -> None:
    """Check that a function can be called in the way that Penstock will call it, when it is declared and not in a slot.

    Functions whose signature is unknown, such as some built-ins, pass.

    Args:
        where: The beginning of the error message.
        function: The function.
        parameters: Descriptions of the arguments, for the message.

    Raises:
        TypeError: The function cannot be called with this number of arguments.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*parameters)
    except TypeError as error:
        name = getattr(function, "__qualname__", None) or type(function).__name__
        raise TypeError(
            f"{where} calls {name} with ({', '.join(parameters)}), and it is defined with {_bare(signature)}: {error}"
        ) from None


def refuse_coroutine(where: str, function: Callable[..., Any]) -> None:
    """Check that a function is not declared with `async def`. Without this its rows would be coroutines.

    Args:
        where: The beginning of the error message.
        function: The function, a method, or an object that is called.

    Raises:
        TypeError: The function is a coroutine function or an async generator function.
    """
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        name = getattr(function, "__qualname__", None) or type(function).__name__
        raise TypeError(
            f"{where} does not await functions, and {name} is declared as 'async def': declare it as 'def', or call it "
            "with AsyncDataStream.unordered_wait(stream, function, Time.seconds(5))"
        )


def _bare(signature: inspect.Signature) -> inspect.Signature:
    """Leave the types out: the number of parameters is wrong, and their types would hide it."""
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=signature.empty)


def parameters_of(method: Callable[..., Any]) -> list[str]:
    """Return the names of a method's parameters, without `self`.

    Args:
        method: The method, taken from its class.

    Returns:
        The names.
    """
    return list(inspect.signature(method).parameters)[1:]
