"""Checks functions that call slow services, and wraps plain ones."""

from __future__ import annotations

import inspect
from typing import Any

from penstock.common.program.signatures import check_call
from penstock.datastream._streams.function_wrappers import Wrapper, function_name
from penstock.datastream.functions import AsyncFunction, BlockingFunction


class CallableAsync(Wrapper, AsyncFunction[Any, Any]):
    """Holds a coroutine function."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    async def async_invoke(self, value: Any) -> list[Any]:
        made: list[Any] = await self.wrapped(value)
        return made


class CallableBlocking(Wrapper, BlockingFunction[Any, Any]):
    """Holds a function that blocks."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def invoke(self, value: Any) -> list[Any]:
        made: list[Any] = self.wrapped(value)
        return made


def as_called_function(given: Any, operator: str) -> AsyncFunction[Any, Any] | BlockingFunction[Any, Any]:
    """Return the function of an operator that calls a service. Raises TypeError if it cannot be called with a row."""
    if isinstance(given, type):
        raise TypeError(f"{operator}: the function is an object, so write {given.__name__}()")
    if isinstance(given, BlockingFunction):
        _check_blocking(f"{operator}: {type(given).__name__}.invoke", given.invoke)
        check_call(operator, given.timeout, ["value"])
        return given
    if callable(getattr(given, "async_invoke", None)):
        _check_async(f"{operator}: {type(given).__name__}.async_invoke", given.async_invoke)
        if not callable(getattr(given, "timeout", None)):
            raise TypeError(f"{operator}: {type(given).__name__} is no AsyncFunction: derive the class from it")
        _check_blocking(f"{operator}: {type(given).__name__}.timeout", given.timeout)
        return given  # type: ignore[no-any-return]
    if not callable(given):
        raise TypeError(
            f"{operator}: takes an AsyncFunction, a BlockingFunction or a function of a row, got {given!r:.80}"
        )
    if inspect.iscoroutinefunction(given):
        check_call(operator, given, ["value"])
        return CallableAsync(given)
    _check_blocking(f"{operator}: {function_name(given)}", given)
    return CallableBlocking(given)


def _check_async(named: str, method: Any) -> None:
    if inspect.isasyncgenfunction(method):
        raise TypeError(f"{named}() yields, so it would answer more than once: return a list of rows")
    if not inspect.iscoroutinefunction(method):
        raise TypeError(
            f"{named}() should be declared as 'async def'; for a library that blocks derive the class from "
            "BlockingFunction, and call the method 'invoke'"
        )
    check_call(named.partition(":")[0], method, ["value"])


def _check_blocking(named: str, method: Any) -> None:
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise TypeError(f"{named}() is declared as 'async def', but is called without await: declare it as 'def'")
    if inspect.isgeneratorfunction(method):
        raise TypeError(f"{named}() yields, so it would answer more than once: return a list of rows")
    check_call(named.partition(":")[0], method, ["value"])
