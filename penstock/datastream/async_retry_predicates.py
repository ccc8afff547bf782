"""Offers predicates for retry strategies of async functions, as `pyflink.datastream.async_retry_predicates`."""

from __future__ import annotations

from typing import Any

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]


def empty_result_predicate(result: list[Any]) -> bool:
    """Return whether a call returned no rows.

    Args:
        result: The returned list.

    Returns:
        True for None and for an empty list.
    """
    return result is None or len(result) == 0


def has_exception_predicate(error: Exception) -> bool:
    """Return whether a call raised an exception.

    Args:
        error: The exception.

    Returns:
        True unless it is None.
    """
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Return whether a call raised an exception of a type. Give a strategy `lambda e: exception_type_predicate(e, T)`.

    Args:
        error: The exception.
        expected_error_type: The type.

    Returns:
        True if it is of this type.
    """
    return isinstance(error, expected_error_type)
